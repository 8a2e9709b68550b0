//! Copies of folders, holes and all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::RepairError;
use crate::cli::log_file::{open_regular, written};

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
    below(from, to, &mut Vec::new())
}

/// `above` are the folders on the way here: links may lead elsewhere, but not back to one of them.
fn below(from: &Path, to: &Path, above: &mut Vec<PathBuf>) -> Result<(), RepairError> {
    let failed = |what, path: &Path| {
        let path = path.to_owned();
        move |error| RepairError::Io { what, path, error }
    };
    let real = fs::canonicalize(from).map_err(failed("read", from))?;
    if above.contains(&real) {
        let error = io::Error::other("it leads back to a folder that it lies in");
        return Err(failed("copy", from)(error));
    }
    above.push(real);
    fs::create_dir_all(to).map_err(failed("create", to))?;
    for entry in fs::read_dir(from).map_err(failed("read", from))? {
        let source = entry.map_err(failed("read", from))?.path();
        let target = to.join(source.file_name().unwrap_or_default());
        if source.is_dir() {
            below(&source, &target, above)?;
        } else if source.file_name().is_none_or(|name| name != ".lock") {
            file(&source, &target).map_err(failed("copy", &source))?;
        }
    }
    above.pop();
    Ok(())
}

/// Copies a file: only where something was written, so that a sparse index stays one.
fn file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut source, length) = open_regular(from)?;
    let target = fs::File::create_new(to)?;
    target.set_len(length)?;
    let mut at = 0;
    while let Some((start, end)) = written(&source, at, length)? {
        io::Seek::seek(&mut source, io::SeekFrom::Start(start))?;
        let mut out = &target;
        io::Seek::seek(&mut out, io::SeekFrom::Start(start))?;
        io::copy(&mut io::Read::take(&mut source, end - start), &mut out)?;
        at = end;
    }
    target.sync_all()
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
    fn links_are_followed_but_not_round_and_round() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (from, elsewhere) = (directory.path().join("a"), directory.path().join("elsewhere"));
        fs::create_dir_all(&elsewhere).expect("created");
        fs::create_dir(&from).expect("created");
        fs::write(elsewhere.join("file"), "bytes").expect("written");
        for name in ["topic-0", "topic-1"] {
            std::os::unix::fs::symlink(&elsewhere, from.join(name)).expect("linked");
        }
        let to = directory.path().join("b");
        tree(&from, &to).expect("copied");
        assert_eq!(fs::read(to.join("topic-1/file")).expect("copied"), b"bytes");
        assert!(!to.join("topic-1").is_symlink());
        std::os::unix::fs::symlink(&from, elsewhere.join("back")).expect("linked");
        let refused = tree(&from, &directory.path().join("c")).expect_err("a circle");
        assert!(refused.to_string().contains("leads back"), "{refused}");
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let directory = tempfile::tempdir().expect("a temporary directory");
        let pipe = directory.path().join("a/00000000000000000000.log");
        fs::create_dir(directory.path().join("a")).expect("created");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from(0o600), 0).expect("made");
        let refused = tree(&directory.path().join("a"), &directory.path().join("b"));
        assert!(matches!(refused, Err(RepairError::Io { what: "copy", .. })));
        assert_eq!(
            crate::cli::log_file::read_whole(&pipe).expect_err("no bytes").kind(),
            io::ErrorKind::InvalidInput
        );
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
