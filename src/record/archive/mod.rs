//! Archives: the leaves of the log in files. The files can be checked without a database or a
//! server.

mod comparing;
mod dropping;
mod files;
mod sealed;
mod writing;

use std::io;
use std::path::Path;

pub use comparing::compare_archive;
pub use dropping::{DroppedArchive, drop_archived};
pub use writing::{ArchiveOrder, Archived, archive_ledger};

use ledger::LedgerError;
use verify::failure::FileFailure;

/// Why there is no archive, or why it is not valid.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveFailure {
    #[error("the ledger cannot be used")]
    Ledger(#[from] LedgerError),
    /// The files cannot be used, or differ; or why the command refuses, and what to do.
    #[error(transparent)]
    Files(#[from] FileFailure),
    /// What the command waited for. The same call succeeds later.
    #[error("{0}")]
    NotYet(String),
}

fn refused<T>(why: String) -> Result<T, ArchiveFailure> {
    Err(FileFailure::Refused(why).into())
}

fn not_yet<T>(what: String) -> Result<T, ArchiveFailure> {
    Err(ArchiveFailure::NotYet(what))
}

fn differs<T>(what: String) -> Result<T, ArchiveFailure> {
    Err(FileFailure::Differs(what).into())
}

/// The error that a file cannot be used.
fn unusable(path: &Path) -> impl FnOnce(io::Error) -> ArchiveFailure {
    let unusable = verify::failure::unusable(path);
    move |error| unusable(error).into()
}
