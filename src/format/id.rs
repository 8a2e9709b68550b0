//! Kafka's way of writing 16-byte ids: 22 characters of URL-safe base64 without padding.

use std::fmt;

use crate::units::{TopicId, u64_of};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const ID_BYTES: usize = 16;
/// Characters of an id.
pub const ID_CHARACTERS: usize = 22;
const CHARACTER_BITS: u32 = 6;
/// The last character carries two bits; the other four of it are zero.
const LAST_CHARACTER_BITS: u32 = 128 - 21 * CHARACTER_BITS;

/// The fixed id of the metadata topic; written `AAAAAAAAAAAAAAAAAAAAAQ`.
pub const CLUSTER_METADATA_ID: TopicId = TopicId([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// Ids whose number is below this are reserved by Kafka for topics and directories with a meaning.
const RESERVED: u128 = 100;

/// Why a text is no id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdError {
    /// Not 22 characters; says how many bytes.
    #[error("an id has {ID_CHARACTERS} characters, this text has {0} bytes")]
    Length(u64),
    /// A character that URL-safe base64 doesn't have, or bits set beyond the 128.
    #[error("character {0} of the id is not one of URL-safe base64 or not possible there")]
    Character(u64),
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode(self.0))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Writes an id.
pub fn encode(id: [u8; ID_BYTES]) -> String {
    let number = u128::from_be_bytes(id);
    let character = |at: u32| {
        let shift = 128_u32.checked_sub((at + 1) * CHARACTER_BITS);
        let bits = match shift {
            Some(shift) => number >> shift,
            None => number << (CHARACTER_BITS - LAST_CHARACTER_BITS),
        };
        char::from(ALPHABET[usize::try_from(bits & 0x3f).expect("six bits index the alphabet")])
    };
    (0..22).map(character).collect()
}

/// Reads an id; the text must be exactly as [`encode`] writes it.
///
/// # Errors
/// [`IdError`].
pub fn decode(text: &str) -> Result<[u8; ID_BYTES], IdError> {
    let (last, front) = match text.as_bytes() {
        [front @ .., last] if text.len() == ID_CHARACTERS => (*last, front),
        _ => return Err(IdError::Length(u64_of(text.len()))),
    };
    let mut number = 0_u128;
    for (at, &character) in front.iter().enumerate() {
        let bits = value(character).ok_or(IdError::Character(u64_of(at)))?;
        number = (number << CHARACTER_BITS) | bits;
    }
    let spare = CHARACTER_BITS - LAST_CHARACTER_BITS;
    let bits = value(last).filter(|bits| bits & ((1 << spare) - 1) == 0);
    let bits = bits.ok_or(IdError::Character(u64_of(front.len())))?;
    Ok(((number << LAST_CHARACTER_BITS) | (bits >> spare)).to_be_bytes())
}

/// Whether Kafka keeps the id for a meaning of its own: zero (none), lost, unassigned and the like.
pub fn is_reserved(id: [u8; ID_BYTES]) -> bool {
    u128::from_be_bytes(id) < RESERVED
}

fn value(character: u8) -> Option<u128> {
    let at = ALPHABET.iter().position(|&one| one == character)?;
    u128::try_from(at).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_look_like_kafkas() {
        assert_eq!(encode(CLUSTER_METADATA_ID.0), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(decode("AAAAAAAAAAAAAAAAAAAAAQ"), Ok(CLUSTER_METADATA_ID.0));
        assert_eq!(encode([0xff; 16]), "_____________________w");
        assert_eq!(decode("AAAA"), Err(IdError::Length(4)));
        assert_eq!(decode("AAAAAAAAAAAAAAAAAAAAAR"), Err(IdError::Character(21)));
        assert_eq!(decode("AA+AAAAAAAAAAAAAAAAAAQ"), Err(IdError::Character(2)));
        assert!(is_reserved(CLUSTER_METADATA_ID.0));
        assert!(!is_reserved([1; 16]));
    }

    proptest! {
        #[test]
        fn every_id_survives(id in any::<[u8; 16]>()) {
            let text = encode(id);
            prop_assert_eq!(text.len(), ID_CHARACTERS);
            prop_assert_eq!(decode(&text), Ok(id));
        }
    }
}
