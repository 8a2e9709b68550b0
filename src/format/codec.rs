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

use std::borrow::Cow;
use std::io::{self, Read, Write};

use flate2::Compression;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use crate::format::batch::Codec;
use crate::units::ByteCount;

const XERIAL_MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const XERIAL_VERSION: i32 = 1;
const XERIAL_HEADER_BYTES: usize = XERIAL_MAGIC.len() + 2 * size_of::<i32>();
/// Bytes of a snappy block before compression, as the Java library cuts them.
const XERIAL_BLOCK_BYTES: usize = 32 << 10;
/// A snappy element of 3 bytes yields at most 64, so a block can't grow by more than this.
const SNAPPY_GROWTH_MAX: usize = 22;
const LZ4_MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
const LZ4_CONTENT_CHECKSUM: u8 = 0x04;
const LZ4_INDEPENDENT_BLOCKS: u8 = 0x20;
/// A dictionary's id, and a bit that means nothing yet.
const LZ4_FLAGS_UNKNOWN: u8 = 0x03;
const LZ4_END_MARK: [u8; 4] = [0; 4];
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
        Codec::Gzip => read_limited(flate2::bufread::MultiGzDecoder::new(payload), limit),
        Codec::Snappy => unpack_snappy(payload, limit),
        Codec::Lz4 => unpack_lz4(payload, limit),
        Codec::Zstd => unpack_zstd(payload, limit),
    };
    match unpacked {
        Ok(bytes) => Ok(Cow::Owned(bytes)),
        Err(Fault::TooLarge) => Err(CodecError::TooLarge { limit: bytes_max }),
        Err(Fault::Corrupt(why)) => Err(CodecError::Corrupt { codec: codec.name(), why }),
    }
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

/// The library takes a frame without its end mark for whole, and blocks that lean on the ones
/// before; Java's readers (Kafka's Lz4BlockInputStream) don't: what no consumer could read is
/// refused here.
fn unpack_lz4(payload: &[u8], limit: usize) -> Result<Vec<u8>, Fault> {
    let flags = *payload
        .strip_prefix(&LZ4_MAGIC)
        .and_then(<[u8]>::first)
        .ok_or_else(|| Fault::Corrupt("no frame of the current kind".into()))?;
    if flags & LZ4_INDEPENDENT_BLOCKS == 0 || flags & LZ4_FLAGS_UNKNOWN != 0 {
        return Err(Fault::Corrupt("a frame of dependent blocks or with a dictionary".into()));
    }
    let checksum_bytes = if flags & LZ4_CONTENT_CHECKSUM == 0 { 0 } else { size_of::<u32>() };
    let end = payload.len() - checksum_bytes.min(payload.len());
    if !payload[..end].ends_with(&LZ4_END_MARK) {
        return Err(cut("frame"));
    }
    read_limited(FrameDecoder::new(payload), limit)
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
