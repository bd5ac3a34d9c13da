//! What admins change, and what they read of it: policies, overrides, blocks and keys with their
//! history, and the erasure of subjects. A change is made in the ledger first; then this instance
//! knows it at once.

mod edit;
mod erase;
mod eraser;
mod keys;
mod overrides;

use std::sync::Arc;

pub use edit::{EditError, Editor, PolicyChange, Precondition};
pub use erase::SubjectErasure;
pub use eraser::Eraser;
pub use keys::KeyError;
pub use overrides::EditedTerms;

use claims::instance::{DrainSignal, Instance};
use ledger::AdminTables;

/// What admins change.
pub struct Admin {
    pub instance: Arc<Instance>,
    pub ledger: AdminTables,
    pub eraser: Arc<Eraser>,
    /// Drains the queues of Redis; `None` without a Redis.
    pub drain: Option<DrainSignal>,
}
