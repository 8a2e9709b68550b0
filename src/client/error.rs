//! What can go wrong between client and broker.

use std::time::Duration;

use kafka_protocol::error::{ParseResponseErrorCode, ResponseError};

use crate::wire::error::{ErrorCode, WireError};

/// Why a call failed. Every text names the thing and the peer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection could be made.
    #[error("no connection to {address}: {source}")]
    Connect {
        /// Host and port.
        address: String,
        /// As the system says.
        source: std::io::Error,
    },
    /// The connection ended before the answer came.
    #[error("the connection to {address} is lost: {why}")]
    Lost {
        /// Host and port.
        address: String,
        /// What happened to it.
        why: String,
    },
    /// The answer isn't one.
    #[error("an answer of {address} is wrong: {source}")]
    Wire {
        /// Host and port.
        address: String,
        /// What is wrong with it.
        source: WireError,
    },
    /// The request can't be put into bytes.
    #[error("the request can't be encoded: {0}")]
    Encode(WireError),
    /// Client and broker have no version of an API in common.
    #[error("{address} doesn't speak {api}")]
    Unsupported {
        /// Host and port.
        address: String,
        /// The API's name, and which versions either side knows.
        api: String,
    },
    /// The broker refuses.
    #[error("{what}: {}{}", code_name(*code), text_after(message))]
    Refused {
        /// What was asked for.
        what: String,
        /// The error code; see [`ErrorCode::from_wire`].
        code: i16,
        /// The broker's own words; may be empty.
        message: String,
    },
    /// Time is up.
    #[error("{what}: no success within {} ms{}", after.as_millis(), text_after(last))]
    Timeout {
        /// What was asked for.
        what: String,
        /// How long it was tried.
        after: Duration,
        /// What went wrong last; may be empty.
        last: String,
    },
    /// No broker leads the partition (yet).
    #[error("partition {partition} of topic {topic:?} has no leader")]
    NoLeader {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// An argument that can't be right.
    #[error("{0}")]
    Argument(String),
}

fn code_name(code: i16) -> String {
    match ErrorCode::from_wire(code) {
        Some(known) => known.to_string(),
        None => match code.err() {
            None | Some(ResponseError::Unknown(_)) => format!("error code {code}"),
            Some(known) => format!("{} ({code})", screaming(&format!("{known:?}"))),
        },
    }
}

/// `UnknownMemberId` as `UNKNOWN_MEMBER_ID`.
fn screaming(camel: &str) -> String {
    let mut name = String::new();
    for character in camel.chars() {
        if character.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(character.to_ascii_uppercase());
    }
    name
}

fn text_after(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl ClientError {
    /// Nothing when `code` is 0.
    ///
    /// # Errors
    /// [`ClientError::Refused`] otherwise.
    pub fn check(code: i16, what: impl FnOnce() -> String) -> Result<(), ClientError> {
        ClientError::check_message(code, None, what)
    }

    pub(super) fn check_message(
        code: i16,
        message: Option<&str>,
        what: impl FnOnce() -> String,
    ) -> Result<(), ClientError> {
        if code == ErrorCode::None.to_wire() {
            return Ok(());
        }
        let message = message.unwrap_or_default().to_owned();
        Err(ClientError::Refused { what: what(), code, message })
    }

    /// The broker's error code, when it refused with one that is known.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused { code, .. } => ErrorCode::from_wire(*code),
            _ => None,
        }
    }

    /// The broker's error code as a number, when it refused.
    pub fn wire_code(&self) -> Option<i16> {
        match self {
            ClientError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether another try, after a look at where the leaders are, may succeed.
    pub fn is_retriable(&self) -> bool {
        match self {
            ClientError::Connect { .. }
            | ClientError::Lost { .. }
            | ClientError::NoLeader { .. } => true,
            ClientError::Refused { .. } => self.code().is_some_and(is_retriable),
            ClientError::Wire { .. }
            | ClientError::Encode(_)
            | ClientError::Unsupported { .. }
            | ClientError::Timeout { .. }
            | ClientError::Argument(_) => false,
        }
    }
}

/// Kafka's retriable codes, of those that this client meets.
fn is_retriable(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UnknownTopicOrPartition
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::RequestTimedOut
            | ErrorCode::ReplicaNotAvailable
            | ErrorCode::NetworkException
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::NotEnoughReplicasAfterAppend
            | ErrorCode::NotController
            | ErrorCode::KafkaStorageError
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::UnknownLeaderEpoch
            | ErrorCode::OffsetNotAvailable
            | ErrorCode::UnknownTopicId
            | ErrorCode::InconsistentTopicId
            | ErrorCode::ThrottlingQuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_thing_code_and_reason() {
        let refused = |code, message: &str| ClientError::Refused {
            what: "produce to t-0".to_owned(),
            code,
            message: message.to_owned(),
        };
        let known = refused(10, "1048588 is the limit").to_string();
        assert_eq!(known, "produce to t-0: MESSAGE_TOO_LARGE (10): 1048588 is the limit");
        assert_eq!(refused(999, "").to_string(), "produce to t-0: error code 999");
        let group = refused(25, "").to_string();
        assert_eq!(group, "produce to t-0: UNKNOWN_MEMBER_ID (25)");
        assert!(refused(6, "").is_retriable());
        assert!(!refused(10, "").is_retriable());
        assert!(!refused(999, "").is_retriable());
    }
}
