//! Why files are not what they should be.

use std::io;
use std::path::{Path, PathBuf};

/// Why files cannot be checked, or are not what they should be.
#[derive(Debug, thiserror::Error)]
pub enum FileFailure {
    #[error("{0} cannot be used")]
    Unusable(PathBuf, #[source] io::Error),
    /// What cannot be checked, and what to do.
    #[error("{0}")]
    Refused(String),
    /// What differs, and where.
    #[error("{0}")]
    Differs(String),
}

pub fn refused<T>(why: String) -> Result<T, FileFailure> {
    Err(FileFailure::Refused(why))
}

pub fn differs<T>(what: String) -> Result<T, FileFailure> {
    Err(FileFailure::Differs(what))
}

/// The error that a file cannot be used.
pub fn unusable(path: &Path) -> impl FnOnce(io::Error) -> FileFailure {
    let path = path.to_owned();
    move |error| FileFailure::Unusable(path, error)
}
