//! Writing the protocol's primitive types; the counterpart of [`super::read`].

use bytes::{BufMut, BytesMut};
use kafka_protocol::protocol::Encodable;

use super::error::WireError;
use crate::units::{ByteCount, u64_of};

/// Bytes of a frame's size prefix.
pub const SIZE_BYTES: usize = size_of::<i32>();

/// A message being written, in a classic or a flexible version.
#[derive(Debug)]
pub struct Writer {
    bytes: BytesMut,
    flexible: bool,
}

impl Writer {
    /// Starts a frame: room for the size, then the answer's correlation id and header tags.
    pub fn answer(correlation_id: i32, flexible: bool, capacity: usize) -> Writer {
        let mut bytes = BytesMut::with_capacity(capacity);
        bytes.put_i32(0);
        bytes.put_i32(correlation_id);
        let mut writer = Writer { bytes, flexible };
        writer.no_tags();
        writer
    }

    /// Starts a message without a size.
    pub fn new(flexible: bool, capacity: usize) -> Writer {
        Writer { bytes: BytesMut::with_capacity(capacity), flexible }
    }

    /// Goes on in a flexible or a classic version.
    pub(super) fn switch(self, flexible: bool) -> Writer {
        Writer { flexible, ..self }
    }

    /// A message of `kafka-protocol`'s; the error is the codec's text.
    pub(crate) fn message<M: Encodable>(
        &mut self,
        message: &M,
        version: i16,
    ) -> Result<(), String> {
        message.encode(&mut self.bytes, version).map_err(|error| error.to_string())
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One byte.
    pub fn i8(&mut self, value: i8) {
        self.bytes.put_i8(value);
    }

    /// Two bytes.
    pub fn i16(&mut self, value: i16) {
        self.bytes.put_i16(value);
    }

    /// Four bytes.
    pub fn i32(&mut self, value: i32) {
        self.bytes.put_i32(value);
    }

    /// Eight bytes.
    pub fn i64(&mut self, value: i64) {
        self.bytes.put_i64(value);
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.put_slice(bytes);
    }

    /// An unsigned varint.
    pub fn uvarint(&mut self, value: u64) {
        let mut rest = value;
        while rest >= 0x80 {
            let low = u8::try_from(rest & 0x7f).expect("seven bits");
            self.bytes.put_u8(low | 0x80);
            rest >>= 7;
        }
        self.bytes.put_u8(u8::try_from(rest).expect("below 0x80"));
    }

    /// A text, or null.
    ///
    /// # Panics
    /// When a classic version's text is longer than 32,767 bytes.
    pub fn text(&mut self, text: Option<&str>) {
        match (self.flexible, text) {
            (true, Some(text)) => self.uvarint(u64_of(text.len()) + 1),
            (true, None) => self.uvarint(0),
            (false, Some(text)) => {
                self.i16(i16::try_from(text.len()).expect("texts that we send are short"));
            }
            (false, None) => self.i16(-1),
        }
        self.raw(text.unwrap_or_default().as_bytes());
    }

    /// How many elements follow, or null.
    ///
    /// # Panics
    /// When there are more than 2^31 - 1.
    pub fn array(&mut self, count: Option<usize>) {
        match (self.flexible, count) {
            (true, Some(count)) => self.uvarint(u64_of(count) + 1),
            (true, None) => self.uvarint(0),
            (false, Some(count)) => self.i32(i32::try_from(count).expect("arrays are short")),
            (false, None) => self.i32(-1),
        }
    }

    /// Length of records that follow.
    ///
    /// # Errors
    /// [`WireError::AnswerTooLarge`] from 2^31 bytes on.
    pub fn records_length(&mut self, length: ByteCount) -> Result<(), WireError> {
        let classic = i32::try_from(length.0).map_err(|_| WireError::AnswerTooLarge(length.0))?;
        match self.flexible {
            true => self.uvarint(length.0 + 1),
            false => self.i32(classic),
        }
        Ok(())
    }

    /// The end of a struct without tagged fields.
    pub fn no_tags(&mut self) {
        if self.flexible {
            self.bytes.put_u8(0);
        }
    }

    /// Number and size of a tagged field that follows.
    pub fn tag(&mut self, number: u64, size: usize) {
        self.uvarint(number);
        self.uvarint(u64_of(size));
    }

    /// What was written, without a size.
    pub fn into_bytes(self) -> BytesMut {
        self.bytes
    }

    /// The frame begun by [`Writer::answer`], its size filled in; `elsewhere` bytes of it are not
    /// here.
    ///
    /// # Errors
    /// [`WireError::AnswerTooLarge`] from 2^31 bytes on.
    pub fn finish(mut self, elsewhere: ByteCount) -> Result<BytesMut, WireError> {
        let size = u64_of(self.bytes.len() - SIZE_BYTES) + elsewhere.0;
        let size = i32::try_from(size).map_err(|_| WireError::AnswerTooLarge(size))?;
        self.bytes[..SIZE_BYTES].copy_from_slice(&size.to_be_bytes());
        Ok(self.bytes)
    }
}

/// Bytes that [`Writer::uvarint`] takes for `value`.
pub fn uvarint_bytes(value: u64) -> usize {
    let mut bytes = 1;
    let mut rest = value >> 7;
    while rest > 0 {
        bytes += 1;
        rest >>= 7;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::read::Reader;
    use super::*;

    #[test]
    fn varints_are_read_as_written() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, u32::MAX] {
            let mut writer = Writer::new(true, 8);
            writer.uvarint(u64::from(value));
            assert_eq!(writer.len(), uvarint_bytes(u64::from(value)));
            assert_eq!(Reader::new(&writer.into_bytes()[..], true).uvarint("n"), Ok(value));
        }
    }

    #[test]
    fn the_size_counts_what_is_elsewhere() {
        let frame = Writer::answer(7, false, 16).finish(ByteCount(100)).expect("small");
        assert_eq!(&frame[..], [0, 0, 0, 104, 0, 0, 0, 7]);
        let large = Writer::answer(7, false, 16).finish(ByteCount(1 << 31));
        assert_eq!(large, Err(WireError::AnswerTooLarge((1 << 31) + 4)));
    }
}
