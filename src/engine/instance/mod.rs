//! The knowledge of an instance: recent policies and keys, the state of the ledger and the clock,
//! the last lines that the instance appended, the queues that hold grants, the requests in progress
//! of each caller, wrong keys, denials, and metrics. All of it is lost with the process. Other
//! parts of the engine read it here; this part imports nothing from them.

mod access;
mod authority;
mod clocks;
mod denials;
mod drain_signal;
mod epoch;
mod health;
mod memory;
mod metrics;
mod outlooks;
mod places;
mod policies;
mod standby;
mod terms;
mod unknown;
mod writes;
mod wrong_keys;

pub use access::{
    Access, AdminKey, AdminKeyError, KEY_OF_SETTINGS, Principal, first_version, generate_secret,
    hash, new_id,
};
pub use authority::Authority;
pub use clocks::ClockTrouble;
pub use denials::{Denials, SecondOfDenials};
pub use drain_signal::DrainSignal;
pub use epoch::Epoch;
pub use health::{Health, Trouble, Watch, Watcher};
pub use memory::{Memory, Recalled};
pub use metrics::{Metrics, Stage};
pub use outlooks::Outlook;
pub use places::{Place, Places};
pub use policies::Policies;
pub use standby::{Standby, StandbyTrouble};
pub use terms::{ChangedTerms, Terms, is_fresh};
pub use unknown::READ_AGAIN_AFTER;
pub use wrong_keys::{WrongKeyAnswer, WrongKeys, network_of};
