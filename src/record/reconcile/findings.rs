//! The findings of a reconciliation, while it runs.

use uuid::Uuid;

use domain::reconciliation::{DIFFERENCES_KEPT, Difference, Tally};

/// The largest number of alarms that are logged one by one.
const LOGGED_MOST: u64 = 20;

/// The findings so far. Their size is bounded.
pub struct Findings {
    /// The counts.
    pub tally: Tally,
    /// The first differences.
    pub differences: Vec<Difference>,
    reconciliation: Uuid,
}

impl Findings {
    pub fn new(reconciliation: Uuid) -> Self {
        Self {
            tally: Tally::default(),
            differences: Vec::new(),
            reconciliation,
        }
    }

    /// Adds a difference. An alarm is logged, without the subject.
    pub fn add(&mut self, difference: Difference) {
        self.tally.differences += 1;
        self.tally.healed += u64::from(difference.is_healed);
        if difference.kind.is_alarm() {
            self.tally.alarms += 1;
            if self.tally.alarms <= LOGGED_MOST {
                tracing::error!(
                                    reconciliation = %self.reconciliation,
                                    account = difference.account.map(|account| account.0.to_string()),
                                    figure = difference.figure.as_ref().map(|figure| {
                                        let name = &figure.name;
                let date = figure.counted_on;
                                        format!("{name} of policy {} on {date}", figure.policy.0)
                                    }),
                                    kind = difference.kind.as_str(),
                                    found = difference.found,
                                    expected = difference.expected,
                                    "ALARM: the ledger was changed or lost entries outside of perdiem"
                                );
            }
        }
        if self.differences.len() < DIFFERENCES_KEPT {
            self.differences.push(difference);
        }
    }
}
