//! Which mount a directory lies on, from the text of `/proc/self/mountinfo`.

use std::path::{Path, PathBuf};

/// A mounted file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Where.
    pub point: PathBuf,
    /// Its type.
    pub kind: String,
    /// What is mounted.
    pub device: String,
    /// Options of the mount and of the file system, each once.
    pub options: String,
}

impl Mount {
    /// Whether nothing can be written.
    pub fn is_read_only(&self) -> bool {
        self.options.split(',').any(|option| option == "ro")
    }

    /// Whether it is gone with the host's memory.
    pub fn is_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs" | "rootfs")
    }

    /// Whether another host keeps the files.
    pub fn is_remote(&self) -> bool {
        let kind = self.kind.as_str();
        ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "afs"].contains(&kind)
            || kind.starts_with("fuse.")
    }
}

/// The mount that `path`, absolute and without links, lies on: the longest mount point above it,
/// and of equal ones the last.
pub fn mount_of(mountinfo: &str, path: &Path) -> Option<Mount> {
    let mounts = mountinfo.lines().filter_map(parse);
    let above = mounts.filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

/// One line: id, parent, device number, root, mount point, options, optional fields, a dash, type,
/// source, options of the file system.
fn parse(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let (mut front, mut back) = (front.split(' ').skip(4), back.split(' '));
    let (point, own) = (front.next()?, front.next()?);
    let (kind, device, shared) = (back.next()?, back.next()?, back.next().unwrap_or(""));
    let mut options: Vec<&str> = own.split(',').collect();
    for option in shared.split(',').filter(|option| !option.is_empty()) {
        // The file system's "rw" says nothing about a mount that is "ro".
        if !options.contains(&option) && option != "rw" {
            options.push(option);
        }
    }
    Some(Mount {
        point: unescaped(point).into(),
        kind: kind.to_owned(),
        device: unescaped(device),
        options: options.join(","),
    })
}

/// Blanks, tabs, newlines and backslashes stand as three octal digits.
fn unescaped(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 254:1 / /srv rw,noatime - xfs /dev/vdb rw,attr2
31 27 254:2 / /srv ro,noatime - ext4 /dev/vdc rw
32 27 0:40 / /mnt/my\\040disk rw - tmpfs tmpfs rw,size=1k
33 27 0:41 / /srv/nfs rw - nfs4 box:/export rw
";

    fn device(path: &str) -> String {
        mount_of(MOUNTINFO, Path::new(path)).expect("a mount").device
    }

    #[test]
    fn the_longest_and_last_mount_counts() {
        assert_eq!(device("/home/x"), "/dev/vda");
        assert_eq!(device("/srv"), "/dev/vdc");
        assert_eq!(device("/srv/data"), "/dev/vdc");
        assert_eq!(device("/srvdata"), "/dev/vda");
        assert_eq!(device("/srv/nfs/data"), "box:/export");
        assert_eq!(mount_of("", Path::new("/")), None);
        assert_eq!(mount_of("garbage\n1 2 3 - x", Path::new("/")), None);
    }

    #[test]
    fn what_a_mount_says_about_itself() {
        let mount = |path| mount_of(MOUNTINFO, Path::new(path)).expect("a mount");
        assert_eq!(mount("/").options, "rw,relatime,discard");
        assert!(mount("/srv").is_read_only());
        assert!(!mount("/").is_read_only());
        assert!(mount("/mnt/my disk/x").is_memory());
        assert!(mount("/srv/nfs").is_remote());
        assert!(!mount("/srv").is_remote());
    }
}
