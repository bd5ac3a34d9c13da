//! Failures that are not the caller's fault.

use std::sync::Arc;

use ledger::LedgerError;

/// A failure that is not the caller's fault.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    #[error("the ledger failed")]
    Ledger(#[from] Arc<LedgerError>),
    /// The ledger does not answer, and only the ledger knows.
    #[error("the ledger does not answer")]
    Silent,
    /// The ledger has no grant with this id, but a grant that Redis counted may still wait for the
    /// ledger.
    #[error("a grant with this id may wait for the ledger")]
    MayWait,
    /// The grants that wait for the ledger cannot be read.
    #[error("grants that wait for the ledger cannot be seen")]
    Unseen,
    /// The primary may have this, and the standby does not yet.
    #[error("the standby has not followed its primary so far yet")]
    NotFollowed,
    /// The instance is ending, or the work panicked.
    #[error("the work was interrupted")]
    Interrupted,
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(Arc::new(error))
    }
}
