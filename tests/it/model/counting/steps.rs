//! The steps, and the promises, each checked where it could be broken.

use super::scripts::Answer;
use super::{Action, Batch, ClaimId, Counting, Drain, Entry, Late, Record, Reply, Stage, State};

impl Counting {
    /// What becomes of the grants that were read off the queue.
    fn batch(&self, state: &State, read: &[ClaimId], last: u8) -> Batch {
        let mut batch = Batch {
            after: last,
            entries: Vec::new(),
            record: Record {
                taken: Vec::new(),
                number: last,
                after: last,
                keys: 0,
            },
        };
        for claim in read {
            match self.standing(state, *claim) {
                Some(number) if self.protocol.looks_before_append => {
                    if self.protocol.takes_what_its_line_counts && number > last {
                        break;
                    }
                }
                Some(_) | None => batch.entries.push(*claim),
            }
            batch.record.taken.push(*claim);
        }
        if !batch.entries.is_empty() {
            batch.record.number = last + u8::try_from(batch.entries.len()).expect("few");
            batch.record.after = last;
            batch.record.keys = self.keys(&batch.entries);
        }
        batch
    }

    /// The ledger appends a batch, if its last number is the assumed one and the keys are free.
    fn append(&self, state: &mut State, batch: &Batch) -> Result<bool, String> {
        let mut entries = state.ledger.iter();
        let is_taken = entries.any(|entry| {
            batch
                .entries
                .iter()
                .any(|claim| self.has_key_of(entry.claim, *claim))
        });
        if state.ledger.len() != usize::from(batch.after) || is_taken {
            return Ok(false);
        }
        for claim in &batch.entries {
            self.enter(
                state,
                Entry {
                    claim: *claim,
                    was_counted: true,
                },
            )?;
        }
        Ok(true)
    }

    fn enter(&self, state: &mut State, entry: Entry) -> Result<(), String> {
        if state.ledger.iter().any(|other| other.claim == entry.claim) {
            return Err("a claim has one entry".to_owned());
        }
        state.ledger.push(entry);
        if state.claims[usize::from(entry.claim)] == Stage::Denied {
            return Err("a denied claim takes nothing: its entry came".to_owned());
        }
        Ok(())
    }

    /// The ledger decides a claim alone, and its settlement follows at once.
    fn append_claim(&self, state: &mut State, claim: ClaimId) -> Result<(), String> {
        let standing = state
            .ledger
            .iter()
            .find(|entry| self.has_key_of(entry.claim, claim));
        let stage = match standing {
            Some(entry) => Stage::Granted(*entry),
            None if state.ledger.len() >= usize::from(self.max) => Stage::Denied,
            None => {
                let entry = Entry {
                    claim,
                    was_counted: false,
                };
                let after = u8::try_from(state.ledger.len()).expect("few entries");
                self.enter(state, entry)?;
                let keys = self.keys(&[claim]);
                self.settle(
                    state,
                    &Record {
                        taken: Vec::new(),
                        number: after + 1,
                        after,
                        keys,
                    },
                );
                Stage::Granted(entry)
            }
        };
        self.end(state, claim, stage)
    }

    /// Answers a claim.
    fn end(&self, state: &mut State, claim: ClaimId, stage: Stage) -> Result<(), String> {
        state.claims[usize::from(claim)] = stage;
        match stage {
            Stage::Granted(entry) => {
                for (stage, other) in state.claims.iter().zip(0..) {
                    if let Stage::Granted(before) = stage
                        && self.has_key_of(other, claim)
                        && *before != entry
                        && !state.was_mixed
                    {
                        return Err("the same key gets the same grant".to_owned());
                    }
                }
                self.check_room(state)
            }
            Stage::Denied if self.is_granted(state, claim) => {
                Err("a denied claim takes nothing: its grant waits or stands".to_owned())
            }
            Stage::Denied if self.granted(state) < usize::from(self.max) && !state.was_mixed => {
                Err("a claim that fits is granted: it was refused".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn is_granted(&self, state: &State, claim: ClaimId) -> bool {
        state.queue.contains(&claim) || state.ledger.iter().any(|entry| entry.claim == claim)
    }

    /// All that was granted fits, as long as nothing but Redis decides.
    fn check_room(&self, state: &State) -> Result<(), String> {
        match self.granted(state) <= usize::from(self.max) || state.was_mixed {
            true => Ok(()),
            false => Err(format!(
                "never over: {} of {}",
                self.granted(state),
                self.max
            )),
        }
    }

    /// How many grants stand or wait.
    fn granted(&self, state: &State) -> usize {
        let waiting = state
            .queue
            .iter()
            .filter(|claim| self.standing(state, **claim).is_none());
        state.ledger.len() + waiting.count()
    }

    fn after_count(
        &self,
        state: &mut State,
        claim: ClaimId,
        answer: Answer,
        was_asked: bool,
    ) -> Result<(), String> {
        let stage = match answer {
            Answer::Granted => Stage::Granted(Entry {
                claim,
                was_counted: true,
            }),
            Answer::Queued(claim) => Stage::Granted(Entry {
                claim,
                was_counted: true,
            }),
            Answer::Denied => Stage::Denied,
            Answer::Ask if was_asked && !self.protocol.asks_again => Stage::Appending,
            Answer::Ask => Stage::Looking,
            Answer::Waits => Stage::Asking,
        };
        self.end(state, claim, stage)
    }

    pub fn step(&self, state: &mut State, action: Action) -> Result<(), String> {
        match action {
            Action::Send(claim) => {
                state.claims[usize::from(claim)] = Stage::Asking;
            }
            Action::Count(claim, reply) => {
                let number = match state.claims[usize::from(claim)] {
                    Stage::Recounting(number) => Some(number),
                    _ => None,
                };
                match reply {
                    Reply::Arrives => {
                        let answer = self.count(state, claim, number);
                        return self.after_count(state, claim, answer, number.is_some());
                    }
                    Reply::IsRepeated => {
                        state.left.repeats -= 1;
                        self.count(state, claim, number);
                    }
                    Reply::IsLost => {
                        state.left.silences -= 1;
                        state.late.push(Late::Count(claim, number));
                        let stage = &mut state.claims[usize::from(claim)];
                        *stage = match self.protocol.leaves_unknown {
                            true => Stage::Unknown,
                            false => Stage::Appending,
                        };
                    }
                }
            }
            Action::Look(claim) => {
                let mut entries = state.ledger.iter();
                let standing = entries
                    .find(|entry| self.has_key_of(entry.claim, claim))
                    .copied();
                let number = u8::try_from(state.ledger.len()).expect("few entries");
                let claims: Vec<ClaimId> = state.ledger.iter().map(|entry| entry.claim).collect();
                if number > 0 {
                    // The counter learns it too, with all keys.
                    let keys = self.keys(&claims);
                    self.settle(
                        state,
                        &Record {
                            taken: Vec::new(),
                            number,
                            after: 0,
                            keys,
                        },
                    );
                }
                let stage = standing.map_or(Stage::Recounting(number), Stage::Granted);
                return self.end(state, claim, stage);
            }
            Action::Detour(claim) => {
                state.left.detours -= 1;
                state.was_mixed = true;
                state.claims[usize::from(claim)] = Stage::Appending;
            }
            Action::Append(claim) => return self.append_claim(state, claim),
            Action::Read(instance) => {
                state.drains[usize::from(instance)] = Drain::Read(state.queue.clone());
            }
            Action::LookAtLast(instance) => {
                let last = u8::try_from(state.ledger.len()).expect("few entries");
                let drain = &mut state.drains[usize::from(instance)];
                if let Drain::Read(read) = drain {
                    *drain = Drain::Looked(std::mem::take(read), last);
                }
            }
            Action::LookAtEntries(instance) => {
                let drain = &state.drains[usize::from(instance)];
                if let Drain::Looked(read, last) = drain {
                    let batch = self.batch(state, read, *last);
                    state.drains[usize::from(instance)] = match batch {
                        // The next round sees more.
                        Batch { record, .. } if record.taken.is_empty() => Drain::Idle,
                        Batch {
                            record: Record { number: 0, .. },
                            ..
                        } => Drain::Idle,
                        Batch {
                            entries, record, ..
                        } if entries.is_empty() => Drain::Recording(record),
                        batch => Drain::Sent(batch),
                    };
                }
            }
            Action::AppendBatch { instance, answers } => {
                let drain =
                    std::mem::replace(&mut state.drains[usize::from(instance)], Drain::Idle);
                if let Drain::Sent(batch) = drain {
                    if !answers {
                        state.left.timeouts -= 1;
                        state.late.push(Late::Append(batch));
                    } else if self.append(state, &batch)? {
                        state.drains[usize::from(instance)] = Drain::Recording(batch.record);
                    }
                }
            }
            Action::Record { instance, answers } => {
                let drain = &mut state.drains[usize::from(instance)];
                let Drain::Recording(record) = drain.clone() else {
                    return Ok(());
                };
                match answers {
                    true => *drain = Drain::Idle,
                    false => state.left.repeats -= 1,
                }
                if self.protocol.records_in_one_step {
                    self.record(state, &record);
                } else {
                    let line = Record {
                        taken: Vec::new(),
                        ..record.clone()
                    };
                    state.late.push(Late::Record(line));
                    self.record(
                        state,
                        &Record {
                            number: 0,
                            ..record
                        },
                    );
                }
            }
            Action::Crash(instance) => {
                state.left.crashes -= 1;
                state.drains[usize::from(instance)] = Drain::Idle;
            }
            Action::Late(index) => match state.late.remove(usize::from(index)) {
                Late::Append(batch) => drop(self.append(state, &batch)?),
                Late::Record(record) => self.record(state, &record),
                Late::Count(claim, number) => drop(self.count(state, claim, number)),
            },
        }
        state.late.sort_unstable();
        Ok(())
    }
}
