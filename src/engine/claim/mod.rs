//! The way of a claim, from its arrival to its answer. `way` tells the story: what happens next,
//! step by step, with nothing that waits. A claim starts with its policy in memory (`begin`). It
//! gets a place and a deadline (`submit`, `wake`). `dispatch` owns the queues and does what each
//! step says. The claims of one account form a `group`, whose `plan` is what they become; `accounts`
//! knows where each group waits, and its `round` follows a look.
//! The lanes do the IO for many claims at once: they ask counters (`ask`), search the ledger for
//! the keys of denied claims (`probe`), read the ledger (`look`, `learn`), append entries
//! (`append`) and settle counters (`settle`). An outcome is answered with what is known of the time to
//! come (`foretell`). The claims of an atomic batch are a group with several accounts (`atomic`). A dry
//! run appends nothing (`rehearse`). A claim that Redis decides alone leaves this room for
//! `engine/counted`.

pub mod accounts;
mod append;
mod ask;
mod atomic;
mod batch;
mod begin;
mod dispatch;
mod foretell;
pub mod group;
pub mod in_flight;
mod lane_worker;
mod lanes;
mod learn;
mod look;
pub mod plan;
pub mod present;
mod probe;
mod rehearse;
pub mod round;
pub mod settle;
mod submit;
mod wake;
pub mod way;

pub use ask::ask_all;
pub use atomic::ForetoldMember;
pub use batch::in_batches;
pub use dispatch::{Denied, Dispatch, Groups, Leaving};
pub use foretell::{Foretold, once_foreknown};
pub use in_flight::{ClaimFailure, InFlight, KeysInProgress, Outcome, Undecided};
pub use lane_worker::LaneWorker;
pub use learn::{last_line, once_known, totals};
pub use probe::{probe, probe_all};
pub use rehearse::{Rehearsal, Usage};
pub use settle::{SettleQueue, settle_all, useful_for};
pub use submit::Admission;
pub use way::{CONFIRMED, CounterDenial, LeaveReason, Step};
