//! Fetch: requests in versions 4 to 18, and answers with holes where record bytes go.

mod answer;
mod request;

pub use answer::{
    AbortedTransaction, EpochEnd, FetchAnswer, Part, PartitionAnswer, Parts, Records, SlicePart,
};
pub use request::{FetchPartition, FetchRequest, ForgottenTopic};

const SESSION_FROM: i16 = 7;
const LOG_START_FROM: i16 = 5;
const CURRENT_EPOCH_FROM: i16 = 9;
const RACK_FROM: i16 = 11;
const PREFERRED_REPLICA_FROM: i16 = 11;
const LAST_EPOCH_FROM: i16 = 12;
const TOPIC_ID_FROM: i16 = 13;
const REPLICA_STATE_FROM: i16 = 15;
const NODES_FROM: i16 = 16;
