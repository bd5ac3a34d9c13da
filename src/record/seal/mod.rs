//! Seals: the log of leaves along the record, and the check of the ledger.

mod cut_check;
mod failure;
mod folder;
mod growing;
#[cfg(test)]
mod interleaved;
mod learning;
mod pushing;
mod reader;
mod sealer;
mod status;
mod verifier;

pub use cut_check::DroppedLeaves;
pub use failure::VerifyFailure;
pub use growing::restart_seals;
pub use pushing::{SealPusher, SealTarget};
pub use reader::{dropped, leaves_between, path, prove, tree_of};
pub use sealer::Sealer;
pub use status::SealStatus;
pub use verifier::{GivenSeal, Verified, verify_ledger};
