//! A `segment.bytes` below the limit, as a server answers it.

use uringlog::client::{Client, ClientError, NewTopic};

use crate::engines::server::{Server, block_on};
use crate::experiments::Failure;
use crate::record::{Recorder, Table, unit};
use crate::run::Context;

/// The document's limit, of Kafka 4.3.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const DOCUMENT: &str = "the document on segments and indexes (Kafka 4.3.1)";

/// Asks for the refused value, for the last one that is refused and for the first that is not.
///
/// # Errors
/// When the server can't be asked.
pub fn run(context: &Context, server: &Server, recorder: &mut Recorder) -> Result<(), Failure> {
    let asked = context.parameters.number("refused_segment_bytes");
    let values = [asked, SEGMENT_BYTES_MIN - 1, SEGMENT_BYTES_MIN];
    let answers = block_on(async {
        let client = server.client().await?;
        let mut answers = Vec::new();
        for value in values {
            answers.push(answer(&client, value).await?);
        }
        Ok(answers)
    })?;
    let mut table = Table::new("What the server says to segment.bytes", &["value", "answer"]);
    for (value, answer) in values.iter().zip(&answers) {
        let answer = answer.clone().unwrap_or_else(|| "accepted".to_owned());
        table.row(vec![value.to_string(), answer]);
    }
    recorder.table(table);
    let words = |value: u64| {
        format!(
            "Invalid value {value} for configuration segment.bytes: Value must be at least \
             {SEGMENT_BYTES_MIN}"
        )
    };
    let said = |number: usize| answers[number].clone().unwrap_or_default();
    recorder.expect("refusal", (said(0), words(asked)), DOCUMENT);
    recorder.expect("refusal_below_the_minimum", (said(1), words(values[1])), DOCUMENT);
    recorder.expect("the_minimum_is_accepted", (answers[2].is_none(), true), DOCUMENT);
    if let Some(least) = least_named(&said(0)) {
        recorder.figure("segment_bytes_min", least, unit::BYTES);
    }
    Ok(())
}

/// The broker's words when it refuses; `None` when it doesn't.
async fn answer(client: &Client, value: u64) -> Result<Option<String>, Failure> {
    let topic = NewTopic {
        name: format!("segments-of-{value}"),
        partitions: 1,
        replication_factor: 1,
        configs: vec![("segment.bytes".to_owned(), value.to_string())],
    };
    match client.create_topic(&topic).await {
        Ok(_) => Ok(None),
        Err(ClientError::Refused { message, .. }) => Ok(Some(message)),
        Err(error) => Err(error.into()),
    }
}

/// The number that a refusal ends with.
fn least_named(words: &str) -> Option<u64> {
    words.rsplit_once("at least ")?.1.trim_end_matches('.').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_off_the_refusal() {
        let words = "Invalid value 300 for configuration segment.bytes: Value must be at least 14";
        assert_eq!(least_named(words), Some(14));
        assert_eq!(least_named("no"), None);
    }
}
