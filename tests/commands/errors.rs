//! What is said when something is wrong: the reason, and what to do.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::serving::{Serving, command, said};

fn check(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

#[test]
fn what_the_broker_refuses_comes_with_advice() {
    let server = Serving::with_topic("t");
    for line in ["consume u", "topic describe u", "topic delete u", "offsets u"] {
        let error = server.say(line).failed();
        check(&error, &["UNKNOWN_TOPIC_OR_PARTITION", "\"u\"", "help:", "uringlog topic list"]);
    }
    let error = server.say("topic create t").failed();
    check(&error, &["TOPIC_ALREADY_EXISTS", "help:", "--if-not-exists"]);
    server.fine("consume t --group g");
    let error = said(server.command("produce __consumer_offsets"), b"x\n").failed();
    check(&error, &["INVALID_TOPIC_EXCEPTION", "help:", "its own topics"]);
    let error = server.say("topic create u --config retention.ms=soon").failed();
    check(&error, &["INVALID_CONFIG", "retention.ms", "help:", "uringlog config describe"]);
    let error = server.say("topic create u --replication-factor 3").failed();
    check(&error, &["INVALID_REPLICATION_FACTOR"]);
}

#[test]
fn nobody_listens_there() {
    let address = {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        free.local_addr().expect("it is bound").to_string()
    };
    let error = said(command("topic list", &address), b"").failed();
    check(&error, &[&address, "refused", "help:", "--bootstrap", "URINGLOG_BOOTSTRAP"]);
}

/// One that speaks HTTP, and one that hangs up as a TLS port does.
#[test]
fn it_is_no_brokers_port() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b""] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let stranger = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("the command comes");
            let _ = client.read(&mut [0; 1000]);
            let _ = client.write_all(answer);
        });
        let error = said(command("topic list", &address), b"").failed();
        check(&error, &[&address, "help:", "TLS", "SASL"]);
        stranger.join().expect("it ends");
    }
}

#[test]
fn a_wrong_line_ends_with_2() {
    let server = Serving::start();
    for (line, parts) in [
        ("topic", &["Usage: uringlog topic"][..]),
        ("topic create", &["<NAMES>"]),
        ("topik list", &["unrecognized subcommand 'topik'", "'topic'"]),
        ("consume t --from never", &["never", "earliest, latest, OFFSET", "15m (ago)"]),
        ("consume t --form 1", &["--form", "'--from'"]),
        ("group reset g", &["--to-earliest", "--from-file"]),
    ] {
        let said = server.say(line);
        assert_eq!(said.code, Some(2), "{line}");
        check(&said.err, parts);
    }
}

#[test]
fn input_that_is_not_there_is_named() {
    let server = Serving::with_topic("t");
    let error = server.say("produce t no/such/file").failed();
    check(&error, &["cannot read no/such/file"]);
}
