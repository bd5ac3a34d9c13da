//! Blocks: a subject that a policy denies, whatever its limits are.

use chrono::{DateTime, Utc};

use super::fault::Fault;

/// Terms of one subject, with or without an end.
pub trait SubjectTerms {
    /// The instant from which on the terms do not apply any more.
    fn until(&self) -> Option<DateTime<Utc>>;

    /// Whether the terms apply at an instant.
    fn hold(&self, at: DateTime<Utc>) -> bool {
        self.until().is_none_or(|until| at < until)
    }
}

/// The content of a block.
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
        if faults.is_empty() {
            Ok(Self { until })
        } else {
            Err(faults)
        }
    }
}

impl SubjectTerms for BlockTerms {
    fn until(&self) -> Option<DateTime<Utc>> {
        self.until
    }
}

/// Checks the end of terms that a client wrote at `now`.
pub fn check_end(until: Option<DateTime<Utc>>, now: DateTime<Utc>, faults: &mut Vec<Fault>) {
    if until.is_some_and(|until| until <= now) {
        let detail = "until has passed; write a later instant, or leave it out for no end";
        faults.push(Fault::new("/until", detail));
    }
}
