//! A claim's way. It begins with the policy in memory (`begin`) and is taken on with a place and a
//! deadline (`submit`). The counters may deny it (`ask`, `denied`). Everything else waits for the
//! ledger (`lanes`): the claims of an account form a group (`group`), which is decided on the last
//! line and what else must be learned (`learn`), and many groups share a transaction (`append`).
//! What was appended is answered, and then told to the counters (`settle`). An atomic batch has a
//! transaction of its own (`atomic`). A dry run goes the same way and appends nothing
//! (`rehearse`).

mod append;
mod ask;
mod atomic;
mod batch;
mod begin;
mod denied;
mod group;
mod in_flight;
mod lanes;
mod learn;
mod rehearse;
mod settle;
mod submit;
mod totals;

pub use append::Appender;
pub use ask::{Asker, CONFIRMED, ask_all};
pub use atomic::Member;
pub use batch::in_batches;
pub use begin::ClaimFailure;
pub use denied::{Denied, end_all_denied, end_denied};
pub use in_flight::{InFlight, KeysInProgress, Outcome, Undecided, send};
pub use lanes::append_all;
pub use rehearse::{Rehearsal, Usage};
pub use settle::{SettleQueue, settle_all, useful_for};
pub use submit::Admission;
pub use totals::{last_line, totals};
