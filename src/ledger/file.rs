//! The file of a ledger on SQLite: where it is, whose it is, and which process uses it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::sqlite::SqliteConnectOptions;

use super::OpenError;

/// Its owner reads and writes it, and nobody else does.
const OWNERS_ALONE: u32 = 0o600;
/// What users of the machine may do who are neither the owner nor in the group.
const OTHERS: u32 = 0o007;

/// The file that a URL names.
pub struct LedgerFile {
    /// As the URL has it.
    place: String,
    /// Absolute, without links: the same for every way to the file.
    path: PathBuf,
}

impl LedgerFile {
    /// Finds the file, which need not exist.
    ///
    /// # Errors
    /// [`OpenError`] for a URL that cannot be read or names no file, for a folder, and for a file
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
        file.path = resolve(named).map_err(|error| file.unreadable(error))?;
        if file.path.is_dir() {
            return Err(file.unreadable("it is a folder"));
        }
        Ok(file)
    }

    /// The file, as the URL has it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// That the file cannot be used.
    pub fn unreadable(&self, reason: impl ToString) -> OpenError {
        OpenError::Unreadable {
            place: self.place.clone(),
            reason: reason.to_string(),
            remedy: "name a file that perdiem made, or a new one in a folder that exists and that \
                     it may write to, in DATABASE_URL",
        }
    }

    /// Whether there is no file, or an empty one.
    pub fn is_missing(&self) -> bool {
        !fs::metadata(&self.path).is_ok_and(|about| about.len() > 0)
    }

    /// Makes the file if there is none. SQLite gives the files that it puts beside it the same
    /// mode. One that exists keeps its mode, which somebody may have chosen.
    ///
    /// # Errors
    /// [`OpenError::Unreadable`].
    pub fn make(&self) -> Result<(), OpenError> {
        // A file that exists is not opened: to close it would take the locks away that SQLite
        // holds on it in this process.
        match owners_alone().create_new(true).open(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(self.unreadable(error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Logs it when every user of the machine may use the file.
    pub fn tell_of_others(&self) {
        if fs::metadata(&self.path).is_ok_and(|about| about.mode() & OTHERS != 0) {
            tracing::warn!(
                file = self.place,
                "every user of this machine may use the ledger's file: chmod 600 it"
            );
        }
    }

    /// Locks the file for this process, until what is returned is dropped or the process ends,
    /// however it ends. The lock is on a file of its own beside it, which SQLite does not know.
    ///
    /// # Errors
    /// [`OpenError::InUse`] or [`OpenError::Unreadable`].
    pub fn lock(&self) -> Result<File, OpenError> {
        let mut path = self.path.clone().into_os_string();
        path.push("-lock");
        let lock = owners_alone().create(true).truncate(false).open(&path);
        let lock = lock.map_err(|error| self.unreadable(error))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse(self.path.display().to_string())),
            Err(TryLockError::Error(error)) => Err(self.unreadable(error)),
        }
    }
}

fn owners_alone() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(OWNERS_ALONE);
    options
}

/// The absolute path of a file, without links, also where they lead to no file yet.
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
