//! Files that only their owner can read and write.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The owner can read and write; nobody else can do anything.
const OWNERS_ALONE: u32 = 0o600;

/// The rights of all other users, in a file's mode.
const OTHERS: u32 = 0o007;

/// The options for a file that its owner writes.
pub fn owners_alone() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(OWNERS_ALONE);
    options
}

/// Writes a secret into a new file. A file that is not complete does not stay.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn write_secret(path: &Path, secret: &str) -> io::Result<()> {
    let mut file = owners_alone().create_new(true).open(path)?;
    let written = writeln!(file, "{secret}").and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

/// Whether every user of the machine can read or write a file. Its group may: orchestrators mount
/// secrets so.
pub fn is_open_to_others(file: &Metadata) -> bool {
    file.is_file() && file.permissions().mode() & OTHERS != 0
}

/// Checks that a file can keep a secret.
///
/// # Errors
/// The file is missing, or every user of the machine can read or write it.
pub fn check_secret(path: &Path) -> io::Result<()> {
    if is_open_to_others(&fs::metadata(path)?) {
        return Err(io::Error::other(format!(
            "every user of this machine can read or write this secret file: run chmod o= {}",
            path.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_for_its_owner_and_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        write_secret(&path, "one").unwrap();
        let error = write_secret(&path, "two").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, OWNERS_ALONE);
        let missing = write_secret(&folder.path().join("none/a.key"), "one");
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    }
}
