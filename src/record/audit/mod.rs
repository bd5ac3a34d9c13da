//! What auditors check the ledger by: the log of seals, its proofs, and reconciliations.

mod proving;
mod reconciliations;

use std::sync::Arc;

pub use proving::{ConsistencyProof, SealFailure, SealPage};

use crate::reconcile::Reconciler;
use claims::instance::Instance;
use domain::seal::note::SealKey;
use ledger::Ledger;

/// Checks of the ledger, by its own log and by counting again.
pub struct Audit {
    pub instance: Arc<Instance>,
    pub ledger: Ledger,
    /// `None` where nothing is sealed.
    pub seal_key: Option<Arc<SealKey>>,
    pub reconciler: Arc<Reconciler>,
}
