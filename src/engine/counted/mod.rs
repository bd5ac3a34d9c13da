//! Redis decides alone: always under policies with `durability: counted`, and during an outage of
//! the ledger under policies with `on_ledger_outage: count`. The grants wait in the queues of Redis
//! until they are recorded in the ledger (`drain`). `decision` and `recording` have the rules,
//! without IO.

mod count;
pub mod decision;
mod drain;
pub mod recording;

pub use count::{Counting, ask_ledger_all, count_all};
pub use drain::Drainer;
