//! Batches as they stand in `.log` files, read back and checked.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use uringlog::format::batch::{BatchHeader, HEADER_BYTES};
use uringlog::format::codec;
use uringlog::format::names::{FileKind, SegmentFile};
use uringlog::format::scan::{Scan, Window, batch_at};
use uringlog::units::{Position, byte_count, usize_of};
use uringlog::{ByteCount, Offset, RecordView, RecordsIter};

use super::files;
use crate::experiments::{DoingTo, Failure};

/// No batch of an experiment unpacks to more.
const UNPACKED_BYTES_MAX: ByteCount = ByteCount(1 << 30);

/// A batch whose length and CRC hold.
pub struct StoredBatch {
    /// Its first byte in the file.
    pub position: u64,
    /// The 61 bytes before the records.
    pub header: BatchHeader,
    bytes: Bytes,
}

impl StoredBatch {
    /// Its length in the file.
    pub fn bytes(&self) -> u64 {
        self.header.size.0
    }

    /// Offset of its first record position.
    pub fn base_offset(&self) -> u64 {
        u64::try_from(self.header.base_offset).expect("offsets on disk are not negative")
    }

    /// All of it, as it stands in the file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Name of its codec.
    ///
    /// # Errors
    /// When there is no such codec.
    pub fn codec(&self) -> Result<&'static str, Failure> {
        let codec = self.header.codec().map_err(|error| Failure::Wrong(error.to_string()))?;
        Ok(codec.name())
    }

    /// Its records, unpacked.
    ///
    /// # Errors
    /// When they are none.
    pub fn records(&self) -> Result<Vec<u8>, Failure> {
        let codec = self.header.codec().map_err(|error| Failure::Wrong(error.to_string()))?;
        let payload = &self.bytes[HEADER_BYTES..];
        let unpacked = codec::decompress(codec, payload, UNPACKED_BYTES_MAX);
        let wrong = |error: codec::CodecError| Failure::Wrong(error.to_string());
        Ok(unpacked.map_err(wrong)?.into_owned())
    }

    /// Has each of its records looked at.
    ///
    /// # Errors
    /// When they are none.
    pub fn each_record(&self, mut look: impl FnMut(&RecordView<'_>)) -> Result<(), Failure> {
        for record in RecordsIter::new(&self.header, &self.records()?) {
            look(&record.map_err(|error| Failure::Wrong(error.to_string()))?);
        }
        Ok(())
    }
}

/// All batches of a partition, segment after segment.
///
/// # Errors
/// Files that can't be read, and bytes that are no batch.
pub fn batches(directory: &Path) -> Result<Vec<StoredBatch>, Failure> {
    let mut found = Vec::new();
    for segment in files::segments(directory)? {
        let name = SegmentFile::new(Offset(segment.base), FileKind::Log).to_string();
        let path = directory.join(name);
        let bytes = Bytes::from(fs::read(&path).doing_to("read", &path)?);
        in_file(&path, &bytes, &mut found)?;
    }
    Ok(found)
}

fn in_file(path: &Path, bytes: &Bytes, found: &mut Vec<StoredBatch>) -> Result<(), Failure> {
    let window = Window { bytes, at: Position(0) };
    let end = Position(0) + byte_count(bytes.len());
    let mut at = Position(0);
    loop {
        match batch_at(window, at, end) {
            Scan::End => return Ok(()),
            Scan::Batch { header, at: position, next } => {
                let bytes = bytes.slice(usize_of(position.0)..usize_of(next.0));
                found.push(StoredBatch { position: position.0, header, bytes });
                at = next;
            }
            Scan::NeedMore { .. } => unreachable!("the window is the whole file"),
            Scan::Invalid(fault) => {
                let path = path.display();
                return Err(Failure::Wrong(format!("{path} at byte {}: {fault}", at.0)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::batches::uniform;
    use uringlog::Timestamp;

    #[test]
    fn batches_are_read_back_segment_after_segment_and_damage_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let batch = |value: &[u8]| uniform(&[value, value], Timestamp(7));
        let write = |base: u64, bytes: &[u8]| {
            let name = SegmentFile::new(Offset(base), FileKind::Log).to_string();
            fs::write(folder.path().join(name), bytes).expect("a file");
        };
        let (one, two) = (batch(b"one"), batch(b"second"));
        write(0, &[one.as_bytes(), two.as_bytes()].concat());
        write(4, one.as_bytes());
        let found = batches(folder.path()).expect("three batches");
        let shown: Vec<_> = found.iter().map(|it| (it.position, it.bytes())).collect();
        let (first, second) = (one.size().0, two.size().0);
        assert_eq!(shown, [(0, first), (first, second), (0, first)]);
        let mut values = Vec::new();
        let look = |record: &RecordView<'_>| values.extend(record.value.map(<[u8]>::to_vec));
        found[1].each_record(look).expect("records");
        assert_eq!(values, [b"second", b"second"]);
        write(4, &one.as_bytes()[..70]);
        let text = batches(folder.path()).err().expect("a torn batch").to_string();
        assert!(text.contains("00000000000000000004.log at byte 0"), "{text}");
    }
}
