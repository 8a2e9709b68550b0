//! The simulated file system: what is cached, what is durable, and what a power cut leaves.
//!
//! Data and names are kept twice. Reads see the cached state. A sync moves a file's changes to its
//! durable state; a directory's sync moves the names in it. At a power cut every change that was
//! not moved survives or not, by the seed:
//!
//! - Unsynced writes of a file: all lost, all kept, or a mix that tears at sectors of 512 bytes,
//!   in which later writes may survive earlier ones and the length may survive the data (zeros).
//! - Unsynced names: each operation survives or not. A rename is one operation, also between
//!   directories: never half of it.
//!
//! A sync that fails drops its file's unsynced changes, after it has made some of them durable:
//! reads still see them all, until the file's cached state is forgotten.
//!
//! A durable write changes both states at once, whole; cut off, each of its sectors is old or new.
//!
//! A file's sync doesn't make its name durable. Real file systems often do; POSIX doesn't promise.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::disk::plan::{DiskError, Listed, Place};
use crate::disk::sim::random::Random;
use crate::disk::sim::sparse::Sparse;
use crate::units::{ByteCount, u64_of, usize_of};

const SECTOR_BYTES: usize = 512;

/// Number of a file or a directory, whatever its names.
pub(crate) type Node = u64;

const ROOT: Node = 0;

#[derive(Clone, Debug, Default)]
pub(crate) struct SimFiles {
    files: BTreeMap<Node, SimFile>,
    directories: BTreeMap<Node, Directory>,
    /// Operations on names that no directory's sync covers yet, oldest first.
    unsynced_names: Vec<NameChange>,
    next_node: Node,
}

#[derive(Clone, Debug, Default)]
struct SimFile {
    cached: Sparse,
    durable: Sparse,
    /// Changes since the last sync, oldest first.
    unsynced: Vec<Change>,
    modified_ms: i64,
}

#[derive(Clone, Debug)]
enum Change {
    Write { at: u64, bytes: Vec<u8> },
    Resize { length: u64 },
}

#[derive(Clone, Debug, Default)]
struct Directory {
    cached: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
}

/// An operation on names: each entry set to a node, or removed. All of it survives or none.
#[derive(Clone, Debug)]
struct NameChange {
    sets: Vec<(Node, String, Option<Node>)>,
}

fn not_a_directory() -> DiskError {
    DiskError::Io(rustix::io::Errno::NOTDIR.raw_os_error())
}

fn is_a_directory() -> DiskError {
    DiskError::Io(rustix::io::Errno::ISDIR.raw_os_error())
}

fn not_empty() -> DiskError {
    DiskError::Io(rustix::io::Errno::NOTEMPTY.raw_os_error())
}

impl SimFiles {
    /// An empty file system in which the directory `root` exists, durably.
    pub(crate) fn new(root: &Path) -> SimFiles {
        let mut files = SimFiles { next_node: ROOT + 1, ..SimFiles::default() };
        files.directories.insert(ROOT, Directory::default());
        let mut parent = ROOT;
        for name in names_of(root) {
            let node = files.new_node();
            files.directories.insert(node, Directory::default());
            let directory = files.directories.get_mut(&parent).expect("it was just made");
            directory.cached.insert(name.clone(), node);
            directory.durable.insert(name, node);
            parent = node;
        }
        files
    }

    fn new_node(&mut self) -> Node {
        self.next_node += 1;
        self.next_node
    }

    fn directory(&self, path: &Path) -> Result<Node, DiskError> {
        let mut node = ROOT;
        for name in names_of(path) {
            let directory = self.directories.get(&node).ok_or_else(not_a_directory)?;
            node = *directory.cached.get(&name).ok_or(DiskError::NotFound)?;
        }
        if self.directories.contains_key(&node) { Ok(node) } else { Err(not_a_directory()) }
    }

    /// The directory of a place, and what stands there.
    fn look_up(&self, place: &Place) -> Result<(Node, Option<Node>), DiskError> {
        let parent = self.directory(&place.directory)?;
        Ok((parent, self.directories[&parent].cached.get(&*place.name).copied()))
    }

    fn change_names(&mut self, sets: Vec<(Node, String, Option<Node>)>) {
        for (parent, name, node) in &sets {
            let directory = self.directories.get_mut(parent).expect("directories are looked up");
            set(&mut directory.cached, name, *node);
        }
        self.unsynced_names.push(NameChange { sets });
    }

    pub(crate) fn create_directory(&mut self, place: &Place) -> Result<(), DiskError> {
        let (parent, standing) = self.look_up(place)?;
        match standing {
            // As the other disks: EEXIST is fine, whatever stands there.
            Some(_) => Ok(()),
            None => {
                let node = self.new_node();
                self.directories.insert(node, Directory::default());
                self.change_names(vec![(parent, place.name.to_string(), Some(node))]);
                Ok(())
            }
        }
    }

    /// Opens a file; makes it when `create` says so and it is absent.
    pub(crate) fn open(&mut self, place: &Place, create: bool) -> Result<Node, DiskError> {
        let (parent, standing) = self.look_up(place)?;
        match standing {
            Some(node) if self.directories.contains_key(&node) => Err(is_a_directory()),
            Some(node) => Ok(node),
            None if create => {
                let node = self.new_node();
                self.files.insert(node, SimFile::default());
                self.change_names(vec![(parent, place.name.to_string(), Some(node))]);
                Ok(node)
            }
            None => Err(DiskError::NotFound),
        }
    }

    pub(crate) fn rename(&mut self, from: &Place, to: &Place) -> Result<(), DiskError> {
        let (from_parent, moved) = self.look_up(from)?;
        let (to_parent, replaced) = self.look_up(to)?;
        let moved = moved.ok_or(DiskError::NotFound)?;
        if let Some(replaced) = replaced {
            self.may_replace(moved, replaced)?;
            if moved == replaced {
                return Ok(());
            }
        }
        self.change_names(vec![
            (from_parent, from.name.to_string(), None),
            (to_parent, to.name.to_string(), Some(moved)),
        ]);
        Ok(())
    }

    fn may_replace(&self, moved: Node, replaced: Node) -> Result<(), DiskError> {
        match (self.directories.contains_key(&moved), self.directories.get(&replaced)) {
            (true, None) => Err(not_a_directory()),
            (false, Some(_)) => Err(is_a_directory()),
            (true, Some(directory)) if !directory.cached.is_empty() => Err(not_empty()),
            _ => Ok(()),
        }
    }

    pub(crate) fn remove(&mut self, place: &Place) -> Result<(), DiskError> {
        let (parent, standing) = match self.look_up(place) {
            Err(DiskError::NotFound) => return Ok(()),
            other => other?,
        };
        let Some(node) = standing else { return Ok(()) };
        if self.directories.contains_key(&node) {
            return Err(is_a_directory());
        }
        self.change_names(vec![(parent, place.name.to_string(), None)]);
        Ok(())
    }

    /// Not made durable, and not lost either: nothing that must hold rests on it.
    pub(crate) fn set_modified(
        &mut self,
        place: &Place,
        modified_ms: i64,
    ) -> Result<(), DiskError> {
        let (_, standing) = self.look_up(place)?;
        let node = standing.ok_or(DiskError::NotFound)?;
        let file = self.files.get_mut(&node).ok_or_else(is_a_directory)?;
        file.modified_ms = modified_ms;
        Ok(())
    }

    pub(crate) fn remove_directory(&mut self, place: &Place) -> Result<(), DiskError> {
        let (parent, standing) = match self.look_up(place) {
            Err(DiskError::NotFound) => return Ok(()),
            other => other?,
        };
        let Some(node) = standing else { return Ok(()) };
        match self.directories.get(&node) {
            None => Err(not_a_directory()),
            Some(directory) if !directory.cached.is_empty() => Err(not_empty()),
            Some(_) => {
                self.change_names(vec![(parent, place.name.to_string(), None)]);
                Ok(())
            }
        }
    }

    /// Makes the names in a directory durable; a rename that touches another one, wholly.
    pub(crate) fn sync_directory(&mut self, path: &Path) -> Result<(), DiskError> {
        let node = self.directory(path)?;
        for change in std::mem::take(&mut self.unsynced_names) {
            if change.sets.iter().any(|(parent, ..)| *parent == node) {
                self.make_durable(&change);
            } else {
                self.unsynced_names.push(change);
            }
        }
        Ok(())
    }

    fn make_durable(&mut self, change: &NameChange) {
        for (parent, name, node) in &change.sets {
            let directory = self.directories.get_mut(parent).expect("nodes are kept");
            set(&mut directory.durable, name, *node);
        }
    }

    fn file_mut(&mut self, node: Node) -> &mut SimFile {
        self.files.get_mut(&node).expect("an open file has a node")
    }

    pub(crate) fn length(&self, node: Node) -> u64 {
        self.files[&node].cached.length()
    }

    pub(crate) fn write(&mut self, node: Node, at: u64, bytes: &[u8], now_ms: i64) {
        let file = self.file_mut(node);
        file.cached.write(at, bytes);
        file.modified_ms = now_ms;
        file.unsynced.push(Change::Write { at, bytes: bytes.to_vec() });
    }

    pub(crate) fn resize(&mut self, node: Node, length: u64, now_ms: i64) {
        let file = self.file_mut(node);
        file.cached.resize(length);
        file.modified_ms = now_ms;
        file.unsynced.push(Change::Resize { length });
    }

    /// How many bytes from `at` on can be written when `free` bytes of pages may still be made.
    pub(crate) fn bytes_that_fit(&self, node: Node, at: u64, free: u64) -> u64 {
        self.files[&node].cached.bytes_that_fit(at, free)
    }

    pub(crate) fn read(&self, node: Node, at: u64, bytes: &mut [u8]) -> bool {
        self.files[&node].cached.read(at, bytes)
    }

    /// Overwrites bytes in the cached and in the durable state at once, as a direct write does.
    pub(crate) fn write_durable(&mut self, node: Node, at: u64, bytes: &[u8]) {
        let file = self.file_mut(node);
        file.cached.write(at, bytes);
        file.overtake_unsynced(at, at + u64_of(bytes.len()));
        file.durable.write(at, bytes);
    }

    /// As [`SimFiles::write_durable`], of sectors that the seed takes. The others stay as they are,
    /// durably; `is_seen` says whether reads see them new all the same.
    pub(crate) fn tear_durable(
        &mut self,
        node: Node,
        (at, bytes): (u64, &[u8]),
        is_seen: bool,
        random: &mut Random,
    ) {
        for (at, sector) in (at..).step_by(SECTOR_BYTES).zip(bytes.chunks(SECTOR_BYTES)) {
            if random.one_in(2) {
                self.write_durable(node, at, sector);
            } else if is_seen {
                self.file_mut(node).cached.write(at, sector);
            }
        }
    }

    /// The node of the file at a path, as reads find it.
    pub(crate) fn file_at(&self, path: &Path) -> Option<Node> {
        let parent = self.directory(path.parent()?).ok()?;
        let name = path.file_name()?.to_string_lossy();
        let node = self.directories[&parent].cached.get(&*name).copied()?;
        self.files.contains_key(&node).then_some(node)
    }

    /// The bytes of a file that a power cut leaves for sure, unless unsynced ones go over them.
    pub(crate) fn durable_bytes(&self, node: Node) -> Vec<u8> {
        self.files[&node].durable.to_vec()
    }

    /// Flips a bit in both states; false when neither has that byte.
    pub(crate) fn flip_bit(&mut self, node: Node, byte: u64, bit: u8) -> bool {
        let file = self.file_mut(node);
        let mut was_there = false;
        for state in [&mut file.cached, &mut file.durable] {
            let mut value = [0];
            if state.read(byte, &mut value) {
                state.write(byte, &[value[0] ^ (1 << bit)]);
                was_there = true;
            }
        }
        was_there
    }

    pub(crate) fn sync(&mut self, node: Node) {
        let file = self.file_mut(node);
        for change in std::mem::take(&mut file.unsynced) {
            change.apply(&mut file.durable);
        }
    }

    /// A sync that failed: some of the changes are durable, no later sync covers the others, and
    /// reads still see all of them.
    pub(crate) fn fail_sync(&mut self, node: Node, random: &mut Random) {
        self.file_mut(node).lose_unsynced(random);
    }

    /// Drops what a failed sync has left in the cache: reads see the durable state, and over it the
    /// changes that a sync will still move there. The length stays: it is not in the page cache.
    pub(crate) fn forget(&mut self, node: Node) {
        let file = self.file_mut(node);
        let length = file.cached.length();
        file.cached = file.durable.clone();
        for change in &file.unsynced {
            change.apply(&mut file.cached);
        }
        file.cached.resize(length);
    }

    /// Bytes that all files take, as a quota counts them.
    pub(crate) fn allocated(&self) -> u64 {
        self.files.values().map(|file| file.cached.allocated()).sum()
    }

    pub(crate) fn list(&self, path: &Path) -> Result<Vec<Listed>, DiskError> {
        let node = self.directory(path)?;
        let entries = self.directories[&node].cached.iter();
        let listed = entries.map(|(name, node)| match self.files.get(node) {
            Some(file) => Listed {
                name: name.clone(),
                length: ByteCount(file.cached.length()),
                is_directory: false,
                modified_ms: file.modified_ms,
            },
            None => Listed {
                name: name.clone(),
                length: ByteCount(0),
                is_directory: true,
                modified_ms: 0,
            },
        });
        Ok(listed.collect())
    }

    /// All files below a directory with their bytes, by path relative to it.
    pub(crate) fn tree(&self, path: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, DiskError> {
        let mut tree = BTreeMap::new();
        let mut open = vec![(self.directory(path)?, PathBuf::new())];
        while let Some((node, path)) = open.pop() {
            for (name, node) in &self.directories[&node].cached {
                match self.files.get(node) {
                    Some(file) => {
                        tree.insert(path.join(name), file.cached.to_vec());
                    }
                    None => open.push((*node, path.join(name))),
                }
            }
        }
        Ok(tree)
    }

    /// What a power cut leaves.
    pub(crate) fn after_crash(mut self, random: &mut Random) -> SimFiles {
        for change in std::mem::take(&mut self.unsynced_names) {
            if random.one_in(2) {
                self.make_durable(&change);
            }
        }
        for directory in self.directories.values_mut() {
            directory.cached = directory.durable.clone();
        }
        for file in self.files.values_mut() {
            file.lose_unsynced(random);
            file.cached = file.durable.clone();
        }
        self
    }
}

impl SimFile {
    /// Makes way for a direct write of `from..to`: older unsynced writes of these bytes are void,
    /// and older lengths below `to` are durable, with what came before them.
    fn overtake_unsynced(&mut self, from: u64, to: u64) {
        let is_below =
            |change: &Change| matches!(change, Change::Resize { length } if *length < to);
        let ahead = self.unsynced.iter().rposition(is_below).map_or(0, |index| index + 1);
        for change in self.unsynced.drain(..ahead) {
            change.apply(&mut self.durable);
        }
        let rest = std::mem::take(&mut self.unsynced);
        self.unsynced = rest.into_iter().flat_map(|change| change.without(from, to)).collect();
    }

    /// Makes an arbitrary part of the unsynced changes durable and forgets about the rest.
    fn lose_unsynced(&mut self, random: &mut Random) {
        let fate = random.below(3);
        for change in std::mem::take(&mut self.unsynced) {
            match fate {
                0 => {}
                1 => change.apply(&mut self.durable),
                _ => change.apply_torn(&mut self.durable, random),
            }
        }
    }
}

impl Change {
    /// What is left of it when `from..to` is taken out.
    fn without(self, from: u64, to: u64) -> Vec<Change> {
        let Change::Write { at, bytes } = self else { return vec![self] };
        let end = at + u64_of(bytes.len());
        if to <= at || end <= from {
            return vec![Change::Write { at, bytes }];
        }
        let before = &bytes[..usize_of(from.saturating_sub(at))];
        let after = &bytes[usize_of((to - at).min(end - at))..];
        let pieces = [(at, before), (to, after)].into_iter().filter(|(_, it)| !it.is_empty());
        pieces.map(|(at, bytes)| Change::Write { at, bytes: bytes.to_vec() }).collect()
    }

    fn apply(&self, sparse: &mut Sparse) {
        match self {
            Change::Write { at, bytes } => sparse.write(*at, bytes),
            Change::Resize { length } => sparse.resize(*length),
        }
    }

    fn apply_torn(&self, sparse: &mut Sparse, random: &mut Random) {
        let Change::Write { at, bytes } = self else {
            if random.one_in(2) {
                self.apply(sparse);
            }
            return;
        };
        // The length may get through though the data doesn't.
        let end = at + u64_of(bytes.len());
        if random.one_in(4) && sparse.length() < end {
            sparse.resize(end);
        }
        let mut from = 0;
        while from < bytes.len() {
            let position = at + u64_of(from);
            let sector_left = SECTOR_BYTES - usize_of(position % u64_of(SECTOR_BYTES));
            let count = sector_left.min(bytes.len() - from);
            if random.one_in(2) {
                sparse.write(position, &bytes[from..from + count]);
            }
            from += count;
        }
    }
}

fn set(names: &mut BTreeMap<String, Node>, name: &str, node: Option<Node>) {
    match node {
        Some(node) => {
            names.insert(name.to_owned(), node);
        }
        None => {
            names.remove(name);
        }
    }
}

fn names_of(path: &Path) -> Vec<String> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durable_write_takes_its_bytes_out_of_older_ones() {
        let check = |at: u64, length: usize, expected: &[(u64, usize)]| {
            let left = Change::Write { at, bytes: vec![1; length] }.without(100, 200);
            let left = left.iter().map(|change| match change {
                Change::Write { at, bytes } => (*at, bytes.len()),
                Change::Resize { .. } => panic!("a write stays one"),
            });
            assert_eq!(left.collect::<Vec<_>>(), expected, "{at} {length}");
        };
        check(0, 100, &[(0, 100)]);
        check(200, 5, &[(200, 5)]);
        check(100, 100, &[]);
        check(120, 20, &[]);
        check(50, 100, &[(50, 50)]);
        check(150, 100, &[(200, 50)]);
        check(50, 300, &[(50, 50), (200, 150)]);
    }

    #[test]
    fn to_forget_keeps_what_is_dirty_and_the_length() {
        let mut files = SimFiles::new(Path::new("/"));
        let place = Place { directory: std::sync::Arc::from(Path::new("/")), name: "f".into() };
        let node = files.open(&place, true).expect("it is made");
        let bytes = |files: &SimFiles| files.files[&node].cached.to_vec();
        files.write(node, 0, &[1; 100], 0);
        files.sync(node);
        files.write(node, 50, &[2; 100], 0);
        files.resize(node, 120, 0);
        files.forget(node);
        assert_eq!(bytes(&files), [[1; 50].as_slice(), &[2; 70]].concat(), "all is still to come");
        // Both changes get lost.
        files.file_mut(node).unsynced.clear();
        files.write(node, 10, &[3; 10], 0);
        files.forget(node);
        let expected = [[1; 10].as_slice(), &[3; 10], &[1; 80], &[0; 20]].concat();
        assert_eq!(bytes(&files), expected, "the device's, and what is still to come");
        files.resize(node, 60, 0);
        files.file_mut(node).unsynced.clear();
        files.forget(node);
        assert_eq!(bytes(&files), [1; 60], "a lost cut is seen all the same");
    }

    #[test]
    fn no_later_sync_brings_back_what_a_durable_write_went_over() {
        let mut files = SimFiles::new(Path::new("/"));
        let place = Place { directory: std::sync::Arc::from(Path::new("/")), name: "f".into() };
        let node = files.open(&place, true).expect("it is made");
        files.resize(node, 2048, 0);
        files.resize(node, 0, 0);
        files.write(node, 0, &[1; 2048], 0);
        files.write_durable(node, 512, &[2; 512]);
        assert_eq!(files.durable_bytes(node), [[0; 512], [2; 512]].concat());
        files.sync(node);
        let expected = [[1; 512], [2; 512], [1; 512], [1; 512]].concat();
        assert_eq!(files.durable_bytes(node), expected);
    }
}
