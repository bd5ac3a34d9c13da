//! Seals: the log of leaves behind the record, what is read of it, and what checks the ledger by it.

mod folder;
mod growing;
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
