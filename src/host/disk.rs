//! The room on a disk.

use std::io;
use std::path::Path;

use rustix::fs::statvfs;

/// The size of a file system, and what a process that is not root's can still write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    pub free_bytes: u64,
    pub size_bytes: u64,
}

impl DiskRoom {
    /// The room where a file or folder is.
    ///
    /// # Errors
    /// It does not exist, or cannot be reached.
    pub fn at(path: &Path) -> io::Result<Self> {
        let told = statvfs(path)?;
        Ok(Self {
            free_bytes: told.f_bavail * told.f_frsize,
            size_bytes: told.f_blocks * told.f_frsize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_room() {
        let folder = tempfile::tempdir().unwrap();
        let room = DiskRoom::at(folder.path()).unwrap();
        assert!(room.free_bytes > 0 && room.free_bytes <= room.size_bytes);
        assert!(DiskRoom::at(&folder.path().join("nothing")).is_err());
    }
}
