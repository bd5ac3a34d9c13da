//! A claim's first steps, as in `src/engine/claim/begin.rs` and `src/engine/claim/ask.rs`.

use super::perdiem::Perdiem;
use super::rule::{LineId, Question, Said};
use super::world::{Asked, Claim, Counter, KeyedDenial, Outcome, Stage, State};

/// A counter may deny for so many seconds after the ledger confirmed it.
const CONFIRMED_SECONDS: i32 = 3;

impl Perdiem {
    /// A client sends a claim to an instance.
    pub fn send(
        &self,
        state: &mut State,
        index: u8,
        instance: u8,
        asks: bool,
    ) -> Result<(), String> {
        let request = state.claims[usize::from(index)].request;
        let wanted = self.request(request);
        let knows = &state.instances[usize::from(instance)];
        let claim = Claim {
            request,
            instance,
            was_sent: false,
            stage: if asks { Stage::Asking } else { Stage::Waiting },
            version: knows.version,
            asked: Asked::default(),
            stood: self.grant_of(state, request).is_some(),
            oldest: state.binding.max(knows.version),
            heard: self.heard(state, wanted.account),
        };
        let is_fresh = knows.is_fresh;
        state.claims[usize::from(index)] = claim;
        // What no ledger could change is answered at once.
        let maxima = self.rule.maxima(claim.version);
        let never_fits = maxima.iter().any(|max| u64::from(wanted.units) > *max);
        let may_refuse = is_fresh || !self.protocol.refuses_when_fresh;
        let is_plain = wanted.key.is_none() && !wanted.wants.is_correction();
        if is_plain && never_fits && may_refuse {
            return self.refuse(state, index, claim.version, self.now(state, instance));
        }
        Ok(())
    }

    /// The counter is read, and the rule decides on its line.
    pub fn ask(&self, state: &mut State, index: u8) -> Result<(), String> {
        let request = self.request(state.claims[usize::from(index)].request);
        let claim = state.claims[usize::from(index)];
        let instance = &state.instances[usize::from(claim.instance)];
        let version = match self.protocol.renews_policies {
            true => claim.version.max(instance.version),
            false => claim.version,
        };
        let seen = self.seen_redis(state, claim.instance)[usize::from(request.account)];
        let asked = &mut state.claims[usize::from(index)];
        asked.stage = Stage::Waiting;
        asked.version = version;
        let Some(counter) = seen else {
            asked.asked = Asked {
                seen: None,
                hint: Some(LineId::NONE),
                wants_keys: request.key.is_some(),
            };
            return Ok(());
        };
        asked.asked = Asked {
            seen: Some(self.rule.number(counter.line)),
            hint: None,
            wants_keys: request.key.is_some() && !counter.holds_all_keys,
        };
        let knows_key = request.key.is_some_and(|key| counter.keys.contains(key));
        let now = self.now(state, claim.instance);
        let question = Question {
            version,
            units: request.units,
            last: counter.line,
            now,
        };
        let said = match self.protocol.heeds_lapses {
            true => self.rule.decide_on_line(question),
            false => self.rule.decide_on_line(self.without_lapses(question)),
        };
        match said {
            Some(Said::Denied) if self.may_deny(state, index, &counter) => {
                self.check_denial(state, index, &counter, now)?;
                self.refuse(state, index, version, now)
            }
            Some(Said::Granted(_)) if !knows_key => {
                state.claims[usize::from(index)].asked.hint = Some(counter.line);
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a counter's denial stands without the ledger's word.
    fn may_deny(&self, state: &State, index: u8, counter: &Counter) -> bool {
        let claim = &state.claims[usize::from(index)];
        let request = self.request(claim.request);
        let now = self.now(state, claim.instance);
        let is_fresh = state.instances[usize::from(claim.instance)].is_fresh;
        let is_confirmed = (now - counter.confirmed_at).abs() <= CONFIRMED_SECONDS;
        let cannot_be_a_retry = request.key.is_none_or(|key| {
            let is_new = !counter.keys.contains(key);
            let is_of_version = self.rule.facts(counter.line).version == claim.version;
            match self.protocol.keyed_denial {
                KeyedDenial::WithoutAllKeys => is_new && is_of_version,
                KeyedDenial::WithAllKeys => is_new && is_of_version && counter.holds_all_keys,
                KeyedDenial::AnyVersion => is_new && counter.holds_all_keys,
                KeyedDenial::Probed => !state.ledger.iter().any(|entry| entry.key == Some(key)),
            }
        });
        is_confirmed && cannot_be_a_retry && is_fresh
    }

    /// Answers a claim that it was refused under a version, at an instant.
    pub fn refuse(
        &self,
        state: &mut State,
        index: u8,
        version: u8,
        now: i32,
    ) -> Result<(), String> {
        self.check_refusal(state, index, version, now)?;
        end(state, index, Outcome::Refused);
        Ok(())
    }
}

/// Ends a claim. What is no longer of interest is forgotten, so that states are fewer.
pub fn end(state: &mut State, index: u8, outcome: Outcome) {
    let claim = &mut state.claims[usize::from(index)];
    *claim = Claim::of(claim.request);
    claim.stage = Stage::Ended(outcome);
}
