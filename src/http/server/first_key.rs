//! The first admin key of a ledger: who gets to see it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use host::secret_file::write_secret;

/// A folder with more first keys than this is in use for something else.
const FILES_MOST: u32 = 100;

/// A new key, as a person gets it. It is shown nowhere else.
#[derive(Debug)]
pub enum FirstKey {
    /// The secret, for a person at a terminal.
    Shown(String),
    /// A file with the secret.
    InFile(PathBuf),
}

impl FirstKey {
    /// Keeps a secret: in a new file of the folder, if there is one. This comes before the ledger
    /// gets the key, so that no key is lost for want of a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(secret: String, folder: Option<&Path>) -> io::Result<Self> {
        let Some(folder) = folder else {
            return Ok(Self::Shown(secret));
        };
        for number in 1..=FILES_MOST {
            let path = folder.join(match number {
                1 => "first-admin.key".to_owned(),
                _ => format!("first-admin-{number}.key"),
            });
            match write_secret(&path, &secret) {
                Ok(()) => return Ok(Self::InFile(path)),
                // A file of another ledger, or of a start that failed. It may hold the only copy.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Removes the file of a key that the ledger does not have.
    pub fn discard(self) {
        if let Self::InFile(path) = self
            && let Err(error) = fs::remove_file(&path)
        {
            let path = path.display();
            tracing::warn!(%path, %error, "a file with a key that does not work was left over");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_never_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        let keep = |secret: &str| {
            let kept = FirstKey::keep(secret.to_owned(), Some(folder.path())).unwrap();
            let FirstKey::InFile(path) = kept else {
                panic!("{kept:?}")
            };
            (fs::read_to_string(&path).unwrap(), FirstKey::InFile(path))
        };
        let (one, _kept) = keep("one");
        let (two, second) = keep("two");
        assert_eq!((one.as_str(), two.as_str()), ("one\n", "two\n"));
        second.discard();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_terminal_shows_the_key() {
        let kept = FirstKey::keep("one".to_owned(), None).unwrap();
        assert!(matches!(kept, FirstKey::Shown(secret) if secret == "one"));
    }
}
