//! Numbers of variable length: base-128 groups, the least significant first; signed ones are
//! zigzagged. Five bytes at most carry 32 bits, ten carry 64.

const GROUP_BITS: u32 = 7;
const GROUP_MASK: u8 = 0x7f;
const MORE: u8 = 0x80;
/// Longest number of 32 bits.
pub const VARINT_BYTES_MAX: usize = 5;
/// Longest number of 64 bits.
pub const VARLONG_BYTES_MAX: usize = 10;

/// Why bytes are no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VarintError {
    /// The bytes end inside the number.
    #[error("the bytes end inside a number of variable length")]
    Truncated,
    /// More groups than the type has room for.
    #[error("a number of variable length is longer than {0} bytes")]
    Long(usize),
}

/// Takes an unsigned number of 32 bits off the front. Bits beyond the 32 are dropped, as Kafka
/// does.
///
/// # Errors
/// [`VarintError`]; the bytes are left in an unspecified place then.
pub fn take_u32(bytes: &mut &[u8]) -> Result<u32, VarintError> {
    let mut value = 0;
    for group in 0..5_u32 {
        let (&byte, rest) = bytes.split_first().ok_or(VarintError::Truncated)?;
        *bytes = rest;
        value |= u32::from(byte & GROUP_MASK) << (group * GROUP_BITS);
        if byte & MORE == 0 {
            return Ok(value);
        }
    }
    Err(VarintError::Long(VARINT_BYTES_MAX))
}

/// Takes an unsigned number of 64 bits off the front.
///
/// # Errors
/// [`VarintError`].
pub fn take_u64(bytes: &mut &[u8]) -> Result<u64, VarintError> {
    let mut value = 0;
    for group in 0..10_u32 {
        let (&byte, rest) = bytes.split_first().ok_or(VarintError::Truncated)?;
        *bytes = rest;
        value |= u64::from(byte & GROUP_MASK) << (group * GROUP_BITS);
        if byte & MORE == 0 {
            return Ok(value);
        }
    }
    Err(VarintError::Long(VARLONG_BYTES_MAX))
}

/// Takes a zigzagged number of 32 bits off the front.
///
/// # Errors
/// [`VarintError`].
pub fn take_i32(bytes: &mut &[u8]) -> Result<i32, VarintError> {
    let value = take_u32(bytes)?;
    Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
}

/// Takes a zigzagged number of 64 bits off the front.
///
/// # Errors
/// [`VarintError`].
pub fn take_i64(bytes: &mut &[u8]) -> Result<i64, VarintError> {
    let value = take_u64(bytes)?;
    Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
}

/// Appends an unsigned number of 32 bits.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    put_u64(out, u64::from(value));
}

/// Appends an unsigned number of 64 bits.
pub fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let group = value.to_le_bytes()[0] & GROUP_MASK;
        value >>= GROUP_BITS;
        if value == 0 {
            out.push(group);
            return;
        }
        out.push(group | MORE);
    }
}

/// Appends a zigzagged number of 32 bits.
pub fn put_i32(out: &mut Vec<u8>, value: i32) {
    put_u32(out, ((value << 1) ^ (value >> 31)).cast_unsigned());
}

/// Appends a zigzagged number of 64 bits.
pub fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Bytes of a zigzagged number of 32 bits.
pub fn length_i32(value: i32) -> usize {
    length(u64::from(((value << 1) ^ (value >> 31)).cast_unsigned()))
}

/// Bytes of a zigzagged number of 64 bits.
pub fn length_i64(value: i64) -> usize {
    length(((value << 1) ^ (value >> 63)).cast_unsigned())
}

fn length(value: u64) -> usize {
    let bits = (u64::BITS - value.leading_zeros()).max(1);
    usize::try_from(bits.div_ceil(GROUP_BITS)).expect("at most ten")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_numbers_and_edges() {
        let encoded = |value| {
            let mut out = Vec::new();
            put_i32(&mut out, value);
            out
        };
        assert_eq!(encoded(0), [0]);
        assert_eq!(encoded(-1), [1]);
        assert_eq!(encoded(64), [0x80, 1]);
        assert_eq!(encoded(i32::MIN), [0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(take_i32(&mut &[0x80][..]), Err(VarintError::Truncated));
        assert_eq!(take_i32(&mut &[0x80; 6][..]), Err(VarintError::Long(5)));
        assert_eq!(take_i64(&mut &[0x80; 11][..]), Err(VarintError::Long(10)));
    }

    proptest! {
        #[test]
        fn every_number_survives(small: i32, large: i64) {
            let mut out = Vec::new();
            put_i32(&mut out, small);
            prop_assert_eq!(out.len(), length_i32(small));
            put_i64(&mut out, large);
            prop_assert_eq!(out.len(), length_i32(small) + length_i64(large));
            let mut rest = &out[..];
            prop_assert_eq!(take_i32(&mut rest), Ok(small));
            prop_assert_eq!(take_i64(&mut rest), Ok(large));
            prop_assert!(rest.is_empty());
        }
    }
}
