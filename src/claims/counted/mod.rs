//! Redis decides alone: always under policies with `durability: counted`, and during an outage of
//! the ledger under policies with `on_ledger_outage: count`. Claims come here by one step,
//! [`Step::Leave`](crate::protocol::Step::Leave), and Redis decides them (`count`), or they wait for
//! older grants (`waiting`). The grants wait in the queues of Redis until they are recorded in the
//! ledger (`drain`). A dry run looks at the totals of Redis (`rehearsal`). `decision` and `recording` have
//! the rules, without IO.

mod count;
pub mod decision;
mod drain;
pub mod recording;
mod rehearsal;
mod waiting;

pub use count::{Counting, ask_ledger_all, count_again_all, count_all};
pub use drain::Drainer;
