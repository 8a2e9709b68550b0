//! The codecs that a batch's records may be packed with.
//!
//! Unpacking stops at the caller's limit and never allocates by a size that the bytes announce, so
//! a bomb costs no more memory than the limit.
//!
//! ```text
//! gzip    RFC 1952
//! snappy  82 'S' 'N' 'A' 'P' 'P' 'Y' 00 | version i32 | compatible i32 | (length i32 | raw block)*
//!         or one bare raw block, as librdkafka sends it
//! lz4     LZ4 frame; we write independent blocks of 64 KiB without checksums
//! zstd    Zstandard frame
//! ```
//!
//! Where streams end is as Java's readers see it, so that what a Kafka broker stores is stored here
//! and what it refuses is refused: bytes behind a gzip member that begin no other, and bytes behind
//! the end mark of an LZ4 frame, are passed over, as is that frame's checksum of its content.

use std::borrow::Cow;
use std::io::{self, Read, Write};

use flate2::Compression;
use lz4_flex::block;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use twox_hash::XxHash32;

use crate::format::batch::Codec;
use crate::units::{ByteCount, usize_of};

const XERIAL_MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const XERIAL_VERSION: i32 = 1;
const XERIAL_HEADER_BYTES: usize = XERIAL_MAGIC.len() + 2 * size_of::<i32>();
/// Bytes of a snappy block before compression, as the Java library cuts them.
const XERIAL_BLOCK_BYTES: usize = 32 << 10;
/// A snappy element of 3 bytes yields at most 64, so a block can't grow by more than this.
const SNAPPY_GROWTH_MAX: usize = 22;
const LZ4_MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
/// Version 1 with independent blocks, and what is left of the flags beside the next three: a
/// dictionary's id and a bit that means nothing yet, which must not be set.
const LZ4_FLAGS: u8 = 0x60;
const LZ4_BLOCK_CHECKSUM: u8 = 0x10;
const LZ4_CONTENT_SIZE: u8 = 0x08;
const LZ4_CONTENT_CHECKSUM: u8 = 0x04;
/// A byte that continues a length counts 255 at most, so a block can't grow by more than this.
const LZ4_GROWTH_MAX: usize = 255;
/// Of a block's size: it is not packed.
const LZ4_PLAIN_BLOCK: u32 = 1 << 31;
/// What a gzip member begins with: magic, and deflate as its method.
const GZIP_HEAD: [u8; 3] = [0x1f, 0x8b, 8];
/// The window that a zstd frame may ask for whatever the limit is: ordinary levels need 8 MiB.
const ZSTD_WINDOW_LOG_MIN: u32 = 23;
/// The largest window of zstd's levels, and the library's own bound.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// First step of the output buffer; it doubles from there.
const OUTPUT_BYTES_MIN: usize = 16 << 10;

/// Why a batch's records can't be unpacked or packed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    /// The unpacked records exceed the limit.
    #[error("the records of the batch exceed {limit} bytes when decompressed")]
    TooLarge {
        /// The limit in bytes.
        limit: ByteCount,
    },
    /// The bytes aren't what the codec writes.
    #[error("the records of the batch are no valid {codec}: {why}")]
    Corrupt {
        /// Name of the codec.
        codec: &'static str,
        /// What the library says.
        why: String,
    },
}

/// Levels of the codecs that have them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Levels {
    /// 1 to 9, -1 for the library's default.
    pub gzip: i32,
    /// -131072 to 22.
    pub zstd: i32,
}

impl Default for Levels {
    fn default() -> Levels {
        Levels { gzip: -1, zstd: 3 }
    }
}

/// Unpacks a batch's payload; plain records are borrowed.
///
/// # Errors
/// [`CodecError::TooLarge`] beyond `bytes_max` unpacked bytes, [`CodecError::Corrupt`].
pub fn decompress(
    codec: Codec,
    payload: &[u8],
    bytes_max: ByteCount,
) -> Result<Cow<'_, [u8]>, CodecError> {
    let limit = usize::try_from(bytes_max.0).unwrap_or(usize::MAX);
    let unpacked = match codec {
        Codec::None if payload.len() <= limit => return Ok(Cow::Borrowed(payload)),
        Codec::None => Err(Fault::TooLarge),
        Codec::Gzip => unpack_gzip(payload, limit),
        Codec::Snappy => unpack_snappy(payload, limit),
        Codec::Lz4 => unpack_lz4(payload, limit, true),
        Codec::Zstd => unpack_zstd(payload, limit),
    };
    unpacked.map(Cow::Owned).map_err(|fault| fault.of(codec, bytes_max))
}

/// The same for a record of format 0, whose producers computed the checksum of an LZ4 frame's
/// header from other bytes than they should: it is passed over.
///
/// # Errors
/// As [`decompress`].
pub fn decompress_format_0(
    codec: Codec,
    payload: &[u8],
    bytes_max: ByteCount,
) -> Result<Cow<'_, [u8]>, CodecError> {
    if codec != Codec::Lz4 {
        return decompress(codec, payload, bytes_max);
    }
    let limit = usize::try_from(bytes_max.0).unwrap_or(usize::MAX);
    let unpacked = unpack_lz4(payload, limit, false);
    unpacked.map(Cow::Owned).map_err(|fault| fault.of(codec, bytes_max))
}

/// Packs records. LZ4 knows one level only, whatever `compression.lz4.level` says.
///
/// # Errors
/// [`CodecError::Corrupt`] when the library fails, which it does for no input that is known.
pub fn compress(codec: Codec, levels: Levels, records: &[u8]) -> Result<Vec<u8>, CodecError> {
    let packed = match codec {
        Codec::None => Ok(records.to_vec()),
        Codec::Gzip => pack_gzip(levels.gzip, records),
        Codec::Snappy => pack_snappy(records),
        Codec::Lz4 => pack_lz4(records),
        Codec::Zstd => zstd::stream::encode_all(records, levels.zstd),
    };
    packed.map_err(|error| CodecError::Corrupt { codec: codec.name(), why: error.to_string() })
}

/// What goes wrong inside, before the codec's name is known.
enum Fault {
    TooLarge,
    Corrupt(String),
}

impl Fault {
    fn of(self, codec: Codec, limit: ByteCount) -> CodecError {
        match self {
            Fault::TooLarge => CodecError::TooLarge { limit },
            Fault::Corrupt(why) => CodecError::Corrupt { codec: codec.name(), why },
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Corrupt(error.to_string())
    }
}

impl From<snap::Error> for Fault {
    fn from(error: snap::Error) -> Fault {
        Fault::Corrupt(error.to_string())
    }
}

/// Reads to the end, at most `limit` bytes; the buffer doubles as bytes arrive.
fn read_limited(mut from: impl Read, limit: usize) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    loop {
        let filled = out.len();
        let room = filled.max(OUTPUT_BYTES_MIN).min(limit - filled);
        if room == 0 {
            return if read_some(&mut from, &mut [0])? == 0 {
                Ok(out)
            } else {
                Err(Fault::TooLarge)
            };
        }
        out.reserve_exact(room);
        out.resize(filled + room, 0);
        let mut got = 0;
        while got < room {
            match read_some(&mut from, &mut out[filled + got..])? {
                0 => {
                    out.truncate(filled + got);
                    return Ok(out);
                }
                more => got += more,
            }
        }
    }
}

fn read_some(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Members of which each is a stream of its own. What stands behind the last one and begins no
/// other is passed over, as `GZIPInputStream` does.
fn unpack_gzip(payload: &[u8], limit: usize) -> Result<Vec<u8>, Fault> {
    let mut rest = payload;
    let mut out = Vec::new();
    loop {
        let mut member = flate2::bufread::GzDecoder::new(rest);
        let unpacked = read_limited(&mut member, limit - out.len())?;
        if out.is_empty() {
            out = unpacked
        } else {
            out.extend_from_slice(&unpacked)
        }
        rest = member.into_inner();
        let begins_another = rest.starts_with(&GZIP_HEAD)
            && flate2::bufread::GzDecoder::new(rest).header().is_some();
        if !begins_another {
            return Ok(out);
        }
    }
}

/// A frame, as Kafka's `Lz4BlockInputStream` reads it.
fn unpack_lz4(payload: &[u8], limit: usize, checks_head: bool) -> Result<Vec<u8>, Fault> {
    let mut rest = payload;
    let (flags, block_bytes_max) = lz4_head(&mut rest, checks_head)?;
    let mut out = Vec::new();
    loop {
        let size = lz4_word(&mut rest)?;
        let (is_plain, size) = (size & LZ4_PLAIN_BLOCK != 0, size & !LZ4_PLAIN_BLOCK);
        if size == 0 {
            if flags & LZ4_CONTENT_CHECKSUM != 0 {
                lz4_word(&mut rest)?;
            }
            return Ok(out);
        }
        let size = usize_of(size.into());
        if block_bytes_max < size {
            return Err(Fault::Corrupt(format!("a block of {size} bytes")));
        }
        let (packed, behind) = rest.split_at_checked(size).ok_or_else(|| cut("block"))?;
        rest = behind;
        if flags & LZ4_BLOCK_CHECKSUM != 0 && lz4_word(&mut rest)? != XxHash32::oneshot(0, packed) {
            return Err(Fault::Corrupt("the checksum of a block is wrong".into()));
        }
        let room = block_bytes_max.min(limit - out.len());
        unpack_lz4_block((packed, is_plain), (room, block_bytes_max), &mut out)?;
    }
}

/// The flags of a frame, and how many bytes a block may have.
fn lz4_head(rest: &mut &[u8], checks: bool) -> Result<(u8, usize), Fault> {
    let no_frame = || Fault::Corrupt("no frame of the current kind".into());
    let head = rest.strip_prefix(&LZ4_MAGIC).ok_or_else(no_frame)?;
    let &[flags, block, ..] = head else { return Err(cut("header")) };
    let known = LZ4_BLOCK_CHECKSUM | LZ4_CONTENT_SIZE | LZ4_CONTENT_CHECKSUM;
    if flags & !known != LZ4_FLAGS {
        return Err(Fault::Corrupt("a frame of dependent blocks or with a dictionary".into()));
    }
    let shift = match block {
        0x40 | 0x50 | 0x60 | 0x70 => 2 * (block >> 4) + 8,
        _ => return Err(Fault::Corrupt("a frame with an unknown size of blocks".into())),
    };
    let size_bytes = if flags & LZ4_CONTENT_SIZE == 0 { 0 } else { size_of::<u64>() };
    let (described, behind) = head.split_at_checked(2 + size_bytes).ok_or_else(|| cut("header"))?;
    let (&checksum, behind) = behind.split_first().ok_or_else(|| cut("header"))?;
    let [.., second, _] = XxHash32::oneshot(0, described).to_be_bytes();
    if checks && checksum != second {
        return Err(Fault::Corrupt("the checksum of the frame's header is wrong".into()));
    }
    *rest = behind;
    Ok((flags, 1 << shift))
}

fn lz4_word(rest: &mut &[u8]) -> Result<u32, Fault> {
    let (word, behind) = rest.split_first_chunk().ok_or_else(|| cut("frame"))?;
    *rest = behind;
    Ok(u32::from_le_bytes(*word))
}

/// Appends a block of at most `room` bytes. Where less than a block's largest size is allowed, one
/// that doesn't fit is unpacked once more to tell whether it is too large or damaged.
fn unpack_lz4_block(
    (packed, is_plain): (&[u8], bool),
    (room, block_bytes_max): (usize, usize),
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    if is_plain {
        if room < packed.len() {
            return Err(Fault::TooLarge);
        }
        out.extend_from_slice(packed);
        return Ok(());
    }
    let growth = packed.len().saturating_mul(LZ4_GROWTH_MAX);
    let filled = out.len();
    out.resize(filled + room.min(growth), 0);
    match block::decompress_into(packed, &mut out[filled..]) {
        Ok(written) => {
            out.truncate(filled + written);
            Ok(())
        }
        Err(_) if room < block_bytes_max => {
            let mut whole = vec![0; block_bytes_max.min(growth)];
            match block::decompress_into(packed, &mut whole) {
                Ok(_) => Err(Fault::TooLarge),
                Err(error) => Err(Fault::Corrupt(error.to_string())),
            }
        }
        Err(error) => Err(Fault::Corrupt(error.to_string())),
    }
}

fn unpack_zstd(payload: &[u8], limit: usize) -> Result<Vec<u8>, Fault> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(payload)?;
    let log = limit.checked_ilog2().unwrap_or(0);
    decoder.window_log_max(log.clamp(ZSTD_WINDOW_LOG_MIN, ZSTD_WINDOW_LOG_MAX))?;
    read_limited(decoder, limit)
}

fn unpack_snappy(payload: &[u8], limit: usize) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    if !payload.starts_with(&XERIAL_MAGIC) {
        unpack_snappy_block(payload, limit, &mut out)?;
        return Ok(out);
    }
    let mut rest = payload;
    while !rest.is_empty() {
        // Streams may follow one another, each with a header of its own.
        if rest.starts_with(&XERIAL_MAGIC) {
            rest = rest.get(XERIAL_HEADER_BYTES..).ok_or_else(|| cut("header"))?;
            continue;
        }
        let (length, behind) = rest.split_first_chunk().ok_or_else(|| cut("block length"))?;
        let length = usize::try_from(i32::from_be_bytes(*length));
        let length = length.map_err(|_| Fault::Corrupt("negative block length".into()))?;
        let (block, behind) = behind.split_at_checked(length).ok_or_else(|| cut("block"))?;
        unpack_snappy_block(block, limit, &mut out)?;
        rest = behind;
    }
    Ok(out)
}

fn unpack_snappy_block(block: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
    let announced = snap::raw::decompress_len(block)?;
    if announced > block.len().saturating_mul(SNAPPY_GROWTH_MAX) {
        return Err(Fault::Corrupt("a block announces more than it can hold".into()));
    }
    let filled = out.len();
    if announced > limit - filled {
        return Err(Fault::TooLarge);
    }
    out.resize(filled + announced, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut out[filled..])?;
    out.truncate(filled + written);
    Ok(())
}

fn cut(what: &str) -> Fault {
    Fault::Corrupt(format!("the bytes end inside a {what}"))
}

fn pack_gzip(level: i32, records: &[u8]) -> io::Result<Vec<u8>> {
    let level = u32::try_from(level).map_or(Compression::default(), Compression::new);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    encoder.write_all(records)?;
    encoder.finish()
}

fn pack_snappy(records: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = XERIAL_MAGIC.to_vec();
    out.extend(XERIAL_VERSION.to_be_bytes());
    out.extend(XERIAL_VERSION.to_be_bytes());
    for block in records.chunks(XERIAL_BLOCK_BYTES) {
        let packed = snap::raw::Encoder::new().compress_vec(block)?;
        let length = i32::try_from(packed.len()).expect("a block of 32 KiB stays small");
        out.extend(length.to_be_bytes());
        out.extend(packed);
    }
    Ok(out)
}

fn pack_lz4(records: &[u8]) -> io::Result<Vec<u8>> {
    let info = FrameInfo::new()
        .block_size(BlockSize::Max64KB)
        .block_mode(BlockMode::Independent)
        .block_checksums(false)
        .content_checksum(false);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(records)?;
    encoder.finish().map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::u64_of;

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn packed(codec: Codec, bytes: &[u8]) -> Vec<u8> {
        compress(codec, Levels::default(), bytes).expect("packs")
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let zeros = vec![0; 4 << 20];
        for codec in CODECS {
            let bomb = packed(codec, &zeros);
            let exact = decompress(codec, &bomb, byte_limit(zeros.len())).expect("fits exactly");
            assert_eq!(exact.len(), zeros.len(), "{codec:?}");
            for limit in [0, 1, 1000, zeros.len() - 1] {
                let limit = byte_limit(limit);
                let refused = decompress(codec, &bomb, limit).expect_err("over the limit");
                assert_eq!(refused, CodecError::TooLarge { limit }, "{codec:?}");
            }
        }
    }

    fn byte_limit(bytes: usize) -> ByteCount {
        ByteCount(u64_of(bytes))
    }

    #[test]
    fn announced_sizes_are_not_trusted() {
        // A raw snappy block of one literal byte that announces 100 MB.
        let block = [0x80, 0xc2, 0xd7, 0x2f, 0x00, b'x'];
        let refused = decompress(Codec::Snappy, &block, ByteCount(1 << 30));
        assert!(matches!(refused, Err(CodecError::Corrupt { codec: "snappy", .. })));
        let mut framed = packed(Codec::Snappy, b"abc");
        framed[XERIAL_HEADER_BYTES..XERIAL_HEADER_BYTES + 4].copy_from_slice(&[0x7f; 4]);
        assert!(decompress(Codec::Snappy, &framed, ByteCount(100)).is_err());
        framed[XERIAL_HEADER_BYTES] = 0xff;
        assert!(decompress(Codec::Snappy, &framed, ByteCount(100)).is_err());
    }

    #[test]
    fn snappy_comes_framed_bare_and_in_several_streams() {
        let bare = snap::raw::Encoder::new().compress_vec(b"hello hello hello").expect("packs");
        let unpacked = decompress(Codec::Snappy, &bare, ByteCount(100)).expect("bare");
        assert_eq!(&*unpacked, b"hello hello hello");
        let mut twice = packed(Codec::Snappy, b"one");
        twice.extend(packed(Codec::Snappy, b"two"));
        assert_eq!(&*decompress(Codec::Snappy, &twice, ByteCount(6)).expect("two"), b"onetwo");
    }

    #[test]
    fn lz4_frames_look_like_kafkas() {
        let frame = packed(Codec::Lz4, b"x");
        // Magic, then version 1 with independent blocks and no checksums, then blocks of 64 KiB.
        assert_eq!(frame[..6], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40]);
    }

    #[test]
    fn lz4_frames_that_kafka_cannot_read_are_refused() {
        let info = FrameInfo::new().block_mode(BlockMode::Linked);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(b"hello hello hello").expect("packs");
        let linked = encoder.finish().expect("packs");
        let refused = decompress(Codec::Lz4, &linked, ByteCount(100));
        assert!(matches!(refused, Err(CodecError::Corrupt { codec: "lz4", .. })), "{refused:?}");
        let mut with_dictionary = packed(Codec::Lz4, b"hello");
        with_dictionary[LZ4_MAGIC.len()] |= 0x01;
        assert!(decompress(Codec::Lz4, &with_dictionary, ByteCount(100)).is_err());
    }

    #[test]
    fn an_lz4_frame_without_its_end_mark_is_cut_whatever_its_last_block_ends_with() {
        // Four zeros at the end of a plain block look like the mark.
        let mut frame = packed(Codec::Lz4, b"");
        frame.truncate(7);
        frame.extend((LZ4_PLAIN_BLOCK | 8).to_le_bytes());
        frame.extend([b'a', b'b', b'c', b'd', 0, 0, 0, 0]);
        let refused = decompress(Codec::Lz4, &frame, ByteCount(100));
        assert!(matches!(refused, Err(CodecError::Corrupt { .. })), "{refused:?}");
        frame.extend([0; 4]);
        let whole = decompress(Codec::Lz4, &frame, ByteCount(100)).expect("whole");
        assert_eq!(&*whole, b"abcd\0\0\0\0");
    }

    #[test]
    fn bytes_behind_the_end_are_taken_as_kafka_takes_them() {
        for (codec, is_taken) in
            [(Codec::Gzip, true), (Codec::Lz4, true), (Codec::Snappy, false), (Codec::Zstd, false)]
        {
            let mut stream = packed(codec, b"hello");
            stream.extend(b"0123456789");
            let unpacked = decompress(codec, &stream, ByteCount(100));
            assert_eq!(unpacked.is_ok_and(|it| *it == *b"hello"), is_taken, "{codec:?}");
        }
        let mut twice = packed(Codec::Gzip, b"one");
        twice.extend(packed(Codec::Gzip, b"two"));
        assert_eq!(&*decompress(Codec::Gzip, &twice, ByteCount(6)).expect("two"), b"onetwo");
        twice.truncate(twice.len() - 1);
        assert!(decompress(Codec::Gzip, &twice, ByteCount(6)).is_err());
    }

    #[test]
    fn lz4_checksums_of_content_are_passed_over_and_those_of_blocks_are_not() {
        let text = b"hello hello hello hello";
        let spoilt = |info: FrameInfo, from_end: usize| {
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(text).expect("packs");
            let mut frame = encoder.finish().expect("packs");
            let whole = decompress(Codec::Lz4, &frame, ByteCount(100)).expect("whole");
            assert_eq!(&*whole, text);
            let at = frame.len() - from_end;
            frame[at] ^= 1;
            decompress(Codec::Lz4, &frame, ByteCount(100)).is_ok_and(|it| *it == text[..])
        };
        let info = FrameInfo::new().block_mode(BlockMode::Independent);
        assert!(spoilt(info.clone().content_checksum(true), 1));
        assert!(!spoilt(info.clone().block_checksums(true), 5));
        assert!(!spoilt(info.content_size(Some(23)), 4));
    }

    #[test]
    fn cut_streams_are_refused() {
        let text: Vec<u8> = (0..50_000_u32).flat_map(|n| n.to_string().into_bytes()).collect();
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let whole = packed(codec, &text);
            for cut in [whole.len() / 2, whole.len() - 1] {
                let got = decompress(codec, &whole[..cut], byte_limit(text.len()));
                assert!(matches!(got, Err(CodecError::Corrupt { .. })), "{codec:?} cut at {cut}");
            }
        }
    }

    proptest! {
        #[test]
        fn records_survive_every_codec(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            for codec in CODECS {
                let unpacked = packed(codec, &bytes);
                let unpacked = decompress(codec, &unpacked, byte_limit(bytes.len()));
                prop_assert_eq!(&*unpacked.expect("fits"), &bytes[..], "{:?}", codec);
            }
        }

        #[test]
        fn garbage_is_no_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..500), at: usize) {
            for codec in CODECS {
                let _ = decompress(codec, &bytes, ByteCount(10_000));
            }
            for codec in CODECS {
                let mut spoilt = packed(codec, &bytes);
                let length = spoilt.len().max(1);
                if let Some(byte) = spoilt.get_mut(at % length) {
                    *byte ^= 0x55;
                }
                let _ = decompress(codec, &spoilt, ByteCount(10_000));
            }
            bytes.splice(0..0, XERIAL_MAGIC);
            let _ = decompress(Codec::Snappy, &bytes, ByteCount(10_000));
        }
    }
}
