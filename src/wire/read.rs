//! Reading the protocol's primitive types, each length checked against the bytes that are left.
//!
//! Versions of a message are either classic (lengths of 2 or 4 bytes, -1 for null) or flexible
//! (lengths as unsigned varints of length + 1, 0 for null, every struct ends in tagged fields).

use bytes::{Buf, BytesMut};

use super::StrBytes;
use super::error::WireError;
use crate::units::{TopicId, u64_of, usize_of};

/// Tagged fields that one message may carry in all; nobody sends more than a handful, and Kafka
/// 4.4 draws the line at 10,000.
pub const TAGS_MAX: u64 = 1_000;

/// A message being read, front to back.
#[derive(Debug)]
pub struct Reader<B> {
    bytes: B,
    flexible: bool,
    tags_left: u64,
}

impl<B: Buf> Reader<B> {
    /// Reads `bytes` as a message whose version is `flexible` or not.
    pub fn new(bytes: B, flexible: bool) -> Reader<B> {
        Reader { bytes, flexible, tags_left: TAGS_MAX }
    }

    /// Bytes not read yet.
    pub fn left(&self) -> usize {
        self.bytes.remaining()
    }

    /// Fails unless `count` bytes are left.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    pub fn need(&self, count: usize, what: &'static str) -> Result<(), WireError> {
        if count <= self.left() {
            return Ok(());
        }
        Err(WireError::Truncated { what, needed: u64_of(count), left: u64_of(self.left()) })
    }

    /// Passes over `count` bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    pub fn skip(&mut self, count: usize, what: &'static str) -> Result<(), WireError> {
        self.need(count, what)?;
        self.bytes.advance(count);
        Ok(())
    }

    /// One signed byte.
    ///
    /// # Errors
    /// [`WireError::Truncated`], as for all the numbers below.
    pub fn i8(&mut self, what: &'static str) -> Result<i8, WireError> {
        self.need(size_of::<i8>(), what)?;
        Ok(self.bytes.get_i8())
    }

    /// Two bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    pub fn i16(&mut self, what: &'static str) -> Result<i16, WireError> {
        self.need(size_of::<i16>(), what)?;
        Ok(self.bytes.get_i16())
    }

    /// Four bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    pub fn i32(&mut self, what: &'static str) -> Result<i32, WireError> {
        self.need(size_of::<i32>(), what)?;
        Ok(self.bytes.get_i32())
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    pub fn i64(&mut self, what: &'static str) -> Result<i64, WireError> {
        self.need(size_of::<i64>(), what)?;
        Ok(self.bytes.get_i64())
    }

    /// A topic's id: sixteen bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    pub fn topic_id(&mut self, what: &'static str) -> Result<TopicId, WireError> {
        let mut id = TopicId::ZERO;
        self.need(id.0.len(), what)?;
        self.bytes.copy_to_slice(&mut id.0);
        Ok(id)
    }

    /// An unsigned varint of at most 32 bits.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Length`] beyond five bytes or 32 bits.
    pub fn uvarint(&mut self, what: &'static str) -> Result<u32, WireError> {
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            self.need(1, what)?;
            let byte = self.bytes.get_u8();
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let length = i64::try_from(value).expect("35 bits fit 63");
                return u32::try_from(value).map_err(|_| WireError::Length { what, length });
            }
        }
        Err(WireError::Length { what, length: -1 })
    }

    /// Length of a text or byte string, `None` for null; that many bytes are left.
    fn length(&mut self, classic: Classic, what: &'static str) -> Result<Option<usize>, WireError> {
        let length = match (self.flexible, classic) {
            (true, _) => i64::from(self.uvarint(what)?) - 1,
            (false, Classic::Two) => i64::from(self.i16(what)?),
            (false, Classic::Four) => i64::from(self.i32(what)?),
        };
        match u64::try_from(length) {
            Ok(length) => {
                self.need(usize_of(length), what)?;
                Ok(Some(usize_of(length)))
            }
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(WireError::Length { what, length }),
        }
    }

    /// Length of a text, `None` for null; that many bytes are left.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::Length`].
    pub fn text_length(&mut self, what: &'static str) -> Result<Option<usize>, WireError> {
        self.length(Classic::Two, what)
    }

    /// Length of a byte string or of records, `None` for null; that many bytes are left.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::Length`].
    pub fn bytes_length(&mut self, what: &'static str) -> Result<Option<usize>, WireError> {
        self.length(Classic::Four, what)
    }

    /// Elements of an array, `None` for null, after the check that elements of at least
    /// `element_bytes_min` bytes can follow.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::Length`].
    pub fn array_length(
        &mut self,
        element_bytes_min: usize,
        what: &'static str,
    ) -> Result<Option<usize>, WireError> {
        let length = match self.flexible {
            true => i64::from(self.uvarint(what)?) - 1,
            false => i64::from(self.i32(what)?),
        };
        let Ok(count) = u64::try_from(length) else {
            return if length == -1 { Ok(None) } else { Err(WireError::Length { what, length }) };
        };
        // Both factors are below 2^32, so the product fits 64 bits.
        self.need(usize_of(count) * element_bytes_min, what)?;
        Ok(Some(usize_of(count)))
    }

    /// Like [`Reader::array_length`] for an array that may not be null.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::Length`] for null too.
    pub fn array(&mut self, bytes_min: usize, what: &'static str) -> Result<usize, WireError> {
        let length = self.array_length(bytes_min, what)?;
        length.ok_or(WireError::Length { what, length: -1 })
    }

    /// How many tagged fields follow; none in a classic version.
    ///
    /// # Errors
    /// [`WireError::TooMany`] beyond [`TAGS_MAX`] in the whole message.
    pub fn tags(&mut self, what: &'static str) -> Result<u64, WireError> {
        if !self.flexible {
            return Ok(0);
        }
        let count = u64::from(self.uvarint(what)?);
        let Some(left) = self.tags_left.checked_sub(count) else {
            return Err(WireError::TooMany { what, count, limit: TAGS_MAX });
        };
        self.tags_left = left;
        Ok(count)
    }

    /// Number and size of the next tagged field; its bytes are left.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::Length`].
    pub fn tag(&mut self, what: &'static str) -> Result<(u32, usize), WireError> {
        let number = self.uvarint(what)?;
        let size = usize_of(u64::from(self.uvarint(what)?));
        self.need(size, what)?;
        Ok((number, size))
    }

    /// Passes over the tagged fields at the end of a struct.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::Length`], [`WireError::TooMany`].
    pub fn skip_tags(&mut self, what: &'static str) -> Result<(), WireError> {
        for _ in 0..self.tags(what)? {
            let (_, size) = self.tag(what)?;
            self.skip(size, what)?;
        }
        Ok(())
    }
}

impl Reader<BytesMut> {
    /// The next `count` bytes, split off without a copy.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<BytesMut, WireError> {
        self.need(count, what)?;
        Ok(self.bytes.split_to(count))
    }

    /// A text that may be null, split off without a copy.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::Length`], [`WireError::Text`].
    pub fn nullable_text(&mut self, what: &'static str) -> Result<Option<StrBytes>, WireError> {
        let Some(length) = self.text_length(what)? else { return Ok(None) };
        let bytes = self.take(length, what)?.freeze();
        StrBytes::from_utf8(bytes).map(Some).map_err(|_| WireError::Text(what))
    }

    /// A text that may not be null.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::Length`] for null too, [`WireError::Text`].
    pub fn text(&mut self, what: &'static str) -> Result<StrBytes, WireError> {
        self.nullable_text(what)?.ok_or(WireError::Length { what, length: -1 })
    }

    /// Records, split off without a copy; null counts as none.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::Length`].
    pub fn records(&mut self, what: &'static str) -> Result<BytesMut, WireError> {
        match self.bytes_length(what)? {
            Some(length) => self.take(length, what),
            None => Ok(BytesMut::new()),
        }
    }

    /// What hasn't been read.
    pub fn into_rest(self) -> BytesMut {
        self.bytes
    }
}

/// Width of a length in a classic version.
#[derive(Clone, Copy)]
enum Classic {
    Two,
    Four,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flexible(bytes: &[u8]) -> Reader<&[u8]> {
        Reader::new(bytes, true)
    }

    #[test]
    fn varints_end_after_five_bytes_and_32_bits() {
        assert_eq!(flexible(&[0xff, 0xff, 0xff, 0xff, 0x0f]).uvarint("n"), Ok(u32::MAX));
        assert_eq!(flexible(&[0x80, 0x01]).uvarint("n"), Ok(128));
        let beyond = flexible(&[0xff, 0xff, 0xff, 0xff, 0x1f]).uvarint("n");
        assert!(matches!(beyond, Err(WireError::Length { .. })));
        let endless = flexible(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).uvarint("n");
        assert!(matches!(endless, Err(WireError::Length { .. })));
        assert!(matches!(flexible(&[0x80]).uvarint("n"), Err(WireError::Truncated { .. })));
    }

    #[test]
    fn an_array_must_fit_what_is_left() {
        assert_eq!(flexible(&[3, 0, 0]).array_length(1, "a"), Ok(Some(2)));
        assert_eq!(flexible(&[0]).array_length(1, "a"), Ok(None));
        assert!(matches!(flexible(&[4, 0, 0]).array(1, "a"), Err(WireError::Truncated { .. })));
        let mut two_billion = Reader::new(&[0x7f, 0xff, 0xff, 0xff][..], false);
        assert!(matches!(two_billion.array(3, "a"), Err(WireError::Truncated { .. })));
        let mut negative = Reader::new(&[0xff, 0xff, 0xff, 0xfe][..], false);
        assert_eq!(negative.array(3, "a"), Err(WireError::Length { what: "a", length: -2 }));
    }

    #[test]
    fn tagged_fields_are_counted_over_the_whole_message() {
        let mut reader = flexible(&[1, 7, 2, 0xaa, 0xbb, 0]);
        reader.skip_tags("tags").expect("one field of two bytes");
        reader.skip_tags("tags").expect("none");
        assert_eq!(reader.left(), 0);
        let many = flexible(&[0xe9, 0x07]).skip_tags("tags");
        assert_eq!(many, Err(WireError::TooMany { what: "tags", count: 1_001, limit: TAGS_MAX }));
    }
}
