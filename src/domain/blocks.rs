//! Blocks: a subject that a policy denies, whatever its limits are.

use chrono::{DateTime, Utc};

use super::fault::Fault;
use super::overrides::{OfSubject, SubjectTerms, check_end};

/// A version of a block.
pub type Block = OfSubject<BlockTerms>;

/// The content of a block. The reason and the author are those of its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockTerms {
    /// From this instant on the subject is not blocked any more.
    pub until: Option<DateTime<Utc>>,
}

impl BlockTerms {
    /// Checks a block that a client wrote at `now`.
    ///
    /// # Errors
    /// All faults of the block.
    pub fn check(until: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        check_end(until, now, &mut faults);
        match faults.is_empty() {
            true => Ok(Self { until }),
            false => Err(faults),
        }
    }
}

impl SubjectTerms for BlockTerms {
    fn until(&self) -> Option<DateTime<Utc>> {
        self.until
    }
}
