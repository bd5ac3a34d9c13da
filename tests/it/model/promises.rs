//! The promises, each checked where it could be broken.

use perdiem::domain::window::Window;

use super::perdiem::Perdiem;
use super::rule::{LineId, Question, Said, instant};
use super::world::{Claim, Counter, Entry, Kind, Outcome, Request, Stage, State};

impl Perdiem {
    /// Looks at the entry that was just appended, with sums of its own.
    pub fn check_entry(&self, state: &State) -> Result<(), String> {
        let (entry, before) = state.ledger.split_last().expect("an entry");
        let facts = self.rule.facts(entry.line);
        let totals = self.rule.totals(entry.line);
        let is_grant = entry.kind.of().is_none();
        self.check_holds(state, entry, before)?;
        for total in &totals {
            let sum = self.sum(state, entry.account, u8::MAX, total.window);
            promise(!is_grant || sum <= total.max, || {
                format!("never over: {sum} of {} a {}", total.max, total.per)
            })?;
            promise(total.used == sum, || {
                format!(
                    "totals are sums: a {} says {}, and holds {sum}",
                    total.per, total.used
                )
            })?;
            promise(total.window.contains(instant(facts.at)), || {
                "an entry lies in its windows".to_owned()
            })?;
        }
        let maxima: Vec<u64> = totals.iter().map(|total| total.max).collect();
        promise(maxima == self.rule.maxima(facts.version), || {
            "an entry has its version's limits".to_owned()
        })?;
        let last = before
            .iter()
            .rev()
            .find(|other| other.account == entry.account);
        let last = self.rule.facts(last.map_or(LineId::NONE, |last| last.line));
        promise(facts.number == last.number + 1, || {
            format!(
                "numbers without gaps or forks: {} after {}",
                facts.number, last.number
            )
        })?;
        promise(last.number == 0 || facts.at >= last.at, || {
            "time never runs backwards in an account".to_owned()
        })?;
        promise(facts.version >= last.version, || {
            "versions never run backwards in an account".to_owned()
        })?;
        promise(!before.iter().any(|other| is_one_key(entry, other)), || {
            "a key has one entry".to_owned()
        })?;
        if let Some(claim) = entry.claim {
            promise(
                before.iter().all(|other| other.claim != Some(claim)),
                || "a claim has one entry".to_owned(),
            )?;
            let stage = state.claims[usize::from(claim)].stage;
            promise(stage != Stage::Ended(Outcome::Refused), || {
                "a denied claim takes nothing: its entry came".to_owned()
            })?;
        }
        Ok(())
    }

    /// Looks at what the entry that was just appended makes of holds.
    fn check_holds(&self, state: &State, entry: &Entry, before: &[Entry]) -> Result<(), String> {
        let facts = self.rule.facts(entry.line);
        let was = |what: &dyn Fn(Kind) -> bool| before.iter().any(|other| what(other.kind));
        let until = entry.kind.of().map(|of| self.held_until(state, of));
        let kind = entry.kind;
        match (kind, until.flatten()) {
            (Kind::Grant | Kind::Hold, _) => {}
            (Kind::Confirmation(of), until) => {
                let is_late = until.is_none_or(|until| until <= facts.at);
                promise(!is_late && !was(&|other| other.gives_back(of)), || {
                    "a hold is confirmed in time or never".to_owned()
                })?;
                promise(!was(&|other| other.excludes(kind)), || {
                    "a hold is confirmed once".to_owned()
                })?;
            }
            (Kind::Reversal(of), _) => promise(!was(&|other| other.gives_back(of)), || {
                "a grant is given back once".to_owned()
            })?,
            (Kind::Lapse(of), until) => {
                let is_early = until.is_none_or(|until| until > facts.at);
                let was_confirmed = was(&|other| other == Kind::Confirmation(of));
                promise(!is_early && !was_confirmed, || {
                    "what was confirmed never lapses, nor what is held".to_owned()
                })?;
                promise(!was(&|other| other.gives_back(of)), || {
                    "a grant is given back once".to_owned()
                })?;
            }
        }
        let open = self.open_holds(state, entry.account, facts.number);
        let first = open.first().map(|(_, until)| *until);
        let is_told = first.is_none_or(|first| facts.lapses_at.is_some_and(|told| told <= first));
        promise(is_told, || {
            "a line tells when its first hold lapses".to_owned()
        })?;
        let is_lapse = matches!(kind, Kind::Lapse(_));
        promise(
            is_lapse || first.is_none_or(|first| facts.at < first),
            || "holds lapse before the next decision".to_owned(),
        )
    }

    /// Looks at a denial by a counter alone.
    pub fn check_denial(
        &self,
        state: &State,
        index: u8,
        counter: &Counter,
        now: i32,
    ) -> Result<(), String> {
        let claim = &state.claims[usize::from(index)];
        let account = self.request(claim.request).account;
        let number = self.rule.number(counter.line);
        let at = self.instant_after(counter.line, now);
        let open = self.open_holds(state, account, number);
        promise(open.iter().all(|(_, until)| *until > at), || {
            "what lapsed takes nothing: a claim was refused for it".to_owned()
        })?;
        promise(state.may_lag || number >= claim.heard, || {
            "what was given back can be claimed at once".to_owned()
        })
    }

    /// The highest number among an account's corrections that were answered as made.
    pub fn heard(&self, state: &State, account: u8) -> u8 {
        let answered = state.ledger.iter().filter(|entry| {
            let stage = entry
                .claim
                .map(|claim| state.claims[usize::from(claim)].stage);
            entry.account == account
                && entry.kind.of().is_some()
                && stage == Some(Stage::Ended(Outcome::Granted))
        });
        answered
            .map(|entry| self.rule.number(entry.line))
            .max()
            .unwrap_or_default()
    }

    /// Looks at the answer that a claim is granted, with this entry.
    pub fn check_grant(&self, state: &State, entry: &Entry) -> Result<(), String> {
        let standing = state.ledger.iter().filter(|other| *other == entry).count();
        promise(standing == 1, || {
            "an acknowledged grant is in the ledger, exactly once".to_owned()
        })
    }

    /// Looks at the answer that a claim was refused under a version, at an instant.
    pub fn check_refusal(
        &self,
        state: &State,
        index: u8,
        version: u8,
        now: i32,
    ) -> Result<(), String> {
        let claim = &state.claims[usize::from(index)];
        let request = self.request(claim.request);
        promise(!claim.stood, || {
            "a retry gets its grant: it was refused".to_owned()
        })?;
        promise(
            state.ledger.iter().all(|entry| entry.claim != Some(index)),
            || "a denied claim takes nothing: its entry stands".to_owned(),
        )?;
        promise(version >= claim.oldest, || {
            format!(
                "a change holds within a second: refused under version {version}, and {} held",
                claim.oldest
            )
        })?;
        if request.wants.is_correction() {
            return Ok(());
        }
        // Without give-backs a window only fills: what fits now fitted all along. And with nothing
        // else under way, where no counter lags, nothing can have come between.
        let is_alone = !state.may_lag && claim.request >= self.probe(0);
        let is_exact = is_alone || !self.has_give_backs();
        promise(
            !is_exact || !self.fits(state, &request, version, now),
            || "a claim that fits is granted: it was refused".to_owned(),
        )
    }

    /// Whether a claim would be granted at an instant on the ledger as it stands. False where
    /// the account has a later entry, which would move the claim into its windows.
    fn fits(&self, state: &State, request: &Request, version: u8, now: i32) -> bool {
        let last = self.last_line(state, request.account);
        let question = Question {
            version,
            units: request.units,
            last: self.after_lapses(state, request.account, version, now),
            now,
        };
        let question = self.without_lapses(question);
        let sum = |window: Window| self.sum(state, request.account, u8::MAX, window);
        let is_later = last != LineId::NONE && self.rule.facts(last).at > now;
        !is_later && matches!(self.rule.decide(question, sum), Said::Granted(_))
    }

    /// Looks at a counter that was just settled.
    pub fn check_counter(
        &self,
        state: &State,
        account: u8,
        counter: &Counter,
    ) -> Result<(), String> {
        if self.scene.most.tamperings > 0 {
            return Ok(());
        }
        let mut entries = state.ledger.iter().filter(|entry| entry.account == account);
        promise(entries.any(|entry| entry.line == counter.line), || {
            "counters follow the ledger: a line that it does not have".to_owned()
        })?;
        let number = self.rule.number(counter.line);
        let keys = self.keys_up_to(state, account, number);
        promise(
            !counter.holds_all_keys || counter.keys.has_all(keys),
            || "a counter that says so holds all keys".to_owned(),
        )
    }

    /// With nothing under way: counters are what the ledger says, and what fits is granted.
    pub fn check_rest(&self, state: &State) -> Result<(), String> {
        for account in 0..self.accounts() {
            let last = self.last_line(state, account);
            let counter = state.redis[usize::from(account)];
            promise(
                state.may_lag
                    || !self.protocol.settles_in_order
                    || counter.is_none_or(|counter| counter.line == last),
                || "counters follow the ledger: one lags, and nothing was lost".to_owned(),
            )?;
            for instance in 0..state.instances.len() {
                self.check_living(state, account, u8::try_from(instance).expect("few"))?;
            }
        }
        Ok(())
    }

    /// One more unit is granted if it fits, with nobody else about.
    fn check_living(&self, state: &State, account: u8, instance: u8) -> Result<(), String> {
        let mut state = state.clone();
        state.drafts.clear();
        let index = u8::try_from(state.claims.len()).expect("few claims");
        state.claims.push(Claim::of(self.probe(account)));
        self.send(&mut state, index, instance, self.scene.has_redis)?;
        if state.claims[usize::from(index)].stage == Stage::Asking {
            self.ask(&mut state, index)?;
        }
        let claim = state.claims[usize::from(index)];
        if claim.stage == Stage::Ended(Outcome::Refused) {
            return Ok(());
        }
        self.begin(&mut state, instance, account)?;
        for _ in 0..9 {
            let group = &state.instances[usize::from(instance)].groups[usize::from(account)];
            match group {
                None => break,
                Some(group) if group.looked.is_some() => {
                    self.decide(&mut state, instance, account)?;
                }
                Some(_) if state.drafts.is_empty() => self.begin(&mut state, instance, account)?,
                Some(_) => {
                    self.append(&mut state, 0)?;
                    self.receive(&mut state, 0)?;
                }
            }
        }
        promise(
            matches!(state.claims[usize::from(index)].stage, Stage::Ended(_)),
            || "what is under way comes to an end".to_owned(),
        )
    }
}

/// Whether two entries bear one key.
fn is_one_key(one: &Entry, other: &Entry) -> bool {
    one.key.is_some() && one.key == other.key
}

fn promise(is_kept: bool, what: impl Fn() -> String) -> Result<(), String> {
    match is_kept {
        true => Ok(()),
        false => Err(what()),
    }
}
