//! Frames and their headers.
//!
//! ```text
//! request:  size i32 | API key i16 | version i16 | correlation id i32 | client id | [tags] | body
//! answer:   size i32 | correlation id i32 | [tags] | body
//! ```
//!
//! The tagged fields are there in flexible versions only; the client id keeps its two-byte length
//! even then.

use bytes::BytesMut;

use super::StrBytes;
use super::error::WireError;
use super::read::Reader;
use super::versions::{self, ApiRange};
use super::write::Writer;
use crate::units::usize_of;

pub use super::write::SIZE_BYTES;

/// Default limit of a request frame: Kafka's `socket.request.max.bytes`.
pub const FRAME_BYTES_MAX: i32 = 104_857_600;

/// Bytes of API key, version and correlation id: no request is shorter.
pub const HEADER_BYTES_MIN: usize = 2 * size_of::<i16>() + size_of::<i32>();

/// Requests without records whose bodies are longer are decoded one at a time, beside the shard's
/// thread. Shorter ones have no more array elements than bytes, and are decoded at once.
pub const CONTROL_BYTES_AT_ONCE: usize = 128 << 10;

/// What stands before every request's body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// The API's number.
    pub api_key: i16,
    /// Version of the body.
    pub version: i16,
    /// Comes back in the answer.
    pub correlation_id: i32,
    /// As the client calls itself.
    pub client_id: Option<StrBytes>,
}

impl RequestHeader {
    /// Starts a request's frame, with room for a body of `body_bytes`.
    pub(crate) fn start(&self, range: &ApiRange, body_bytes: usize) -> Writer {
        const TAGS: usize = 1;
        let name = self.client_id.as_deref();
        let head = SIZE_BYTES + HEADER_BYTES_MIN + size_of::<i16>() + TAGS;
        let capacity = head + name.map_or(0, str::len) + body_bytes;
        // The client id's length is of the classic kind in every version.
        let mut writer = Writer::new(false, capacity);
        writer.i32(0);
        writer.i16(self.api_key);
        writer.i16(self.version);
        writer.i32(self.correlation_id);
        writer.text(name);
        let mut writer = writer.switch(range.request_header_has_tags(self.version));
        writer.no_tags();
        writer
    }
}

/// The frame's length without the prefix, from the four bytes of the prefix.
///
/// # Errors
/// [`WireError::FrameSize`] when it is negative, too small for a header, or above `max`.
pub fn frame_size(prefix: [u8; SIZE_BYTES], max: i32) -> Result<usize, WireError> {
    let size = i32::from_be_bytes(prefix);
    let min = i32::try_from(HEADER_BYTES_MIN).expect("eight");
    if size < min || size > max {
        return Err(WireError::FrameSize { size, min, max });
    }
    let size = u64::try_from(size).expect("not below the smallest header");
    Ok(usize_of(size))
}

/// API key and version at the start of a frame whose size has been cut off; `None` when it is
/// shorter than that.
pub fn peek(head: &[u8]) -> Option<(i16, i16)> {
    let [key_high, key_low, version_high, version_low] = *head.first_chunk::<4>()?;
    Some((i16::from_be_bytes([key_high, key_low]), i16::from_be_bytes([version_high, version_low])))
}

/// Splits a frame whose size has been cut off into header and body, without a copy.
///
/// For an API or version that isn't served the client id is not read and the body is empty, since
/// nothing can be said about what follows the correlation id; the caller has to look.
///
/// # Errors
/// [`WireError::Truncated`], [`WireError::Length`], [`WireError::Text`].
pub fn split(frame: BytesMut) -> Result<(RequestHeader, BytesMut), WireError> {
    // The client id's length is of the classic kind in every version.
    let mut reader = Reader::new(frame, false);
    let api_key = reader.i16("API key")?;
    let version = reader.i16("API version")?;
    let correlation_id = reader.i32("correlation id")?;
    let Ok(range) = versions::check(api_key, version) else {
        let header = RequestHeader { api_key, version, correlation_id, client_id: None };
        return Ok((header, BytesMut::new()));
    };
    let client_id = reader.nullable_text("client id")?;
    let header = RequestHeader { api_key, version, correlation_id, client_id };
    let mut reader = Reader::new(reader.into_rest(), range.request_header_has_tags(version));
    reader.skip_tags("header tags")?;
    Ok((header, reader.into_rest()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_outside_the_limits_are_refused() {
        let size = |size: i32| frame_size(size.to_be_bytes(), FRAME_BYTES_MAX);
        assert_eq!(size(8), Ok(8));
        assert_eq!(size(FRAME_BYTES_MAX), Ok(104_857_600));
        for wrong in [-1, i32::MIN, 0, 7, FRAME_BYTES_MAX + 1] {
            assert!(matches!(size(wrong), Err(WireError::FrameSize { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_flexible_header_ends_in_tags() {
        let frame = [0, 18, 0, 3, 0, 0, 0, 9, 0, 2, b'm', b'e', 1, 0, 1, 0xff, 0xaa];
        assert_eq!(peek(&frame), Some((18, 3)));
        let (header, body) = split(BytesMut::from(&frame[..])).expect("whole");
        assert_eq!(header.correlation_id, 9);
        assert_eq!(header.client_id.as_deref(), Some("me"));
        assert_eq!(&body[..], [0xaa]);
        for cut in 0..frame.len() - 1 {
            split(BytesMut::from(&frame[..cut])).expect_err("cut");
        }
    }

    #[test]
    fn a_classic_header_has_no_tags_and_the_client_id_may_be_null() {
        let frame = [0, 1, 0, 4, 0, 0, 0, 9, 0xff, 0xff, 0xaa];
        let (header, body) = split(BytesMut::from(&frame[..])).expect("whole");
        assert_eq!((header.api_key, header.version, header.client_id), (1, 4, None));
        assert_eq!(&body[..], [0xaa]);
    }

    #[test]
    fn of_an_unknown_version_only_the_correlation_id_is_read() {
        let frame = [0, 18, 0, 99, 0, 0, 0, 9, 0xff, 0x00, 1, 2, 3];
        let (header, body) = split(BytesMut::from(&frame[..])).expect("its start is readable");
        assert_eq!((header.version, header.correlation_id), (99, 9));
        assert!(body.is_empty());
    }
}
