//! Atomic batches: one transaction of the ledger grants all claims of a batch, or none.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout_at};

use super::foretell::Foretold;
use super::in_flight::{ClaimFailure, Outcome, Undecided, outcome_of};
use super::lanes::turn_at;
use super::way::LOSSES_BEFORE_TURN;
use crate::counter::Ask;
use crate::domain::claim::Claim;
use crate::domain::drafting::{AccountFacts, Decided, Drafted, draft};
use crate::domain::grant::{Entry, Line};
use crate::domain::identity::AccountId;
use crate::domain::policy::{Policy, PolicyName};
use crate::domain::work::Work;
use crate::engine::Engine;
use crate::engine::instance::is_fresh;
use crate::faults::reach;
use crate::ledger::{Draft, LedgerError, LedgerView, Look, Turn};

/// The pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(10);

/// The outcome of a claim of an atomic batch; `None` for a claim that would have been granted.
type Member = Option<Result<Outcome, ClaimFailure>>;

/// A member, with what is foretold.
pub type ForetoldMember = Option<Result<Foretold, ClaimFailure>>;

/// A batch in progress.
struct Batch {
    engine: Arc<Engine>,
    /// Each claim, or the reason why the claim cannot be decided.
    claims: Vec<Result<Work, ClaimFailure>>,
    /// Whether something already prevents every grant.
    is_doomed: bool,
    /// Decisions that were sent and may or may not be committed. Invariant: the ledger commits at
    /// most one of them, since all follow the same lines.
    sent: Vec<Decision>,
    losses: u32,
}

struct Decision {
    members: Vec<MemberOutcome>,
    drafts: Vec<Draft>,
    /// Every change of a policy that was made before this instant was known.
    as_of: Instant,
}

enum MemberOutcome {
    /// The entry with this index, in the draft with this index.
    Entry(usize, usize),
    /// An outcome that does not depend on the batch.
    Ended(Result<Outcome, ClaimFailure>),
}

enum Attempt {
    Ended(Vec<Member>),
    /// The batch would be refused, but a decision that was sent before may still be committed.
    Unsure,
    /// Another writer was first.
    Lost,
    /// Other entries of the accounts must be appended first: counted grants or lapses.
    Waits,
}

impl Engine {
    /// Decides claims together: all are granted, or none is. `is_doomed` tells that something
    /// outside of the claims prevents every grant: then nothing is granted, and the outcomes say
    /// what would be. The batch ends in the same way whether or not the client still waits.
    ///
    /// # Errors
    /// [`Undecided`]: no claim is granted, unless a transaction with an unknown outcome is
    /// committed. A retry with the same keys tells.
    pub async fn claim_together(
        self: &Arc<Self>,
        caller: &Arc<str>,
        claims: Vec<(PolicyName, Claim)>,
        is_doomed: bool,
    ) -> Result<Vec<ForetoldMember>, Undecided> {
        // 1. The batch needs a right clock, and one place for each claim.
        if self.watch.clock_is_off() {
            return Err(Undecided::Clock);
        }
        let came = Instant::now();
        let places = self.claims_under_way.try_take_many(caller, claims.len());
        let places = places.ok_or_else(|| {
            let refused = Undecided::Overloaded.into();
            let claims = claims.iter();
            claims.for_each(|_| self.metrics.claim_ended(outcome_of(Err(&refused)), came));
            Undecided::Overloaded
        })?;
        // 2. Each claim needs its policy, and the turn of its key. A claim without one of them
        //    dooms the batch.
        let mut turns = Vec::new();
        let mut taken_on = Vec::with_capacity(claims.len());
        for (policy, claim) in claims {
            let policy = self.policy_of_claim(&policy, came).await;
            let work = policy.map(|policy| self.work(policy, claim));
            taken_on.push(work.and_then(|work| {
                if let Some(key) = work.key {
                    let turn = self.keys_in_progress.begin(key);
                    turns.push(turn.ok_or(ClaimFailure::InProgress)?);
                }
                Ok(work)
            }));
        }
        // 3. The batch runs in its own task, so that it ends even if the client goes away.
        let mut batch = Batch {
            engine: self.clone(),
            is_doomed: is_doomed || taken_on.iter().any(Result::is_err),
            claims: taken_on,
            sent: Vec::new(),
            losses: 0,
        };
        let deadline = came + self.claim_deadline;
        let engine = self.clone();
        let work = async move {
            let _places = places;
            let _turns = turns;
            let members = batch.run(deadline).await?;
            let members = engine.foretell_members(&batch.claims, members, deadline);
            let members = members.await;
            for result in members.iter().flatten() {
                let outcome = result.as_ref().map(|foretold| &foretold.outcome);
                engine.metrics.claim_ended(outcome_of(outcome), came);
            }
            Ok(members)
        };
        // 4. The client waits until the deadline.
        match timeout_at(deadline, self.detached(work)).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Undecided::Ending),
            Err(_) => Err(Undecided::Deadline),
        }
    }

    /// Adds to the members of a batch what is known of the time to come.
    async fn foretell_members(
        self: &Arc<Self>,
        claims: &[Result<Work, ClaimFailure>],
        members: Vec<Member>,
        deadline: Instant,
    ) -> Vec<ForetoldMember> {
        let is_entered = |member: &Member| matches!(member, Some(Ok(Outcome::Entered(_))));
        // The line of a denial may have entries of a batch that was refused.
        let is_committed = members.iter().any(is_entered);
        let foretell = async |(work, member): (&Result<Work, ClaimFailure>, Member)| {
            let (work, outcome) = match (work, member?) {
                (Ok(work), Ok(outcome)) => (work, outcome),
                (Err(failure), _) => return Some(Err(failure.clone())),
                (_, Err(failure)) => return Some(Err(failure)),
            };
            let policy = &work.policy;
            let account = work.account;
            let units = work.units;
            let foretold = self.foretell(policy, account, units, outcome, is_committed, deadline);
            let foretold = foretold.await;
            self.note_denial(account, units, &foretold.outcome);
            Some(Ok(foretold))
        };
        join_all(claims.iter().zip(members).map(foretell)).await
    }
}

impl Batch {
    async fn run(&mut self, deadline: Instant) -> Result<Vec<Member>, Undecided> {
        loop {
            if Instant::now() >= deadline {
                return Err(Undecided::Deadline);
            }
            match self.attempt(deadline).await {
                Ok(Attempt::Ended(members)) => return Ok(members),
                Ok(Attempt::Unsure) => return Err(Undecided::Sent),
                Ok(Attempt::Lost) | Err(LedgerError::Conflict) => self.losses += 1,
                Ok(Attempt::Waits) | Err(LedgerError::Unavailable(_)) => sleep(PAUSE).await,
                Err(LedgerError::Untimely(why)) => {
                    self.engine.metrics.untimely();
                    self.engine.watch.clocks.note_untimely(why);
                    return Err(why.into());
                }
                Err(error) => return Err(Undecided::Ledger(Arc::new(error))),
            }
        }
    }

    async fn attempt(&mut self, deadline: Instant) -> Result<Attempt, LedgerError> {
        let engine = self.engine.clone();
        // 1. Grants that Redis counted go into the ledger first.
        if self.grants_wait().await {
            return Ok(Attempt::Waits);
        }
        // 2. After two losses the batch waits for the turn of its accounts. Then it reads the
        //    ledger.
        let _turn = self.turn().await;
        let seen = engine.ledger.look(&self.look()).await?;
        reach("atomic.looked");
        // The terms are read after the look, which may have taken long. The guard of the append
        // detects new entries; nothing detects new terms.
        engine.policies.freshen_for(&seen, &engine.ledger).await?;
        // 3. A decision that was sent before may be committed: then the batch is granted.
        if let Some(index) = self.sent.iter().position(|sent| sent.stands(&seen)) {
            let stands = self.sent.swap_remove(index);
            return Ok(self.end(stands));
        }
        self.sent.retain(|sent| sent.may_stand(&seen));
        // 4. Otherwise the same drafts are sent again while their terms are fresh, or the claims
        //    are decided again.
        let (decision, was_sent) = match self
            .sent
            .pop_if(|sent| is_fresh(sent.as_of, Instant::now()))
        {
            // The decision may still reach the ledger: the same drafts are sent again.
            Some(sent) => (sent, true),
            // The ledger takes at most one of two drafts that follow the same line.
            None => match self.decide(&seen).await? {
                Some(decision) => (decision, false),
                None => return Ok(Attempt::Waits),
            },
        };
        // 5. A decision that became too old must not be sent.
        if !is_fresh(decision.as_of, Instant::now()) || Instant::now() >= deadline {
            if was_sent {
                self.sent.push(decision);
            }
            return Ok(Attempt::Waits);
        }
        // 6. A refused batch appends nothing. The refusal is certain only if no earlier decision
        //    can still be committed.
        if self.is_doomed || decision.is_refused() {
            return Ok(if self.sent.is_empty() {
                Attempt::Ended(decision.refuse())
            } else {
                Attempt::Unsure
            });
        }
        // 7. A batch without new entries repeats earlier grants.
        if decision.drafts.is_empty() {
            return Ok(self.end(decision));
        }
        // 8. The ledger appends all drafts, or none.
        let appended = engine.ledger.append_together(&decision.drafts).await;
        engine.watch.note_write(&appended);
        if let Ok(true) = appended {
            reach("atomic.committed");
            return Ok(self.end(decision));
        }
        // 9. A decision that was sent twice may have lost to itself: only the ids of its entries
        //    tell.
        if was_sent || matches!(appended, Err(LedgerError::Unavailable(_))) {
            self.sent.push(decision);
        }
        appended.map(|_| Attempt::Lost)
    }

    fn works(&self) -> impl Iterator<Item = &Work> {
        self.claims.iter().flatten()
    }

    fn accounts(&self) -> Vec<AccountId> {
        let accounts: HashSet<AccountId> = self.works().map(|work| work.account).collect();
        accounts.into_iter().collect()
    }

    /// Whether counted grants wait for the ledger: the batch comes after them.
    async fn grants_wait(&self) -> bool {
        let Some(counting) = &self.engine.counting else {
            return false;
        };
        let terms = &self.engine.policies.terms;
        let works = self.works();
        let counted = works.filter(|work| terms.may_be_counted(work.policy.id));
        let accounts: HashSet<AccountId> = counted.map(|work| work.account).collect();
        let ask = |account: &AccountId| Ask {
            account: *account,
            looks_at_queue: true,
        };
        let asks: Vec<Ask> = accounts.iter().map(ask).collect();
        let answers = counting.counters.ask(&asks).await.unwrap_or_default();
        let waiting = asks
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| answer.grants_wait);
        let waiting: Vec<AccountId> = waiting.map(|(ask, _)| ask.account).collect();
        waiting
            .iter()
            .for_each(|account| counting.drain.hurry(*account));
        !waiting.is_empty()
    }

    async fn turn(&self) -> Option<Turn> {
        if self.losses < LOSSES_BEFORE_TURN {
            None
        } else {
            turn_at(&self.engine.ledger, self.accounts()).await
        }
    }

    fn look(&self) -> Look {
        let sent = self.sent.iter().flat_map(Decision::entries);
        Look {
            accounts: self.accounts(),
            keys: self.works().filter_map(|work| work.key).collect(),
            entries: sent.map(|entry| entry.id).collect(),
            ..Look::default()
        }
    }

    /// Decides every claim on what the ledger showed; the claims of one account are decided one
    /// after the other. Returns `None` if lapses of an account had to be appended first.
    async fn decide(&self, seen: &LedgerView) -> Result<Option<Decision>, LedgerError> {
        // 1. Each claim that already has a failure or an entry keeps it. The others are sorted by
        //    account.
        let as_of = self.engine.policies.terms.as_of();
        let now = self.engine.clock.now();
        let mut members: BTreeMap<usize, MemberOutcome> = BTreeMap::new();
        let mut accounts: BTreeMap<AccountId, Vec<(usize, &Work)>> = BTreeMap::new();
        for (index, claim) in self.claims.iter().enumerate() {
            let work = match claim {
                Ok(work) => work,
                Err(failure) => {
                    members.insert(index, MemberOutcome::Ended(Err(failure.clone())));
                    continue;
                }
            };
            let mut entries = seen.entries.iter();
            match entries.find(|entry| work.key.is_some() && entry.key == work.key) {
                Some(entry) => {
                    members.insert(
                        index,
                        MemberOutcome::Ended(Ok(Outcome::of_key(work, entry, &seen.entries, now))),
                    );
                }
                None => accounts
                    .entry(work.account)
                    .or_default()
                    .push((index, work)),
            }
        }
        // 2. Each account decides its claims, and drafts its entries.
        let mut drafts = Vec::new();
        for (account, claims) in accounts {
            let works: Vec<&Work> = claims.iter().map(|(_, work)| *work).collect();
            let last = seen.lines.get(&account);
            let decided = self.decide_account(account, &works, last).await?;
            let Some((policy, decided, appended)) = decided else {
                return Ok(None);
            };
            for ((index, _), decided) in claims.iter().zip(decided) {
                let made = match decided {
                    Decided::Entry(entry) | Decided::Repeated(entry) => {
                        MemberOutcome::Entry(drafts.len(), entry)
                    }
                    Decided::Stands(entry) => MemberOutcome::Ended(Ok(Outcome::Repeated(*entry))),
                    Decided::Refused(refusal) => {
                        MemberOutcome::Ended(Ok(Outcome::Refused(policy.clone(), refusal)))
                    }
                };
                members.insert(*index, made);
            }
            if !appended.is_empty() {
                drafts.push(Draft {
                    account,
                    policy: policy.id,
                    subject: works.iter().find_map(|work| work.subject.clone()),
                    after: last.cloned(),
                    entries: appended,
                });
            }
        }
        // 3. The outcomes are in the order of the claims.
        Ok(Some(Decision {
            members: members.into_values().collect(),
            drafts,
            as_of,
        }))
    }

    async fn decide_account(
        &self,
        account: AccountId,
        works: &[&Work],
        last: Option<&Line>,
    ) -> Result<Option<(Arc<Policy>, Vec<Decided>, Vec<Entry>)>, LedgerError> {
        let policies = &self.engine.policies;
        let ledger = &self.engine.ledger;
        // 1. The policy, with the override of the subject.
        let now = self.engine.clock.now();
        let policy = policies.terms_after(&works[0].policy, account, last, now, ledger);
        let policy = policy.await?;
        // 2. The rule decides the claims, as soon as it knows everything that it asks for.
        let mut known = AccountFacts::to_append(Engine::nonce());
        let Drafted { decided, entries } = loop {
            let works = works.iter().copied();
            match draft(account, &policy, last.cloned(), works, &known, now) {
                Ok(drafted) => break drafted,
                Err(unknown) => known.learn(unknown, ledger, account, last, now).await?,
            }
        };
        if let Some(decided) = decided {
            return Ok(Some((policy, decided, entries)));
        }
        // 3. Many lapses are due: they are appended before the claims are decided.
        let lapses = Draft {
            account,
            policy: policy.id,
            subject: None,
            after: last.cloned(),
            entries,
        };
        ledger.append(&[lapses]).await?;
        Ok(None)
    }

    /// Settles the counters and returns the outcome of every claim. The drafts must be committed.
    fn end(&self, decision: Decision) -> Attempt {
        let now = self.engine.clock.now();
        for draft in &decision.drafts {
            self.engine
                .dispatch
                .memory
                .distrust(draft.account, Instant::now());
            let counts = self.engine.policies.terms.may_be_counted(draft.policy);
            self.engine.dispatch.settle.send_draft(draft, counts, now);
        }
        let Decision {
            members, drafts, ..
        } = decision;
        let member = |made| match made {
            MemberOutcome::Entry(draft, entry) => {
                let entry: Entry = drafts[draft].entries[entry].clone();
                Some(Ok(Outcome::Entered(entry)))
            }
            MemberOutcome::Ended(result) => Some(result),
        };
        Attempt::Ended(members.into_iter().map(member).collect())
    }
}

impl Decision {
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.drafts.iter().flat_map(|draft| &draft.entries)
    }

    /// Whether something prevents the grants of the batch.
    fn is_refused(&self) -> bool {
        let is_refused = |made: &MemberOutcome| match made {
            MemberOutcome::Entry(..)
            | MemberOutcome::Ended(Ok(Outcome::Entered(_) | Outcome::Repeated(_))) => false,
            MemberOutcome::Ended(Ok(Outcome::KeyReused | Outcome::Refused(..)) | Err(_)) => true,
        };
        self.members.iter().any(is_refused)
    }

    fn refuse(self) -> Vec<Member> {
        let member = |made| match made {
            MemberOutcome::Entry(..) => None,
            MemberOutcome::Ended(result) => Some(result),
        };
        self.members.into_iter().map(member).collect()
    }

    /// Whether the transaction of this decision is committed.
    fn stands(&self, seen: &LedgerView) -> bool {
        let stands = |entry: &Entry| seen.entries.iter().any(|seen| seen.id == entry.id);
        self.entries().any(stands)
    }

    /// Whether the transaction may still be committed: every account still has the last line that
    /// was assumed, and no key has an entry.
    fn may_stand(&self, seen: &LedgerView) -> bool {
        let number = |line: Option<&Line>| line.map_or(0, |line| line.number);
        let is_free = |entry: &Entry| {
            entry.key.is_none() || seen.entries.iter().all(|seen| seen.key != entry.key)
        };
        self.drafts.iter().all(|draft| {
            number(draft.after.as_ref()) == number(seen.lines.get(&draft.account))
                && draft.entries.iter().all(is_free)
        })
    }
}
