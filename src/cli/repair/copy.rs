//! Copies of folders, holes and all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::RepairError;

/// Whether `to` may hold a copy of `from`.
///
/// # Errors
/// [`RepairError::Exists`], [`RepairError::Inside`].
pub fn check(from: &Path, to: &Path) -> Result<(), RepairError> {
    if to.exists() {
        return Err(RepairError::Exists(to.to_owned()));
    }
    if resolved(to).starts_with(resolved(from)) {
        return Err(RepairError::Inside(to.to_owned()));
    }
    Ok(())
}

/// The path without `..` and links. Its end need not be there yet: the part that is there says what
/// the rest hangs on.
fn resolved(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = whole.ancestors().find_map(|part| Some((part, fs::canonicalize(part).ok()?)));
    match there {
        Some((part, real)) => real.join(whole.strip_prefix(part).unwrap_or(Path::new(""))),
        None => whole,
    }
}

/// Copies a folder with everything in it.
///
/// # Errors
/// [`RepairError::Io`].
pub fn tree(from: &Path, to: &Path) -> Result<(), RepairError> {
    let failed = |what, path: &Path| {
        let path = path.to_owned();
        move |error| RepairError::Io { what, path, error }
    };
    fs::create_dir_all(to).map_err(failed("create", to))?;
    for entry in fs::read_dir(from).map_err(failed("read", from))? {
        let source = entry.map_err(failed("read", from))?.path();
        let target = to.join(source.file_name().unwrap_or_default());
        if source.is_dir() {
            tree(&source, &target)?;
        } else if source.file_name().is_none_or(|name| name != ".lock") {
            file(&source, &target).map_err(failed("copy", &source))?;
        }
    }
    Ok(())
}

/// Copies a file: only where something was written, so that a sparse index stays one.
fn file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut source, target) = (fs::File::open(from)?, fs::File::create_new(to)?);
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut at = 0;
    while let Some((start, end)) = data(&source, at, length)? {
        io::Seek::seek(&mut source, io::SeekFrom::Start(start))?;
        let mut out = &target;
        io::Seek::seek(&mut out, io::SeekFrom::Start(start))?;
        io::copy(&mut io::Read::take(&mut source, end - start), &mut out)?;
        at = end;
    }
    target.sync_all()
}

/// The next bytes that were written, from `at` on.
fn data(file: &fs::File, at: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    if length <= at {
        return Ok(None);
    }
    match seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some((start, seek(file, SeekFrom::Hole(start))?))),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_copy_has_the_bytes_and_the_holes() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let from = directory.path().join("a");
        fs::create_dir(&from).expect("created");
        let file = fs::File::create(from.join("sparse")).expect("created");
        file.set_len(10 << 20).expect("sparse");
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", 5 << 20).expect("written");
        fs::write(from.join(".lock"), "").expect("written");
        let to = directory.path().join("b");
        check(&from, &to).expect("nothing is there");
        tree(&from, &to).expect("copied");
        let (before, after) = (fs::read(from.join("sparse")), fs::read(to.join("sparse")));
        assert_eq!(before.expect("readable"), after.expect("readable"));
        assert!(fs::metadata(to.join("sparse")).expect("there").blocks() < 100);
        assert!(!to.join(".lock").exists());
        assert!(matches!(check(&from, &to), Err(RepairError::Exists(_))));
        assert!(matches!(check(&from, &from.join("c")), Err(RepairError::Inside(_))));
    }

    #[test]
    fn a_target_is_looked_at_where_it_really_lies() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let from = directory.path().join("a");
        fs::create_dir_all(from.join("inside")).expect("created");
        std::os::unix::fs::symlink(from.join("inside"), directory.path().join("link"))
            .expect("linked");
        check(&from, &from.join("../repaired")).expect("beside it");
        check(&from, &from.join("inside/../../repaired")).expect("beside it");
        for inside in ["a/../a/new", "link/new", "a/inside/deeper/new", "link/../new"] {
            let refused = check(&from, &directory.path().join(inside));
            assert!(matches!(refused, Err(RepairError::Inside(_))), "{inside}");
        }
    }
}
