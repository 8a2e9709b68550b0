//! How a Fetch begins and ends around its reading: sessions, byte rates, and what of the partitions
//! the answer names.

use smallvec::SmallVec;

use crate::broker::api::endpoints;
use crate::broker::api::fetch::{Round, join, refuse};
use crate::broker::node::Node;
use crate::broker::quota::CONSUMER_BYTE_RATE;
use crate::broker::sessions::{Context, NONE};
use crate::shard::{Answer, ConnectionInfo, ReadSlice};
use crate::wire::error::ErrorCode;
use crate::wire::fetch::{FetchAnswer, FetchRequest, PartitionAnswer};
use crate::wire::frame::RequestHeader;
use crate::wire::topics::{TopicGroup, TopicGroups};

/// First version whose topics are named by id.
const BY_ID_FROM: i16 = 13;

/// Bytes of an answer besides its partitions, and of a partition besides its records; byte rates
/// are not that exact.
const ANSWER_BYTES: u64 = 40;
const PARTITION_BYTES: u64 = 50;

/// Who asks.
pub struct Asker<'a> {
    /// The shard.
    pub node: &'a Node,
    /// The request's header.
    pub header: &'a RequestHeader,
    /// The connection that it came on.
    pub connection: &'a ConnectionInfo,
}

impl Asker<'_> {
    fn by_id(&self) -> bool {
        BY_ID_FROM <= self.header.version
    }

    /// Finds the request's session and asks for all of its partitions; bounds the bytes by what the
    /// client's rate can give at once.
    ///
    /// # Errors
    /// As [`crate::broker::sessions::Sessions::begin`].
    pub fn begin(&self, request: &mut FetchRequest) -> Result<Context, ErrorCode> {
        let now_ms = self.node.uptime_ms();
        if let Some(bytes) = self.node.bytes_at_once(CONSUMER_BYTE_RATE, self.header) {
            request.bytes_max = request.bytes_max.min(bytes);
        }
        self.node.sessions.borrow_mut().begin(request, self.by_id(), now_ms)
    }

    /// Makes the answer of what was read.
    pub fn end(&self, request: FetchRequest, context: Context, round: Round) -> Answer {
        let Round { answers, slices, .. } = round;
        let chosen = self.node.sessions.borrow().select(context, &request, &answers);
        let chosen = match chosen {
            Ok(chosen) => chosen,
            Err(error) => return refuse(self.node, self.header, error),
        };
        let is_chosen = |at: usize| chosen.as_ref().is_none_or(|chosen| chosen[at]);
        let named = || answers.iter().enumerate().filter(|(at, _)| is_chosen(*at));
        let bytes = named().map(|(_, answer)| PARTITION_BYTES + answer.records.length().0);
        let bytes = ANSWER_BYTES + bytes.sum::<u64>();
        let wait_ms = self.node.fetched(self.header, bytes, self.connection);
        if wait_ms != 0 {
            let id = if let Context::Incremental { id, .. } = context { id } else { NONE };
            return self.encode((&[], &[]), SmallVec::new(), (id, wait_ms));
        }
        // A random number costs a system call.
        let new_id = match context {
            Context::Full => self.node.new_session_id(),
            Context::Sessionless | Context::Incremental { .. } => NONE,
        };
        let new = (new_id, self.by_id(), self.node.uptime_ms());
        let id = self.node.sessions.borrow_mut().commit(context, (&request, &answers), new);
        match chosen {
            None => self.encode((&request.topics, &answers), slices, (id, 0)),
            Some(chosen) => {
                let (topics, answers, slices) = chosen_only(&request, (answers, slices), &chosen);
                self.encode((&topics, &answers), slices, (id, 0))
            }
        }
    }

    fn encode(
        &self,
        (topics, partitions): (&[TopicGroup], &[PartitionAnswer]),
        slices: Slices,
        (session_id, throttle_ms): (i32, i32),
    ) -> Answer {
        let leaders = partitions.iter().filter_map(|answer| answer.leader);
        let nodes = endpoints(self.node, leaders);
        let answer = FetchAnswer {
            version: self.header.version,
            correlation_id: self.header.correlation_id,
            throttle_ms,
            error: ErrorCode::None,
            session_id,
            topics,
            partitions,
            nodes: &nodes,
        };
        join(&answer, slices)
    }
}

type Slices = SmallVec<[Option<ReadSlice>; 2]>;
type Answers = SmallVec<[PartitionAnswer; 2]>;

/// The partitions that the answer names, with their topics and slices.
fn chosen_only(
    request: &FetchRequest,
    (answers, slices): (Answers, Slices),
    chosen: &[bool],
) -> (TopicGroups, Answers, Slices) {
    let mut topics = TopicGroups::new();
    let mut left = chosen.iter();
    for group in &request.topics {
        let count = left.by_ref().take(group.partitions).filter(|it| **it).count();
        if count != 0 {
            topics.push(TopicGroup { key: group.key.clone(), partitions: count });
        }
    }
    let named = answers.into_iter().zip(slices).zip(chosen);
    let (answers, slices) = named.filter(|(_, is_chosen)| **is_chosen).map(|(it, _)| it).unzip();
    (topics, answers, slices)
}
