//! Producing and fetching at whoever leads the partition.

use bytes::Bytes;

use super::cluster::Client;
use super::connection::Connection;
use super::error::ClientError;
use super::fetch::{FetchFrom, FetchLimits, Fetched, decode_fetched, encode_fetch};
use super::produce::{Acks, Produced, decode_produced, encode_produce};

/// Where a batch goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target<'a> {
    /// The topic's name.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// What the answer waits for.
    pub acks: Acks,
}

impl Client {
    /// Sends one batch to the partition's leader and waits for its answer; with [`Acks::None`]
    /// only until it is handed to the connection.
    ///
    /// A batch is sent again when its leader has changed or the connection broke, and is then
    /// perhaps stored twice, unless it carries a producer id and sequence number. Of calls that
    /// run side by side each has its own fate, so a batch that was sent again may come to stand
    /// behind a later one; whoever needs the order looks at [`Client::try_produce`].
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the broker's code and words, and what keeps the batch from it.
    pub async fn produce(&self, to: Target<'_>, batch: Bytes) -> Result<Produced, ClientError> {
        let what = format!("producing to partition {} of topic {:?}", to.partition, to.topic);
        let mut tries = self.tries(what);
        loop {
            match tries.limited(self.try_produce(to, batch.clone())).await {
                Ok(produced) => return Ok(produced),
                Err(error) => tries.pause(error).await?,
            }
        }
    }

    /// Sends one batch once.
    ///
    /// # Errors
    /// As [`Client::produce`]; the error says whether another try may succeed.
    pub async fn try_produce(&self, to: Target<'_>, batch: Bytes) -> Result<Produced, ClientError> {
        let connection = self.leader(to.topic, to.partition).await?;
        produce_on(&connection, to, batch, self.timeout_ms()).await
    }

    /// Reads from one partition: what is there, or an empty answer after `wait_max_ms`.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the broker's code (1 for an offset that isn't there), and what
    /// keeps the request from it.
    pub async fn fetch(
        &self,
        from: &FetchFrom,
        limits: FetchLimits,
    ) -> Result<Fetched, ClientError> {
        let what = format!("fetching from partition {} of {:?}", from.partition, from.topic);
        let mut tries = self.tries(what);
        loop {
            match tries.limited(self.try_fetch(from, limits)).await {
                Ok(fetched) => return Ok(fetched),
                Err(error) => tries.pause(error).await?,
            }
        }
    }

    async fn try_fetch(
        &self,
        from: &FetchFrom,
        limits: FetchLimits,
    ) -> Result<Fetched, ClientError> {
        let connection = self.leader(&from.topic, from.partition).await?;
        let request = encode_fetch(&connection, std::slice::from_ref(from), limits)?;
        let version = request.header.version;
        let body = connection.send(request).await?.body().await?;
        let fetched = decode_fetched(&connection, version, body)?;
        let own = fetched.into_iter().find(|one| one.partition == from.partition);
        let Some(own) = own else {
            let why = "it says nothing of the partition asked for".to_owned();
            return Err(ClientError::Lost { address: connection.address().to_owned(), why });
        };
        own.check()?;
        Ok(own)
    }

    fn timeout_ms(&self) -> i32 {
        i32::try_from(self.options().timeout.as_millis()).unwrap_or(i32::MAX)
    }
}

async fn produce_on(
    connection: &Connection,
    to: Target<'_>,
    batch: Bytes,
    timeout_ms: i32,
) -> Result<Produced, ClientError> {
    let place = (to.topic, to.partition);
    let request = encode_produce(connection, place, batch, (to.acks, timeout_ms))?;
    let version = request.header.version;
    let body = connection.send(request).await?.body().await?;
    match to.acks {
        Acks::None => Ok(Produced::UNKNOWN),
        Acks::Leader | Acks::All => decode_produced(connection, version, body),
    }
}
