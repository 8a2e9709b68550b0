//! AlterUserScramCredentials (51), version 0: credentials are set and deleted. They are kept in the
//! metadata log; nothing asks for them as long as every listener is a plain one.
//!
//! A client sends the salted password; what is kept are the keys that follow from it (RFC 5802).

use std::collections::BTreeMap;

use hmac::{Hmac, Mac};
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    AlterUserScramCredentialsRequest, ScramCredentialUpsertion,
};
use kafka_protocol::messages::alter_user_scram_credentials_response::{
    AlterUserScramCredentialsResponse, AlterUserScramCredentialsResult,
};
use sha2::{Digest, Sha256, Sha512};

use crate::broker::api::text;
use crate::broker::errors::Refusal;
use crate::broker::image::Image;
use crate::broker::mail::Decide;
use crate::broker::node::Node;
use crate::broker::settings::CREDENTIALS_MAX;
use crate::format::kraft::MetadataRecord;
use crate::format::kraft_users::ScramRecord;
use crate::wire::error::ErrorCode;

const SHA_256: i8 = 1;
const SHA_512: i8 = 2;

/// Fewest and most iterations of both mechanisms (`ScramMechanism`, `ScramControlManager`).
const ITERATIONS: std::ops::RangeInclusive<i32> = 4_096..=16_384;

/// Longest name, salt and salted password, in bytes.
const BYTES_MAX: usize = 1024;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse {
    node.served().await;
    let mut wanted: BTreeMap<String, Result<Change, Refusal>> = BTreeMap::new();
    let deletions = request.deletions.iter().map(|it| {
        let change = check_name(&it.name, it.mechanism).map(|()| Change::Delete(it.mechanism));
        (it.name.to_string(), change)
    });
    let upsertions = request.upsertions.iter().map(|it| (it.name.to_string(), upsertion(it)));
    for (user, change) in deletions.chain(upsertions) {
        let is_second = wanted.contains_key(&user);
        let twice = "A user credential cannot be altered twice in the same request";
        let twice = || Refusal::new(ErrorCode::DuplicateResource, twice);
        wanted.insert(user, if is_second { Err(twice()) } else { change });
    }
    let mut changes: Vec<Decide> = Vec::new();
    let mut users = Vec::new();
    for (user, change) in wanted {
        let change = change.map(|change| {
            let user = user.clone();
            changes.push(Box::new(move |image: &Image| decide(image, &user, change)));
        });
        users.push((user, change));
    }
    let mut outcomes = node.change(changes, false).await.into_iter();
    let results = users.into_iter().map(|(user, change)| {
        let outcome = change.and_then(|()| outcomes.next().expect("every change is answered"));
        let result = AlterUserScramCredentialsResult::default().with_user(text(&user));
        match outcome {
            Ok(()) => result.with_error_message(None),
            Err(refusal) => result
                .with_error_code(refusal.code.to_wire())
                .with_error_message(Some(text(&refusal.message))),
        }
    });
    AlterUserScramCredentialsResponse::default().with_results(results.collect())
}

/// What becomes of one user's credential.
enum Change {
    Delete(i8),
    Set(ScramRecord),
}

fn unacceptable(message: &str) -> Refusal {
    Refusal::new(ErrorCode::UnacceptableCredential, message)
}

fn check_name(name: &str, mechanism: i8) -> Result<(), Refusal> {
    if name.is_empty() {
        return Err(unacceptable("Username must not be empty"));
    }
    if BYTES_MAX < name.len() {
        return Err(unacceptable("Username is too long"));
    }
    match mechanism {
        SHA_256 | SHA_512 => Ok(()),
        _ => Err(Refusal::new(ErrorCode::UnsupportedSaslMechanism, "Unknown SCRAM mechanism")),
    }
}

fn upsertion(wanted: &ScramCredentialUpsertion) -> Result<Change, Refusal> {
    check_name(&wanted.name, wanted.mechanism)?;
    if wanted.iterations < *ITERATIONS.start() {
        return Err(unacceptable("Too few iterations"));
    }
    if *ITERATIONS.end() < wanted.iterations {
        return Err(unacceptable("Too many iterations"));
    }
    if BYTES_MAX < wanted.salt.len().max(wanted.salted_password.len()) {
        return Err(unacceptable("Salt or salted password is too long"));
    }
    let (stored_key, server_key) = keys(wanted.mechanism, &wanted.salted_password);
    Ok(Change::Set(ScramRecord {
        user: wanted.name.to_string(),
        mechanism: wanted.mechanism,
        salt: wanted.salt.to_vec(),
        stored_key,
        server_key,
        iterations: wanted.iterations,
    }))
}

/// `H(HMAC(salted password, "Client Key"))` and `HMAC(salted password, "Server Key")`.
fn keys(mechanism: i8, salted_password: &[u8]) -> (Vec<u8>, Vec<u8>) {
    const CLIENT: &[u8] = b"Client Key";
    const SERVER: &[u8] = b"Server Key";
    if mechanism == SHA_256 {
        let sign = |text: &[u8]| {
            let mac = Hmac::<Sha256>::new_from_slice(salted_password);
            let mac = mac.expect("a key may have any length").chain_update(text);
            mac.finalize().into_bytes().to_vec()
        };
        return (Sha256::digest(sign(CLIENT)).to_vec(), sign(SERVER));
    }
    let sign = |text: &[u8]| {
        let mac = Hmac::<Sha512>::new_from_slice(salted_password);
        let mac = mac.expect("a key may have any length").chain_update(text);
        mac.finalize().into_bytes().to_vec()
    };
    (Sha512::digest(sign(CLIENT)).to_vec(), sign(SERVER))
}

fn decide(image: &Image, user: &str, change: Change) -> Result<Vec<MetadataRecord>, Refusal> {
    let credentials = image.settings().credentials();
    match change {
        Change::Set(_) if CREDENTIALS_MAX <= credentials.len() => {
            let message = format!("there are {CREDENTIALS_MAX} credentials, which is the limit");
            Err(Refusal::new(ErrorCode::PolicyViolation, message))
        }
        Change::Set(record) => Ok(vec![MetadataRecord::UserScramCredential(record)]),
        Change::Delete(mechanism) => {
            if !credentials.contains_key(&(user.to_owned(), mechanism)) {
                let message = "Attempt to delete a user credential that does not exist";
                return Err(Refusal::new(ErrorCode::ResourceNotFound, message));
            }
            let user = user.to_owned();
            Ok(vec![MetadataRecord::RemoveUserScramCredential { user, mechanism }])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let byte = |pair: &[u8]| {
            let text = str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(text, 16).expect("hexadecimal")
        };
        hex.as_bytes().chunks(2).map(byte).collect()
    }

    /// RFC 7677's exchange: the user's password is "pencil", salted 4,096 times; with the server's
    /// key that follows from it the signature that the RFC prints is made.
    #[test]
    fn keys_are_those_of_rfc_7677() {
        let salted = "c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d";
        let (stored, server) = keys(SHA_256, &bytes(salted));
        let expected = "586e5df283e6dceb5c3e791d8b8528ec191e664045ce971792e2e6b5bb13e2a6";
        assert_eq!(stored, bytes(expected));
        let expected = "c1f3cbc1c13a9d35a14c0990eed97629ea225863e566a4314ab99f3f00e5d9d5";
        assert_eq!(server, bytes(expected));
        let (stored, server) = keys(SHA_512, &bytes(salted));
        assert_eq!((stored.len(), server.len()), (64, 64));
    }

    #[test]
    fn weak_and_nameless_credentials_are_refused() {
        let wanted = |name: &str, mechanism, iterations| {
            let wanted = ScramCredentialUpsertion::default()
                .with_name(text(name))
                .with_mechanism(mechanism)
                .with_iterations(iterations);
            upsertion(&wanted).map(drop).map_err(|refusal| refusal.message)
        };
        assert_eq!(wanted("bob", SHA_256, 4_096), Ok(()));
        assert_eq!(wanted("bob", SHA_512, 16_384), Ok(()));
        assert_eq!(wanted("bob", SHA_256, 4_095), Err("Too few iterations".to_owned()));
        assert_eq!(wanted("bob", SHA_256, 16_385), Err("Too many iterations".to_owned()));
        assert_eq!(wanted("", SHA_256, 4_096), Err("Username must not be empty".to_owned()));
        assert_eq!(wanted("bob", 0, 4_096), Err("Unknown SCRAM mechanism".to_owned()));
    }

    #[test]
    fn only_what_is_there_can_be_deleted() {
        let mut image = Image::default();
        let gone = decide(&image, "bob", Change::Delete(SHA_256)).map_err(|it| it.code);
        assert_eq!(gone, Err(ErrorCode::ResourceNotFound));
        let wanted = ScramCredentialUpsertion::default()
            .with_name(text("bob"))
            .with_mechanism(SHA_256)
            .with_iterations(4_096);
        let change = upsertion(&wanted).map_err(|refusal| refusal.message).expect("legal");
        for record in decide(&image, "bob", change).expect("legal") {
            image.apply(&record).expect("it was decided on this image");
        }
        let gone = decide(&image, "bob", Change::Delete(SHA_256)).expect("it is there");
        assert_eq!(gone.len(), 1);
    }
}
