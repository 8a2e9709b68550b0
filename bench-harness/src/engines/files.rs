//! A partition's directory, read back from disk: uringlog's and Kafka's look the same.

use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use uringlog::format::names::{FileKind, SegmentFile, Suffix};

use crate::experiments::{DoingTo, Failure};

/// What the kernel counts `st_blocks` in, whatever the file system's blocks are.
const STAT_BLOCK_BYTES: u64 = 512;

/// How long a file is, and what it takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Size {
    /// As `ls` shows it.
    pub bytes: u64,
    /// Blocks that are really allocated.
    pub allocated: u64,
}

/// The files that share a base offset; `None` where there is no such file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// From the files' name.
    pub base: u64,
    /// `.log`.
    pub log: Option<Size>,
    /// `.index`.
    pub index: Option<Size>,
    /// `.timeindex`.
    pub time_index: Option<Size>,
}

/// The segments of a partition by base offset. Files with a suffix (`.deleted`) are left out.
///
/// # Errors
/// A directory that can't be read.
pub fn segments(directory: &Path) -> Result<Vec<Segment>, Failure> {
    let mut segments: Vec<Segment> = Vec::new();
    for entry in fs::read_dir(directory).doing_to("list", directory)? {
        let entry = entry.doing_to("list", directory)?;
        let name = entry.file_name();
        let file = name.to_str().and_then(SegmentFile::parse);
        let Some(file) = file.filter(|it| it.suffix == Suffix::None) else { continue };
        let Some(size) = size_of(&entry)? else { continue };
        let segment = of_base(&mut segments, file.base.0);
        match file.kind {
            FileKind::Log => segment.log = Some(size),
            FileKind::Index => segment.index = Some(size),
            FileKind::TimeIndex => segment.time_index = Some(size),
            FileKind::TxnIndex | FileKind::Snapshot => {}
        }
    }
    segments.retain(|it| it.log.is_some());
    segments.sort_by_key(|it| it.base);
    Ok(segments)
}

/// `None` when it has been renamed or removed since it was listed.
fn size_of(entry: &DirEntry) -> Result<Option<Size>, Failure> {
    match entry.metadata() {
        Ok(metadata) => {
            let allocated = metadata.blocks() * STAT_BLOCK_BYTES;
            Ok(Some(Size { bytes: metadata.len(), allocated }))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing_to("look at", &entry.path()),
    }
}

fn of_base(segments: &mut Vec<Segment>, base: u64) -> &mut Segment {
    let at = segments.iter().position(|it| it.base == base).unwrap_or_else(|| {
        segments.push(Segment { base, ..Segment::default() });
        segments.len() - 1
    });
    &mut segments[at]
}

/// Names and sizes of all files, as `ls -l` lists them.
///
/// # Errors
/// A directory that can't be read.
pub fn listing(directory: &Path) -> Result<Vec<(String, Size)>, Failure> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).doing_to("list", directory)? {
        let entry = entry.doing_to("list", directory)?;
        let Some(size) = size_of(&entry)? else { continue };
        files.push((entry.file_name().to_string_lossy().into_owned(), size));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_from_names_and_sizes() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: usize| {
            fs::write(folder.path().join(name), vec![1; bytes]).expect("a file");
        };
        write("00000000000000001028.log", 10);
        write("00000000000000000000.log", 20);
        write("00000000000000000000.index", 8);
        write("00000000000000000000.timeindex", 12);
        write("00000000000000000007.log.deleted", 5);
        write("partition.metadata", 5);
        let segments = segments(folder.path()).expect("a listing");
        let sizes = |size: Option<Size>| size.map(|it| it.bytes);
        let shown: Vec<_> = segments
            .iter()
            .map(|it| (it.base, sizes(it.log), sizes(it.index), sizes(it.time_index)))
            .collect();
        assert_eq!(shown, [(0, Some(20), Some(8), Some(12)), (1028, Some(10), None, None)]);
        assert_eq!(listing(folder.path()).expect("a listing").len(), 6);
    }
}
