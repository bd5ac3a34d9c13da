//! The way of a claim, from its first step to its answer. `way` tells the story: what happens next, `step`
//! by step, with nothing that waits, until a plan's `finish`. `dispatch` owns the queues and does what each step says. The
//! claims of one account form a `group`, which decides them on its `account_view`, and whose `plan` is what they
//! become; atomic batches that share accounts are a group too, a `component`. `accounts` knows where each group waits,
//! `batches` which batches are one component, and a group's `round` follows a look.
//! The lanes do the IO for many claims at once: they ask counters (`ask`), search the ledger for
//! the keys of denied claims (`probe`), read the ledger (`look`, `learn`), append entries
//! (`append`) and settle counters (`settle`). A claim that Redis decides alone goes on in
//! `counted`.

pub mod account_view;
pub mod accounts;
mod append;
mod ask;
mod batch;
mod batches;
mod component;
mod dispatch;
mod finish;
pub mod group;
pub mod in_flight;
pub mod lane;
mod lane_worker;
mod lanes;
mod learn;
mod look;
pub mod plan;
pub mod present;
mod probe;
pub mod round;
#[cfg(test)]
mod samples;
pub mod settle;
pub mod step;
mod wake;
pub mod way;

pub use ask::ask_all;
pub use batch::in_batches;
pub use dispatch::{Denied, Dispatch, Groups, Leaving};
pub use in_flight::{
    ClaimFailure, InFlight, KeyTurn, KeysInProgress, Outcome, Undecided, Waiter, outcome_of,
};
pub use lane_worker::LaneWorker;
pub use learn::{AccountNow, held, last_line, learn_facts, missing_version, once_known, totals};
pub use probe::{probe, probe_all};
pub use settle::{SettleQueue, settle_all, useful_for};
pub use step::{CounterDenial, LeaveReason, Step};
pub use wake::woken_together;
pub use way::CONFIRMED;
