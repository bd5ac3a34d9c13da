//! When the subjects of a policy were blocked, by the history of its blocks.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::identity::AccountId;
use super::overrides::Block;

/// The times in which accounts were blocked.
#[derive(Debug, Default)]
pub struct BlockedTimes(HashMap<AccountId, Vec<BlockedTime>>);

/// A time in which an account was blocked.
#[derive(Debug)]
struct BlockedTime {
    start: DateTime<Utc>,
    end: Option<DateTime<Utc>>,
}

impl BlockedTimes {
    /// The times of all versions of blocks, those of an account in their order.
    pub fn of(versions: &[Block]) -> Self {
        let mut times = Self::default();
        for version in versions {
            let times = times.0.entry(version.account).or_default();
            let changed_at = version.changed_at;
            // A version ends the one before.
            if let Some(BlockedTime { end, .. }) = times.last_mut() {
                *end = Some(end.map_or(changed_at, |end| end.min(changed_at)));
            }
            times.extend(version.terms.map(|terms| BlockedTime {
                start: changed_at,
                end: terms.until,
            }));
        }
        times
    }

    /// Whether an account was blocked at an instant.
    pub fn contain(&self, account: AccountId, at: DateTime<Utc>) -> bool {
        let mut times = self.0.get(&account).into_iter().flatten();
        times.any(|time| time.start <= at && time.end.is_none_or(|end| at < end))
    }
}
