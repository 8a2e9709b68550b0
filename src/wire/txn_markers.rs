//! WriteTxnMarkers: requests in versions 1 and 2, where the codec stops at 1.
//!
//! ```text
//! markers { producer id i64 | producer epoch i16 | committed i8
//!           | topics { name | partitions { i32 } | [tags] }
//!           | coordinator epoch i32 | transaction version i8 (2) | [tags] } | [tags]
//! ```

use bytes::BytesMut;

use super::StrBytes;
use super::error::WireError;
use super::read::Reader;
use super::topics::check_count;
use super::versions::{self, api};
use crate::units::{LeaderEpoch, ProducerEpoch, ProducerId};

const TRANSACTION_VERSION_FROM: i16 = 2;

/// Fewest bytes of a marker: id, epoch, result, number of topics, coordinator epoch, tags.
const MARKER_BYTES_MIN: usize = 17;
/// Fewest bytes of a topic: length of its name, number of partitions, tags.
const TOPIC_BYTES_MIN: usize = 3;

/// Ends of transactions for partitions that this broker leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteTxnMarkersRequest {
    /// One for each transaction.
    pub markers: Vec<TxnMarker>,
}

/// The end of one transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxnMarker {
    /// Whose it is.
    pub producer_id: ProducerId,
    /// The epoch that the marker carries.
    pub producer_epoch: ProducerEpoch,
    /// Whether the records count.
    pub commits: bool,
    /// Topics with their partitions.
    pub topics: Vec<(StrBytes, Vec<i32>)>,
    /// Epoch of the coordinator that writes it.
    pub coordinator_epoch: LeaderEpoch,
    /// Level of `transaction.version` that the transaction had; 0 before version 2.
    pub transaction_version: i8,
}

impl WriteTxnMarkersRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// [`WireError`]: unsupported version, or a length that doesn't fit.
    pub fn decode(body: BytesMut, version: i16) -> Result<WriteTxnMarkersRequest, WireError> {
        let range = versions::check(api::WRITE_TXN_MARKERS, version)?;
        let mut reader = Reader::new(body, range.is_flexible(version));
        let count = reader.array(MARKER_BYTES_MIN, "markers")?;
        check_count(count)?;
        let mut markers = Vec::new();
        for _ in 0..count {
            markers.push(TxnMarker::decode(&mut reader, version)?);
        }
        reader.skip_tags("body tags")?;
        Ok(WriteTxnMarkersRequest { markers })
    }
}

impl TxnMarker {
    fn decode(reader: &mut Reader<BytesMut>, version: i16) -> Result<TxnMarker, WireError> {
        let producer_id = ProducerId(reader.i64("producer id")?);
        let producer_epoch = ProducerEpoch(reader.i16("producer epoch")?);
        let commits = reader.i8("transaction result")? != 0;
        let count = reader.array(TOPIC_BYTES_MIN, "topics")?;
        check_count(count)?;
        let mut topics = Vec::new();
        for _ in 0..count {
            topics.push(decode_topic(reader)?);
        }
        let coordinator_epoch = LeaderEpoch(reader.i32("coordinator epoch")?);
        let has_version = version >= TRANSACTION_VERSION_FROM;
        let transaction_version = if has_version { reader.i8("transaction version")? } else { 0 };
        reader.skip_tags("marker tags")?;
        Ok(TxnMarker {
            producer_id,
            producer_epoch,
            commits,
            topics,
            coordinator_epoch,
            transaction_version,
        })
    }
}

fn decode_topic(reader: &mut Reader<BytesMut>) -> Result<(StrBytes, Vec<i32>), WireError> {
    let name = reader.text("topic name")?;
    let count = reader.array(size_of::<i32>(), "partition indexes")?;
    check_count(count)?;
    let mut partitions = Vec::with_capacity(count);
    for _ in 0..count {
        partitions.push(reader.i32("partition index")?);
    }
    reader.skip_tags("topic tags")?;
    Ok((name, partitions))
}
