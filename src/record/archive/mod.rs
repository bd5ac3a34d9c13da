//! Archives: the leaves of the log in files. The files can be checked without a database or a
//! server.

mod checking;
mod comparing;
mod dropping;
mod files;
mod index;
mod sealed;
mod writing;

use std::io;
use std::path::{Path, PathBuf};

pub use checking::{CheckedArchive, check_archive};
pub use comparing::compare_archive;
pub use dropping::{DroppedArchive, drop_archived};
pub use index::ArchiveIndex;
pub use writing::{ArchiveOrder, Archived, archive_ledger};

use ledger::LedgerError;

/// Why there is no archive, or why it is not valid.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveFailure {
    #[error("the ledger cannot be used")]
    Ledger(#[from] LedgerError),
    #[error("{0} cannot be used")]
    File(PathBuf, #[source] io::Error),
    /// Why the command refuses, and what to do.
    #[error("{0}")]
    Refused(String),
    /// What the command waited for. The same call succeeds later.
    #[error("{0}")]
    NotYet(String),
    /// What differs, and where.
    #[error("{0}")]
    Differs(String),
}

fn refused<T>(why: String) -> Result<T, ArchiveFailure> {
    Err(ArchiveFailure::Refused(why))
}

fn not_yet<T>(what: String) -> Result<T, ArchiveFailure> {
    Err(ArchiveFailure::NotYet(what))
}

fn differs<T>(what: String) -> Result<T, ArchiveFailure> {
    Err(ArchiveFailure::Differs(what))
}

/// The error that a file cannot be used.
fn unusable(path: &Path) -> impl FnOnce(io::Error) -> ArchiveFailure {
    let path = path.to_owned();
    move |error| ArchiveFailure::File(path, error)
}
