//! Redis decides alone: the claims of policies whose grants are counted, and of those whose owner
//! chose so for the time that the ledger does not answer (`count`). The grants wait in Redis'
//! queues until they are brought into the ledger (`drain`).

mod count;
mod drain;

pub use count::{Counting, ask_ledger_all, count_all};
pub use drain::Drainer;
