//! Seals: the log of leaves along the record, what auditors read of it, and the check of the
//! ledger.

mod folder;
mod growing;
#[cfg(test)]
mod interleaved;
mod learning;
mod proving;
mod pushing;
mod reader;
mod sealer;
mod status;
mod verifier;

pub use growing::restart_seals;
pub use proving::{ConsistencyProof, SealFailure, SealPage};
pub use pushing::{SealPusher, SealTarget};
pub use reader::{leaves_between, path, tree_of};
pub use sealer::Sealer;
pub use status::SealStatus;
pub use verifier::{DroppedLeaves, GivenSeal, Verified, VerifyFailure, verify_ledger};
