//! Grants that Redis alone decides, and their way into the ledger: as in
//! `src/engine/counted/count.rs`, `src/engine/counted/drain.rs`, `src/counter/lua/count.lua` and
//! `record.lua`.
//!
//! One account, one window, one unit a claim: so a line's number is also what it has used.
//!
//! Two parts of [`Protocol`] are not built: `remembers_ids` and `leaves_unknown`. Counted grants do
//! not fall under the promises that these would keep; the searches without them tell what can
//! happen instead. A third one is bounded: `waits_before_denial` ends when half of a claim's time
//! is over.

pub mod scenes;
mod scripts;
mod steps;

use super::search::{Actions, Model};

/// What is searched.
#[derive(Clone)]
pub struct Counting {
    pub max: u8,
    /// The key of each claim. A retry is a claim with the key of another.
    pub claims: &'static [Option<u8>],
    pub instances: u8,
    pub most: Most,
    pub protocol: Protocol,
}

/// How often what may still happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Most {
    /// A drain ends abruptly.
    pub crashes: u8,
    /// A script runs, and is sent again since its answer is lost.
    pub repeats: u8,
    /// A script that counts has no answer, and runs at any later moment.
    pub silences: u8,
    /// The answer to an append is lost, and the append itself may still arrive.
    pub timeouts: u8,
    /// Redis does not answer an instance, and the ledger decides a claim.
    pub detours: u8,
}

/// What the protocol does.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// Whether a drain looks which grants stand in the ledger.
    pub looks_before_append: bool,
    /// Whether pending units are lowered only for grants that were still queued.
    pub lowers_what_was_queued: bool,
    /// Whether a drain leaves a grant queued that was appended after it read the last line, since
    /// that line, which it settles, does not count it.
    pub takes_what_its_line_counts: bool,
    /// Whether the grant leaves the queue and the line is settled in one step.
    pub records_in_one_step: bool,
    /// Whether a claim that the counter cannot decide on what the ledger said asks the ledger
    /// anew, and does not go there to be appended past the queue.
    pub asks_again: bool,
    /// Whether a denial holds only while nothing waits. What waits may stand in the ledger
    /// already, and then counts twice.
    pub waits_before_denial: bool,
    /// Whether the script knows a claim by its id also after its grant left the queue.
    pub remembers_ids: bool,
    /// Whether a claim whose count had no answer ends undecided, and does not go there either.
    pub leaves_unknown: bool,
}

/// A claim, by its place.
type ClaimId = u8;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Its entries: whose grant, and with which id.
    ledger: Vec<Entry>,
    counter: Option<Counter>,
    /// The queue.
    queue: Vec<ClaimId>,
    /// The claims that left it.
    recorded: Vec<ClaimId>,
    /// The units that wait, as the counter's script adds and lowers them.
    pending: i8,
    /// Whether the ledger told that it has nothing of the account but what waits.
    is_new: bool,
    claims: Vec<Stage>,
    drains: Vec<Drain>,
    /// Drafts that nobody waits for any more, and scripts that may run once more.
    late: Vec<Late>,
    left: Most,
    /// Whether the ledger decided a claim past the queue: then a limit may be passed, and a key
    /// granted twice.
    was_mixed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Entry {
    claim: ClaimId,
    /// Whether Redis decided it: such an entry has the id under which it was queued.
    was_counted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Counter {
    number: u8,
    holds_all_keys: bool,
    keys: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Unsent,
    /// To be counted on the counter alone.
    Asking,
    /// To look at the ledger.
    Looking,
    /// To be counted on the ledger's last number.
    Recounting(u8),
    /// For the ledger alone.
    Appending,
    Granted(Entry),
    Denied,
    Unknown,
}

/// What an instance is about with the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Drain {
    Idle,
    Read(Vec<ClaimId>),
    /// It read the last number too.
    Looked(Vec<ClaimId>, u8),
    Sent(Batch),
    Recording(Record),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Batch {
    after: u8,
    entries: Vec<ClaimId>,
    record: Record,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Record {
    taken: Vec<ClaimId>,
    number: u8,
    /// The number that the keys come after.
    after: u8,
    keys: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Late {
    Append(Batch),
    Record(Record),
    Count(ClaimId, Option<u8>),
}

#[derive(Debug, Clone, Copy)]
pub enum Action {
    Send(ClaimId),
    Count(ClaimId, Reply),
    Look(ClaimId),
    Detour(ClaimId),
    Append(ClaimId),
    Read(u8),
    LookAtLast(u8),
    LookAtEntries(u8),
    AppendBatch { instance: u8, answers: bool },
    Record { instance: u8, answers: bool },
    Crash(u8),
    Late(u8),
}

/// What becomes of the answer of the script that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Arrives,
    /// The script is sent again.
    IsRepeated,
    /// Nobody knows whether and when it runs.
    IsLost,
}

impl Model for Counting {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        State {
            ledger: Vec::new(),
            counter: None,
            queue: Vec::new(),
            recorded: Vec::new(),
            pending: 0,
            is_new: false,
            claims: vec![Stage::Unsent; self.claims.len()],
            drains: vec![Drain::Idle; usize::from(self.instances)],
            late: Vec::new(),
            left: self.most,
            was_mixed: false,
        }
    }

    fn actions(&self, state: &State) -> Actions<Action> {
        let mut actions = Actions::default();
        let Actions { progress, events } = &mut actions;
        for (stage, claim) in state.claims.iter().zip(0..) {
            match stage {
                Stage::Unsent => events.push(Action::Send(claim)),
                Stage::Asking | Stage::Recounting(_) => {
                    progress.push(Action::Count(claim, Reply::Arrives));
                    if state.left.repeats > 0 {
                        events.push(Action::Count(claim, Reply::IsRepeated));
                    }
                    if state.left.detours > 0 {
                        events.push(Action::Detour(claim));
                    }
                    if state.left.silences > 0 {
                        events.push(Action::Count(claim, Reply::IsLost));
                    }
                }
                Stage::Looking => progress.push(Action::Look(claim)),
                Stage::Appending => progress.push(Action::Append(claim)),
                Stage::Granted(_) | Stage::Denied | Stage::Unknown => {}
            }
        }
        for (drain, instance) in state.drains.iter().zip(0..) {
            match drain {
                Drain::Idle if state.queue.is_empty() => {}
                Drain::Idle => progress.push(Action::Read(instance)),
                Drain::Read(_) => progress.push(Action::LookAtLast(instance)),
                Drain::Looked(..) => progress.push(Action::LookAtEntries(instance)),
                Drain::Sent(_) => {
                    progress.push(Action::AppendBatch {
                        instance,
                        answers: true,
                    });
                    if state.left.timeouts > 0 {
                        events.push(Action::AppendBatch {
                            instance,
                            answers: false,
                        });
                    }
                }
                Drain::Recording(_) => {
                    progress.push(Action::Record {
                        instance,
                        answers: true,
                    });
                    if state.left.repeats > 0 {
                        events.push(Action::Record {
                            instance,
                            answers: false,
                        });
                    }
                }
            }
            if *drain != Drain::Idle && state.left.crashes > 0 {
                events.push(Action::Crash(instance));
            }
        }
        events.extend(
            (0..state.late.len())
                .map(|index| Action::Late(u8::try_from(index).expect("few messages"))),
        );
        actions
    }

    fn next(&self, state: &State, action: Action) -> Result<State, String> {
        let mut next = state.clone();
        self.step(&mut next, action)?;
        Ok(next)
    }

    fn check_at_rest(&self, state: &State) -> Result<(), String> {
        for stage in &state.claims {
            if let Stage::Granted(granted) = stage
                && !state.ledger.contains(granted)
                && !state.was_mixed
            {
                return Err("a queued grant ends in the ledger, exactly once".to_owned());
            }
        }
        let used = state.counter.map_or(0, |counter| counter.number);
        match usize::from(used) == state.ledger.len() && state.pending == 0 {
            true => Ok(()),
            false => Err(format!(
                "counters follow the ledger: {used} and {} that wait, of {}",
                state.pending,
                state.ledger.len()
            )),
        }
    }

    fn tell(&self, state: &State, action: Action) -> String {
        match action {
            Action::Send(claim) => match self.claims[usize::from(claim)] {
                Some(key) => format!("claim {claim} comes, with key {key}"),
                None => format!("claim {claim} comes"),
            },
            Action::Count(claim, reply) => match reply {
                Reply::Arrives => format!("claim {claim} is counted"),
                Reply::IsRepeated => format!("claim {claim} is counted, and will be again"),
                Reply::IsLost => format!("claim {claim}'s count has no answer, and may come yet"),
            },
            Action::Look(claim) => format!("claim {claim} looks at the ledger"),
            Action::Detour(claim) => format!("Redis does not answer claim {claim}'s instance"),
            Action::Append(claim) => format!("the ledger decides claim {claim}"),
            Action::Read(drain) => format!("drain {drain} reads the queue"),
            Action::LookAtLast(drain) => format!("drain {drain} reads the last line"),
            Action::LookAtEntries(drain) => format!("drain {drain} reads the entries"),
            Action::AppendBatch {
                instance,
                answers: true,
            } => format!("drain {instance} appends"),
            Action::AppendBatch {
                instance,
                answers: false,
            } => {
                format!("drain {instance} gives up an append, which may come yet")
            }
            Action::Record {
                instance,
                answers: true,
            } => format!("drain {instance} records"),
            Action::Record {
                instance,
                answers: false,
            } => {
                format!("drain {instance} records, and will again")
            }
            Action::Crash(drain) => format!("drain {drain} crashes"),
            Action::Late(late) => format!("late comes {:?}", state.late[usize::from(late)]),
        }
    }

    fn show(&self, state: &State) -> String {
        let entry = |entry: &Entry| match entry.was_counted {
            true => format!("claim {}", entry.claim),
            false => format!("claim {} past the queue", entry.claim),
        };
        let ledger: Vec<String> = state.ledger.iter().map(entry).collect();
        let ended = state
            .claims
            .iter()
            .enumerate()
            .filter_map(|(index, stage)| match stage {
                Stage::Granted(granted) => Some(format!("{index} granted: {}", entry(granted))),
                Stage::Denied => Some(format!("{index} denied")),
                Stage::Unknown => Some(format!("{index} unknown")),
                Stage::Unsent
                | Stage::Asking
                | Stage::Looking
                | Stage::Recounting(_)
                | Stage::Appending => None,
            });
        format!(
            "ledger [{}] counter {} queue {:?} units that wait {} answers [{}]",
            ledger.join("; "),
            state
                .counter
                .map_or("none".to_owned(), |counter| format!("#{}", counter.number)),
            state.queue,
            state.pending,
            ended.collect::<Vec<_>>().join("; ")
        )
    }
}
