//! Steps and states in words.

use super::perdiem::Perdiem;
use super::rule::LineId;
use super::world::{Action, Counter, Counters, Entry, Kind, Outcome, Stage, State, Wants};

impl Perdiem {
    /// A step.
    pub fn tell_step(&self, state: &State, action: Action) -> String {
        let whose = |draft: u8| match state.drafts[usize::from(draft)].waits {
            Some(instance) => format!("{}'s draft", name(instance)),
            None => "a draft that nobody waits for".to_owned(),
        };
        let settled = |settlement: u8| {
            let settlement = &state.settlements[usize::from(settlement)];
            format!(
                "{}'s settlement of {}",
                name(settlement.instance),
                self.line(settlement.line)
            )
        };
        match action {
            Action::Send {
                claim,
                instance,
                asks,
            } => {
                let past = if asks || !self.scene.has_redis {
                    ""
                } else {
                    ", past Redis"
                };
                format!(
                    "{} goes to {}{past}",
                    self.claim(state, claim),
                    name(instance)
                )
            }
            Action::Ask { claim } => {
                let instance = state.claims[usize::from(claim)].instance;
                format!("{} asks the counter of claim {claim}", name(instance))
            }
            Action::Begin { instance, account } => format!(
                "{} takes what waits for account {account}: it decides on a hint, or reads the \
                 last line",
                name(instance)
            ),
            Action::Decide { instance, account } => format!(
                "{} reads the entries of account {account}'s claims, and decides",
                name(instance)
            ),
            Action::Append { draft } => format!("the ledger gets {}", whose(draft)),
            Action::Answer { draft } => format!("the ledger's word on {} arrives", whose(draft)),
            Action::Settle {
                settlement,
                repeats: false,
            } => {
                format!("{} arrives", settled(settlement))
            }
            Action::Settle {
                settlement,
                repeats: true,
            } => {
                format!("{} arrives, and will once more", settled(settlement))
            }
            Action::Lose { settlement } => format!("{} is lost", settled(settlement)),
            Action::Refresh { instance } => format!("{} reads the policies", name(instance)),
            Action::TimeOut { draft } => format!("nobody waits longer for {}", whose(draft)),
            Action::GiveUp { instance, account } => {
                format!("{} gives up account {account}'s claims", name(instance))
            }
            Action::Crash { instance } => format!("{} crashes, and starts", name(instance)),
            Action::Forget { account } => format!("Redis loses account {account}'s counter"),
            Action::Snapshot => "Redis takes a snapshot".to_owned(),
            Action::RollBack => "Redis goes back to its snapshot".to_owned(),
            Action::Split { instance } => {
                format!(
                    "a replica is promoted; {} stays at the old primary",
                    name(instance)
                )
            }
            Action::Join => "all see the new primary".to_owned(),
            Action::Tamper {
                account,
                hides_holds,
            } => {
                let what = match hides_holds {
                    true => "there are no holds",
                    false => "nothing is used",
                };
                format!("account {account}'s counter is overwritten: {what}")
            }
            Action::Change { instance } => {
                format!(
                    "{} makes version {} of the policy",
                    name(instance),
                    state.newest + 1
                )
            }
            Action::Tick => {
                let next = self.scene.instants[usize::from(state.time) + 1];
                format!("it is {next} s after midnight")
            }
        }
    }

    /// What stands in the ledger and in Redis, and what was answered.
    pub fn show_state(&self, state: &State) -> String {
        let entries: Vec<String> = state.ledger.iter().map(|entry| self.entry(entry)).collect();
        let mut text = format!("ledger [{}]", entries.join("; "));
        if self.scene.has_redis {
            text += &format!(" redis [{}]", self.counters(&state.redis));
        }
        if let Some(old) = &state.old_redis {
            text += &format!(" old redis [{}]", self.counters(old));
        }
        let ended = state
            .claims
            .iter()
            .enumerate()
            .filter_map(|(index, claim)| {
                let Stage::Ended(outcome) = claim.stage else {
                    return None;
                };
                let word = match outcome {
                    Outcome::Granted => "granted",
                    Outcome::Replayed => "granted before",
                    Outcome::KeyReused => "key reused",
                    Outcome::Refused => "refused",
                    Outcome::Unknown => "unknown",
                };
                Some(format!("{index} {word}"))
            });
        text + &format!(" answers [{}]", ended.collect::<Vec<_>>().join("; "))
    }

    fn claim(&self, state: &State, index: u8) -> String {
        let request = self.request(state.claims[usize::from(index)].request);
        let key = request
            .key
            .map_or(String::new(), |key| format!(", key {key}"));
        let what = match request.wants {
            Wants::Grant => format!("{} of account {}{key}", request.units, request.account),
            Wants::Hold => format!("hold {} of account {}{key}", request.units, request.account),
            Wants::Reversal(of) => format!("reverse what request {of} was granted"),
            Wants::Confirmation(of) => format!("confirm what request {of} was granted"),
        };
        format!("claim {index} ({what})")
    }

    fn entry(&self, entry: &Entry) -> String {
        let key = entry.key.map_or(String::new(), |key| format!(" key {key}"));
        let what = match (entry.kind, entry.claim) {
            (Kind::Grant, Some(claim)) => format!("claim {claim}{key}"),
            (Kind::Hold, Some(claim)) => format!("hold, claim {claim}{key}"),
            (Kind::Reversal(of), Some(claim)) => format!("reverses {of}, claim {claim}"),
            (Kind::Confirmation(of), Some(claim)) => format!("confirms {of}, claim {claim}"),
            (Kind::Lapse(of), _) => format!("{of} lapses"),
            (_, None) => "nobody's".to_owned(),
        };
        format!(
            "{} of account {}: {what}",
            self.line(entry.line),
            entry.account
        )
    }

    fn counters(&self, counters: &Counters) -> String {
        let shown = counters.iter().zip(0..).filter_map(|(counter, account)| {
            let Counter {
                line,
                confirmed_at,
                holds_all_keys,
                keys,
            } = (*counter)?;
            let keys: Vec<String> = (0..32)
                .filter(|key| keys.contains(*key))
                .map(|key| key.to_string())
                .collect();
            let all = if holds_all_keys {
                "all keys"
            } else {
                "some keys"
            };
            Some(format!(
                "{} of account {account}, confirmed at {confirmed_at} s, {all}: {}",
                self.line(line),
                keys.join(" ")
            ))
        });
        shown.collect::<Vec<_>>().join("; ")
    }

    fn line(&self, line: LineId) -> String {
        let facts = self.rule.facts(line);
        let totals = self.rule.totals(line);
        let totals: Vec<String> = totals
            .iter()
            .map(|total| format!("{} of {} a {}", total.used, total.max, total.per))
            .collect();
        let totals = totals.join(", ");
        let lapses = facts.lapses_at.map(|at| format!(", lapses at {at} s"));
        format!(
            "#{} at {} s under v{} ({totals}{})",
            facts.number,
            facts.at,
            facts.version,
            lapses.unwrap_or_default()
        )
    }
}

fn name(instance: u8) -> String {
    format!("instance {}", char::from(b'A' + instance))
}
