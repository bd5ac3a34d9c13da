//! Compares the counters with the ledger while claims keep coming.
//!
//! Invariant: a counter is read first, and the last line of the ledger afterwards. A line reaches
//! its counter only after the commit, so the number of a right counter is never above the number of
//! the ledger. A counter with a lower number may be updated at any moment: it is read again, and is
//! a difference only if it does not change.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::sleep;

use super::findings::Findings;
use claims::instance::Pace;
use claims::protocol::useful_for;
use counter::{Counters, Reading, SettledKeys, Settlement, Unavailable};
use domain::grant::Line;
use domain::identity::AccountId;
use domain::limit::total::Total;
use domain::reconciliation::{Difference, DifferenceKind, Figures};
use host::clock::Clock;
use ledger::{Ledger, LedgerError};

/// The number of counters in one read.
const BATCH: usize = 128;
/// The number of suspects that are read again together.
const SUSPECTS_MOST: usize = 10_000;
/// The pauses before a suspect is read again. A counter that lags is a difference after the last
/// pause; any other suspect is a difference after the first pause.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1500),
    Duration::from_millis(2000),
];

#[derive(Debug)]
pub enum Ended {
    /// Redis does not answer.
    Counters,
    /// The ledger failed.
    Ledger(LedgerError),
}

impl From<Unavailable> for Ended {
    fn from(Unavailable: Unavailable) -> Self {
        Self::Counters
    }
}

impl From<LedgerError> for Ended {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

pub struct Comparison<'a> {
    pub ledger: &'a Ledger,
    pub counters: &'a Counters,
    pub clock: &'a Clock,
    /// Whether differences are healed.
    pub apply: bool,
}

/// A counter that seems wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suspect {
    account: AccountId,
    kind: DifferenceKind,
    /// The number of the counter, as Redis stores it.
    number: Vec<u8>,
    /// The line of the counter, if it has one.
    line: Option<Line>,
    /// The last line of the account, if it has one.
    last: Option<Line>,
}

impl Suspect {
    /// Whether the counter is still wrong in the same way and did not change. The ledger may have
    /// changed.
    fn is_still(&self, earlier: &Self) -> bool {
        self.kind == earlier.kind && self.number == earlier.number && self.line == earlier.line
    }
}

impl Comparison<'_> {
    ///
    /// # Errors
    /// [`Ended`]; the differences found so far are among the findings.
    pub async fn run(&self, findings: &mut Findings) -> Result<(), Ended> {
        let mut scan = self.counters.scan().await?;
        let mut suspects = Vec::new();
        loop {
            let pace = Pace::begin();
            let Some(mut accounts) = self.counters.step(&mut scan).await? else {
                break;
            };
            // Redis may return a name twice.
            accounts.sort_unstable();
            accounts.dedup();
            for accounts in accounts.chunks(BATCH) {
                findings.tally.counters += accounts.len() as u64;
                suspects.extend(self.look(accounts).await?);
            }
            if suspects.len() >= SUSPECTS_MOST {
                self.judge(std::mem::take(&mut suspects), findings).await?;
            }
            pace.rest().await;
        }
        self.judge(suspects, findings).await
    }

    /// Reads some counters and then their last lines. Returns the counters that seem wrong.
    async fn look(&self, accounts: &[AccountId]) -> Result<Vec<Suspect>, Ended> {
        let readings = self.counters.read(accounts).await?;
        let lines = self.ledger.audit().last_lines(accounts).await?;
        let suspects = accounts.iter().zip(readings);
        let suspects = suspects.filter_map(|(account, reading)| match lines.get(account) {
            None => suspect(*account, reading, None),
            Some(Ok(last)) => suspect(*account, reading, Some(last)),
            // The check of the ledger itself reports this line.
            Some(Err(_)) => None,
        });
        Ok(suspects.collect())
    }

    /// Reads suspects again, adds those that are wrong to the findings, and heals them if asked to.
    async fn judge(
        &self,
        mut suspects: Vec<Suspect>,
        findings: &mut Findings,
    ) -> Result<(), Ended> {
        // 1. An account is judged once.
        suspects.sort_unstable_by_key(|suspect| suspect.account);
        suspects.dedup_by_key(|suspect| suspect.account);
        // 2. The suspects are read again after each pause. A counter that has changed, or is right
        //    now, is no suspect any more.
        for (round, pause) in PAUSES.into_iter().enumerate() {
            if suspects.is_empty() {
                return Ok(());
            }
            sleep(pause).await;
            let is_last = round + 1 == PAUSES.len();
            let mut waiting = Vec::new();
            for batch in suspects.chunks(BATCH) {
                let still = self.look_again(batch).await?;
                // 3. A counter that lags gets all pauses. Any other wrong counter is a difference
                //    now.
                let (wrong, lagging): (Vec<Suspect>, Vec<Suspect>) = still
                    .into_iter()
                    .partition(|suspect| is_last || suspect.kind != DifferenceKind::CounterLags);
                waiting.extend(lagging);
                if wrong.is_empty() {
                    continue;
                }
                // 4. Differences are healed if asked to, and added to the findings.
                let healed = if self.apply {
                    self.heal(&wrong).await?
                } else {
                    vec![false; wrong.len()]
                };
                for (suspect, is_healed) in wrong.iter().zip(healed) {
                    findings.add(difference(suspect, is_healed));
                }
            }
            suspects = waiting;
        }
        Ok(())
    }

    /// Reads suspects again. Returns those that are still wrong and did not change.
    async fn look_again(&self, suspects: &[Suspect]) -> Result<Vec<Suspect>, Ended> {
        let accounts: Vec<AccountId> = suspects.iter().map(|suspect| suspect.account).collect();
        let now = self.look(&accounts).await?;
        let earlier: HashMap<AccountId, &Suspect> = suspects
            .iter()
            .map(|suspect| (suspect.account, suspect))
            .collect();
        let is_still = |suspect: &Suspect| suspect.is_still(earlier[&suspect.account]);
        Ok(now.into_iter().filter(is_still).collect())
    }

    /// Replaces counters by the lines of the ledger, unless a newer line came. Returns which
    /// counters changed.
    async fn heal(&self, wrong: &[Suspect]) -> Result<Vec<bool>, Ended> {
        let now = self.clock.now();
        let mut settlements = Vec::new();
        let mut orphans = Vec::new();
        for suspect in wrong {
            let Some(last) = &suspect.last else {
                orphans.push((suspect.account, suspect.number.clone()));
                continue;
            };
            settlements.push(Settlement {
                account: suspect.account,
                line: last.clone(),
                confirmed_at: now,
                seen: seen(&suspect.number),
                only_existing: false,
                // If Redis may decide alone, a later denial that needs all keys adds them.
                keys: SettledKeys::After(last.clone(), Vec::new()),
                ttl: useful_for(last, false, now),
            });
        }
        if !settlements.is_empty() {
            self.counters.settle(&settlements).await?;
        }
        if !orphans.is_empty() {
            self.counters.forget(&orphans).await?;
        }
        let still = self.look_again(wrong).await?;
        let has_moved = |suspect: &Suspect| !still.iter().any(|other| other.is_still(suspect));
        Ok(wrong.iter().map(has_moved).collect())
    }
}

/// Replaces the counters of some accounts by the lines of the ledger, and deletes the counters of
/// accounts without lines.
///
/// # Errors
/// [`Ended`].
pub async fn heal_counters(
    ledger: &Ledger,
    counters: &Counters,
    clock: &Clock,
    accounts: &[AccountId],
) -> Result<(), Ended> {
    let comparison = Comparison {
        ledger,
        counters,
        clock,
        apply: true,
    };
    let wrong = comparison.look(accounts).await?;
    comparison.heal(&wrong).await.map(drop)
}

/// Compares a counter with the line that was read after it. Returns what is wrong.
fn suspect(account: AccountId, reading: Reading, last: Option<&Line>) -> Option<Suspect> {
    let Reading::Present {
        number,
        line,
        grants_wait,
    } = reading
    else {
        return None;
    };
    let kind = match (&line, last) {
        (_, None) => DifferenceKind::CounterOrphaned,
        (None, Some(_)) => DifferenceKind::CounterUnreadable,
        (Some(line), Some(last)) if line == last => return None,
        (Some(line), Some(last)) => match line.number.cmp(&last.number) {
            Ordering::Greater => DifferenceKind::CounterTooHigh,
            // The drain takes grants off the queue and updates the counter in one step.
            Ordering::Less if grants_wait => return None,
            Ordering::Less => DifferenceKind::CounterLags,
            Ordering::Equal => DifferenceKind::CounterDiffers,
        },
    };
    Some(Suspect {
        account,
        kind,
        number,
        line,
        last: last.cloned(),
    })
}

/// The number that a settlement must name to overwrite the counter.
fn seen(number: &[u8]) -> Option<u64> {
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn difference(suspect: &Suspect, is_healed: bool) -> Difference {
    Difference {
        kind: suspect.kind,
        account: Some(suspect.account),
        figure: None,
        found: seen(&suspect.number),
        expected: suspect.last.as_ref().map(|line| line.number),
        windows: figures(suspect.line.as_ref(), suspect.last.as_ref()),
        is_healed,
    }
}

/// The windows whose units differ between the line of a counter and the line of the ledger.
fn figures(counter: Option<&Line>, ledger: Option<&Line>) -> Vec<Figures> {
    fn totals(line: Option<&Line>) -> &[Total] {
        line.map_or(&[], |line| &line.totals)
    }
    let found = totals(counter);
    let expected = totals(ledger);
    let used = |totals: &[Total], wanted: &Total| {
        let same = |total: &&Total| total.per() == wanted.per() && total.is_of_same_limit(wanted);
        totals.iter().find(same).map(|total| total.used())
    };
    let only_found = found.iter().filter(|total| used(expected, total).is_none());
    let all = expected.iter().chain(only_found);
    let at = ledger
        .or(counter)
        .map_or(chrono::DateTime::UNIX_EPOCH, |line| line.at);
    let figures = all.map(|total| Figures {
        per: total.per(),
        window: total.span(at),
        found: used(found, total),
        expected: used(expected, total),
    });
    figures
        .filter(|figures| figures.found != figures.expected)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chrono::TimeDelta;
    use uuid::Uuid;

    use super::*;
    use domain::limit::total::{LimitState, WindowUse};
    use domain::window::{Length, Window};

    const ACCOUNT: AccountId = AccountId(Uuid::nil());

    fn line(number: u64, used: u64) -> Line {
        let start = chrono::DateTime::UNIX_EPOCH;
        Line {
            number,
            at: start,
            policy_version: 1,
            lapses_at: None,
            calendar: None,
            top_ups: None,
            totals: Arc::new([Total {
                max: 9,
                reset_at: None,
                state: LimitState::Calendar(WindowUse {
                    division: Some(Length::Day.into()),
                    used,
                    window: Window {
                        start,
                        end: start + TimeDelta::days(1),
                    },
                }),
            }]),
        }
    }

    fn kind(counter: Option<Line>, last: Option<&Line>) -> Option<DifferenceKind> {
        let reading = Reading::Present {
            number: Vec::new(),
            line: counter,
            grants_wait: false,
        };
        suspect(ACCOUNT, reading, last).map(|suspect| suspect.kind)
    }

    #[test]
    fn a_counter_is_wrong_unless_it_bears_the_last_line() {
        use DifferenceKind as Kind;
        let last = line(3, 3);
        let absent = suspect(ACCOUNT, Reading::Absent, Some(&last));
        assert_eq!(absent, None);
        for (counter, found) in [
            (Some(line(3, 3)), None),
            (Some(line(3, 2)), Some(Kind::CounterDiffers)),
            (Some(line(2, 2)), Some(Kind::CounterLags)),
            (Some(line(4, 3)), Some(Kind::CounterTooHigh)),
            (None, Some(Kind::CounterUnreadable)),
        ] {
            assert_eq!(kind(counter.clone(), Some(&last)), found);
            assert_eq!(kind(counter, None), Some(Kind::CounterOrphaned));
        }
    }

    #[test]
    fn figures_are_those_of_windows_that_differ() {
        let three = line(3, 3);
        let two = line(2, 2);
        assert_eq!(figures(Some(&three), Some(&three)), []);
        let tell = |counter, ledger| {
            let figures = figures(counter, ledger);
            assert_eq!(figures.len(), 1);
            (figures[0].found, figures[0].expected)
        };
        assert_eq!(tell(Some(&two), Some(&three)), (Some(2), Some(3)));
        assert_eq!(tell(None, Some(&three)), (None, Some(3)));
        assert_eq!(tell(Some(&two), None), (Some(2), None));
        // Another window of the same length: both are reported.
        let mut tomorrow = line(3, 3);
        let total = &mut Arc::make_mut(&mut tomorrow.totals)[0];
        if let LimitState::Calendar(calendar) = &mut total.state {
            calendar.window.start += TimeDelta::days(1);
        }
        assert_eq!(figures(Some(&three), Some(&tomorrow)).len(), 2);
    }
}
