//! The use cases of claims: a claim and its dry run, a batch that is granted whole or not at all,
//! corrections and adjustments, a grant by its id, and what is foretold. They make the first step
//! of the way (`engine/claim`), or leave to Redis (`engine/counted`).

mod atomic;
mod begin;
mod corrections;
mod find;
mod foretell;
mod rehearse;
mod submit;

use std::sync::Arc;

pub use corrections::{Adjustment, Correction};
pub use foretell::{Foretold, once_foreknown};
pub use rehearse::{Rehearsal, Usage};
pub use submit::Admission;

use super::claim::{Dispatch, KeysInProgress};
use super::counted::Counting;
use super::instance::{Denials, Instance, Places};
use crate::ledger::ClaimTables;

/// What product backends ask for.
pub struct Claims {
    pub instance: Arc<Instance>,
    pub ledger: ClaimTables,
    pub dispatch: Arc<Dispatch>,
    /// `None` without a Redis.
    pub counting: Option<Arc<Counting>>,
    pub denials: Arc<Denials>,
    pub keys_in_progress: KeysInProgress,
    /// The claims and corrections in progress.
    pub under_way: Places,
}
