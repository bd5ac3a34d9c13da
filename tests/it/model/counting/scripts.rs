//! The scripts that count, settle and record: `count.lua`, `settle.lua`, `record.lua`.

use super::{ClaimId, Counter, Counting, Entry, Record, State};

/// What the script that counts answers.
pub enum Answer {
    Granted,
    Queued(ClaimId),
    Denied,
    Ask,
    Waits,
}

impl Counting {
    pub fn key(&self, claim: ClaimId) -> Option<u8> {
        self.claims[usize::from(claim)]
    }

    pub fn has_key_of(&self, claim: ClaimId, other: ClaimId) -> bool {
        self.key(claim).is_some() && self.key(claim) == self.key(other)
    }

    /// The entry of a queued grant: it bears its id, or its key.
    pub fn standing(&self, state: &State, claim: ClaimId) -> Option<u8> {
        let is_it = |entry: &Entry| {
            entry.was_counted && entry.claim == claim || self.has_key_of(entry.claim, claim)
        };
        let place = state.ledger.iter().position(is_it);
        place.map(|place| u8::try_from(place + 1).expect("few entries"))
    }

    /// The script `count.lua`. `number` is the ledger's last, if it was asked.
    pub fn count(&self, state: &mut State, claim: ClaimId, number: Option<u8>) -> Answer {
        let waits = |other: &&ClaimId| **other == claim || self.has_key_of(**other, claim);
        if let Some(queued) = state.queue.iter().find(waits) {
            return Answer::Queued(*queued);
        }
        if self.protocol.remembers_ids && state.recorded.contains(&claim) {
            return Answer::Queued(claim);
        }
        let has_key = |counter: &Counter, key: u8| counter.keys & (1 << key) != 0;
        let used = match (state.counter, number) {
            (Some(counter), _) if self.key(claim).is_some_and(|key| has_key(&counter, key)) => {
                return Answer::Ask;
            }
            (None, None) if state.is_new => 0,
            (None, None) => return Answer::Ask,
            (Some(counter), None) => {
                if self.key(claim).is_some() && !counter.holds_all_keys {
                    return Answer::Ask;
                }
                counter.number
            }
            (Some(counter), Some(number)) if counter.number > number => return Answer::Ask,
            (_, Some(number)) => number,
        };
        if used.saturating_add_signed(state.pending) >= self.max {
            return match state.pending > 0 && self.protocol.waits_before_denial {
                true => Answer::Waits,
                false => Answer::Denied,
            };
        }
        state.queue.push(claim);
        state.pending += 1;
        state.is_new |= number == Some(0);
        Answer::Granted
    }

    /// The script `settle.lua`, or the part of it in `record.lua`.
    pub fn settle(&self, state: &mut State, record: &Record) {
        if state
            .counter
            .is_some_and(|counter| counter.number > record.number)
        {
            return;
        }
        let goes_on = state.counter.filter(|counter| {
            let numbers = [record.number, record.after];
            counter.holds_all_keys && numbers.contains(&counter.number)
        });
        state.counter = Some(Counter {
            number: record.number,
            holds_all_keys: record.after == 0 || goes_on.is_some(),
            keys: record.keys | goes_on.map_or(0, |counter| counter.keys),
        });
    }

    /// The script `record.lua`.
    pub fn record(&self, state: &mut State, record: &Record) {
        for claim in &record.taken {
            let place = state.queue.iter().position(|queued| queued == claim);
            if let Some(place) = place {
                state.recorded.push(state.queue.remove(place));
                state.recorded.sort_unstable();
                state.is_new = false;
            }
            if place.is_some() || !self.protocol.lowers_what_was_queued {
                state.pending -= 1;
            }
        }
        self.settle(state, record);
    }

    pub fn keys(&self, claims: &[ClaimId]) -> u8 {
        let keys = claims.iter().filter_map(|claim| self.key(*claim));
        keys.fold(0, |keys, key| keys | 1 << key)
    }
}
