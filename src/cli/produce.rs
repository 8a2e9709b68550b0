//! `uringlog produce`: one record for each line of a file or of standard input.
//!
//! A thread reads, since standard input can't be awaited; whole lines come through a bounded
//! channel. Batches go out as soon as they are full, or as soon as no more input is at hand, so a
//! person who types sees each line sent.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::command::{CommandError, Interrupt};
use super::producer_window::{Place, Window};
use super::{output, topic};
use crate::client::{Acks, Client, ClientOptions};
use crate::format::batch::Codec;
use crate::format::record::NewRecord;
use crate::shard::now;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that wait to be sent.
const CHUNKS_MAX: usize = 4;
/// Longest line: a broker's largest frame has no room for more.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Size of a batch unless the user says otherwise: just below Kafka's default
/// `max.message.bytes`.
pub const BATCH_BYTES_DEFAULT: usize = 1_000_000;

/// What to produce, and how. Where the broker allows that, an unknown topic is created.
#[derive(Clone, Debug)]
pub struct ProduceOptions {
    /// Brokers to begin with, `host:port` separated by commas.
    pub bootstrap: String,
    /// The topic.
    pub topic: String,
    /// The partition; without one the key's hash decides as in the Java client, and records
    /// without a key go to one partition after the other, a batch at a time.
    pub partition: Option<i32>,
    /// What parts key and value; a line without it has no key.
    pub key_separator: Option<String>,
    /// What an answer waits for.
    pub acks: Acks,
    /// Compression of batches.
    pub codec: Codec,
    /// Headers of every record.
    pub headers: Vec<(String, String)>,
    /// A batch goes out before it would become larger.
    pub batch_bytes: usize,
    /// Where the lines are; `None` for standard input.
    pub input: Option<PathBuf>,
    /// Whether the summary is JSON on standard output, and not words on standard error.
    pub json: bool,
}

/// Runs the command; SIGINT ends the input, what was read is still sent.
///
/// # Errors
/// [`CommandError`]; records before the failure may have been stored.
pub async fn run(options: &ProduceOptions) -> Result<(), CommandError> {
    let mut interrupt = Interrupt::install()?;
    let input = open(options)?;
    let creating = ClientOptions { auto_create: true, ..ClientOptions::default() };
    let client = Client::connect(&options.bootstrap, creating).await?;
    let partitions = partitions(&client, options).await?;
    let (topic, acks, codec) = (options.topic.clone(), options.acks, options.codec);
    let place = Place { topic, partitions, acks, codec };
    let mut window = Window::start(client, place, options.batch_bytes).await?;
    let mut chunks = read_lines(input, input_name(options));
    let start = Instant::now();
    let result = send_all(&mut window, (&mut chunks, &mut interrupt), options).await;
    let finished = match result {
        Ok(()) => window.finish().await,
        Err(error) => Err(error),
    };
    let elapsed = start.elapsed();
    if options.json {
        output::print(&mut io::stdout(), &format!("{:#}\n", summary_json(&window, elapsed)))?;
    } else {
        output::say(&summary(&window, elapsed));
    }
    finished
}

async fn send_all(
    window: &mut Window,
    (chunks, interrupt): (&mut mpsc::Receiver<Chunk>, &mut Interrupt),
    options: &ProduceOptions,
) -> Result<(), CommandError> {
    let separator = options.key_separator.as_deref().map(str::as_bytes);
    let headers: Vec<_> = options
        .headers
        .iter()
        .map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())))
        .collect();
    let (bar, start) = (output::progress(None), Instant::now());
    loop {
        if chunks.is_empty() {
            window.flush().await?;
        }
        let chunk = tokio::select! {
            chunk = chunks.recv() => chunk,
            () = interrupt.wait() => None,
        };
        let Some(chunk) = chunk else {
            bar.finish_and_clear();
            return Ok(());
        };
        let now = now();
        for line in lines(&chunk?) {
            let (key, value) = split_key(line, separator);
            let record = NewRecord { timestamp: now, key, value: Some(value), headers: &headers };
            window.push(&record).await?;
        }
        bar.set_message(output::byte_rate(window.bytes(), start.elapsed()));
        bar.set_position(window.records());
    }
}

fn summary(window: &Window, elapsed: Duration) -> String {
    format!(
        "{}, {}, in {} acknowledged within {:.3} s ({})",
        output::counted(window.records(), ("record", "records")),
        output::counted(window.bytes(), ("byte", "bytes")),
        output::counted(window.batches(), ("batch", "batches")),
        elapsed.as_secs_f64(),
        output::byte_rate(window.bytes(), elapsed)
    )
}

fn summary_json(window: &Window, elapsed: Duration) -> Value {
    json!({
        "records": window.records(),
        "bytes": window.bytes(),
        "batches": window.batches(),
        "seconds": elapsed.as_secs_f64(),
    })
}

/// The partitions that may be written to: the one that the user names, or all.
async fn partitions(client: &Client, options: &ProduceOptions) -> Result<Vec<i32>, CommandError> {
    if let Some(partition) = options.partition {
        return Ok(vec![partition]);
    }
    let topic = topic::find_created(client, &options.topic).await?;
    Ok(topic.partitions.iter().map(|partition| partition.index).collect())
}

fn split_key<'a>(line: &'a [u8], separator: Option<&[u8]>) -> (Option<&'a [u8]>, &'a [u8]) {
    let Some(separator) = separator.filter(|separator| !separator.is_empty()) else {
        return (None, line);
    };
    match line.windows(separator.len()).position(|window| window == separator) {
        Some(at) => (Some(&line[..at]), &line[at + separator.len()..]),
        None => (None, line),
    }
}

fn lines(chunk: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = chunk.strip_suffix(b"\n").unwrap_or(chunk);
    let is_empty = chunk.is_empty();
    whole.split(|byte| *byte == b'\n').filter(move |_| !is_empty)
}

/// Whole lines, or why there are no more.
type Chunk = Result<Vec<u8>, CommandError>;

fn input_name(options: &ProduceOptions) -> String {
    match &options.input {
        Some(path) => path.display().to_string(),
        None => "standard input".to_owned(),
    }
}

fn open(options: &ProduceOptions) -> Result<Box<dyn Read + Send>, CommandError> {
    match &options.input {
        None => Ok(Box::new(io::stdin())),
        Some(path) => match File::open(path) {
            Ok(file) => Ok(Box::new(file)),
            Err(source) => Err(CommandError::Input { name: input_name(options), source }),
        },
    }
}

fn read_lines(input: Box<dyn Read + Send>, name: String) -> mpsc::Receiver<Chunk> {
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = send_lines(input, &name, &sender) {
            // Nobody is left to be told when the command has ended.
            let _ = sender.blocking_send(Err(error));
        }
    });
    receiver
}

fn send_lines(
    mut input: impl Read,
    name: &str,
    sender: &mpsc::Sender<Chunk>,
) -> Result<(), CommandError> {
    let mut rest = Vec::new();
    loop {
        let read = read_some(&mut input, &mut rest);
        let read = read.map_err(|source| CommandError::Input { name: name.to_owned(), source })?;
        let chunk = if read == 0 { std::mem::take(&mut rest) } else { split_lines(&mut rest) };
        if rest.len() > LINE_BYTES_MAX {
            let text = format!("{name} has a line of more than {LINE_BYTES_MAX} bytes");
            return Err(CommandError::Usage(text));
        }
        let is_gone = !chunk.is_empty() && sender.blocking_send(Ok(chunk)).is_err();
        if read == 0 || is_gone {
            return Ok(());
        }
    }
}

/// Reads what is there, without waiting for a whole chunk.
fn read_some(input: &mut impl Read, rest: &mut Vec<u8>) -> io::Result<usize> {
    let before = rest.len();
    rest.resize(before + CHUNK_BYTES, 0);
    let read = loop {
        match input.read(&mut rest[before..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    rest.truncate(before + *read.as_ref().unwrap_or(&0));
    read
}

/// Takes the whole lines out of `rest`.
fn split_lines(rest: &mut Vec<u8>) -> Vec<u8> {
    match rest.iter().rposition(|byte| *byte == b'\n') {
        Some(last) => {
            let begun = rest.split_off(last + 1);
            std::mem::replace(rest, begun)
        }
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_at_the_first_separator() {
        assert_eq!(split_key(b"a:b:c", Some(b":")), (Some(&b"a"[..]), &b"b:c"[..]));
        assert_eq!(split_key(b"a=>b", Some(b"=>")), (Some(&b"a"[..]), &b"b"[..]));
        assert_eq!(split_key(b"ab", Some(b":")), (None, &b"ab"[..]));
        assert_eq!(split_key(b":b", Some(b":")), (Some(&b""[..]), &b"b"[..]));
        assert_eq!(split_key(b"a:b", None), (None, &b"a:b"[..]));
        assert_eq!(split_key(b"a:b", Some(b"")), (None, &b"a:b"[..]));
    }

    /// A reader that gives its pieces one by one.
    struct Pieces(Vec<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    fn check(pieces: Vec<&'static [u8]>, expected: &[&[u8]]) {
        let (sender, mut receiver) = mpsc::channel(16);
        send_lines(Pieces(pieces), "the test", &sender).expect("readable");
        drop(sender);
        let mut found = Vec::new();
        while let Ok(chunk) = receiver.try_recv() {
            found.extend(lines(&chunk.expect("lines")).map(<[u8]>::to_vec));
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        check(vec![b"one\ntwo\n"], &[b"one", b"two"]);
        check(vec![b"on", b"e\ntw", b"o"], &[b"one", b"two"]);
        check(vec![b"one\n\n", b"\ntwo"], &[b"one", b"", b"", b"two"]);
        check(vec![b"\n"], &[b""]);
        check(vec![], &[]);
    }
}
