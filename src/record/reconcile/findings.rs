//! The findings of a reconciliation, while it runs.

use uuid::Uuid;

use domain::reconciliation::{DIFFERENCES_KEPT, Difference, DifferenceKind, Tally};

/// The largest number of alarms that are logged one by one.
const LOGGED_MOST: u64 = 20;

/// The findings so far. Their size is bounded.
pub struct Findings {
    /// The counts.
    pub tally: Tally,
    /// The first alarms and, if there is room, other differences.
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

    /// Adds a difference. An alarm is logged, without the subject. What was found before is not added again: a
    /// new entry can be in the part that is checked too.
    pub fn add(&mut self, difference: Difference) {
        let is_same = |kept: &Difference| match difference.kind {
            // The number is that of the first entry that was checked.
            DifferenceKind::ForeignEntry => {
                kept.kind == difference.kind && kept.account == difference.account
            }
            _ => *kept == difference,
        };
        if self.differences.iter().any(is_same) {
            return;
        }
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
            return;
        }
        // The next reconciliation checks the accounts of alarms again.
        let mut others = self.differences.iter_mut().rev();
        let other = others.find(|other| !other.kind.is_alarm());
        if let Some(other) = other.filter(|_| difference.kind.is_alarm()) {
            *other = difference;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(kind: DifferenceKind, number: u64) -> Difference {
        Difference {
            kind,
            account: None,
            figure: None,
            found: Some(number),
            expected: None,
            windows: Vec::new(),
            is_healed: false,
        }
    }

    #[test]
    fn alarms_are_kept_rather_than_others() {
        let mut findings = Findings::new(Uuid::nil());
        let most = DIFFERENCES_KEPT as u64;
        for number in 0..most + 5 {
            findings.add(difference(DifferenceKind::CounterLags, number));
        }
        for number in 0..3 {
            findings.add(difference(DifferenceKind::Gap, number));
            findings.add(difference(DifferenceKind::Gap, number));
        }
        let alarms = findings.differences.iter().filter(|it| it.kind.is_alarm());
        assert_eq!(alarms.count(), 3);
        assert_eq!(findings.differences.len(), DIFFERENCES_KEPT);
        assert_eq!(findings.tally.differences, most + 8);
        assert_eq!(findings.tally.alarms, 3);
        for number in 3..most {
            findings.add(difference(DifferenceKind::Gap, number));
        }
        findings.add(difference(DifferenceKind::WrongTotal, 0));
        assert_eq!(findings.differences.len(), DIFFERENCES_KEPT);
        assert!(
            findings
                .differences
                .iter()
                .all(|it| it.kind == DifferenceKind::Gap)
        );
    }
}
