//! The way into the ledger, as in `src/engine/claim/append.rs` and `src/engine/claim/group.rs`.

use super::claiming::end;
use super::drafting::{Decided, Drafting, Missing, Seen};
use super::perdiem::Perdiem;
use super::rule::{LineId, Question};
use super::world::{Draft, Entry, Group, Guard, Outcome, Plan, Stage, State};

impl Perdiem {
    /// The claims that wait join their account's group. It is decided on a hint, or reads the
    /// account's last line.
    pub fn begin(&self, state: &mut State, instance: u8, account: u8) -> Result<(), String> {
        let mut group = take_group(state, instance, account).unwrap_or_default();
        for index in 0..state.claims.len() {
            let claim = &mut state.claims[index];
            let is_here = claim.stage == Stage::Waiting && claim.instance == instance;
            if is_here && self.request(claim.request).account == account {
                claim.stage = Stage::Grouped;
                group.claims.push(u8::try_from(index).expect("few claims"));
            }
        }
        if !state.instances[usize::from(instance)].is_fresh {
            refresh(state, instance);
        }
        let newest = state.instances[usize::from(instance)].version;
        for index in members(&group) {
            let claim = &mut state.claims[usize::from(index)];
            claim.version = claim.version.max(newest);
        }
        if let Some(hint) = self.hint(state, &group)
            && let Ok(plan) = self.plan(state, instance, account, &group.claims, hint, Seen::Hint)
            && plan.refused.is_empty()
            && plan.repeated.is_empty()
        {
            group.claims.clear();
            group.plan = Some(plan);
            return self.send_draft(state, instance, account, group);
        }
        group.looked = Some(self.last_line(state, account));
        put_group(state, instance, account, group);
        Ok(())
    }

    /// The newest hint, when none of the claims needs the ledger's own word.
    fn hint(&self, state: &State, group: &Group) -> Option<LineId> {
        if group.plan.is_some() || group.has_lost {
            return None;
        }
        let claims = group.claims.iter();
        let hints = claims.map(|index| state.claims[usize::from(*index)].asked.hint);
        let hints: Option<Vec<LineId>> = hints.collect();
        hints?
            .into_iter()
            .max_by_key(|line| self.rule.number(*line))
    }

    /// The group reads the entries of its keys and ids, finds out what became of its draft,
    /// and is decided on the last line that it read before.
    pub fn decide(&self, state: &mut State, instance: u8, account: u8) -> Result<(), String> {
        let mut group = take_group(state, instance, account).expect("a group");
        let last = group.looked.take().expect("a line");
        let was_fresh = state.instances[usize::from(instance)].is_fresh;
        if !was_fresh {
            refresh(state, instance);
            let newest = state.instances[usize::from(instance)].version;
            for index in &group.claims {
                let claim = &mut state.claims[usize::from(*index)];
                claim.version = claim.version.max(newest);
            }
        }
        if let Some(plan) = group.plan.take_if(|plan| plan.is_unknown) {
            let looks = self.protocol.looks_up_unknown;
            let stands = |entry: &Entry| state.ledger.contains(entry);
            if looks && plan.entries.iter().any(stands) {
                self.answer(state, instance, account, &plan)?;
            } else {
                let is_taken = |entry: &Entry| entry.key.is_some_and(|key| has_key(state, key));
                let same_number = self.rule.number(plan.after) == self.rule.number(last);
                if looks && same_number && !plan.entries.iter().any(is_taken) {
                    if was_fresh {
                        group.plan = Some(plan);
                        return self.send_draft(state, instance, account, group);
                    }
                    // Of it and what is decided now the ledger takes one at most.
                    for entry in &plan.entries {
                        if let Some(claim) = entry.claim {
                            state.claims[usize::from(claim)].was_sent = true;
                        }
                    }
                }
                let newest = state.instances[usize::from(instance)].version;
                for index in claims_of(&plan) {
                    let claim = &mut state.claims[usize::from(index)];
                    claim.version = claim.version.max(newest);
                }
                group.claims.extend(claims_of(&plan));
            }
        }
        if self.protocol.remembers_sent {
            answer_sent(state, &mut group);
        }
        if self.protocol.keys_are_looked_up {
            self.answer_repeated(state, &mut group);
        }
        if group.claims.is_empty() {
            return Ok(());
        }
        let mut seen = Seen::Ledger;
        let plan = loop {
            match self.plan(state, instance, account, &group.claims, last, seen) {
                Ok(plan) => break plan,
                Err(Missing::Policy) => {
                    refresh(state, instance);
                    let newest = state.instances[usize::from(instance)].version;
                    for index in &group.claims {
                        state.claims[usize::from(*index)].version = newest;
                    }
                }
                Err(Missing::Holds) => seen = Seen::LedgerWithHolds,
                Err(Missing::Look) => panic!("the ledger's word is known"),
            }
        };
        if plan.entries.is_empty() {
            return self.answer(state, instance, account, &plan);
        }
        group.claims.clear();
        group.plan = Some(plan);
        self.send_draft(state, instance, account, group)
    }

    /// Answers the claims whose keys stand in the ledger already.
    fn answer_repeated(&self, state: &mut State, group: &mut Group) {
        for index in std::mem::take(&mut group.claims) {
            let request = state.claims[usize::from(index)].request;
            let key = self.request(request).key;
            let is_it = |entry: &&Entry| key.is_some() && entry.key == key;
            let Some(entry) = state.ledger.iter().find(is_it) else {
                group.claims.push(index);
                continue;
            };
            let first = entry
                .claim
                .map(|claim| state.claims[usize::from(claim)].request);
            let outcome = match first == Some(request) {
                true => Outcome::Replayed,
                false => Outcome::KeyReused,
            };
            end(state, index, outcome);
        }
    }

    /// Decides claims after `last`, one after the other, each on what those before it leave.
    fn plan(
        &self,
        state: &State,
        instance: u8,
        account: u8,
        claims: &[u8],
        last: LineId,
        seen: Seen,
    ) -> Result<Plan, Missing> {
        let versions = claims
            .iter()
            .map(|index| state.claims[usize::from(*index)].version);
        let version = versions.max().expect("a claim");
        let now = self.now(state, instance);
        let question = Question {
            version,
            units: 0,
            last,
            now,
        };
        let first = claims.first().copied();
        let mut drafting = Drafting::begin(self, state, account, question, first, seen)?;
        let mut plan = Plan {
            version,
            now,
            after: last,
            entries: Vec::new(),
            refused: Vec::new(),
            repeated: Vec::new(),
            denies: false,
            is_unknown: false,
        };
        for index in claims {
            match drafting.decide(*index)? {
                Decided::Entry => {}
                Decided::Repeated => plan.repeated.push(*index),
                Decided::Refused { for_lack_of_room } => {
                    plan.denies |= for_lack_of_room;
                    plan.refused.push(*index);
                }
            }
        }
        plan.entries = drafting.entries;
        Ok(plan)
    }

    /// The line that an account's next decision goes on from: its last one, or that of the last
    /// lapse that is due.
    pub fn after_lapses(&self, state: &State, account: u8, version: u8, now: i32) -> LineId {
        let last = self.last_line(state, account);
        let question = Question {
            version,
            units: 0,
            last,
            now,
        };
        let seen = Seen::LedgerWithHolds;
        let drafting = Drafting::begin(self, state, account, question, None, seen);
        drafting.map_or(last, |drafting| drafting.line)
    }

    fn send_draft(
        &self,
        state: &mut State,
        instance: u8,
        account: u8,
        mut group: Group,
    ) -> Result<(), String> {
        let plan = group.plan.as_ref().expect("a plan");
        state.drafts.push(Draft {
            waits: Some(instance),
            account,
            after: plan.after,
            entries: plan.entries.clone(),
            stands: None,
        });
        state.drafts.sort_unstable();
        if !self.protocol.answers_after_commit
            && let Some(plan) = group.plan.take()
        {
            self.answer(state, instance, account, &plan)?;
        }
        put_group(state, instance, account, group);
        Ok(())
    }

    /// The ledger appends a draft, if its account's last line is the assumed one and its keys
    /// are free: all of its entries or none.
    pub fn append(&self, state: &mut State, draft: u8) -> Result<(), String> {
        let mut draft = state.drafts.remove(usize::from(draft));
        let last = self.last_line(state, draft.account);
        let is_assumed = match self.protocol.guard {
            Guard::Line => last == draft.after,
            Guard::ButLapses => self.same_but_lapses(last, draft.after),
            Guard::Number => self.rule.number(last) == self.rule.number(draft.after),
            Guard::Nothing => true,
        };
        let is_taken = |entry: &Entry| entry.key.is_some_and(|key| has_key(state, key));
        let are_free = !self.protocol.keys_are_unique || !draft.entries.iter().any(is_taken);
        let is_done = |entry: &Entry| {
            let mut entries = state.ledger.iter();
            entries.any(|other| other.kind.excludes(entry.kind))
        };
        let are_new = !self.protocol.followers_are_unique || !draft.entries.iter().any(is_done);
        let stands = is_assumed && are_free && are_new;
        if stands {
            for entry in &draft.entries {
                state.ledger.push(*entry);
                self.check_entry(state)?;
            }
        }
        match draft.waits {
            Some(_) => {
                draft.stands = Some(stands);
                state.drafts.push(draft);
                state.drafts.sort_unstable();
            }
            // Nobody is left who would settle it.
            None => state.may_lag |= stands,
        }
        Ok(())
    }

    /// The ledger's answer arrives: the claims are answered, or lost to another writer.
    pub fn receive(&self, state: &mut State, draft: u8) -> Result<(), String> {
        let draft = state.drafts.remove(usize::from(draft));
        let instance = draft.waits.expect("an instance waits");
        let account = draft.account;
        let Some(mut group) = take_group(state, instance, account) else {
            return Ok(());
        };
        if draft.stands == Some(true)
            && let Some(plan) = group.plan.take()
        {
            self.answer(state, instance, account, &plan)?;
        }
        group.has_lost = true;
        if let Some(plan) = group.plan.take_if(|plan| !plan.is_unknown) {
            group.claims.extend(claims_of(&plan));
        }
        put_group(state, instance, account, group);
        Ok(())
    }

    /// Answers a plan that stands, and settles its counter.
    fn answer(
        &self,
        state: &mut State,
        instance: u8,
        account: u8,
        plan: &Plan,
    ) -> Result<(), String> {
        let settles = self.settle_plan(state, instance, account, plan);
        let is_settled_first = |state: &State, index: u8| {
            let request = self.request(state.claims[usize::from(index)].request);
            settles && self.protocol.answers_after_settlement && request.wants.is_correction()
        };
        for entry in &plan.entries {
            if let Some(index) = entry.claim {
                self.check_grant(state, entry)?;
                match is_settled_first(state, index) {
                    true => state.claims[usize::from(index)].stage = Stage::Settling,
                    false => end(state, index, Outcome::Granted),
                }
            }
        }
        for index in &plan.repeated {
            end(state, *index, Outcome::Replayed);
        }
        for index in &plan.refused {
            let was_sent = state.claims[usize::from(*index)].was_sent;
            match plan.entries.is_empty() && was_sent && self.protocol.remembers_sent {
                true => end(state, *index, Outcome::Unknown),
                false => self.refuse(state, *index, plan.version, plan.now)?,
            }
        }
        Ok(())
    }

    fn same_but_lapses(&self, one: LineId, other: LineId) -> bool {
        let without = |line| match line {
            LineId::NONE => line,
            line => self.rule.with_lapses_at(line, None),
        };
        without(one) == without(other)
    }

    /// An instance does not wait any longer for the answer to a draft, which may still arrive
    /// at the ledger.
    pub fn time_out(&self, state: &mut State, draft: u8) {
        state.left.timeouts -= 1;
        let waited = &state.drafts[usize::from(draft)];
        let (instance, account) = (waited.waits.expect("an instance waits"), waited.account);
        let group = state.instances[usize::from(instance)].groups[usize::from(account)].as_mut();
        if let Some(plan) = group.and_then(|group| group.plan.as_mut()) {
            plan.is_unknown = true;
        }
        abandon(state, |draft| {
            draft.waits == Some(instance) && draft.account == account
        });
    }

    /// Nobody waits any longer for the claims of a group.
    pub fn give_up(&self, state: &mut State, instance: u8, account: u8) {
        state.left.timeouts -= 1;
        let group = take_group(state, instance, account).expect("a group");
        for index in members(&group) {
            end(state, index, Outcome::Unknown);
        }
        abandon(state, |draft| {
            draft.waits == Some(instance) && draft.account == account
        });
        state.may_lag = true;
    }

    /// An instance ends abruptly, and starts anew.
    pub fn crash(&self, state: &mut State, instance: u8) {
        state.left.crashes -= 1;
        for index in 0..state.claims.len() {
            let claim = &state.claims[index];
            if claim.instance == instance && claim.is_under_way() {
                end(
                    state,
                    u8::try_from(index).expect("few claims"),
                    Outcome::Unknown,
                );
            }
        }
        state.instances[usize::from(instance)].groups.fill(None);
        abandon(state, |draft| draft.waits == Some(instance));
        state
            .settlements
            .retain(|settlement| settlement.instance != instance);
        state.may_lag = true;
        refresh(state, instance);
    }
}

/// Answers the claims whose own entries were sent before and stand in the ledger.
fn answer_sent(state: &mut State, group: &mut Group) {
    for index in std::mem::take(&mut group.claims) {
        let was_sent = state.claims[usize::from(index)].was_sent;
        let is_own = |entry: &Entry| was_sent && entry.claim == Some(index);
        match state.ledger.iter().any(is_own) {
            true => end(state, index, Outcome::Granted),
            false => group.claims.push(index),
        }
    }
}

/// An instance reads the policies.
pub fn refresh(state: &mut State, instance: u8) {
    let newest = state.newest;
    let instance = &mut state.instances[usize::from(instance)];
    instance.version = newest;
    instance.is_fresh = true;
}

/// Nobody waits for some drafts any more; those under way may still arrive.
fn abandon(state: &mut State, whose: impl Fn(&Draft) -> bool) {
    state
        .drafts
        .retain(|draft| !whose(draft) || draft.stands.is_none());
    for draft in state.drafts.iter_mut().filter(|draft| whose(draft)) {
        draft.waits = None;
    }
    state.drafts.sort_unstable();
}

fn has_key(state: &State, key: u8) -> bool {
    state.ledger.iter().any(|entry| entry.key == Some(key))
}

fn claims_of(plan: &Plan) -> impl Iterator<Item = u8> {
    let granted = plan.entries.iter().filter_map(|entry| entry.claim);
    let others = plan.refused.iter().chain(&plan.repeated);
    granted.chain(others.copied())
}

fn members(group: &Group) -> Vec<u8> {
    let planned = group.plan.iter().flat_map(claims_of);
    group.claims.iter().copied().chain(planned).collect()
}

fn take_group(state: &mut State, instance: u8, account: u8) -> Option<Group> {
    state.instances[usize::from(instance)].groups[usize::from(account)].take()
}

/// Puts a group back, unless nobody is left in it.
fn put_group(state: &mut State, instance: u8, account: u8, group: Group) {
    let is_left = group.plan.is_some() || !group.claims.is_empty();
    state.instances[usize::from(instance)].groups[usize::from(account)] = is_left.then_some(group);
}
