//! A classic group with its members (`GroupMetadataValue`).

use bytes::Bytes;

use super::{RecordError, bytes, put_bytes, put_nullable_text, put_text};
use crate::format::compact::{CompactError, Reader};
use crate::units::Timestamp;

/// Version written.
const VERSION: i16 = 3;
/// Newest version that is read; the first one with the flexible encoding.
const VERSION_FLEXIBLE: i16 = 4;
/// Least that a member takes.
const MEMBER_BYTES_MIN: usize = 4 * 2 + 4 + 2 * 4;

/// A classic group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMetadata {
    /// `consumer`, `connect`, …; empty when no member has ever joined.
    pub protocol_type: String,
    /// Grows with every rebalance.
    pub generation: i32,
    /// The protocol that the members have agreed on.
    pub protocol: Option<String>,
    /// Id of the leading member.
    pub leader: Option<String>,
    /// Since when it has its state; -1 when that isn't known.
    pub state_timestamp: Timestamp,
    /// The members.
    pub members: Vec<MemberMetadata>,
}

/// A member of a classic group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberMetadata {
    /// Its id.
    pub id: String,
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// The client's own name.
    pub client_id: String,
    /// Where it comes from, as Java prints an address: a slash before it.
    pub client_host: String,
    /// How long it may take to join again.
    pub rebalance_timeout_ms: i32,
    /// How long it may be silent.
    pub session_timeout_ms: i32,
    /// What it has said about itself for the protocol.
    pub subscription: Bytes,
    /// What the leader has assigned to it.
    pub assignment: Bytes,
}

impl GroupMetadata {
    /// As a record's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_be_bytes().to_vec();
        put_text(&mut out, &self.protocol_type);
        out.extend_from_slice(&self.generation.to_be_bytes());
        put_nullable_text(&mut out, self.protocol.as_deref());
        put_nullable_text(&mut out, self.leader.as_deref());
        out.extend_from_slice(&self.state_timestamp.0.to_be_bytes());
        let count = i32::try_from(self.members.len()).expect("members are limited");
        out.extend_from_slice(&count.to_be_bytes());
        for member in &self.members {
            member.encode(&mut out);
        }
        out
    }

    /// From a record's value, versions 0 to 4.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<GroupMetadata, RecordError> {
        let mut reader = Reader::new(bytes);
        let version = reader.i16()?;
        let group = match version {
            0..=VERSION => plain(version, &mut reader)?,
            VERSION_FLEXIBLE => flexible(&mut reader)?,
            _ => return Err(RecordError::Version { key: 2, version }),
        };
        reader.end()?;
        Ok(group)
    }
}

impl MemberMetadata {
    fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.id);
        put_nullable_text(out, self.instance.as_deref());
        put_text(out, &self.client_id);
        put_text(out, &self.client_host);
        out.extend_from_slice(&self.rebalance_timeout_ms.to_be_bytes());
        out.extend_from_slice(&self.session_timeout_ms.to_be_bytes());
        put_bytes(out, &self.subscription);
        put_bytes(out, &self.assignment);
    }
}

fn plain(version: i16, reader: &mut Reader<'_>) -> Result<GroupMetadata, CompactError> {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let protocol_type = reader.plain_string()?.to_owned();
    let generation = reader.i32()?;
    let protocol = owned(reader.nullable_plain_string()?);
    let leader = owned(reader.nullable_plain_string()?);
    let state_timestamp = if version >= 2 { Timestamp(reader.i64()?) } else { Timestamp::NONE };
    let count = usize::try_from(reader.i32()?).map_err(|_| CompactError::Null)?;
    if reader.left() / MEMBER_BYTES_MIN < count {
        return Err(CompactError::Truncated);
    }
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        let id = reader.plain_string()?.to_owned();
        let instance = if version >= 3 { owned(reader.nullable_plain_string()?) } else { None };
        let (client_id, client_host) =
            (reader.plain_string()?.to_owned(), reader.plain_string()?.to_owned());
        let rebalance = if version >= 1 { reader.i32()? } else { -1 };
        let session_timeout_ms = reader.i32()?;
        members.push(MemberMetadata {
            id,
            instance,
            client_id,
            client_host,
            rebalance_timeout_ms: rebalance_of(rebalance, session_timeout_ms),
            session_timeout_ms,
            subscription: Bytes::copy_from_slice(bytes(reader)?),
            assignment: Bytes::copy_from_slice(bytes(reader)?),
        });
    }
    Ok(GroupMetadata { protocol_type, generation, protocol, leader, state_timestamp, members })
}

fn flexible(reader: &mut Reader<'_>) -> Result<GroupMetadata, CompactError> {
    let group = GroupMetadata {
        protocol_type: reader.string()?.to_owned(),
        generation: reader.i32()?,
        protocol: reader.nullable_string()?.map(str::to_owned),
        leader: reader.nullable_string()?.map(str::to_owned),
        state_timestamp: Timestamp(reader.i64()?),
        members: reader.items(MEMBER_BYTES_MIN / 2, flexible_member)?,
    };
    reader.tagged(|_, _| Ok(()))?;
    Ok(group)
}

fn flexible_member(reader: &mut Reader<'_>) -> Result<MemberMetadata, CompactError> {
    let id = reader.string()?.to_owned();
    let instance = reader.nullable_string()?.map(str::to_owned);
    let (client_id, client_host) = (reader.string()?.to_owned(), reader.string()?.to_owned());
    let rebalance = reader.i32()?;
    let session_timeout_ms = reader.i32()?;
    let member = MemberMetadata {
        id,
        instance,
        client_id,
        client_host,
        rebalance_timeout_ms: rebalance_of(rebalance, session_timeout_ms),
        session_timeout_ms,
        subscription: compact_bytes(reader)?,
        assignment: compact_bytes(reader)?,
    };
    reader.tagged(|_, _| Ok(()))?;
    Ok(member)
}

fn compact_bytes(reader: &mut Reader<'_>) -> Result<Bytes, CompactError> {
    reader.items(1, Reader::array::<1>).map(|bytes| Bytes::from(bytes.concat()))
}

/// Before there was a rebalance timeout, the session's was used for both.
fn rebalance_of(rebalance: i32, session: i32) -> i32 {
    if rebalance == -1 { session } else { rebalance }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::compact;
    use crate::format::schema::GROUPS;

    fn group() -> GroupMetadata {
        GroupMetadata {
            protocol_type: "consumer".to_owned(),
            generation: 3,
            protocol: Some("range".to_owned()),
            leader: Some("m1".to_owned()),
            state_timestamp: Timestamp(1_000),
            members: vec![MemberMetadata {
                id: "m1".to_owned(),
                instance: Some("i".to_owned()),
                client_id: "c".to_owned(),
                client_host: "/127.0.0.1".to_owned(),
                rebalance_timeout_ms: 300_000,
                session_timeout_ms: 45_000,
                subscription: Bytes::from_static(&[1, 2]),
                assignment: Bytes::from_static(&[3]),
            }],
        }
    }

    #[test]
    fn a_group_comes_back_as_written() {
        let bytes = group().encode();
        assert_eq!(GroupMetadata::decode(&bytes), Ok(group()));
        GROUPS.values[&2].decode(VERSION, &bytes[2..]).expect("the schema's reader takes it");
    }

    #[test]
    fn the_flexible_version_is_read() {
        let mut out = VERSION_FLEXIBLE.to_be_bytes().to_vec();
        let group = GroupMetadata { members: Vec::new(), ..group() };
        compact::put_string(&mut out, &group.protocol_type);
        out.extend_from_slice(&group.generation.to_be_bytes());
        compact::put_nullable_string(&mut out, group.protocol.as_deref());
        compact::put_nullable_string(&mut out, group.leader.as_deref());
        out.extend_from_slice(&group.state_timestamp.0.to_be_bytes());
        out.extend_from_slice(&[1, 0]);
        assert_eq!(GroupMetadata::decode(&out), Ok(group));
    }

    #[test]
    fn a_count_beyond_the_bytes_is_refused() {
        let mut bytes = GroupMetadata { members: Vec::new(), ..group() }.encode();
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&i32::MAX.to_be_bytes());
        let refused = GroupMetadata::decode(&bytes);
        assert_eq!(refused, Err(RecordError::Field(CompactError::Truncated)));
    }
}
