//! What admins change, and what they read of it: policies, overrides, blocks and keys with their
//! history, and the erasure of subjects. A change is made in the ledger first; then this instance
//! knows it at once.

mod approve;
mod edit;
mod erase;
mod eraser;
mod keys;
mod overrides;
mod proposals;

use std::sync::Arc;

pub use approve::ApprovedChange;
pub use edit::{EditError, Editor, Precondition};
pub use erase::SubjectErasure;
pub use eraser::Eraser;
pub use keys::KeyError;
pub use overrides::EditedTerms;
pub use proposals::{
    PolicyChange, Proposal, ProposalFault, Proposals, ProposedChange, WaitingChange,
};

use claims::instance::{DrainSignal, Instance};
use ledger::AdminTables;

/// What admins change.
pub struct Admin {
    pub instance: Arc<Instance>,
    pub ledger: AdminTables,
    pub eraser: Arc<Eraser>,
    pub proposals: Proposals,
    /// Drains the queues of Redis; `None` without a Redis.
    pub drain: Option<DrainSignal>,
}
