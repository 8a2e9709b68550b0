//! Metadata records about clients and users: quotas and SCRAM credentials.

use std::collections::BTreeMap;

use super::compact::{CompactError, Reader, put_items, put_nullable_string, put_string};

/// Whom a quota is for: the kind of each part (`user`, `client-id` or `ip`) with its name; `None`
/// stands for everybody who has no quota of their own.
pub type QuotaEntity = BTreeMap<String, Option<String>>;

/// The value of a quota; compared by its bits, so that records can be compared.
#[derive(Clone, Copy, Debug)]
pub struct QuotaValue(pub f64);

impl PartialEq for QuotaValue {
    fn eq(&self, other: &QuotaValue) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for QuotaValue {}

/// A quota is set or removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaRecord {
    /// For whom.
    pub entity: QuotaEntity,
    /// Of what, such as `producer_byte_rate`.
    pub key: String,
    /// How much; `None` removes it.
    pub value: Option<QuotaValue>,
}

/// What a user proves to know a password by (RFC 5802).
#[derive(Clone, PartialEq, Eq)]
pub struct ScramRecord {
    /// The user.
    pub user: String,
    /// 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512.
    pub mechanism: i8,
    /// What the password was salted with.
    pub salt: Vec<u8>,
    /// The hash of the client's key.
    pub stored_key: Vec<u8>,
    /// The server's key.
    pub server_key: Vec<u8>,
    /// How often it was hashed.
    pub iterations: i32,
}

/// Keys belong into no log.
impl std::fmt::Debug for ScramRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScramRecord({}, mechanism {})", self.user, self.mechanism)
    }
}

/// Fewest bytes of an entity's part: two lengths and no tagged fields.
const ENTITY_BYTES_MIN: usize = 3;

pub(super) fn put_quota(out: &mut Vec<u8>, record: &QuotaRecord) {
    let parts: Vec<(&String, &Option<String>)> = record.entity.iter().collect();
    put_items(out, &parts, |out, (kind, name)| {
        put_string(out, kind);
        put_nullable_string(out, name.as_deref());
        out.push(0);
    });
    put_string(out, &record.key);
    out.extend(record.value.map_or(0.0, |value| value.0).to_be_bytes());
    out.push(u8::from(record.value.is_none()));
}

pub(super) fn take_quota(reader: &mut Reader<'_>) -> Result<QuotaRecord, CompactError> {
    let parts = reader.items(ENTITY_BYTES_MIN, |reader| {
        let kind = reader.string()?.to_owned();
        let name = reader.nullable_string()?.map(str::to_owned);
        reader.tagged(|_, _| Ok(()))?;
        Ok((kind, name))
    })?;
    let key = reader.string()?.to_owned();
    let value = QuotaValue(f64::from_be_bytes(reader.array()?));
    let is_removed = reader.i8()? != 0;
    let entity = parts.into_iter().collect();
    Ok(QuotaRecord { entity, key, value: (!is_removed).then_some(value) })
}

pub(super) fn put_scram(out: &mut Vec<u8>, record: &ScramRecord) {
    put_string(out, &record.user);
    out.extend(record.mechanism.to_be_bytes());
    for bytes in [&record.salt, &record.stored_key, &record.server_key] {
        put_items(out, bytes, |out, byte| out.push(*byte));
    }
    out.extend(record.iterations.to_be_bytes());
}

pub(super) fn take_scram(reader: &mut Reader<'_>) -> Result<ScramRecord, CompactError> {
    let byte = |reader: &mut Reader<'_>| reader.array().map(|[byte]| byte);
    Ok(ScramRecord {
        user: reader.string()?.to_owned(),
        mechanism: reader.i8()?,
        salt: reader.items(1, byte)?,
        stored_key: reader.items(1, byte)?,
        server_key: reader.items(1, byte)?,
        iterations: reader.i32()?,
    })
}
