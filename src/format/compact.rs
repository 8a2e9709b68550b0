//! The "flexible" encoding of KRaft records: big-endian numbers, compact strings and arrays (length
//! plus one as an unsigned varint, 0 for null), and tagged fields at the end of every struct.
//!
//! Every length is checked against the bytes left before anything is allocated.

use crate::format::varint::{self, VarintError};
use crate::units::u64_of;

/// Why bytes are no flexible struct.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompactError {
    /// The bytes end inside a field.
    #[error("the bytes end inside a field")]
    Truncated,
    /// A number of variable length isn't one.
    #[error(transparent)]
    Varint(#[from] VarintError),
    /// A length beyond the bytes left.
    #[error("a field announces {announced} items or bytes with {left} bytes left")]
    Length {
        /// As announced.
        announced: u64,
        /// Bytes at hand.
        left: u64,
    },
    /// A list of more items than bytes are left.
    #[error("a list announces {announced} items with {left} bytes left")]
    Items {
        /// As announced.
        announced: u64,
        /// Bytes at hand.
        left: u64,
    },
    /// A string of more bytes than Kafka takes in a record.
    #[error("a string announces {0} bytes, more than 32767")]
    LongText(u64),
    /// Null where the schema has no null.
    #[error("null where a value must stand")]
    Null,
    /// A string that isn't UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// Tags must rise.
    #[error("tagged field {0} is out of order")]
    TagOrder(u32),
    /// Bytes behind the struct.
    #[error("{0} bytes are left over")]
    Surplus(u64),
}

/// Takes fields off the front of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// A fixed number of bytes.
    ///
    /// # Errors
    /// [`CompactError::Truncated`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], CompactError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(CompactError::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// A signed byte.
    ///
    /// # Errors
    /// [`CompactError::Truncated`].
    pub fn i8(&mut self) -> Result<i8, CompactError> {
        self.array().map(i8::from_be_bytes)
    }

    /// 16 bits.
    ///
    /// # Errors
    /// [`CompactError::Truncated`].
    pub fn i16(&mut self) -> Result<i16, CompactError> {
        self.array().map(i16::from_be_bytes)
    }

    /// 32 bits.
    ///
    /// # Errors
    /// [`CompactError::Truncated`].
    pub fn i32(&mut self) -> Result<i32, CompactError> {
        self.array().map(i32::from_be_bytes)
    }

    /// 64 bits.
    ///
    /// # Errors
    /// [`CompactError::Truncated`].
    pub fn i64(&mut self) -> Result<i64, CompactError> {
        self.array().map(i64::from_be_bytes)
    }

    /// An unsigned number of variable length.
    ///
    /// # Errors
    /// [`CompactError::Varint`].
    pub fn uvarint(&mut self) -> Result<u32, CompactError> {
        Ok(varint::take_u32(&mut self.rest)?)
    }

    /// The length of something whose items have at least `item_bytes`; `None` for null.
    fn length(&mut self, item_bytes: usize) -> Result<Option<usize>, CompactError> {
        let Some(announced) = self.uvarint()?.checked_sub(1) else { return Ok(None) };
        self.checked(u64::from(announced), item_bytes).map(Some)
    }

    fn checked(&self, announced: u64, item_bytes: usize) -> Result<usize, CompactError> {
        let items = usize::try_from(announced).ok();
        let fits = |items: &usize| {
            items.checked_mul(item_bytes).is_some_and(|bytes| bytes <= self.rest.len())
        };
        let left = u64_of(self.rest.len());
        items.filter(fits).ok_or(CompactError::Length { announced, left })
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        bytes
    }

    /// So many bytes.
    ///
    /// # Errors
    /// [`CompactError::Length`].
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], CompactError> {
        let length = self.checked(u64_of(length), 1)?;
        Ok(self.bytes(length))
    }

    /// A string of the plain encoding, whose length is of 16 bits, or null.
    ///
    /// # Errors
    /// [`CompactError`].
    pub fn nullable_plain_string(&mut self) -> Result<Option<&'a str>, CompactError> {
        let Ok(length) = usize::try_from(self.i16()?) else { return Ok(None) };
        str::from_utf8(self.take(length)?).map(Some).map_err(|_| CompactError::Utf8)
    }

    /// A string of the plain encoding.
    ///
    /// # Errors
    /// [`CompactError`].
    pub fn plain_string(&mut self) -> Result<&'a str, CompactError> {
        self.nullable_plain_string()?.ok_or(CompactError::Null)
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// A string or null.
    ///
    /// # Errors
    /// [`CompactError`].
    pub fn nullable_string(&mut self) -> Result<Option<&'a str>, CompactError> {
        let Some(length) = self.length(1)? else { return Ok(None) };
        str::from_utf8(self.bytes(length)).map(Some).map_err(|_| CompactError::Utf8)
    }

    /// A string.
    ///
    /// # Errors
    /// [`CompactError`].
    pub fn string(&mut self) -> Result<&'a str, CompactError> {
        self.nullable_string()?.ok_or(CompactError::Null)
    }

    /// An array or null; `item_bytes` is the least that an item takes.
    ///
    /// # Errors
    /// [`CompactError`].
    pub fn nullable_items<T>(
        &mut self,
        item_bytes: usize,
        mut item: impl FnMut(&mut Reader<'a>) -> Result<T, CompactError>,
    ) -> Result<Option<Vec<T>>, CompactError> {
        let Some(length) = self.length(item_bytes)? else { return Ok(None) };
        (0..length).map(|_| item(self)).collect::<Result<_, _>>().map(Some)
    }

    /// An array.
    ///
    /// # Errors
    /// [`CompactError`].
    pub fn items<T>(
        &mut self,
        item_bytes: usize,
        item: impl FnMut(&mut Reader<'a>) -> Result<T, CompactError>,
    ) -> Result<Vec<T>, CompactError> {
        self.nullable_items(item_bytes, item)?.ok_or(CompactError::Null)
    }

    /// The tagged fields that end a struct: `field` gets the tag and the field's bytes.
    ///
    /// # Errors
    /// [`CompactError`].
    pub fn tagged(
        &mut self,
        mut field: impl FnMut(u32, Reader<'a>) -> Result<(), CompactError>,
    ) -> Result<(), CompactError> {
        let count = self.uvarint()?;
        let mut lowest = 0;
        for _ in 0..count {
            let tag = self.uvarint()?;
            if tag < lowest {
                return Err(CompactError::TagOrder(tag));
            }
            let length = u64::from(self.uvarint()?);
            let length = self.checked(length, 1)?;
            field(tag, Reader::new(self.bytes(length)))?;
            lowest = tag.checked_add(1).ok_or(CompactError::TagOrder(tag))?;
        }
        Ok(())
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// [`CompactError::Surplus`].
    pub fn end(self) -> Result<(), CompactError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(CompactError::Surplus(u64_of(left))),
        }
    }
}

/// Appends an unsigned number of variable length: the length plus one, or 0 for null.
fn put_length(out: &mut Vec<u8>, length: Option<usize>) {
    let plus_one = length.map_or(0, |length| length + 1);
    varint::put_u32(out, u32::try_from(plus_one).expect("a field is shorter than 2^32"));
}

/// Appends a string or null.
pub fn put_nullable_string(out: &mut Vec<u8>, text: Option<&str>) {
    put_length(out, text.map(str::len));
    out.extend_from_slice(text.unwrap_or("").as_bytes());
}

/// Appends a string.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    put_nullable_string(out, Some(text));
}

/// Appends an array.
pub fn put_items<T>(out: &mut Vec<u8>, items: &[T], mut item: impl FnMut(&mut Vec<u8>, &T)) {
    put_length(out, Some(items.len()));
    for one in items {
        item(out, one);
    }
}

/// Appends the tagged fields that end a struct, in the order of their tags.
pub fn put_tagged(out: &mut Vec<u8>, fields: &[(u32, Vec<u8>)]) {
    assert!(fields.is_sorted_by(|one, next| one.0 < next.0));
    let length = |length: usize| u32::try_from(length).expect("a field is shorter than 2^32");
    varint::put_u32(out, length(fields.len()));
    for (tag, bytes) in fields {
        varint::put_u32(out, *tag);
        varint::put_u32(out, length(bytes.len()));
        out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_lengths_are_refused_before_allocation() {
        let billions = [0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2, 3];
        let refused = Reader::new(&billions).items(4, Reader::i32);
        let announced = u64::from(u32::MAX) - 1;
        assert_eq!(refused, Err(CompactError::Length { announced, left: 3 }));
        assert!(Reader::new(&billions).string().is_err());
        assert!(Reader::new(&billions).tagged(|_, _| Ok(())).is_err());
        assert_eq!(Reader::new(&[0]).string(), Err(CompactError::Null));
        assert_eq!(Reader::new(&[2, 0xff]).string(), Err(CompactError::Utf8));
        assert_eq!(Reader::new(&[1]).end(), Err(CompactError::Surplus(1)));
    }

    #[test]
    fn tags_must_rise() {
        let tags = |bytes: &[u8]| {
            let mut seen = Vec::new();
            let mut reader = Reader::new(bytes);
            reader.tagged(|tag, field| {
                seen.push((tag, field.rest.len()));
                Ok(())
            })?;
            reader.end().map(|()| seen)
        };
        assert_eq!(tags(&[2, 0, 1, 9, 3, 0]), Ok(vec![(0, 1), (3, 0)]));
        assert_eq!(tags(&[2, 3, 0, 3, 0]), Err(CompactError::TagOrder(3)));
        assert_eq!(tags(&[1, 3, 2, 0]), Err(CompactError::Length { announced: 2, left: 1 }));
    }
}
