//! Limits, and their usage in lines.

use chrono::{DateTime, NaiveDate, Utc};
use serde_json::Value;
use uuid::Uuid;

use crate::plain::{PlainBucket, PlainLimit, PlainState, Return};

/// A limit of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleLimit {
    /// The name of the limit; for several weeks with their first day, such as `2 weeks from 20458`.
    pub per: String,
    pub max: u64,
    pub returns: RuleReturn,
}

/// A limit that all subjects share.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedRule {
    /// For several weeks with their first day, as in a limit of a subject.
    pub per: String,
    pub max: u64,
    pub since: i32,
}

impl SharedRule {
    /// The name in the ledger.
    pub fn per_name(&self) -> &str {
        self.per.split(" from ").next().expect("a name")
    }
}

/// How units return, by the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleReturn {
    /// At the start of the next calendar window; never for `ever`.
    Calendar,
    FromFirstClaim,
    /// With the step, in microseconds.
    Sliding(Option<i64>),
    /// With the burst, if it differs from the `max`.
    Rate(Option<u64>),
}

/// A limit and its usage after an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total {
    pub per: String,
    pub max: u64,
    pub used: u64,
    pub state: State,
}

/// The part of a total other than the usage: the window, or the return of the units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The window, in seconds since 1970.
    Window {
        start: i64,
        end: i64,
    },
    Ever,
    /// A limit whose units return after a time.
    Returns(PlainLimit, PlainState),
}

const SECOND: i64 = 1_000_000;

impl Total {
    /// Parses the texts of limits, which semicolons separate.
    pub fn parse(text: &str) -> Vec<Self> {
        text.split(';').map(Self::parse_one).collect()
    }

    fn parse_one(text: &str) -> Self {
        // The instant of a reset, which the sums show.
        let (text, _) = text.split_once('~').unwrap_or((text, ""));
        let (letter, rest) = text.split_at(1);
        let (max, rest) = rest.split_once(',').expect("a max");
        let max = number(max).cast_unsigned();
        let words = ["minute", "hour", "day", "week", "month", "quarter", "year"];
        let word = "ihdwmqy".find(letter).map(|place| words[place].to_owned());
        let (per, rest) = match letter {
            "p" => {
                let (seconds, rest) = rest.split_once(',').expect("a part of a day");
                (Some(period(number(seconds))), rest)
            }
            "k" => {
                let (run, rest) = rest.split_once(',').expect("several weeks");
                let (weeks, from) = run.split_once('/').expect("a day");
                (Some(weeks_from(weeks, number(from))), rest)
            }
            _ => (word, rest),
        };
        match per {
            Some(per) => {
                let (used, window) = rest.split_once(',').expect("a window");
                let (start, length) = window.split_once('+').expect("a length");
                let start = number(start);
                let end = start + number(length);
                Self {
                    per,
                    max,
                    used: number(used).cast_unsigned(),
                    state: State::Window { start, end },
                }
            }
            None if letter == "e" => Self {
                per: "ever".to_owned(),
                max,
                used: number(rest).cast_unsigned(),
                state: State::Ever,
            },
            None => Self::parse_returning(letter, max, rest),
        }
    }

    /// `src/domain/limit/text.rs` documents the forms.
    fn parse_returning(letter: &str, max: u64, rest: &str) -> Self {
        let (seconds, rest) = rest.split_once(',').unwrap_or((rest, ""));
        let (seconds, step) = match seconds.split_once('/') {
            Some((seconds, step)) => (seconds, Some(number(step) * SECOND)),
            None => (seconds, None),
        };
        let (returns, state) = match letter {
            "f" => (Return::FromFirstClaim, parse_opened(rest)),
            "s" => (Return::Sliding { step }, parse_log(rest)),
            "r" => parse_bucket(rest),
            other => panic!("no limit begins with {other}"),
        };
        let per = number(seconds) * SECOND;
        Self::returning(PlainLimit { max, per, returns }, state)
    }

    /// The total of a limit whose units return after a time.
    pub fn returning(limit: PlainLimit, state: PlainState) -> Self {
        Self {
            per: period(limit.per / SECOND),
            max: limit.max,
            used: state.used(&limit),
            state: State::Returns(limit, state),
        }
    }

    /// Whether units that count at an instant count in this window. A limit without a window counts
    /// all.
    pub fn contains(&self, at: DateTime<Utc>) -> bool {
        let at = at.timestamp_micros();
        match self.state {
            State::Window { start, end } => start * SECOND <= at && at < end * SECOND,
            State::Ever | State::Returns(..) => true,
        }
    }

    /// Whether both totals are of the same window of the calendar.
    pub fn has_same_window(&self, other: &Self) -> bool {
        let window = |total: &Self| match total.state {
            State::Window { start, end } => Some((start, end)),
            State::Ever | State::Returns(..) => None,
        };
        self.per == other.per && window(self) == window(other)
    }

    /// Whether the total belongs to a version's limit, possibly with another `max`.
    pub fn is_of(&self, limit: &RuleLimit) -> bool {
        let is_kind = match (&self.state, limit.returns) {
            (State::Window { .. } | State::Ever, returns) => returns == RuleReturn::Calendar,
            (State::Returns(own, _), returns) => match (own.returns, returns) {
                (Return::FromFirstClaim, RuleReturn::FromFirstClaim) => true,
                (Return::Sliding { step }, RuleReturn::Sliding(other)) => step == other,
                (Return::Rate { burst }, RuleReturn::Rate(other)) => {
                    burst == other.unwrap_or(self.max)
                }
                _ => false,
            },
        };
        is_kind && self.per == limit.per
    }
}

impl RuleLimit {
    /// Reads a limit of a rule.
    pub fn read(limit: &Value) -> Self {
        let per = limit["per"].as_str().expect("a time").to_owned();
        let per = match limit["from"].as_str() {
            Some(date) => {
                let date: NaiveDate = date.parse().expect("a date");
                weeks_from(per.trim_end_matches(" weeks"), date.to_epoch_days().into())
            }
            None => per,
        };
        let returns = match limit["kind"].as_str() {
            None | Some("calendar") => RuleReturn::Calendar,
            Some("from_first_claim") => RuleReturn::FromFirstClaim,
            Some("sliding") => RuleReturn::Sliding(limit["step"].as_str().map(time)),
            Some("rate") => RuleReturn::Rate(limit["burst"].as_u64()),
            Some(other) => panic!("no kind is called {other}"),
        };
        Self {
            per,
            max: limit["max"].as_u64().expect("a number"),
            returns,
        }
    }

    /// The plain model's form of a limit whose units return after a time.
    pub fn returning(&self) -> Option<PlainLimit> {
        let returns = match self.returns {
            RuleReturn::Calendar => return None,
            RuleReturn::FromFirstClaim => Return::FromFirstClaim,
            RuleReturn::Sliding(step) => Return::Sliding { step },
            RuleReturn::Rate(burst) => Return::Rate {
                burst: burst.unwrap_or(self.max),
            },
        };
        Some(PlainLimit {
            max: self.max,
            per: time(&self.per),
            returns,
        })
    }
}

/// Several weeks, with the first day of one run, in days since 1970.
fn weeks_from(weeks: &str, day: i64) -> String {
    format!("{weeks} weeks from {day}")
}

/// The name of a limit in answers.
pub fn told_name(per: &str) -> &str {
    per.split(" from ").next().expect("a name")
}

fn number(text: &str) -> i64 {
    text.parse().expect("a number")
}

/// `used`, and the instant at which the window was opened.
fn parse_opened(text: &str) -> PlainState {
    let (used, at) = match text.split_once('@') {
        Some((used, at)) => (used, Some(number(at))),
        None => (text, None),
    };
    let used = number(used).cast_unsigned();
    PlainState::Opened { at, used }
}

/// Instants in order, each relative to the one before it, with the units if more than one.
fn parse_log(text: &str) -> PlainState {
    let mut pairs = Vec::new();
    let mut at = 0;
    for pair in text.split('+').filter(|pair| !pair.is_empty()) {
        let (later, units) = pair.split_once('*').unwrap_or((pair, "1"));
        at += number(later);
        pairs.push((at, number(units).cast_unsigned()));
    }
    PlainState::Log(pairs)
}

/// The burst, the line's instant, what the bucket lacks, and the first line under the same `max`.
fn parse_bucket(text: &str) -> (Return, PlainState) {
    let parts: Vec<&str> = text.split(',').collect();
    let (at, owed) = parts[1].split_once('+').expect("an instant");
    let big = |text: &str| text.parse::<i128>().expect("a number");
    let burst = number(parts[0]).cast_unsigned();
    let bucket = PlainBucket {
        at: number(at),
        owed: big(owed),
        // Places begin at zero, line numbers at one.
        since: usize::try_from(number(parts[2]) - 1).expect("a place"),
    };
    (Return::Rate { burst }, PlainState::Bucket(bucket))
}

/// Parses a time such as `90s` to microseconds. `None` for a word of the calendar.
pub fn micros(text: &str) -> Option<i64> {
    let (count, unit) = text.split_at(text.len() - 1);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    Some(count.parse::<i64>().ok()? * seconds * SECOND)
}

fn time(text: &str) -> i64 {
    micros(text).unwrap_or_else(|| panic!("no time is called {text}"))
}

/// Writes a time in the largest unit that divides it.
fn period(seconds: i64) -> String {
    match seconds {
        _ if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        _ if seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// What a line says of top-ups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToldTopUps {
    /// The units of the entry that count in no window.
    pub aside: u64,
    pub each: Vec<ToldTopUp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldTopUp {
    pub id: Uuid,
    pub units: u64,
    pub left: u64,
    pub ends_at: DateTime<Utc>,
}

impl ToldTopUps {
    /// Reads what stands first in a line, and the rest of it.
    pub fn parse(line: &str) -> (Self, &str) {
        let Some((told, rest)) = line.strip_prefix('+').and_then(|line| line.split_once(';'))
        else {
            return (Self::default(), line);
        };
        let (aside, each) = told.split_once(':').expect("units and top-ups");
        let each = each.split('/').filter(|_| !each.is_empty()).map(|top_up| {
            let parts: Vec<&str> = top_up.split(',').collect();
            let micros = parts[3].parse().expect("microseconds");
            ToldTopUp {
                id: parts[0].parse().expect("an id"),
                units: parts[1].parse().expect("units"),
                left: parts[2].parse().expect("units"),
                ends_at: DateTime::from_timestamp_micros(micros).expect("an instant"),
            }
        });
        let told = Self {
            aside: aside.parse().expect("units"),
            each: each.collect(),
        };
        (told, rest)
    }
}
