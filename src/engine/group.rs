//! The claims of one account that go into the ledger together.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::pending::{Hint, Outcome, Pending, Undecided};
use super::policies::Policies;
use crate::domain::account::{Refusal, Sums, Verdict, decide};
use crate::domain::grant::Line;
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::policy::Policy;
use crate::domain::window::Window;
use crate::ledger::{Draft, Seen};

/// Claims of one account, under one version of its policy.
pub struct Group {
    /// The account.
    pub account: AccountId,
    /// Those not decided yet.
    pub claims: Vec<Pending>,
    /// Those decided, on their way into the ledger.
    pub plan: Option<Plan>,
    /// How often in a row another writer was there first.
    pub losses: u32,
}

/// What is to become of a group's claims once its draft stands in the ledger.
pub struct Plan {
    /// The last line that the plan goes on from.
    pub after: Option<Line>,
    /// The entries to append; `None` when nothing is granted.
    pub draft: Option<Draft>,
    /// Whose entries they are, in the same order.
    pub granted: Vec<Pending>,
    /// The others, who are refused because of the line before or of those entries.
    pub refused: Vec<(Pending, Refusal)>,
    /// Whether the draft was sent and its outcome is not known. It is sent again as it is,
    /// or found by its ids, and never decided anew while it may still stand.
    pub outcome_unknown: bool,
}

/// Why a group cannot be decided with what is known.
#[derive(Debug)]
pub enum Missing {
    /// The units used in these windows, up to the last line.
    Sums(Vec<Window>),
    /// A newer version of this policy.
    Policy(Arc<Policy>),
}

impl Group {
    /// A group of one claim.
    pub fn new(claim: Pending) -> Self {
        Self {
            account: claim.account,
            claims: vec![claim],
            plan: None,
            losses: 0,
        }
    }

    /// The newest hint, if it is worth a try: when none of the claims needs the ledger's own
    /// word.
    pub fn hint(&self) -> Option<Hint> {
        let was_sent = |claim: &Pending| claim.sent.is_some();
        if self.plan.is_some() || self.losses > 0 || self.claims.iter().any(was_sent) {
            return None;
        }
        let hints = self.claims.iter().map(|claim| claim.asked.hint.as_ref());
        let hints: Option<Vec<&Hint>> = hints.collect();
        let number = |hint: &&Hint| hint.last_line().map(|line| line.number);
        hints?.into_iter().max_by_key(number).cloned()
    }

    /// Ends the claims that nobody waits for any more, unless their outcome is still open.
    pub fn drop_expired(&mut self, now: Instant) {
        for claim in self.claims.extract_if(.., |claim| claim.deadline <= now) {
            claim.end(Err(Undecided::Deadline));
        }
    }

    /// Whether there is anybody left to answer.
    pub fn is_awaited(&self, now: Instant) -> bool {
        !self.every_claim(|claim| claim.deadline <= now)
    }

    fn every_claim(&self, holds: impl Fn(&Pending) -> bool) -> bool {
        let planned = self.plan.iter().flat_map(Plan::claims);
        self.claims.iter().chain(planned).all(holds)
    }

    /// Decides the claims after `last` by the terms that hold then, one after the other, each on
    /// what those before it leave.
    ///
    /// # Errors
    /// [`Missing`] when something must be learned first; then nothing is decided.
    pub fn decide(
        &mut self,
        last: Option<Line>,
        sums: &Sums,
        policies: &Policies,
        now: DateTime<Utc>,
    ) -> Result<(), Missing> {
        let Some(first) = self.claims.first() else {
            return Ok(());
        };
        let policy = policies.terms(&first.policy, self.account, last.as_ref(), now);
        let mut line = last.clone();
        let mut verdicts = Vec::with_capacity(self.claims.len());
        for claim in &self.claims {
            let verdict = match decide(&policy, claim.units, line.as_ref(), sums, now) {
                Verdict::NeedsSums(windows) => return Err(Missing::Sums(windows)),
                Verdict::OutdatedPolicy => return Err(Missing::Policy(policy)),
                Verdict::Granted(next) => {
                    line = Some(next.clone());
                    Ok(next)
                }
                Verdict::Refused(refusal) => Err(refusal),
            };
            verdicts.push(verdict);
        }
        let mut plan = Plan {
            after: last.clone(),
            draft: None,
            granted: Vec::new(),
            refused: Vec::new(),
            outcome_unknown: false,
        };
        let mut entries = Vec::new();
        for (mut claim, verdict) in self.claims.drain(..).zip(verdicts) {
            claim.policy = policy.clone();
            match verdict {
                Ok(line) => {
                    entries.push(claim.entry(line));
                    plan.granted.push(claim);
                }
                Err(refusal) => plan.refused.push((claim, refusal)),
            }
        }
        if let Some(first) = plan.granted.first() {
            plan.draft = Some(Draft {
                account: self.account,
                policy: policy.id,
                subject: first.subject.clone(),
                after: last,
                entries,
            });
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// Ends the claims that stand in the ledger already, and those whose keys do.
    pub fn answer_repeated(&mut self, seen: &Seen) {
        let own = |claim: &Pending| {
            let id = claim.sent?;
            seen.entries.iter().find(|entry| entry.id == id)
        };
        for claim in self.claims.extract_if(.., |claim| own(claim).is_some()) {
            if let Some(entry) = own(&claim) {
                let entry = entry.clone();
                claim.end(Ok(Outcome::Granted(entry)));
            }
        }
        let of_key = |claim: &Pending| {
            let key = claim.key?;
            seen.entries.iter().find(|entry| entry.key == Some(key))
        };
        for claim in self.claims.extract_if(.., |claim| of_key(claim).is_some()) {
            if let Some(entry) = of_key(&claim) {
                let outcome = claim.repeats(entry.clone());
                claim.end(Ok(outcome));
            }
        }
    }

    /// Takes the plan back: its claims are to be decided anew.
    pub fn dissolve(&mut self) {
        if let Some(plan) = self.plan.take() {
            self.claims.extend(plan.granted);
            let refused = plan.refused.into_iter().map(|(claim, _)| claim);
            self.claims.extend(refused);
        }
    }

    /// Takes the claims that Redis is to decide, if it is to decide this group's. Those whose
    /// draft may stand in the ledger keep their entries' ids.
    pub fn take_for_redis(&mut self, ledger_is_silent: bool) -> Vec<Pending> {
        if !self.every_claim(|claim| claim.is_for_redis(ledger_is_silent)) {
            return Vec::new();
        }
        if let Some(plan) = self.plan.as_mut().filter(|plan| plan.outcome_unknown) {
            let ids: Vec<EntryId> = plan.entry_ids().collect();
            for (claim, id) in plan.granted.iter_mut().zip(ids) {
                claim.sent = Some(id);
            }
        }
        self.dissolve();
        std::mem::take(&mut self.claims)
    }

    /// Takes the plan back unless its draft may stand in the ledger.
    pub fn dissolve_known(&mut self) {
        if !self.has_unknown_outcome() {
            self.dissolve();
        }
    }

    /// Another writer was there first.
    pub fn lose(&mut self) {
        self.losses += 1;
        self.dissolve_known();
    }

    /// Whether the group's draft may or may not stand in the ledger.
    pub fn has_unknown_outcome(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.outcome_unknown)
    }

    /// Ends every claim in the same way.
    pub fn end(mut self, undecided: &Undecided) {
        self.dissolve();
        for claim in self.claims {
            claim.end(Err(undecided.clone()));
        }
    }
}

impl Plan {
    /// Every claim that it decides.
    pub fn claims(&self) -> impl Iterator<Item = &Pending> {
        let refused = self.refused.iter().map(|(claim, _)| claim);
        self.granted.iter().chain(refused)
    }

    /// The ids of the entries to append.
    pub fn entry_ids(&self) -> impl Iterator<Item = EntryId> {
        let draft = self.draft.iter();
        draft.flat_map(|draft| draft.entries.iter().map(|entry| entry.id))
    }

    /// The account's last line once the draft stands.
    pub fn last_line(&self) -> Option<&Line> {
        let appended = self.draft.as_ref().and_then(|draft| draft.entries.last());
        appended.map(|entry| &entry.line).or(self.after.as_ref())
    }

    /// Answers everybody: the draft, if there is one, stands in the ledger.
    pub fn answer(self) {
        let entries = self.draft.map(|draft| draft.entries).unwrap_or_default();
        for (claim, entry) in self.granted.into_iter().zip(entries) {
            claim.end(Ok(Outcome::Granted(entry)));
        }
        for (claim, refusal) in self.refused {
            let is_denied = matches!(refusal, Refusal::Denied(_));
            if is_denied && claim.key.is_some() && claim.may_wait {
                claim.end(Err(Undecided::Unseen));
                continue;
            }
            let policy = claim.policy.clone();
            claim.end(Ok(Outcome::Refused(policy, refusal)));
        }
    }
}
