//! A small disk of one's own, to be filled.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A tmpfs. It is gone when this is dropped.
pub struct Disk(TempDir);

impl Disk {
    /// Mounts a disk of so many MiB, which everybody may write to. `None`, with a word of
    /// why, where this process may not mount.
    pub fn mount(mebibytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir_in("/tmp").expect("a folder");
        let options = format!("size={mebibytes}m,mode=1777");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "perdiem-tests"])
            .arg(folder.path())
            .output()
            .expect("there is a program `mount`");
        if mounted.status.success() {
            return Some(Self(folder));
        }
        let why = String::from_utf8_lossy(&mounted.stderr);
        // Past the capture of the test harness.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED, since a tmpfs cannot be mounted: {why}"
        );
        None
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Leaves no room.
    pub fn fill(&self) {
        let mut file = fs::File::create(self.0.path().join("filler")).expect("a file");
        let block = [b'x'; 4096];
        while file.write_all(&block).is_ok() {}
    }

    /// Makes room again.
    pub fn empty(&self) {
        fs::remove_file(self.0.path().join("filler")).expect("it was filled");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Servers that still have files there are on their way out: the mount goes with the
        // last of them.
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path())
            .status();
    }
}
