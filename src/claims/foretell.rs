//! What an answer tells about the time to come.
//!
//! The ledger is read only where holds are open, where a scheduled version needs the past, or where
//! a claim was refused without a look at its account. The memory keeps what was read.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::{Instant, timeout_at};

use crate::Claims;
use crate::instance::Outlook;
use crate::protocol::{Outcome, last_line, missing_version, totals};
use domain::account::{UnitsAsked, Unknown, own_units, refuse};
use domain::claim::Units;
use domain::correction::HoldChange;
use domain::course::Course;
use domain::forecast::{ClaimAhead, Forecast, Foreknown, HoldsAhead, foresee, is_by_time_alone};
use domain::grant::{Entry, Line};
use domain::identity::AccountId;
use domain::limit::total::Total;
use domain::policy::{Policy, PolicyName};
use domain::refusal::{DeniedClaim, Refusal};
use domain::work::Work;
use ledger::{ClaimTables, LedgerError};

const MICROSECOND: TimeDelta = TimeDelta::microseconds(1);

/// An outcome, and what is foretold with it.
#[derive(Debug)]
pub struct Foretold {
    pub outcome: Outcome,
    pub forecast: Forecast,
}

/// The line that a forecast follows.
#[derive(Debug, Clone)]
enum After {
    Line(Option<Line>),
    /// Redis' totals. The holds are those after the last line of the ledger.
    Counted(Line),
    /// The last line, which is not read yet.
    Last,
}

/// A forecast in question.
#[derive(Debug, Clone)]
struct Question {
    policy: Arc<Policy>,
    account: AccountId,
    after: After,
    claim: Option<ClaimAhead>,
    now: DateTime<Utc>,
    /// Whether the line is committed: the memory then keeps what is read for it.
    is_committed: bool,
    /// The ledger is read up to this instant.
    until: Instant,
}

/// Returns a forecast after it got everything that it asked for. `last` is the last line that the
/// ledger has.
///
/// # Errors
/// As [`ClaimTables::past`].
pub async fn once_foreknown(
    ledger: &ClaimTables,
    account: AccountId,
    last: Option<&Line>,
    known: &mut Arc<Foreknown>,
    foresee: impl Fn(&Foreknown) -> Result<Forecast, Unknown> + Send + Sync,
) -> Result<Forecast, LedgerError> {
    loop {
        match foresee(known) {
            Ok(forecast) => return Ok(forecast),
            Err(unknown) => {
                let known = Arc::make_mut(known);
                learn_foreknown(known, unknown, ledger, account, last).await?;
            }
        }
    }
}

/// Learns what a forecast asked for.
///
/// # Errors
/// As [`ClaimTables::past`].
async fn learn_foreknown(
    known: &mut Foreknown,
    unknown: Unknown,
    ledger: &ClaimTables,
    account: AccountId,
    last: Option<&Line>,
) -> Result<(), LedgerError> {
    match (unknown, last) {
        (Unknown::Past(wanted), _) => {
            known
                .past
                .extend(ledger.past(account, last, &wanted).await?);
        }
        (Unknown::Holds, Some(line)) => {
            known.holds = Some(ledger.holds_to_come(account, line).await?);
        }
        (Unknown::Holds, None) => known.holds = Some(HoldsAhead::default()),
        (Unknown::Policy, _) => return Err(missing_version()),
    }
    Ok(())
}

impl Claims {
    /// Adds to the outcome of a claim what is known of the time to come. `is_committed` tells
    /// whether the line of a denial is in the ledger. No client waits after the deadline.
    pub(crate) async fn foretell(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        account: AccountId,
        asked: UnitsAsked,
        outcome: Outcome,
        is_committed: bool,
        deadline: Instant,
    ) -> Foretold {
        let until = deadline.min(self.forecast_deadline());
        let forecast = match &outcome {
            Outcome::Entered(entry) => {
                let foretelling = self.foretell_after(policy, account, &entry.line, until);
                foretelling.await
            }
            Outcome::Refused(terms, refusal) => {
                let question = Question {
                    policy: terms.clone(),
                    account,
                    after: After::Last,
                    claim: Some(asked.into()),
                    now: self.instance.clock.now(),
                    is_committed,
                    until,
                };
                match refusal {
                    Refusal::Denied(denied) => self.foretell_denied(question, denied).await,
                    Refusal::NeverFits { .. } if self.may_be_granted(&question) => {
                        return self.deny_until_it_fits(question, outcome).await;
                    }
                    Refusal::Inactive(_) | Refusal::Blocked(_)
                        if self.may_be_granted(&question) =>
                    {
                        self.read_in_time(question).await
                    }
                    _ => Forecast::default(),
                }
            }
            Outcome::Repeated(_) | Outcome::KeyReused | Outcome::Withheld(..) => {
                Forecast::default()
            }
        };
        Foretold { outcome, forecast }
    }

    /// What is foretold for the limits on a line of the ledger, as of the line. No hold is read for a
    /// grant that Redis alone decided.
    async fn foretell_after(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        account: AccountId,
        line: &Line,
        until: Instant,
    ) -> Forecast {
        let terms = &self.instance.policies.terms;
        let rule = &policy.rule;
        let turns_at = rule.turns_at(Some(line), None, &line.totals, line.at);
        if line.lapses_at.is_none()
            && turns_at.is_none()
            && terms.are_steady(policy.id, account, line.at)
        {
            return Forecast::default();
        }
        let question = Question {
            policy: policy.clone(),
            account,
            after: After::Line(Some(line.clone())),
            claim: None,
            now: line.at,
            is_committed: line.number > 0,
            until,
        };
        self.read_in_time(question).await
    }

    /// What is foretold after the line of a claim that would be granted. No entry has this line. A
    /// hold lapses too.
    pub(super) async fn foretell_grant(
        self: &Arc<Self>,
        policy: Arc<Policy>,
        work: &Work,
        mut line: Line,
    ) -> Result<Forecast, LedgerError> {
        let account = work.account;
        let now = line.at;
        let mut known = Foreknown::default();
        let after = line.clone();
        if line.lapses_at.is_some() {
            let ledger = &self.ledger;
            let wanted = Unknown::Holds;
            learn_foreknown(&mut known, wanted, ledger, account, Some(&after)).await?;
        }
        let entry = work.entry(line.clone());
        if let Some(change) = HoldChange::by(&entry) {
            line.lapses_at = line.lapses_at.into_iter().chain(entry.held_until()).min();
            known.change(change);
            known.entries.push(entry);
        }
        let terms = &self.instance.policies.terms;
        let course = terms.course(&policy, account, Some(&line), now);
        let mut known = Arc::new(known);
        let foresee = |known: &Foreknown| foresee(&course, Some(&line), known, None, now);
        let forecast = once_foreknown(&self.ledger, account, Some(&after), &mut known, foresee);
        forecast.await
    }

    /// What is foretold for the limits on the line of an entry, as of the entry.
    pub async fn foretell_entry(self: &Arc<Self>, policy: &PolicyName, entry: &Entry) -> Forecast {
        match self.instance.policies.terms.get(policy, entry.line.at) {
            Ok(Some(policy)) => {
                let until = self.forecast_deadline();
                let foretelling = self.foretell_after(&policy, entry.account, &entry.line, until);
                foretelling.await
            }
            Ok(None) | Err(_) => Forecast::default(),
        }
    }

    async fn foretell_denied(
        self: &Arc<Self>,
        question: Question,
        denied: &DeniedClaim,
    ) -> Forecast {
        let DeniedClaim { totals, last, .. } = denied;
        let after = After::of(last.clone());
        let units = question.units();
        if !matches!(after, After::Counted(_)) && self.is_by_time_alone(&question, last, totals) {
            return Forecast::by_time_alone(denied, units);
        }
        let claim = question.claim.map(|claim| ClaimAhead {
            shared: denied.shared.clone(),
            ..claim
        });
        self.read_in_time(Question {
            after,
            claim,
            ..question
        })
        .await
    }

    /// The denial of a claim with more units than fit under the present terms, if it fits under
    /// later terms. Otherwise the outcome stays as it is.
    async fn deny_until_it_fits(
        self: &Arc<Self>,
        question: Question,
        outcome: Outcome,
    ) -> Foretold {
        let is_as_before = |outcome| Foretold {
            outcome,
            forecast: Forecast::default(),
        };
        let claims = self.clone();
        let Question {
            policy,
            account,
            now,
            ..
        } = question.clone();
        let units = question.units();
        // 1. The totals of now. They are told, so they are not those of a second ago.
        let reading = self.instance.detached(async move {
            let last = claims.read_outlook(account).await?.last;
            let totals = totals(&claims.ledger, &policy, account, last.clone(), now).await?;
            Ok::<_, LedgerError>(DeniedClaim {
                own_units: own_units(units, last.as_ref(), now),
                totals: totals.into(),
                last,
                shared: Box::default(),
            })
        });
        let Ok(Ok(Ok(denied))) = timeout_at(question.until, reading).await else {
            return is_as_before(outcome);
        };
        // 2. When does the claim fit?
        let policy = question.policy.clone();
        let after = After::Line(denied.last.clone());
        let forecast = self.read_in_time(Question { after, ..question }).await;
        match forecast.fits_at {
            Some(_) => Foretold {
                outcome: Outcome::Refused(policy, Refusal::Denied(denied)),
                forecast,
            },
            None => is_as_before(outcome),
        }
    }

    /// Whether a claim that is refused whatever its account has may be granted later.
    fn may_be_granted(&self, question: &Question) -> bool {
        let course = self.course(question, None);
        let mut changes = std::iter::successors(course.next_change(question.now), |at| {
            course.next_change(*at)
        });
        let claim = question.claim.as_ref();
        let asked = claim.map_or_else(|| Units::ONE.into(), |claim| claim.asked.clone());
        // Its top-ups are not known here.
        changes.any(|at| {
            let policy = course.policy_at(at);
            policy.is_some_and(|policy| refuse(policy, &asked, u64::MAX, at).is_none())
        })
    }

    /// How long an answer waits for what only its forecast needs: a quarter of a claim's time. Without
    /// it the forecast knows windows and changes of the terms, so the told instant can be too late.
    fn forecast_deadline(&self) -> Instant {
        Instant::now() + self.instance.claim_time / 4
    }

    fn course(&self, question: &Question, last: Option<&Line>) -> Course {
        let terms = &self.instance.policies.terms;
        terms.course(&question.policy, question.account, last, question.now)
    }

    fn is_by_time_alone(&self, question: &Question, last: &Option<Line>, totals: &[Total]) -> bool {
        let course = self.course(question, last.as_ref());
        let claim = question.claim.as_ref();
        let calendar = claim.and_then(|claim| claim.asked.calendar.as_deref());
        is_by_time_alone(&course, last.as_ref(), calendar, totals, question.now)
    }

    /// What is foretold for the totals of a view. They follow the last line of the account.
    pub(super) async fn foretell_totals(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        account: AccountId,
        last: Option<Line>,
        totals: &[Total],
        now: DateTime<Utc>,
    ) -> Forecast {
        let question = Question {
            policy: policy.clone(),
            account,
            after: After::of(last.clone()),
            claim: None,
            now,
            is_committed: true,
            until: self.forecast_deadline(),
        };
        let is_counted = matches!(question.after, After::Counted(_));
        if !is_counted && self.is_by_time_alone(&question, &last, totals) {
            Forecast::default()
        } else {
            self.read_in_time(question).await
        }
    }

    /// Reads what a forecast needs, in a task of its own. If the ledger does not answer in time, the
    /// forecast knows no holds.
    async fn read_in_time(self: &Arc<Self>, question: Question) -> Forecast {
        let claims = self.clone();
        let own = question.clone();
        let reading = self
            .instance
            .detached(async move { claims.read_ahead(&own).await });
        if let Ok(Ok(Ok(forecast))) = timeout_at(question.until, reading).await {
            return forecast;
        }
        let last = match &question.after {
            After::Line(line) => line.as_ref(),
            After::Counted(line) => Some(line),
            After::Last => return Forecast::default(),
        };
        let known = Foreknown {
            holds: Some(HoldsAhead::default()),
            ..Foreknown::default()
        };
        let course = self.course(&question, last);
        let forecast = foresee(&course, last, &known, question.claim.as_ref(), question.now);
        forecast.unwrap_or_default()
    }

    async fn read_ahead(&self, question: &Question) -> Result<Forecast, LedgerError> {
        let account = question.account;
        let memory = &self.dispatch.memory;
        // 1. The last line of the ledger, and what is known of it already.
        let (epoch, _) = memory.fence();
        let Outlook { last, known: seen } = match &question.after {
            After::Line(last) if question.is_committed => Outlook {
                last: last.clone(),
                known: memory.outlooks.after(account, last.as_ref(), epoch),
            },
            After::Line(last) => Outlook {
                last: last.clone(),
                known: Arc::default(),
            },
            After::Counted(_) | After::Last => self.last_outlook(account).await?,
        };
        // 2. The line that the forecast follows.
        let counted = match &question.after {
            After::Counted(counted) => {
                // The totals of Redis know the holds that have lapsed.
                let lapses_at = last.as_ref().and_then(|line| line.lapses_at);
                let lapses_at = lapses_at.map(|at| at.max(counted.at + MICROSECOND));
                Some(Line {
                    lapses_at,
                    ..counted.clone()
                })
            }
            After::Line(_) | After::Last => None,
        };
        let after = counted.as_ref().or(last.as_ref());
        // 3. The forecast, as soon as everything is known that it asks for.
        let course = self.course(question, after);
        let mut known = seen.clone();
        let foresee = |known: &Foreknown| {
            foresee(&course, after, known, question.claim.as_ref(), question.now)
        };
        let forecast = once_foreknown(&self.ledger, account, last.as_ref(), &mut known, foresee);
        let forecast = forecast.await?;
        // 4. The next forecast need not read it again.
        if question.is_committed && !Arc::ptr_eq(&seen, &known) {
            let outlook = Outlook { last, known };
            memory
                .outlooks
                .learn(account, outlook, epoch, Instant::now());
        }
        Ok(forecast)
    }

    /// The last line of an account, as of the last second, with what is known of it.
    async fn last_outlook(&self, account: AccountId) -> Result<Outlook, LedgerError> {
        let memory = &self.dispatch.memory;
        let (epoch, _) = memory.fence();
        match memory.outlooks.recent(account, epoch, Instant::now()) {
            Some(outlook) => Ok(outlook),
            None => self.read_outlook(account).await,
        }
    }

    /// The last line of an account, with what is known of it.
    async fn read_outlook(&self, account: AccountId) -> Result<Outlook, LedgerError> {
        let memory = &self.dispatch.memory;
        let (epoch, _) = memory.fence();
        let last = last_line(&self.ledger, account).await?;
        let known = memory.outlooks.after(account, last.as_ref(), epoch);
        let outlook = Outlook { last, known };
        let now = Instant::now();
        memory.outlooks.learn(account, outlook.clone(), epoch, now);
        Ok(outlook)
    }
}

impl Question {
    fn units(&self) -> Units {
        let claim = self.claim.as_ref();
        claim.map_or(Units::ONE, |claim| claim.asked.units)
    }
}

impl After {
    /// The totals of Redis have a line without a number.
    fn of(last: Option<Line>) -> Self {
        match last {
            Some(line) if line.number == 0 => Self::Counted(line),
            last => Self::Line(last),
        }
    }
}
