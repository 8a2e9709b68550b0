//! Fetch sessions (KIP-227): what a client fetches from this shard is remembered, so that a request
//! names only what changes and an answer only what has something new. Pure: time and the ids of new
//! sessions are arguments.
//!
//! - A full request (epoch 0) makes a session, if there is room; epoch -1 ends one. Otherwise the
//!   epoch has to be the next one.
//! - The room is `max.incremental.fetch.session.cache.slots` sessions for each shard, and
//!   [`PARTITIONS_MAX`] partitions of all sessions together. A new session takes the place of one
//!   that nobody has used for [`STALE_MS`], or of a smaller one that is that old.
//! - A partition that gave records goes to the end, so that none starves where limits are small.

use std::collections::{BTreeMap, HashMap};

use smallvec::SmallVec;

use crate::wire::StrBytes;
use crate::wire::error::ErrorCode;
use crate::wire::fetch::{FetchPartition, FetchRequest, PartitionAnswer, Records};
use crate::wire::topics::{TopicGroup, TopicGroups, TopicKey};

/// Partitions that all sessions of a shard may have together: some 60 MB.
pub const PARTITIONS_MAX: usize = 400_000;

/// How long a session has to be unused, or old, to make room
/// (`ServerConfigs#MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`).
pub const STALE_MS: u64 = 120_000;

/// No session.
pub const NONE: i32 = 0;

/// The epoch that makes a session.
const INITIAL: i32 = 0;

/// The epoch that wants none.
const FINAL: i32 = -1;

/// What a request has to do with a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// Nothing.
    Sessionless,
    /// Its answer makes one.
    Full,
    /// It goes on with this one, whose epoch is then this.
    Incremental {
        /// The session.
        id: i32,
        /// Its epoch, as long as no further request comes.
        epoch: i32,
    },
}

/// The sessions of one shard.
#[derive(Debug)]
pub struct Sessions {
    slots_max: usize,
    sessions: HashMap<i32, Session>,
    /// Partitions of all of them.
    partitions: usize,
}

#[derive(Debug)]
struct Session {
    /// Whether its topics are named by id.
    by_id: bool,
    epoch: i32,
    created_ms: u64,
    used_ms: u64,
    /// In the order in which they are read.
    order: Order,
    /// Where each topic's partitions stand in it.
    places: HashMap<TopicKey, Places>,
}

/// Partitions by their places.
#[derive(Default, Debug)]
struct Order {
    by_place: BTreeMap<u64, Cached>,
    next: u64,
}

/// Places of a topic's partitions: a name is looked up once, however many it has.
type Places = HashMap<i32, u64>;

/// A partition of a session: what was asked, and what was last told.
#[derive(Debug)]
struct Cached {
    topic: TopicKey,
    wanted: FetchPartition,
    high_watermark: i64,
    log_start: i64,
}

impl Sessions {
    /// No sessions yet; at most so many.
    pub fn new(slots_max: usize) -> Sessions {
        Sessions { slots_max, sessions: HashMap::new(), partitions: 0 }
    }

    /// How many sessions there are.
    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Finds out what a request has to do with a session. One that goes on with a session asks for
    /// all of its partitions from here on.
    ///
    /// # Errors
    /// FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
    pub fn begin(
        &mut self,
        request: &mut FetchRequest,
        by_id: bool,
        now_ms: u64,
    ) -> Result<Context, ErrorCode> {
        let (id, epoch) = (request.session_id, request.session_epoch);
        if [INITIAL, FINAL].contains(&epoch) {
            self.remove(id);
            return Ok(if epoch == FINAL { Context::Sessionless } else { Context::Full });
        }
        let session = self.sessions.get_mut(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        let before = session.order.len();
        session.update(request);
        let after = session.order.len();
        session.used_ms = now_ms;
        session.epoch = next(epoch);
        let context = Context::Incremental { id, epoch: session.epoch };
        if after != 0 {
            session.ask(request);
        }
        self.partitions = self.partitions - before + after;
        if after == 0 {
            self.remove(id);
            return Ok(Context::Sessionless);
        }
        if PARTITIONS_MAX < self.partitions {
            // The client starts anew, and finds out whether there is room for all of it.
            self.remove(id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        Ok(context)
    }

    /// Which partitions of the request the answer has to name, by their place; `None` for all.
    ///
    /// # Errors
    /// INVALID_FETCH_SESSION_EPOCH when a further request came meanwhile,
    /// FETCH_SESSION_ID_NOT_FOUND when the session had to make room.
    pub fn select(
        &self,
        context: Context,
        request: &FetchRequest,
        answers: &[PartitionAnswer],
    ) -> Result<Option<Vec<bool>>, ErrorCode> {
        let Context::Incremental { id, epoch } = context else { return Ok(None) };
        let session = self.sessions.get(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        let mut answers = answers.iter();
        let mut selected = Vec::with_capacity(answers.len());
        for group in &request.topics {
            let places = session.places.get(&group.key);
            for answer in answers.by_ref().take(group.partitions) {
                let place = places.and_then(|places| places.get(&answer.index));
                let cached = place.and_then(|place| session.order.by_place.get(place));
                selected.push(cached.is_none_or(|cached| cached.must_tell(answer)));
            }
        }
        Ok(Some(selected))
    }

    /// The answer is on its way: what it tells is known to the client from here on. A full
    /// request's answer makes its session now. Returns the session's id, or [`NONE`].
    pub fn commit(
        &mut self,
        context: Context,
        (request, answers): (&FetchRequest, &[PartitionAnswer]),
        (new_id, by_id, now_ms): (i32, bool, u64),
    ) -> i32 {
        match context {
            Context::Sessionless => NONE,
            Context::Full => {
                let count = answers.len();
                if !self.has_room(count, now_ms) || self.sessions.contains_key(&new_id) {
                    return NONE;
                }
                let mut session = Session::new(by_id, now_ms);
                let mut asked = request.partitions.iter().zip(answers);
                for group in request.topics.iter().filter(|group| 0 < group.partitions) {
                    let (topic, places, order) = session.of_topic(&group.key);
                    for (wanted, answer) in asked.by_ref().take(group.partitions) {
                        order.add((&topic, places), *wanted);
                        order.told(places, answer);
                    }
                }
                self.partitions += session.order.len();
                self.sessions.insert(new_id, session);
                new_id
            }
            Context::Incremental { id, .. } => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.told(request, answers);
                }
                id
            }
        }
    }

    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions -= session.order.len();
        }
    }

    /// Whether a session of so many partitions fits, once another has made room for it.
    fn has_room(&mut self, count: usize, now_ms: u64) -> bool {
        if count == 0 || PARTITIONS_MAX < count || self.slots_max == 0 {
            return false;
        }
        while self.slots_max <= self.sessions.len() || PARTITIONS_MAX < self.partitions + count {
            match self.dispensable(count, now_ms) {
                Some(id) => self.remove(id),
                None => return false,
            }
        }
        true
    }

    /// The session that makes room for one of so many partitions.
    fn dispensable(&self, count: usize, now_ms: u64) -> Option<i32> {
        let is_past = |since_ms: u64| STALE_MS < now_ms.saturating_sub(since_ms);
        let stale = self.sessions.iter().min_by_key(|(_, session)| session.used_ms);
        if let Some((id, _)) = stale.filter(|(_, session)| is_past(session.used_ms)) {
            return Some(*id);
        }
        let old = self.sessions.iter().filter(|(_, session)| is_past(session.created_ms));
        let smallest = old.min_by_key(|(id, session)| (session.order.len(), **id));
        smallest.filter(|(_, session)| session.order.len() <= count).map(|(id, _)| *id)
    }
}

/// The epoch after this one; it never becomes that of a full request again.
fn next(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// A key that keeps no frame in memory.
fn own(key: &TopicKey) -> TopicKey {
    match key {
        TopicKey::Name(name) => TopicKey::Name(StrBytes::from_string(name.to_string())),
        TopicKey::Id(id) => TopicKey::Id(*id),
    }
}

impl Session {
    fn new(by_id: bool, now_ms: u64) -> Session {
        Session {
            by_id,
            epoch: next(INITIAL),
            created_ms: now_ms,
            used_ms: now_ms,
            order: Order::default(),
            places: HashMap::new(),
        }
    }

    /// What is there of a topic, new or not, and its key, which all of its partitions share.
    fn of_topic(&mut self, key: &TopicKey) -> (TopicKey, &mut Places, &mut Order) {
        let kept = self.places.get_key_value(key).map(|(kept, _)| kept.clone());
        let key = kept.unwrap_or_else(|| own(key));
        (key.clone(), self.places.entry(key).or_default(), &mut self.order)
    }

    fn update(&mut self, request: &FetchRequest) {
        let mut asked = request.partitions.iter();
        for group in request.topics.iter().filter(|group| 0 < group.partitions) {
            let (topic, places, order) = self.of_topic(&group.key);
            for wanted in asked.by_ref().take(group.partitions) {
                order.add((&topic, places), *wanted);
            }
        }
        for forgotten in &request.forgotten {
            let Some(places) = self.places.get_mut(&forgotten.key) else { continue };
            for index in &forgotten.partitions {
                if let Some(place) = places.remove(index) {
                    self.order.by_place.remove(&place);
                }
            }
            if places.is_empty() {
                self.places.remove(&forgotten.key);
            }
        }
    }

    /// Has the request ask for all partitions.
    fn ask(&self, request: &mut FetchRequest) {
        let mut topics = TopicGroups::new();
        let mut partitions = SmallVec::with_capacity(self.order.len());
        for cached in self.order.by_place.values() {
            match topics.last_mut() {
                Some(group) if is_same(&group.key, &cached.topic) => group.partitions += 1,
                _ => topics.push(TopicGroup { key: cached.topic.clone(), partitions: 1 }),
            }
            partitions.push(cached.wanted);
        }
        request.topics = topics;
        request.partitions = partitions;
    }

    /// Remembers what the client is told.
    fn told(&mut self, request: &FetchRequest, answers: &[PartitionAnswer]) {
        let mut answers = answers.iter();
        for group in &request.topics {
            let of_group = answers.by_ref().take(group.partitions);
            match self.places.get_mut(&group.key) {
                Some(places) => of_group.for_each(|answer| self.order.told(places, answer)),
                None => of_group.for_each(drop),
            }
        }
    }
}

/// Whether two keys of one session name one topic. Its partitions share the bytes of a name.
fn is_same(one: &TopicKey, other: &TopicKey) -> bool {
    match (one, other) {
        (TopicKey::Name(one), TopicKey::Name(other)) => {
            one.len() == other.len() && std::ptr::eq(one.as_ptr(), other.as_ptr())
        }
        _ => one == other,
    }
}

impl Order {
    fn len(&self) -> usize {
        self.by_place.len()
    }

    fn add(&mut self, (topic, places): (&TopicKey, &mut Places), wanted: FetchPartition) {
        if let Some(place) = places.get(&wanted.index) {
            if let Some(cached) = self.by_place.get_mut(place) {
                cached.wanted = wanted;
            }
            return;
        }
        places.insert(wanted.index, self.next);
        // Nothing was told yet.
        let cached = Cached { topic: topic.clone(), wanted, high_watermark: -1, log_start: -1 };
        self.by_place.insert(self.next, cached);
        self.next += 1;
    }

    /// Remembers what the client is told of a partition.
    fn told(&mut self, places: &mut Places, answer: &PartitionAnswer) {
        let Some(place) = places.get(&answer.index).copied() else { return };
        let cached = self.by_place.get_mut(&place).expect("every place has its partition");
        // After an error everything is told again.
        let is_error = !answer.error.is_none();
        cached.high_watermark = if is_error { -1 } else { answer.high_watermark };
        cached.log_start = answer.log_start;
        if answer.records != Records::Empty {
            let cached = self.by_place.remove(&place).expect("just looked at");
            self.by_place.insert(self.next, cached);
            places.insert(answer.index, self.next);
            self.next += 1;
        }
    }
}

impl Cached {
    /// Whether the client has to hear of this.
    fn must_tell(&self, answer: &PartitionAnswer) -> bool {
        answer.records != Records::Empty
            || self.high_watermark != answer.high_watermark
            || self.log_start != answer.log_start
            || answer.preferred_replica != -1
            || !answer.error.is_none()
            || answer.diverging.is_some()
    }
}

#[cfg(test)]
mod tests;
