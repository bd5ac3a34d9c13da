//! What is known of an account besides its last line.

use std::sync::Arc;

use super::correction::Holds;
use super::grant::Entry;
use super::past::Past;
use super::shared::SharedUse;

/// The largest number of lapses in a draft.
const LAPSES_MOST: u32 = 1000;

/// What is known of an account besides its last line.
#[derive(Debug, Clone)]
pub struct AccountFacts {
    /// The number of lapses in one read.
    pub lapses_most: u32,
    /// The random part of the ids of lapses. It differs between accounts.
    pub nonce: u64,
    /// The facts that the last line does not have.
    pub past: Past,
    /// The open holds, once they were read.
    pub holds: Option<Holds>,
    /// The entries that name the grants to correct.
    pub followers: Vec<Entry>,
    /// The usage of the limits that all subjects share.
    pub shared: Arc<SharedUse>,
}

impl Default for AccountFacts {
    fn default() -> Self {
        Self {
            lapses_most: u32::MAX,
            nonce: 0,
            past: Past::default(),
            holds: None,
            followers: Vec::new(),
            shared: Arc::default(),
        }
    }
}

impl AccountFacts {
    /// The knowledge of a writer before it reads anything. The number of lapses is bounded, so that
    /// the draft stays within the time of a statement. All lapses share one random number.
    pub fn to_append(nonce: u64) -> Self {
        Self {
            lapses_most: LAPSES_MOST,
            nonce,
            ..Self::default()
        }
    }
}
