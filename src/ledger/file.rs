//! The file of a ledger on SQLite: its path, its permissions, and its lock.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::sqlite::SqliteConnectOptions;

use super::OpenError;
use host::secret_file::{is_open_to_others, owners_alone};

/// The file that a URL names.
pub struct LedgerFile {
    /// The path as the URL has it.
    place: String,
    /// The path, absolute and without links: the same whichever link leads to the file.
    path: PathBuf,
}

impl LedgerFile {
    /// Resolves the file of a URL. The file need not exist.
    ///
    /// # Errors
    /// [`OpenError`] for a URL that cannot be parsed or names no file, for a folder, and for a file
    /// in a folder that cannot be read.
    pub fn of(url: &str) -> Result<Self, OpenError> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|error| OpenError::InvalidUrl(error.to_string()))?;
        let named = options.get_filename();
        let is_memory = url.contains(":memory:") || url.contains("mode=memory");
        if is_memory || named.as_os_str().is_empty() {
            return Err(OpenError::NoFile);
        }
        let mut file = Self {
            place: named.display().to_string(),
            path: PathBuf::new(),
        };
        file.path = resolve(named).map_err(|error| file.failed(&error))?;
        if file.path.is_dir() {
            return Err(file.unreadable("it is a folder", true));
        }
        Ok(file)
    }

    /// The path as the URL has it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The path, absolute and without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error of the file system.
    fn failed(&self, error: &io::Error) -> OpenError {
        // A full disk, for example, can have room later.
        let is_lasting = matches!(
            error.kind(),
            ErrorKind::NotFound
                | ErrorKind::PermissionDenied
                | ErrorKind::NotADirectory
                | ErrorKind::IsADirectory
                | ErrorKind::ReadOnlyFilesystem
        );
        self.unreadable(error, is_lasting)
    }

    /// The error that the file cannot be used, and whether this lasts.
    pub fn unreadable(&self, reason: impl ToString, is_lasting: bool) -> OpenError {
        OpenError::Unreadable {
            place: self.place.clone(),
            reason: reason.to_string(),
            remedy: "set DATABASE_URL to a file that perdiem made, or to a new file in a folder that \
                     exists and that perdiem may write to",
            is_lasting,
        }
    }

    /// Whether the file does not exist or is empty.
    pub fn is_missing(&self) -> bool {
        !fs::metadata(&self.path).is_ok_and(|about| about.len() > 0)
    }

    /// Makes the file if it does not exist. SQLite gives the files beside it the same mode. An
    /// existing file keeps its mode, which somebody may have chosen.
    ///
    /// # Errors
    /// [`OpenError::Unreadable`].
    pub fn make(&self) -> Result<(), OpenError> {
        // Do not open an existing file: closing it would drop the locks that SQLite holds on it in
        // this process.
        match owners_alone().create_new(true).open(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(self.failed(&error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Whether every user of the machine may read or write the file.
    pub fn is_open_to_others(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|about| is_open_to_others(&about))
    }

    /// Logs a warning if every user of the machine may use the file.
    pub fn tell_of_others(&self) {
        if self.is_open_to_others() {
            tracing::warn!(
                file = self.place,
                "every user of this machine may use the ledger's file: chmod 600 it"
            );
        }
    }

    /// The path with some text at its end.
    pub fn beside(&self, end: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(end);
        path.into()
    }

    /// Locks the file for this process. The lock ends when the returned value is dropped or the
    /// process ends, also by a crash. The lock is on a file of its own beside the ledger, which
    /// SQLite does not know.
    ///
    /// # Errors
    /// [`OpenError::InUse`] or [`OpenError::Unreadable`].
    pub fn lock(&self) -> Result<File, OpenError> {
        let path = self.beside("-lock");
        let lock = owners_alone().create(true).truncate(false).open(&path);
        let lock = lock.map_err(|error| self.failed(&error))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse(self.path.display().to_string())),
            Err(TryLockError::Error(error)) => Err(self.failed(&error)),
        }
    }
}

/// The absolute path of a file, without links, also of a file that does not exist yet.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        resolved => return resolved,
    }
    let name = path.file_name().ok_or(ErrorKind::NotFound)?;
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder.canonicalize()?,
        Some(_) | None => Path::new(".").canonicalize()?,
    };
    match folder.join(name).read_link() {
        Ok(target) => resolve(&folder.join(target)),
        Err(_) => Ok(folder.join(name)),
    }
}
