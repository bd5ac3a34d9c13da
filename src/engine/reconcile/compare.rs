//! The counters compared with the ledger while claims keep coming.
//!
//! A counter is read first and the ledger's last line afterwards. A line is settled after it
//! is committed, so a counter's number is never above the ledger's unless it is wrong. One
//! that lies below it may be about to be settled: it is looked at again, and only one that
//! does not move meanwhile is a difference.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::sleep;

use super::findings::Findings;
use super::pace::Pace;
use crate::clock::Clock;
use crate::counter::{Counters, Reading, SettledKeys, Settlement, Unavailable};
use crate::domain::grant::Line;
use crate::domain::identity::AccountId;
use crate::domain::limit::total::Total;
use crate::domain::reconciliation::{Difference, DifferenceKind, Figures};
use crate::engine::claim::useful_for;
use crate::ledger::{Ledger, LedgerError};

/// How many counters are read at a time.
const BATCH: usize = 128;
/// How many counters that seem wrong are looked at again together.
const SUSPECTS_MOST: usize = 10_000;
/// The pauses before a counter that seems wrong is looked at again. One that lags is a
/// difference after the last of them, any other after the first.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1500),
    Duration::from_millis(2000),
];

/// Why a comparison ended early.
#[derive(Debug)]
pub enum Ended {
    /// Redis does not serve.
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

/// Compares the counters with the ledger.
pub struct Comparison<'a> {
    /// The ledger.
    pub ledger: &'a Ledger,
    /// Its counters.
    pub counters: &'a Counters,
    /// The source of time.
    pub clock: &'a Clock,
    /// Whether what differs is healed.
    pub apply: bool,
}

/// A counter that seems wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suspect {
    account: AccountId,
    kind: DifferenceKind,
    /// Its number as it stands there.
    number: Vec<u8>,
    /// Its line, if it has one.
    line: Option<Line>,
    /// The account's last line, if it has one.
    last: Option<Line>,
}

impl Suspect {
    /// Whether it is wrong in the same way, and did not move. The ledger may have.
    fn is_still(&self, earlier: &Self) -> bool {
        self.kind == earlier.kind && self.number == earlier.number && self.line == earlier.line
    }
}

impl Comparison<'_> {
    /// Compares every counter.
    ///
    /// # Errors
    /// [`Ended`]; what was found until then is among the findings.
    pub async fn run(&self, findings: &mut Findings) -> Result<(), Ended> {
        let mut scan = self.counters.scan().await?;
        let mut suspects = Vec::new();
        loop {
            let pace = Pace::begin();
            let Some(mut accounts) = self.counters.step(&mut scan).await? else {
                break;
            };
            // Redis may tell a name twice.
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

    /// Those of some counters that seem wrong now.
    async fn look(&self, accounts: &[AccountId]) -> Result<Vec<Suspect>, Ended> {
        let readings = self.counters.read(accounts).await?;
        let lines = self.ledger.last_lines(accounts).await?;
        let suspects = accounts.iter().zip(readings);
        let suspects = suspects.filter_map(|(account, reading)| match lines.get(account) {
            None => suspect(*account, reading, None),
            Some(Ok(last)) => suspect(*account, reading, Some(last)),
            // The ledger's own check tells of it.
            Some(Err(_)) => None,
        });
        Ok(suspects.collect())
    }

    /// Looks again at counters that seem wrong, and notes, and perhaps heals, those that are.
    async fn judge(
        &self,
        mut suspects: Vec<Suspect>,
        findings: &mut Findings,
    ) -> Result<(), Ended> {
        suspects.sort_unstable_by_key(|suspect| suspect.account);
        suspects.dedup_by_key(|suspect| suspect.account);
        for (round, pause) in PAUSES.into_iter().enumerate() {
            if suspects.is_empty() {
                return Ok(());
            }
            sleep(pause).await;
            let is_last = round + 1 == PAUSES.len();
            let mut waiting = Vec::new();
            for batch in suspects.chunks(BATCH) {
                let still = self.look_again(batch).await?;
                let (wrong, lagging): (Vec<Suspect>, Vec<Suspect>) = still
                    .into_iter()
                    .partition(|suspect| is_last || suspect.kind != DifferenceKind::CounterLags);
                waiting.extend(lagging);
                if wrong.is_empty() {
                    continue;
                }
                let healed = match self.apply {
                    true => self.heal(&wrong).await?,
                    false => vec![false; wrong.len()],
                };
                for (suspect, is_healed) in wrong.iter().zip(healed) {
                    findings.add(difference(suspect, is_healed));
                }
            }
            suspects = waiting;
        }
        Ok(())
    }

    /// Those that did not move since they were looked at, as they are now.
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

    /// Puts the ledger's lines in the place of counters, each unless a newer settlement came.
    /// Returns which of them moved.
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
                // Where Redis may decide alone, a denial that needs its keys completes them.
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

/// Puts the ledger's lines in the place of some accounts' counters, and deletes the counters of accounts
/// without lines.
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

/// What is wrong with a counter, if anything, by the line that was read after it.
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
            // What the ledger holds of them is taken off the queue and settled in one step.
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
        found: seen(&suspect.number),
        expected: suspect.last.as_ref().map(|line| line.number),
        windows: figures(suspect.line.as_ref(), suspect.last.as_ref()),
        is_healed,
    }
}

/// The windows whose units differ between a counter's line and the ledger's.
fn figures(counter: Option<&Line>, ledger: Option<&Line>) -> Vec<Figures> {
    fn totals(line: Option<&Line>) -> &[Total] {
        line.map_or(&[], |line| &line.totals)
    }
    let (found, expected) = (totals(counter), totals(ledger));
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
    use crate::domain::limit::total::{LimitState, WindowUse};
    use crate::domain::window::{Length, Window};

    const ACCOUNT: AccountId = AccountId(Uuid::nil());

    fn line(number: u64, used: u64) -> Line {
        let start = chrono::DateTime::UNIX_EPOCH;
        Line {
            number,
            at: start,
            policy_version: 1,
            lapses_at: None,
            totals: Arc::new([Total {
                max: 9,
                state: LimitState::Calendar(WindowUse {
                    length: Some(Length::Day),
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
        let (three, two) = (line(3, 3), line(2, 2));
        assert_eq!(figures(Some(&three), Some(&three)), []);
        let tell = |counter, ledger| {
            let figures = figures(counter, ledger);
            assert_eq!(figures.len(), 1);
            (figures[0].found, figures[0].expected)
        };
        assert_eq!(tell(Some(&two), Some(&three)), (Some(2), Some(3)));
        assert_eq!(tell(None, Some(&three)), (None, Some(3)));
        assert_eq!(tell(Some(&two), None), (Some(2), None));
        // Another window of the same length: both are told.
        let mut tomorrow = line(3, 3);
        let total = &mut Arc::make_mut(&mut tomorrow.totals)[0];
        if let LimitState::Calendar(calendar) = &mut total.state {
            calendar.window.start += TimeDelta::days(1);
        }
        assert_eq!(figures(Some(&three), Some(&tomorrow)).len(), 2);
    }
}
