//! What the page cache holds is dropped: nobody notices, unless the device has something else.

use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::BytesMut;
use uringlog::disk::{DiskError, Step, StepFailure};
use uringlog::units::Position;

use crate::{Mounted, disks, file, place, plan, root_for, tree, write};

/// Ends within a page.
const FILE_BYTES: usize = 50_000;

#[test]
fn on_a_healthy_disk_nothing_changes() {
    for (name, mut disk) in disks(|| None) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = root_for(name, &directory);
        let forget = || Step::Forget { file: file(1) };
        let mut expected = vec![7; FILE_BYTES];
        expected[10_000..10_500].fill(8);
        for is_synced in [false, true] {
            let mut steps = vec![
                Step::Create { file: file(1), place: place(&root, "f") },
                forget(),
                write(file(1), 0, &[&[7; FILE_BYTES]]),
                forget(),
                Step::Sync { file: file(1) },
                write(file(1), 10_000, &[&[8; 500]]),
            ];
            if is_synced {
                steps.push(Step::Sync { file: file(1) });
            }
            steps.extend([forget(), forget()]);
            let bytes = BytesMut::zeroed(FILE_BYTES);
            steps.push(Step::Read { file: file(1), at: Position(0), bytes });
            steps.push(Step::Close { file: file(1) });
            let finished = disk.run(plan(steps));
            assert_eq!(finished.result, Ok(()), "{name}, {is_synced}");
            assert!(finished.plan.steps.iter().any(|step| read(step) == Some(&expected)), "{name}");
            assert!(tree(disk.as_mut(), &root)[Path::new("f")] == expected, "{name}");
            let remove = Step::Remove { place: place(&root, "f") };
            assert_eq!(disk.run(plan(vec![remove])).result, Ok(()), "{name}");
        }
    }
}

#[test]
fn a_file_that_is_not_open_is_refused() {
    for (name, mut disk) in disks(|| None) {
        let steps = vec![Step::Forget { file: file(1) }];
        let error = DiskError::Io(libc::EBADF);
        let refused = Err(StepFailure { step: 0, partial: false, error });
        assert_eq!(disk.run(plan(steps)).result, refused, "{name}");
    }
}

/// The bytes change on the device, below the file system: seen only when the page cache lets go.
#[test]
fn the_next_read_shows_the_bytes_of_the_device() {
    for (name, mut disk) in disks(|| None).into_iter().filter(|(name, _)| *name != "simulated") {
        let mounted = Mounted::new("ext4");
        let finished = disk.run(plan(vec![
            Step::Create { file: file(1), place: place(&mounted.root, "f") },
            write(file(1), 0, &[&[0xa7; FILE_BYTES]]),
            Step::Sync { file: file(1) },
        ]));
        assert_eq!(finished.result, Ok(()), "{name}");
        replace_on_device(&mounted.root.with_file_name("image"), 0xa7, 0x5b);
        let mut bytes_read = |forgets: bool| {
            let bytes = BytesMut::zeroed(FILE_BYTES);
            let forget = forgets.then_some(Step::Forget { file: file(1) });
            let read_all = Step::Read { file: file(1), at: Position(0), bytes };
            let finished = disk.run(plan(forget.into_iter().chain([read_all]).collect()));
            assert_eq!(finished.result, Ok(()), "{name}");
            read(finished.plan.steps.last().expect("it comes home")).expect("a read").to_vec()
        };
        assert!(bytes_read(false) == [0xa7; FILE_BYTES], "{name}: the page cache answers");
        assert!(bytes_read(true) == [0x5b; FILE_BYTES], "{name}: the device answers");
        let close = Step::Close { file: file(1) };
        assert_eq!(disk.run(plan(vec![close])).result, Ok(()), "{name}");
    }
}

/// Replaces every byte of whole sectors that have only `from` in the image of a file system, and of
/// a sector that begins with it.
fn replace_on_device(image: &Path, from: u8, to: u8) {
    const SECTOR_BYTES: usize = 512;
    let mut bytes = std::fs::read(image).expect("the image");
    let file = std::fs::File::options().write(true).open(image).expect("the image");
    let mut at = 0;
    for sector in bytes.chunks_mut(SECTOR_BYTES) {
        let count = sector.iter().take_while(|byte| **byte == from).count();
        if FILE_BYTES % SECTOR_BYTES <= count {
            sector[..count].fill(to);
            file.write_all_at(sector, at).expect("the image takes it");
        }
        at += 512;
    }
}

fn read(step: &Step) -> Option<&[u8]> {
    match step {
        Step::Read { bytes, .. } => Some(bytes),
        _ => None,
    }
}
