//! The counters, as in `src/engine/claim/settle.rs` and `src/counter/lua/settle.lua`; and what
//! befalls a Redis.

use super::claiming::end;
use super::perdiem::Perdiem;
use super::rule::LineId;
use super::world::{Claims, Counter, Counters, Keys, Outcome, Plan, Settlement, State};

/// In seconds after midnight.
const LONG_AGO: i32 = -1000;

impl Perdiem {
    /// Queues what a plan that stands makes of its account's counter, if it makes anything.
    pub fn settle_plan(&self, state: &mut State, instance: u8, account: u8, plan: &Plan) -> bool {
        let line = plan.entries.last().map_or(plan.after, |entry| entry.line);
        if !self.scene.has_redis || line == LineId::NONE {
            return false;
        }
        if plan.entries.is_empty() && !plan.denies {
            return false;
        }
        let mut keys = Keys::default();
        for key in plan.entries.iter().filter_map(|entry| entry.key) {
            keys.insert(key);
        }
        let mut answers = Claims::default();
        let entered = plan.entries.iter().filter_map(|entry| entry.claim);
        for index in entered.clone() {
            let request = self.request(state.claims[usize::from(index)].request);
            if self.protocol.answers_after_settlement && request.wants.is_correction() {
                answers.insert(index);
            }
        }
        let others = plan.refused.iter().chain(&plan.repeated);
        let claims = entered.chain(others.copied());
        let asked = claims.map(|index| state.claims[usize::from(index)].asked);
        let seen = asked.clone().filter_map(|asked| asked.seen).max();
        let wants_keys = asked.clone().any(|asked| asked.wants_keys);
        let mut settlement = Settlement {
            instance,
            account,
            line,
            confirmed_at: self.now(state, instance),
            seen,
            after: Some(plan.after).filter(|after| *after != LineId::NONE),
            keys,
            answers,
        };
        if wants_keys && settlement.after.is_some() {
            settlement.after = None;
            settlement.keys = self.keys_up_to(state, account, u8::MAX);
        }
        state.settlements.push(settlement);
        state.settlements.sort_unstable();
        true
    }

    /// A settlement arrives at the Redis that its instance sees.
    pub fn settle(&self, state: &mut State, index: u8, repeats: bool) -> Result<(), String> {
        let settlement = state.settlements.remove(usize::from(index));
        if repeats {
            state.left.repeats -= 1;
            state.settlements.push(Settlement {
                answers: Claims::default(),
                ..settlement
            });
            state.settlements.sort_unstable();
        }
        let account = usize::from(settlement.account);
        let is_old = state.instances[usize::from(settlement.instance)].sees_old_redis;
        let redis = match &mut state.old_redis {
            Some(old) if is_old => old,
            Some(_) | None => &mut state.redis,
        };
        let counter = self.script(redis[account], &settlement);
        redis[account] = Some(counter);
        end_corrections(state, &settlement);
        self.check_counter(state, settlement.account, &counter)
    }

    /// The script `settle.lua`.
    fn script(&self, before: Option<Counter>, settlement: &Settlement) -> Counter {
        let number = self.rule.number(settlement.line);
        if let Some(before) = before {
            let current = self.rule.number(before.line);
            if self.protocol.settles_in_order
                && current > number
                && Some(current) != settlement.seen
            {
                return before;
            }
        }
        let is_line = |before: &Counter, line: LineId| match self.protocol.compares_numbers {
            true => before.line == line,
            false => self.rule.have_one_text(before.line, line),
        };
        let goes_on = before.filter(|before| {
            let after = settlement.after.is_some_and(|after| is_line(before, after));
            before.holds_all_keys && (is_line(before, settlement.line) || after)
        });
        let keys = match (settlement.after, goes_on) {
            (None, _) => Some(settlement.keys),
            (Some(_), Some(before)) => Some(before.keys.with(settlement.keys)),
            (Some(_), None) => None,
        };
        Counter {
            line: settlement.line,
            confirmed_at: settlement.confirmed_at,
            holds_all_keys: keys.is_some(),
            keys: keys.unwrap_or_default(),
        }
    }

    /// The keys that an account's entries bear up to a number.
    pub fn keys_up_to(&self, state: &State, account: u8, number: u8) -> Keys {
        let mut keys = Keys::default();
        for entry in &state.ledger {
            let is_older = self.rule.number(entry.line) <= number;
            if let Some(key) = entry.key.filter(|_| entry.account == account && is_older) {
                keys.insert(key);
            }
        }
        keys
    }

    /// The Redis that an instance sees.
    pub fn seen_redis<'a>(&self, state: &'a State, instance: u8) -> &'a Counters {
        match &state.old_redis {
            Some(old) if state.instances[usize::from(instance)].sees_old_redis => old,
            Some(_) | None => &state.redis,
        }
    }
}

/// A settlement does not arrive.
pub fn lose(state: &mut State, index: u8) {
    state.left.losses -= 1;
    let settlement = state.settlements.remove(usize::from(index));
    end_corrections(state, &settlement);
    state.may_lag = true;
}

/// The corrections are answered that waited for a settlement.
fn end_corrections(state: &mut State, settlement: &Settlement) {
    for claim in settlement.answers.iter() {
        end(state, claim, Outcome::Granted);
    }
}

/// A counter is gone.
pub fn forget(state: &mut State, account: u8) {
    state.left.redis_faults -= 1;
    state.redis[usize::from(account)] = None;
    state.may_lag = true;
}

/// What Redis holds is kept, for a roll-back to come.
pub fn snapshot(state: &mut State) {
    state.left.redis_faults -= 1;
    state.snapshot = Some(state.redis.clone());
}

/// Redis holds again what it held once.
pub fn roll_back(state: &mut State) {
    if let Some(snapshot) = state.snapshot.take() {
        state.redis = snapshot;
        state.may_lag = true;
    }
}

/// A replica is promoted, and an instance goes on with the old primary.
pub fn split(state: &mut State, instance: u8) {
    state.left.redis_faults -= 1;
    state.old_redis = Some(state.redis.clone());
    state.instances[usize::from(instance)].sees_old_redis = true;
    state.may_lag = true;
}

/// Everybody sees the primary again.
pub fn join(state: &mut State) {
    state.old_redis = None;
    for instance in &mut state.instances {
        instance.sees_old_redis = false;
    }
}

impl Perdiem {
    /// A counter is overwritten with a line that has nothing used; or with one that nobody
    /// confirmed, and that has no holds.
    pub fn tamper(&self, state: &mut State, account: u8, hides_holds: bool) {
        state.left.tamperings -= 1;
        state.may_lag = true;
        let Some(counter) = &mut state.redis[usize::from(account)] else {
            return;
        };
        match hides_holds {
            false => counter.line = self.rule.with_nothing_used(counter.line),
            true => {
                counter.line = self.rule.with_lapses_at(counter.line, None);
                counter.confirmed_at = LONG_AGO;
            }
        }
    }
}
