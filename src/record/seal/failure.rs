//! Why the verifier fails.

use ledger::LedgerError;

/// Why the check failed.
#[derive(Debug, thiserror::Error)]
pub enum VerifyFailure {
    #[error("the ledger cannot be read")]
    Ledger(#[from] LedgerError),
    /// What differs, and where.
    #[error("{0}")]
    Differs(String),
    /// The given seal or key cannot be used.
    #[error("{0}")]
    Given(String),
}

pub fn differs<T>(what: String) -> Result<T, VerifyFailure> {
    Err(VerifyFailure::Differs(what))
}
