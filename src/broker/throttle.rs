//! A shard's byte rates and fetch sessions: the state behind them.

use std::time::{Duration, Instant};

use crate::broker::node::Node;
use crate::broker::quota::{CONSUMER_BYTE_RATE, Limit, PRODUCER_BYTE_RATE};
use crate::shard::ConnectionInfo;
use crate::wire::frame::RequestHeader;

impl Node {
    /// Milliseconds since this shard started, for what is only compared.
    pub(crate) fn uptime_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A session id that nobody can guess.
    pub(crate) fn new_session_id(&self) -> i32 {
        let (_, low) = uuid::Uuid::new_v4().as_u64_pair();
        i32::try_from(low >> 33).expect("31 bits").max(1)
    }

    /// Counts a Produce request of so many bytes. Returns how long its client is to wait, in
    /// milliseconds; until then the connection isn't read.
    pub(crate) fn produced(
        &self,
        header: &RequestHeader,
        bytes: u64,
        connection: &ConnectionInfo,
    ) -> i32 {
        let Some(limit) = self.limit(PRODUCER_BYTE_RATE, header) else { return 0 };
        let key = (PRODUCER_BYTE_RATE, &limit);
        let wait_ms = self.meters.borrow_mut().record(key, bytes, self.uptime_ms());
        mute(connection, wait_ms)
    }

    /// Counts an answer to Fetch of so many bytes. A client that has to wait gets an empty one, for
    /// which nothing is counted.
    pub(crate) fn fetched(
        &self,
        header: &RequestHeader,
        bytes: u64,
        connection: &ConnectionInfo,
    ) -> i32 {
        let Some(limit) = self.limit(CONSUMER_BYTE_RATE, header) else { return 0 };
        let (key, now_ms) = ((CONSUMER_BYTE_RATE, &limit), self.uptime_ms());
        let mut meters = self.meters.borrow_mut();
        let wait_ms = meters.record(key, bytes, now_ms);
        if wait_ms != 0 {
            meters.take_back(key, bytes, now_ms);
        }
        mute(connection, wait_ms)
    }

    /// The most bytes that the client's rate can give at once; `None` when it has no quota.
    pub(crate) fn bytes_at_once(&self, key: &'static str, header: &RequestHeader) -> Option<i32> {
        let most = self.limit(key, header)?.at_once();
        let most = Duration::try_from_secs_f64(most.max(0.0)).map_or(u64::MAX, |it| it.as_secs());
        Some(i32::try_from(most).unwrap_or(i32::MAX).max(1))
    }

    fn limit(&self, key: &'static str, header: &RequestHeader) -> Option<Limit> {
        let image = self.image();
        let quotas = image.settings().quotas();
        if quotas.is_empty() {
            return None;
        }
        let client_id = header.client_id.as_deref().unwrap_or("");
        self.meters.borrow_mut().limit((quotas, image.version), key, client_id)
    }
}

/// Has the connection not be read for so long; the wait as the answer tells it.
fn mute(connection: &ConnectionInfo, wait_ms: u64) -> i32 {
    if wait_ms == 0 {
        return 0;
    }
    let wait = i32::try_from(wait_ms).unwrap_or(i32::MAX);
    let until = Instant::now() + Duration::from_millis(u64::from(wait.unsigned_abs()));
    connection.mute_until(until);
    wait
}
