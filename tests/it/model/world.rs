//! What the modelled world holds: the ledger, Redis, instances, claims and messages.

use super::rule::{LineId, Version};

/// What is searched: who takes part, and how much may happen.
#[derive(Clone)]
pub struct Scene {
    /// How many seconds each instance's clock is ahead.
    pub clocks: &'static [i32],
    /// The instants that pass, in seconds after midnight, at least one second apart.
    pub instants: &'static [i32],
    /// The policy's versions, in the order in which they may be made.
    pub versions: &'static [Version],
    /// What clients may ask for.
    pub requests: Vec<Request>,
    /// Whether there is a Redis.
    pub has_redis: bool,
    /// After so many seconds a hold lapses.
    pub hold_seconds: i32,
    /// How many claims may be under way at once.
    pub at_once: usize,
    /// How often what may happen.
    pub most: Most,
}

/// What a client may ask for.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub account: u8,
    pub units: u8,
    pub key: Option<u8>,
    pub wants: Wants,
    /// How often it is sent at most: a client retries what has a key.
    pub sends: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    Grant,
    /// A grant that lapses unless it is confirmed.
    Hold,
    /// To give back what that request was granted.
    Reversal(u8),
    /// To confirm the hold that that request was granted.
    Confirmation(u8),
}

impl Wants {
    /// Whether it is about a grant that stands, and no claim.
    pub fn is_correction(self) -> bool {
        matches!(self, Self::Reversal(_) | Self::Confirmation(_))
    }
}

/// How often what may still happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Most {
    /// An instance ends abruptly and starts anew.
    pub crashes: u8,
    /// The answer to an append does not come in time, or a claim's deadline passes.
    pub timeouts: u8,
    /// A settlement is lost.
    pub losses: u8,
    /// A settlement arrives twice.
    pub repeats: u8,
    /// Redis loses a counter, is rolled back, or is split from an instance.
    pub redis_faults: u8,
    /// A claim goes past Redis, which does not answer.
    pub silences: u8,
    /// A counter is overwritten with a line that has nothing used, or no holds.
    pub tamperings: u8,
}

/// What one version of the protocol does.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    pub guard: Guard,
    /// Whether the ledger refuses a second entry with a key.
    pub keys_are_unique: bool,
    /// Whether keys are looked up before a decision.
    pub keys_are_looked_up: bool,
    /// Whether a grant is answered after its commit, or when it is sent to the ledger.
    pub answers_after_commit: bool,
    /// Whether the ledger is asked what became of a commit whose outcome is unknown.
    pub looks_up_unknown: bool,
    /// Whether a claim that is decided again keeps the entry that may still arrive.
    pub remembers_sent: bool,
    /// Whether a settlement leaves a counter with a higher number alone.
    pub settles_in_order: bool,
    /// Whether a settlement that goes on from a counter's line compares its number too, and
    /// not the text alone.
    pub compares_numbers: bool,
    /// Whether the id of a lapse tells who appended it.
    pub lapses_have_own_ids: bool,
    /// Whether the holds that are due lapse before anything else is decided.
    pub lapses_first: bool,
    /// Whether a counter whose first hold may have lapsed neither denies nor hints.
    pub heeds_lapses: bool,
    /// Whether it is looked up what became of a grant before it is confirmed or given back.
    pub followers_are_looked_up: bool,
    /// Whether the ledger refuses to confirm a grant twice, and to give one back twice.
    pub followers_are_unique: bool,
    /// Whether a correction is answered after its counter was told.
    pub answers_after_settlement: bool,
    /// When a counter may deny a claim with a key.
    pub keyed_denial: KeyedDenial,
    /// Whether a counter denies under the newest version that the instance knows, and not under
    /// the one that it knew when the claim came.
    pub renews_policies: bool,
    /// Whether what can never fit is refused at once only while the policies are fresh.
    pub refuses_when_fresh: bool,
}

/// What an append is conditional on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The last line is the assumed one in all its parts.
    Line,
    /// In all but the instant at which its first hold may lapse.
    ButLapses,
    /// It has the assumed number.
    Number,
    Nothing,
}

/// When a counter may deny a claim with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyedDenial {
    /// If it does not know the key, and its line is of the claim's version.
    WithoutAllKeys,
    /// If moreover it holds all keys.
    WithAllKeys,
    /// If it holds all keys and not this one, whatever its line's version.
    AnyVersion,
    /// If the ledger does not hold the key.
    Probed,
}

/// All that may differ between two moments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The instant, by its place in the scene.
    pub time: u8,
    /// The policy's newest version.
    pub newest: u8,
    /// The newest version that was made before this instant, so a second ago or more.
    pub binding: u8,
    pub ledger: Vec<Entry>,
    pub redis: Counters,
    /// A primary that was cut off, and is still seen by some.
    pub old_redis: Option<Counters>,
    /// What a roll-back would bring back.
    pub snapshot: Option<Counters>,
    pub instances: Vec<Instance>,
    pub claims: Vec<Claim>,
    pub drafts: Vec<Draft>,
    pub settlements: Vec<Settlement>,
    pub left: Most,
    /// Whether a counter may lag, since a settlement was lost or Redis forgot something.
    pub may_lag: bool,
}

/// A Redis: a counter an account.
pub type Counters = Vec<Option<Counter>>;

/// What Redis knows of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Counter {
    pub line: LineId,
    /// In seconds after midnight.
    pub confirmed_at: i32,
    pub holds_all_keys: bool,
    pub keys: Keys,
}

/// A set of keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keys(u32);

impl Keys {
    pub fn contains(self, key: u8) -> bool {
        self.0 & (1 << key) != 0
    }

    pub fn insert(&mut self, key: u8) {
        self.0 |= 1 << key;
    }

    pub fn has_all(self, others: Keys) -> bool {
        self.0 & others.0 == others.0
    }

    pub fn with(self, others: Keys) -> Keys {
        Keys(self.0 | others.0)
    }
}

/// An entry of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    pub account: u8,
    /// With its number, instant, version and totals.
    pub line: LineId,
    /// The claim that it answers; none for a lapse.
    pub claim: Option<u8>,
    /// The claim that it was appended for: with the line its id.
    pub nonce: Option<u8>,
    /// A claim's key, which no two entries share.
    pub key: Option<u8>,
    pub units: u8,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Grant,
    /// A grant that lapses unless it is confirmed.
    Hold,
    /// Of the hold at that place in the ledger.
    Confirmation(u8),
    /// Of the grant at that place.
    Reversal(u8),
    /// Of the hold at that place.
    Lapse(u8),
}

impl Kind {
    /// The place in the ledger of the grant that is confirmed or given back.
    pub fn of(self) -> Option<u8> {
        match self {
            Self::Grant | Self::Hold => None,
            Self::Confirmation(of) | Self::Reversal(of) | Self::Lapse(of) => Some(of),
        }
    }

    /// Whether it gives back the units of the grant at a place.
    pub fn gives_back(self, grant: u8) -> bool {
        matches!(self, Self::Reversal(of) | Self::Lapse(of) if of == grant)
    }

    /// Whether both do the same to one grant, which is done once.
    pub fn excludes(self, other: Self) -> bool {
        let is_confirmation = |kind| matches!(kind, Self::Confirmation(_));
        self.of().is_some()
            && self.of() == other.of()
            && is_confirmation(self) == is_confirmation(other)
    }
}

/// A process of perdiem.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance {
    /// The version of the policy that it knows.
    pub version: u8,
    /// Whether it read the policies less than a second ago.
    pub is_fresh: bool,
    pub sees_old_redis: bool,
    /// What is being appended, by account.
    pub groups: Vec<Option<Group>>,
}

/// One sending of a request. Each has its place from the beginning, so that the order in which
/// they are sent does not tell states apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    pub request: u8,
    pub instance: u8,
    pub stage: Stage,
    /// The version of its policy.
    pub version: u8,
    pub asked: Asked,
    /// Whether an entry that was sent for it may still arrive.
    pub was_sent: bool,
    /// Whether the ledger held its key's grant when it was sent.
    pub stood: bool,
    /// The oldest version under which it may be refused.
    pub oldest: u8,
    /// The highest number of a correction of its account that was answered when it was sent.
    pub heard: u8,
}

impl Claim {
    /// A claim that was not sent yet.
    pub fn of(request: u8) -> Self {
        Self {
            request,
            instance: 0,
            stage: Stage::Unsent,
            version: 0,
            asked: Asked::default(),
            was_sent: false,
            stood: false,
            oldest: 0,
            heard: 0,
        }
    }

    pub fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::Unsent | Stage::Ended(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    Unsent,
    /// On its way to its counter.
    Asking,
    /// For its account's next group.
    Waiting,
    /// In its account's group.
    Grouped,
    /// A correction that stands: its counter is to be told first.
    Settling,
    Ended(Outcome),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Granted,
    Replayed,
    KeyReused,
    Refused,
    /// 503, or the instance died: nobody knows.
    Unknown,
}

/// What the counter said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Asked {
    /// The number that it bore.
    pub seen: Option<u8>,
    /// What the last line most likely is.
    pub hint: Option<LineId>,
    pub wants_keys: bool,
}

/// Claims of one account that go into the ledger together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Group {
    pub claims: Vec<u8>,
    pub plan: Option<Plan>,
    pub has_lost: bool,
    /// The last line, when it was read and the entries are still to be read.
    pub looked: Option<LineId>,
}

/// What is to become of a group's claims.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Plan {
    /// The policy's version.
    pub version: u8,
    /// When it was decided, in seconds after midnight.
    pub now: i32,
    pub after: LineId,
    pub entries: Vec<Entry>,
    pub refused: Vec<u8>,
    /// Corrections that were made before, by these entries or in the ledger.
    pub repeated: Vec<u8>,
    /// Whether one is refused for lack of room.
    pub denies: bool,
    /// Whether it was sent and its outcome is not known.
    pub is_unknown: bool,
}

/// A plan's entries on their way into the ledger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Draft {
    /// Who waits for the answer.
    pub waits: Option<u8>,
    pub account: u8,
    pub after: LineId,
    pub entries: Vec<Entry>,
    /// What the ledger said.
    pub stands: Option<bool>,
}

/// A last line on its way to a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Settlement {
    pub instance: u8,
    pub account: u8,
    pub line: LineId,
    pub confirmed_at: i32,
    pub seen: Option<u8>,
    /// The line that the keys come after; none when they are all.
    pub after: Option<LineId>,
    pub keys: Keys,
    /// The corrections that are answered afterwards.
    pub answers: Claims,
}

/// A set of claims.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claims(u32);

impl Claims {
    pub fn insert(&mut self, claim: u8) {
        self.0 |= 1 << claim;
    }

    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..32).filter(move |claim| self.0 & (1 << claim) != 0)
    }
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client sends a request to an instance, which asks Redis or does not.
    Send {
        claim: u8,
        instance: u8,
        asks: bool,
    },
    /// The counter is read, and the domain's rule decides on its line.
    Ask {
        claim: u8,
    },
    /// The claims that wait become a group, which is decided on a hint, or reads the last
    /// line.
    Begin {
        instance: u8,
        account: u8,
    },
    /// The group reads the entries of its keys and ids, and is decided on the line read
    /// before.
    Decide {
        instance: u8,
        account: u8,
    },
    /// The ledger takes a draft, or does not.
    Append {
        draft: u8,
    },
    /// Its answer arrives.
    Answer {
        draft: u8,
    },
    /// A settlement arrives, and arrives once more if it is repeated.
    Settle {
        settlement: u8,
        repeats: bool,
    },
    /// An instance reads the policies.
    Refresh {
        instance: u8,
    },
    /// An instance does not wait any longer for the answer to a draft.
    TimeOut {
        draft: u8,
    },
    /// Nobody waits any longer for the claims of a group.
    GiveUp {
        instance: u8,
        account: u8,
    },
    Crash {
        instance: u8,
    },
    Lose {
        settlement: u8,
    },
    Forget {
        account: u8,
    },
    Snapshot,
    RollBack,
    Split {
        instance: u8,
    },
    Join,
    Tamper {
        account: u8,
        hides_holds: bool,
    },
    /// An instance makes the next version of the policy.
    Change {
        instance: u8,
    },
    Tick,
}
