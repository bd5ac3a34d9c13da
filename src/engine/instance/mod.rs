//! What an instance knows, without asking anybody: the policies and keys as of a moment ago,
//! whether the ledger and the clock can be relied on, the last lines that it appended, the queues
//! that hold grants, who has how many requests under way, who sent wrong keys, what it denied,
//! and what it measured. All of it is lost with the process. The other rooms read it here; this one imports
//! from none of them.

mod access;
mod denials;
mod drain_signal;
mod health;
mod memory;
mod metrics;
mod places;
mod policies;
mod terms;
mod unknown;
mod wrong_keys;

pub use access::{
    Access, AdminKey, AdminKeyError, KEY_OF_SETTINGS, Principal, first_version, generate_secret,
    hash, new_id,
};
pub use denials::{Denials, SecondOfDenials};
pub use drain_signal::DrainSignal;
pub use health::{Health, Trouble, Watch, Watcher};
pub use memory::{Epoch, Memory, Recalled};
pub use metrics::{Metrics, Stage};
pub use places::{Place, Places};
pub use policies::Policies;
pub use terms::{Terms, is_fresh};
pub use unknown::READ_AGAIN_AFTER;
pub use wrong_keys::{WrongKeyAnswer, WrongKeys};
