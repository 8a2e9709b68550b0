//! Byte rates of clients: how much a client may send or fetch, and how long it has to wait when it
//! has had more. Pure: time is an argument.
//!
//! Kafka's arithmetic (`ClientQuotaManager`, `Rate`, `SampledStat`): the rate is the sum over a
//! window of samples, divided by the time that the window covers, and the wait is as long as the
//! rate needs to fall back to the quota. Each shard counts for itself, as each broker of a cluster
//! does.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::broker::settings::Quotas;
use crate::format::kraft_users::QuotaEntity;

/// The user of a connection without authentication.
const ANONYMOUS: &str = "ANONYMOUS";

/// Kafka's names of the parts of an entity.
pub mod part {
    /// A user.
    pub const USER: &str = "user";
    /// What a client calls itself.
    pub const CLIENT_ID: &str = "client-id";
    /// An address.
    pub const IP: &str = "ip";
}

/// Bytes a second that producers may send.
pub const PRODUCER_BYTE_RATE: &str = "producer_byte_rate";

/// Bytes a second that consumers may fetch.
pub const CONSUMER_BYTE_RATE: &str = "consumer_byte_rate";

/// `quota.window.size.seconds`.
const WINDOW_MS: u64 = 1_000;

/// `quota.window.num`: the samples that make up a rate, the current one included.
const SAMPLES: u64 = 11;

/// Clients that are counted at a time; beyond it the one that was silent longest is forgotten.
const METERS_MAX: usize = 10_000;

/// A client that was silent for so long is forgotten.
const SILENT_MS: u64 = 3_600_000;

/// The quota of a client, and who shares it.
#[derive(Clone, PartialEq, Debug)]
pub struct Limit {
    /// Bytes a second.
    pub rate: f64,
    /// User and client id that are counted together; an empty one means all.
    pub shared_by: Owner,
}

impl Limit {
    /// The most that can be had at once without a wait for certain
    /// (`ClientQuotaManager#maxValueInQuotaWindow`), in bytes.
    pub fn at_once(&self) -> f64 {
        self.rate * seconds((SAMPLES - 1) * WINDOW_MS)
    }
}

/// The quota that goes for a client, by Kafka's precedence; `None` when nobody set one.
fn limit(
    quotas: &BTreeMap<QuotaEntity, Quotas>,
    (user, client_id): (&str, &str),
    key: &str,
) -> Option<Limit> {
    let entity = |parts: &[(&str, Option<&str>)]| -> QuotaEntity {
        let owned =
            |(kind, name): &(&str, Option<&str>)| ((*kind).to_owned(), name.map(str::to_owned));
        parts.iter().map(owned).collect()
    };
    let (own_user, own_client) = ((part::USER, Some(user)), (part::CLIENT_ID, Some(client_id)));
    let (any_user, any_client) = ((part::USER, None), (part::CLIENT_ID, None));
    // The entities, strongest first, and by what of user and client id those are counted that they
    // are for.
    let levels = [
        (entity(&[own_user, own_client]), (user, client_id)),
        (entity(&[own_user, any_client]), (user, client_id)),
        (entity(&[own_user]), (user, "")),
        (entity(&[any_user, own_client]), (user, client_id)),
        (entity(&[any_user, any_client]), (user, client_id)),
        (entity(&[any_user]), (user, "")),
        (entity(&[own_client]), ("", client_id)),
        (entity(&[any_client]), ("", client_id)),
    ];
    levels.into_iter().find_map(|(entity, (user, client_id))| {
        let rate = *quotas.get(&entity)?.get(key)?;
        Some(Limit { rate, shared_by: Rc::new((user.to_owned(), client_id.to_owned())) })
    })
}

/// One client's samples of one kind of rate.
#[derive(Clone, Debug)]
struct Meter {
    samples: Vec<Sample>,
    current: usize,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    start_ms: u64,
    last_ms: u64,
    sum: f64,
}

impl Sample {
    fn at(now_ms: u64) -> Sample {
        Sample { start_ms: now_ms, last_ms: now_ms, sum: 0.0 }
    }
}

impl Meter {
    fn new(now_ms: u64) -> Meter {
        Meter { samples: vec![Sample::at(now_ms)], current: 0 }
    }

    fn record(&mut self, value: f64, now_ms: u64) {
        if WINDOW_MS <= now_ms.saturating_sub(self.samples[self.current].start_ms) {
            self.current = (self.current + 1) % usize_of_samples();
            match self.samples.get_mut(self.current) {
                Some(sample) => *sample = Sample::at(now_ms),
                None => self.samples.push(Sample::at(now_ms)),
            }
        }
        let sample = &mut self.samples[self.current];
        sample.sum += value;
        sample.last_ms = now_ms;
    }

    /// Bytes a second, and the time over which they are counted.
    fn rate(&mut self, now_ms: u64) -> (f64, u64) {
        for sample in &mut self.samples {
            if SAMPLES * WINDOW_MS <= now_ms.saturating_sub(sample.last_ms) {
                *sample = Sample::at(now_ms);
            }
        }
        let sum: f64 = self.samples.iter().map(|sample| sample.sum).sum();
        let oldest = self.samples.iter().map(|sample| sample.start_ms).min().unwrap_or(now_ms);
        let elapsed_ms = now_ms.saturating_sub(oldest);
        // Too few samples count as if the others had been empty.
        let missing = (SAMPLES - 1).saturating_sub(elapsed_ms / WINDOW_MS);
        let window_ms = (elapsed_ms + missing * WINDOW_MS).max(1);
        (sum / seconds(window_ms), window_ms)
    }

    fn last_ms(&self) -> u64 {
        self.samples[self.current].last_ms
    }
}

/// One more than a rate has: the oldest one may reach into the window.
fn usize_of_samples() -> usize {
    crate::units::usize_of(SAMPLES + 1)
}

fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}

/// Whose rate it is: user and client id, as far as the quota names them.
type Owner = Rc<(String, String)>;

/// What the clients of one shard have sent or fetched.
#[derive(Debug, Default)]
pub struct Meters {
    clients: HashMap<(&'static str, Owner), Meter>,
    found: Found,
}

/// The quotas that clients were found to have, by kind and client id, in this version of the
/// settings: a request shouldn't look through all levels of precedence.
#[derive(Debug, Default)]
struct Found {
    version: u64,
    by_client: HashMap<&'static str, HashMap<String, Option<Limit>>>,
}

impl Meters {
    /// The quota that goes for a client of this id, in settings of this version; `None` when nobody
    /// set one.
    pub fn limit(
        &mut self,
        (quotas, version): (&BTreeMap<QuotaEntity, Quotas>, u64),
        key: &'static str,
        client_id: &str,
    ) -> Option<Limit> {
        if self.found.version != version {
            self.found = Found { version, ..Found::default() };
        }
        let by_client = self.found.by_client.entry(key).or_default();
        if let Some(known) = by_client.get(client_id) {
            return known.clone();
        }
        if METERS_MAX <= by_client.len() {
            by_client.clear();
        }
        let found = limit(quotas, (ANONYMOUS, client_id), key);
        by_client.insert(client_id.to_owned(), found.clone());
        found
    }

    /// Counts bytes of a client. Returns for how many milliseconds it has to wait; 0 when it may go
    /// on.
    pub fn record(&mut self, (key, limit): (&'static str, &Limit), bytes: u64, now_ms: u64) -> u64 {
        let bytes = as_f64(bytes);
        let meter = self.meter(key, limit, now_ms);
        meter.record(bytes, now_ms);
        let (rate, window_ms) = meter.rate(now_ms);
        if rate <= limit.rate {
            return 0;
        }
        wait_ms(rate, limit.rate, window_ms)
    }

    /// Takes back what was counted but not sent.
    pub fn take_back(&mut self, (key, limit): (&'static str, &Limit), bytes: u64, now_ms: u64) {
        self.meter(key, limit, now_ms).record(-as_f64(bytes), now_ms);
    }

    fn meter(&mut self, key: &'static str, limit: &Limit, now_ms: u64) -> &mut Meter {
        let place = (key, limit.shared_by.clone());
        if METERS_MAX <= self.clients.len() && !self.clients.contains_key(&place) {
            self.forget(now_ms);
        }
        self.clients.entry(place).or_insert_with(|| Meter::new(now_ms))
    }

    fn forget(&mut self, now_ms: u64) {
        self.clients.retain(|_, meter| now_ms.saturating_sub(meter.last_ms()) < SILENT_MS);
        if METERS_MAX <= self.clients.len() {
            let quietest = self.clients.iter().min_by_key(|(_, meter)| meter.last_ms());
            let quietest = quietest.map(|(place, _)| place.clone());
            quietest.and_then(|place| self.clients.remove(&place));
        }
    }
}

/// How long nothing may be counted for the rate to fall to its limit.
fn wait_ms(rate: f64, limit: f64, window_ms: u64) -> u64 {
    let wait = (rate - limit) / limit * seconds(window_ms);
    let wait = std::time::Duration::try_from_secs_f64(wait.max(0.0));
    let ms = wait.map_or(u128::from(u64::MAX), |wait| (wait.as_micros() + 500) / 1_000);
    u64::try_from(ms).unwrap_or(u64::MAX)
}

fn as_f64(bytes: u64) -> f64 {
    // Exact up to 2^53, far beyond a frame.
    let high = u32::try_from(bytes >> 32).unwrap_or(u32::MAX);
    let low = u32::try_from(bytes & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::u64_of;

    /// Parts of an entity, and its rate.
    type Entity<'a> = (&'a [(&'a str, Option<&'a str>)], f64);

    fn quotas(entities: &[Entity<'_>]) -> BTreeMap<QuotaEntity, Quotas> {
        let entity = |(parts, rate): &Entity<'_>| {
            let parts =
                parts.iter().map(|(kind, name)| ((*kind).to_owned(), name.map(str::to_owned)));
            (parts.collect(), Quotas::from([(PRODUCER_BYTE_RATE.to_owned(), *rate)]))
        };
        entities.iter().map(entity).collect()
    }

    fn found(entities: &[Entity<'_>], client: &str) -> Option<(f64, String)> {
        let limit = limit(&quotas(entities), (ANONYMOUS, client), PRODUCER_BYTE_RATE)?;
        Some((limit.rate, format!("{}/{}", limit.shared_by.0, limit.shared_by.1)))
    }

    #[test]
    fn the_most_specific_quota_goes() {
        let (user, any_user) = (("user", Some(ANONYMOUS)), ("user", None));
        let (client, any_client) = (("client-id", Some("c")), ("client-id", None));
        let all: &[Entity<'_>] = &[
            (&[user, client], 1.0),
            (&[user, any_client], 2.0),
            (&[user], 3.0),
            (&[any_user, client], 4.0),
            (&[any_user, any_client], 5.0),
            (&[any_user], 6.0),
            (&[client], 7.0),
            (&[any_client], 8.0),
        ];
        let expected = [
            "ANONYMOUS/c",
            "ANONYMOUS/c",
            "ANONYMOUS/",
            "ANONYMOUS/c",
            "ANONYMOUS/c",
            "ANONYMOUS/",
            "/c",
            "/c",
        ];
        for (from, shared) in expected.into_iter().enumerate() {
            let rate = all[from].1;
            assert_eq!(found(&all[from..], "c"), Some((rate, shared.to_owned())));
        }
        assert_eq!(found(&[], "c"), None);
        assert_eq!(found(&all[6..7], "other"), None);
        assert_eq!(found(&[(&[("ip", None)], 1.0)], "c"), None);
    }

    fn client(rate: f64) -> Limit {
        Limit { rate, shared_by: Rc::new((String::new(), "c".to_owned())) }
    }

    #[test]
    fn a_client_waits_until_its_rate_is_back_at_the_quota() {
        let (mut meters, limit) = (Meters::default(), client(1_000.0));
        let key = (PRODUCER_BYTE_RATE, &limit);
        // Ten seconds count at the beginning, as if they had been quiet: 10,000 bytes are free.
        assert_eq!(meters.record(key, 10_000, 0), 0);
        // 20,000 bytes in ten seconds are twice the quota: ten seconds more bring it back.
        assert_eq!(meters.record(key, 10_000, 0), 10_000);
        assert_eq!(meters.record(key, 0, 5_000), 10_000, "half of the window is still empty");
        assert_eq!(meters.record(key, 0, 20_001), 0, "the window has passed");
    }

    #[test]
    fn what_is_taken_back_doesnt_count() {
        let (mut meters, limit) = (Meters::default(), client(1_000.0));
        let key = (CONSUMER_BYTE_RATE, &limit);
        assert_eq!(meters.record(key, 30_000, 0), 20_000);
        meters.take_back(key, 30_000, 0);
        assert_eq!(meters.record(key, 10_000, 0), 0);
        assert_eq!(limit.at_once(), 10_000.0);
    }

    #[test]
    fn clients_are_counted_apart_and_within_a_limit() {
        let mut meters = Meters::default();
        for number in 0..u64_of(METERS_MAX) + 5 {
            let shared_by = Rc::new((String::new(), number.to_string()));
            let limit = Limit { rate: 1.0, shared_by };
            assert_eq!(meters.record((PRODUCER_BYTE_RATE, &limit), 10, number), 0);
        }
        assert_eq!(meters.clients.len(), METERS_MAX);
    }

    #[test]
    fn a_quota_is_looked_for_once_in_each_version_of_the_settings() {
        let (mut meters, client) = (Meters::default(), ("client-id", Some("c")));
        let (before, after) = (quotas(&[(&[client], 1.0)]), quotas(&[(&[client], 2.0)]));
        let mut rate = |quotas: &BTreeMap<_, _>, version, client: &str| {
            meters.limit((quotas, version), PRODUCER_BYTE_RATE, client).map(|it| it.rate)
        };
        assert_eq!(rate(&before, 1, "c"), Some(1.0));
        assert_eq!(rate(&after, 1, "c"), Some(1.0), "the version is what tells");
        assert_eq!(rate(&after, 2, "c"), Some(2.0));
        for number in 0..=METERS_MAX {
            assert_eq!(rate(&after, 2, &number.to_string()), None);
        }
        assert!(meters.found.by_client[PRODUCER_BYTE_RATE].len() <= METERS_MAX);
    }

    #[test]
    fn a_steady_rate_at_the_quota_never_waits() {
        let (mut meters, limit) = (Meters::default(), client(1_000.0));
        for ms in (0..60_000).step_by(100) {
            let wait = meters.record((PRODUCER_BYTE_RATE, &limit), 90, ms);
            assert_eq!(wait, 0, "at {ms}");
        }
        let waits: u64 = (60_000..120_000)
            .step_by(100)
            .map(|ms| meters.record((PRODUCER_BYTE_RATE, &limit), 150, ms))
            .filter(|wait| 0 < *wait)
            .count()
            .try_into()
            .expect("small");
        assert!(400 < waits, "{waits} of 600 at half again the quota");
    }
}
