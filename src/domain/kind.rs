//! What the kinds of entries are: one row a kind. The table `entry_kinds` has the same rows for SQL.

use chrono::{DateTime, Utc};

use super::identity::EntryId;
use super::limit::per::Per;

/// What the units of an entry do to the usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Adds,
    /// They are taken off, whatever was granted.
    TakesOff,
    /// They are given back to the windows of the grant that the entry names.
    GivesBack,
    /// The entry begins limits again: what counted before it counts there no more.
    BeginsAgain,
    Nothing,
}

impl Effect {
    /// The sign of the units in a sum of the usage.
    pub fn sign(self) -> i16 {
        match self {
            Self::Adds => 1,
            Self::BeginsAgain | Self::Nothing => 0,
            Self::TakesOff | Self::GivesBack => -1,
        }
    }
}

/// What an entry means to the grant that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// It names no grant.
    NoGrant,
    /// The grant goes on. It can have many such entries.
    GoesOn,
    /// A hold ends, and its units stay used.
    EndsHold,
    /// It takes back what is left of the grant, and a hold ends.
    Reverses,
    /// A hold ends because nobody confirmed it in time.
    Lapses,
    /// It names no grant but a top-up, and takes back what is left of it.
    EndsTopUp,
}

impl Follows {
    pub fn ends_hold(self) -> bool {
        self == Self::EndsHold || self.closes()
    }

    /// Whether nothing of the grant is left.
    pub fn closes(self) -> bool {
        matches!(self, Self::Reverses | Self::Lapses)
    }
}

/// The instants of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dated {
    /// The line and the id have the instant of the clock.
    ByClock,
    /// The line has the end of the hold, which can be long ago.
    AtEndOfHold,
    /// The line has the instant of the clock. The id has the one that its author chose, if that is
    /// earlier: the units count then.
    ByAuthor,
}

/// What is said of a kind in one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindFacts {
    /// The number in the ledger. It never changes.
    pub number: i16,
    /// The word in seals, which never changes, and in SQL.
    pub word: &'static str,
    /// The word of the HTTP contract.
    pub listed_as: KindWord,
    pub effect: Effect,
    pub follows: Follows,
    pub dated: Dated,
}

macro_rules! kinds {
    ($($kind:ident $number:literal $word:literal $listed_as:ident $effect:ident $follows:ident
        $dated:ident;)+) => {
        /// A kind of entry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($kind,)+
        }

        impl Kind {
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$kind),+];

            pub const fn facts(self) -> KindFacts {
                match self {
                    $(Self::$kind => KindFacts {
                        number: $number,
                        word: $word,
                        listed_as: KindWord::$listed_as,
                        effect: Effect::$effect,
                        follows: Follows::$follows,
                        dated: Dated::$dated,
                    },)+
                }
            }
        }
    };
}

kinds! {
    Grant           1 "grant"            Grant           Adds      NoGrant  ByClock;
    Confirmation    2 "confirmation"     Confirmation    Nothing   EndsHold ByClock;
    Reversal        3 "reversal"         Reversal        GivesBack Reverses ByClock;
    Lapse           4 "lapse"            Lapse           GivesBack Lapses   AtEndOfHold;
    AdjustmentUp    5 "adjustment_up"    Adjustment      Adds      NoGrant  ByAuthor;
    AdjustmentDown  6 "adjustment_down"  Adjustment      TakesOff  NoGrant  ByAuthor;
    PartialReversal 7 "partial_reversal" PartialReversal GivesBack GoesOn   ByClock;
    Reset           8 "reset"            Reset           BeginsAgain NoGrant ByClock;
    Calendar        9 "calendar"         Calendar        Nothing   NoGrant  ByClock;
    TopUp          10 "top_up"           TopUp           Nothing   NoGrant  ByClock;
    TopUpReversal  11 "top_up_reversal"  TopUpReversal   Nothing   EndsTopUp ByClock;
}

impl Kind {
    pub fn of_number(number: i16) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.facts().number == number)
    }

    /// The kind of an entry that names this grant, holds its units until this instant, or names this
    /// limit. `None` if the kind names a grant, and there is none.
    pub fn of_entry(
        self,
        of_grant: Option<EntryId>,
        held_until: Option<DateTime<Utc>>,
        per: Option<Per>,
    ) -> Option<EntryKind> {
        Some(match self {
            Self::Grant => EntryKind::Grant { held_until },
            Self::Confirmation => EntryKind::Confirmation { of: of_grant? },
            Self::Reversal => EntryKind::Reversal { of: of_grant? },
            Self::PartialReversal => EntryKind::PartialReversal { of: of_grant? },
            Self::Lapse => EntryKind::Lapse { of: of_grant? },
            Self::AdjustmentUp => EntryKind::Adjustment(Direction::Up),
            Self::AdjustmentDown => EntryKind::Adjustment(Direction::Down),
            Self::Reset => EntryKind::Reset { per },
            Self::Calendar => EntryKind::Calendar,
            Self::TopUp => EntryKind::TopUp,
            Self::TopUpReversal => EntryKind::TopUpReversal { of: of_grant? },
        })
    }
}

/// The kind of an entry, with what belongs to the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    Grant {
        /// The end of a hold: it lapses at this instant unless it is confirmed.
        held_until: Option<DateTime<Utc>>,
    },
    /// A hold was confirmed: its units stay used.
    Confirmation { of: EntryId },
    /// The units of a grant that were left were given back.
    Reversal { of: EntryId },
    /// Some of a grant's units were given back. The others are left.
    PartialReversal { of: EntryId },
    /// A hold was not confirmed in time: its units were given back.
    Lapse { of: EntryId },
    /// An admin entered units by hand.
    Adjustment(Direction),
    /// From here on only what counts at the instant of the entry or later counts in one limit, or in
    /// all limits.
    Reset {
        /// `None`: all limits.
        per: Option<Per>,
    },
    /// An admin moved the calendar of the account: its line has what it is from here on.
    Calendar,
    /// An admin gave the subject units beside its windows. The line has their end.
    TopUp,
    /// What was left of a top-up was taken back.
    TopUpReversal { of: EntryId },
}

impl EntryKind {
    pub fn kind(self) -> Kind {
        match self {
            Self::Grant { .. } => Kind::Grant,
            Self::Confirmation { .. } => Kind::Confirmation,
            Self::Reversal { .. } => Kind::Reversal,
            Self::PartialReversal { .. } => Kind::PartialReversal,
            Self::Lapse { .. } => Kind::Lapse,
            Self::Adjustment(Direction::Up) => Kind::AdjustmentUp,
            Self::Adjustment(Direction::Down) => Kind::AdjustmentDown,
            Self::Reset { .. } => Kind::Reset,
            Self::Calendar => Kind::Calendar,
            Self::TopUp => Kind::TopUp,
            Self::TopUpReversal { .. } => Kind::TopUpReversal,
        }
    }

    pub fn facts(self) -> KindFacts {
        self.kind().facts()
    }

    /// The word of the HTTP contract.
    pub fn word(self) -> KindWord {
        self.facts().listed_as
    }

    /// The grant or the top-up that an entry of this kind names.
    pub fn of(self) -> Option<EntryId> {
        match self {
            Self::Confirmation { of }
            | Self::Reversal { of }
            | Self::PartialReversal { of }
            | Self::Lapse { of }
            | Self::TopUpReversal { of } => Some(of),
            Self::Grant { .. }
            | Self::Adjustment(_)
            | Self::Reset { .. }
            | Self::Calendar
            | Self::TopUp => None,
        }
    }

    /// The grant that an entry of this kind names.
    pub fn grant(self) -> Option<EntryId> {
        self.of()
            .filter(|_| self.facts().follows != Follows::EndsTopUp)
    }

    /// The grant whose units an entry of this kind gives back.
    pub fn gives_back(self) -> Option<EntryId> {
        self.of()
            .filter(|_| self.facts().effect == Effect::GivesBack)
    }

    /// The limit that a reset names.
    pub fn per(self) -> Option<Per> {
        match self {
            Self::Reset { per } => per,
            _ => None,
        }
    }

    /// Whether an entry of this kind begins a limit again.
    pub fn resets(self, limit: Per) -> bool {
        matches!(self, Self::Reset { per } if per.is_none_or(|per| per == limit))
    }
}

/// The kind of an entry, in the words of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindWord {
    Grant,
    Confirmation,
    Reversal,
    PartialReversal,
    Lapse,
    /// Up or down.
    Adjustment,
    Reset,
    Calendar,
    TopUp,
    TopUpReversal,
}

impl KindWord {
    pub const ALL: [Self; 10] = [
        Self::Grant,
        Self::Confirmation,
        Self::Reversal,
        Self::PartialReversal,
        Self::Lapse,
        Self::Adjustment,
        Self::Reset,
        Self::Calendar,
        Self::TopUp,
        Self::TopUpReversal,
    ];

    /// The name in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Confirmation => "confirmation",
            Self::Reversal => "reversal",
            Self::PartialReversal => "partial_reversal",
            Self::Lapse => "lapse",
            Self::Adjustment => "adjustment",
            Self::Reset => "reset",
            Self::Calendar => "calendar",
            Self::TopUp => "top_up",
            Self::TopUpReversal => "top_up_reversal",
        }
    }

    /// The kinds that are listed under this word. Their numbers are in a row.
    pub fn kinds(self) -> impl Iterator<Item = Kind> {
        let all = Kind::ALL.into_iter();
        all.filter(move |kind| kind.facts().listed_as == self)
    }
}

/// The direction of an adjustment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Adds to the usage.
    Up,
    /// Takes off the usage.
    Down,
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_kinds_of_a_word_have_numbers_in_a_row() {
        for word in KindWord::ALL {
            let mut numbers: Vec<i16> = word.kinds().map(|kind| kind.facts().number).collect();
            numbers.sort_unstable();
            assert!(
                numbers.is_sorted_by(|one, next| one + 1 == *next),
                "{word:?}"
            );
        }
    }

    #[test]
    fn the_row_of_a_kind_says_what_its_entries_do() {
        let grant = EntryId(Uuid::from_u128(1));
        for kind in Kind::ALL {
            let facts = kind.facts();
            assert_eq!(Kind::of_number(facts.number), Some(kind));
            let entry = kind.of_entry(Some(grant), None, None).unwrap();
            assert_eq!(entry.kind(), kind);
            // 1. A kind that names a grant needs one.
            let names_grant = facts.follows != Follows::NoGrant;
            assert_eq!(entry.of(), names_grant.then_some(grant), "{kind:?}");
            assert_eq!(
                kind.of_entry(None, None, None).is_none(),
                names_grant,
                "{kind:?}"
            );
            // 2. Only an entry that names a grant gives its units back, and what closes it does.
            let gives_back = facts.effect == Effect::GivesBack;
            assert!(names_grant || !gives_back, "{kind:?}");
            assert!(gives_back || !facts.follows.closes(), "{kind:?}");
            // 3. It is listed once.
            let words = KindWord::ALL.into_iter();
            let listed = words.filter(|word| word.kinds().any(|listed| listed == kind));
            assert_eq!(listed.count(), 1, "{kind:?}");
            assert!(facts.word.starts_with(facts.listed_as.as_str()), "{kind:?}");
        }
        assert!(
            KindWord::ALL
                .into_iter()
                .all(|word| word.kinds().count() > 0)
        );
    }
}
