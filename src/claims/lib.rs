//! What product backends ask for: a claim and its dry run, a batch that is granted whole or not at all,
//! corrections, adjustments and resets, a grant or a bundle by its id, and what is foretold.
//!
//! `instance` is what an instance knows, and its callers. `protocol` has the steps of a claim, and `counted`
//! those of a claim that Redis decides alone. A use case takes the first step, and waits for the answer.
//! `lapses` records the ends of holds.

pub mod counted;
pub mod instance;
pub mod lapses;
pub mod protocol;

mod atomic;
mod begin;
mod bundles;
mod corrections;
mod find;
mod foretell;
mod of_subject;
mod rehearse;
mod submit;

use std::sync::Arc;

pub use crate::protocol::{ClaimFailure, Outcome, Undecided};
pub use bundles::BundleCorrected;
pub use corrections::{AdminEntry, ByHand, Correction};
pub use foretell::{Foretold, once_foreknown};
pub use of_subject::SubjectPage;
pub use rehearse::{Rehearsal, Usage};
pub use submit::Admission;

use crate::counted::Counting;
use crate::instance::{Denials, Instance, Places};
use crate::protocol::{Dispatch, KeysInProgress};
use ledger::ClaimTables;

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
