//! Redis decides alone: the claims of policies whose grants are counted, and of those whose owner
//! chose so for the time that the ledger does not answer (`count`). The grants wait in Redis'
//! queues until they are brought into the ledger (`drain`). What the two decide is in `decision` and
//! `recording`, without IO.

mod count;
pub mod decision;
mod drain;
pub mod recording;

pub use count::{Counting, ask_ledger_all, count_all};
pub use drain::Drainer;
