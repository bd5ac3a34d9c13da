//! A small disk for one test, to be filled.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A tmpfs. It is unmounted when this is dropped.
pub struct Disk(TempDir);

impl Disk {
    /// Mounts a disk of so many MiB, to which every user may write. Returns `None` and prints the
    /// reason if this process may not mount.
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
        // The message bypasses the capture of the test harness.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED, since a tmpfs cannot be mounted: {why}"
        );
        None
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk.
    pub fn fill(&self) {
        let mut file = fs::File::create(self.0.path().join("filler")).expect("a file");
        let block = [b'x'; 4096];
        while file.write_all(&block).is_ok() {}
    }

    /// Frees the disk.
    pub fn empty(&self) {
        fs::remove_file(self.0.path().join("filler")).expect("the disk was filled");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Servers that still have files there are about to stop. The mount ends with the last
        // server.
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path())
            .status();
    }
}
