//! File systems for one test, seen by its processes only: they live in a mount namespace, and are
//! gone with the process that holds it. Needs root, and says so.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::process::{SharedDirectory, directory};

/// A tmpfs of limited size on a directory.
pub struct Mount {
    holder: Child,
    at: SharedDirectory,
}

impl Mount {
    /// Mounts a tmpfs with these options (`size=16m`, `ro`).
    pub fn tmpfs(options: &str) -> Mount {
        let at = directory();
        let script = format!(
            "mount -t tmpfs -o {options} uringlog-test '{}' && echo mounted && read -r _",
            at.path().display()
        );
        let mut holder = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare (util-linux) is needed");
        let mut said = [0; 8];
        let mounted = holder.stdout.take().expect("it is piped").read_exact(&mut said);
        if mounted.is_err() {
            let mut why = String::new();
            let from = holder.stderr.take().expect("it is piped").read_to_string(&mut why);
            from.expect("it ended");
            panic!("this test needs root and the right to mount a tmpfs: {why}");
        }
        Mount { holder, at }
    }

    /// The directory, as processes in the namespace name it.
    pub fn path(&self) -> &Path {
        self.at.path()
    }

    /// A file of it, as this process names it.
    pub fn outside(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        let inside = self.at.path().strip_prefix("/").expect("it is absolute");
        root.join(inside).join(name)
    }

    /// What to run a program by so that it sees the file system.
    pub fn wrapper(&self) -> Vec<OsString> {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.holder.id());
        ["nsenter", &namespace, "--"].map(OsString::from).to_vec()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.holder.kill().expect("it is ours");
        self.holder.wait().expect("it is ours");
    }
}
