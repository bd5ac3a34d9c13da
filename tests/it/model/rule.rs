//! The domain's own rule, asked about lines that the states of a search name by small numbers.
//!
//! A search asks the same few questions again and again, so the answers are kept.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::account::{Refusal, Sums, Unknown, Verdict, decide};
use perdiem::domain::claim::Units;
use perdiem::domain::correction::{carry_on, give_back};
use perdiem::domain::grant::{Line, Total};
use perdiem::domain::policy::{Policy, PolicyId, PolicyName};
use perdiem::domain::window::Window;

use crate::support::desk::rule;

/// A line of some account; `NONE` before the first entry. Equal lines have equal ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(u16);

impl LineId {
    pub const NONE: LineId = LineId(0);
}

/// What most questions about a line are about.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    pub number: u8,
    /// Seconds after midnight.
    pub at: i32,
    pub version: u8,
    /// No open hold lapses before it, in seconds after midnight; none without holds.
    pub lapses_at: Option<i32>,
}

/// What the rule says of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Granted(LineId),
    /// Some window lacks room.
    Denied,
    /// The units are more than a `max`.
    NeverFits,
    /// The line was decided under a newer version.
    Outdated,
}

/// A claim as the rule sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Question {
    pub version: u8,
    pub units: u8,
    pub last: LineId,
    /// Seconds after midnight.
    pub now: i32,
}

/// A policy's version: its zone, and `max` units `per` window.
pub type Version = (&'static str, &'static [(u8, &'static str)]);

#[derive(Clone)]
enum Answer {
    Said(Said),
    Needs(Vec<Window>),
    /// Holds may have lapsed.
    Lapses,
}

/// The rule, under the versions of one policy.
pub struct Rule {
    versions: Vec<Policy>,
    lines: RefCell<Vec<(Line, Facts)>>,
    answers: RefCell<HashMap<(Question, Vec<u64>), Answer>>,
}

impl Rule {
    pub fn new(versions: &[Version]) -> Self {
        let numbered = versions.iter().zip(1..);
        Self {
            versions: numbered.map(|(version, n)| policy(n, *version)).collect(),
            lines: RefCell::default(),
            answers: RefCell::default(),
        }
    }

    /// How many versions there may be.
    pub fn versions(&self) -> u8 {
        u8::try_from(self.versions.len()).expect("few versions")
    }

    pub fn facts(&self, line: LineId) -> Facts {
        match line {
            LineId::NONE => Facts::default(),
            LineId(id) => self.lines.borrow()[usize::from(id) - 1].1,
        }
    }

    pub fn number(&self, line: LineId) -> u8 {
        self.facts(line).number
    }

    pub fn totals(&self, line: LineId) -> Vec<Total> {
        self.line(line)
            .map_or_else(Vec::new, |line| line.totals.to_vec())
    }

    /// Whether a counter would hold the same text for both: all but the number.
    pub fn have_one_text(&self, one: LineId, other: LineId) -> bool {
        match (self.line(one), self.line(other)) {
            (Some(one), Some(mut other)) => {
                other.number = one.number;
                one == other
            }
            (one, other) => one == other,
        }
    }

    /// Decides a claim. `sum` tells what the account's grants up to the last line took in a
    /// window.
    pub fn decide(&self, question: Question, sum: impl Fn(Window) -> u64) -> Said {
        match self.ask(question, &[], &[]) {
            Answer::Said(said) => said,
            Answer::Needs(windows) => {
                let sums: Vec<u64> = windows.iter().map(|window| sum(*window)).collect();
                match self.ask(question, &windows, &sums) {
                    Answer::Said(said) => said,
                    Answer::Needs(_) => panic!("the rule asks twice for {windows:?}"),
                    Answer::Lapses => panic!("the rule asks for lapses second"),
                }
            }
            Answer::Lapses => panic!("the lapses that are due come first"),
        }
    }

    /// Decides a claim on the line alone, if that is possible.
    pub fn decide_on_line(&self, question: Question) -> Option<Said> {
        match self.ask(question, &[], &[]) {
            Answer::Said(said) => Some(said),
            Answer::Needs(_) | Answer::Lapses => None,
        }
    }

    fn ask(&self, question: Question, windows: &[Window], sums: &[u64]) -> Answer {
        let key = (question, sums.to_vec());
        if let Some(answer) = self.answers.borrow().get(&key) {
            return answer.clone();
        }
        let last = self.line(question.last);
        let mut known = Sums::default();
        for (window, units) in windows.iter().zip(sums) {
            known.insert(*window, *units);
        }
        let units = Units::new(question.units.into()).expect("units");
        let now = instant(question.now);
        let verdict = decide(
            self.policy(question.version),
            units,
            last.as_ref(),
            &known,
            now,
        );
        let answer = match verdict {
            Ok(Verdict::Granted(line)) => Answer::Said(Said::Granted(self.intern(line))),
            Ok(Verdict::Refused(Refusal::Denied(_))) => Answer::Said(Said::Denied),
            Ok(Verdict::Refused(Refusal::NeverFits { .. })) => Answer::Said(Said::NeverFits),
            Ok(Verdict::WouldDeny(line)) => panic!("no version observes: {line:?}"),
            Ok(Verdict::Refused(other)) => panic!("no version says {other:?}"),
            Err(Unknown::Policy) => Answer::Said(Said::Outdated),
            Err(Unknown::Sums(windows)) => Answer::Needs(windows),
            Err(Unknown::Holds) => Answer::Lapses,
        };
        self.answers.borrow_mut().insert(key, answer.clone());
        answer
    }

    /// The line that gives `units` of a grant back: it lowers every current window that
    /// contains the grant's instant, and carries the others on.
    pub fn give_back(
        &self,
        question: Question,
        granted_at: i32,
        sum: impl Fn(Window) -> u64,
    ) -> LineId {
        let units = Units::new(question.units.into()).expect("units");
        let granted_at = instant(granted_at);
        self.next_line(question, sum, |policy, last, sums, now| {
            give_back(policy, units, granted_at, Some(last), sums, now)
        })
    }

    /// The line of a confirmation: all that is used stays used.
    pub fn carry_on(&self, question: Question, sum: impl Fn(Window) -> u64) -> LineId {
        self.next_line(question, sum, |policy, last, sums, now| {
            carry_on(policy, Some(last), sums, now)
        })
    }

    fn next_line(
        &self,
        question: Question,
        sum: impl Fn(Window) -> u64,
        rule: impl Fn(&Policy, &Line, &Sums, DateTime<Utc>) -> Result<Line, Unknown>,
    ) -> LineId {
        let policy = self.policy(question.version);
        let last = self.line(question.last).expect("there is a grant");
        let mut sums = Sums::default();
        loop {
            match rule(policy, &last, &sums, instant(question.now)) {
                Ok(line) => return self.intern(line),
                Err(Unknown::Sums(windows)) => {
                    for window in windows {
                        sums.insert(window, sum(window));
                    }
                }
                Err(unknown) => panic!("{unknown:?}"),
            }
        }
    }

    /// The same line, with another instant at which its first hold may lapse.
    pub fn with_lapses_at(&self, line: LineId, lapses_at: Option<i32>) -> LineId {
        let line = self.line(line).expect("a line");
        self.intern(Line {
            lapses_at: lapses_at.map(instant),
            ..line
        })
    }

    /// The same line, as if nothing were used.
    pub fn with_nothing_used(&self, line: LineId) -> LineId {
        let mut line = self.line(line).expect("a line");
        for total in Arc::make_mut(&mut line.totals) {
            total.used = 0;
        }
        self.intern(line)
    }

    /// The version's `max` for each of its limits.
    pub fn maxima(&self, version: u8) -> Vec<u64> {
        let limits = self.policy(version).rule.limits.iter();
        limits.map(|limit| limit.max).collect()
    }

    fn policy(&self, version: u8) -> &Policy {
        &self.versions[usize::from(version) - 1]
    }

    fn line(&self, line: LineId) -> Option<Line> {
        let index = usize::from(line.0).checked_sub(1)?;
        Some(self.lines.borrow()[index].0.clone())
    }

    fn intern(&self, line: Line) -> LineId {
        let mut lines = self.lines.borrow_mut();
        let known = lines.iter().position(|(known, _)| *known == line);
        let seconds = |at: DateTime<Utc>| {
            i32::try_from((at - midnight()).num_seconds()).expect("near midnight")
        };
        let index = known.unwrap_or_else(|| {
            let facts = Facts {
                number: u8::try_from(line.number).expect("few entries"),
                at: seconds(line.at),
                version: u8::try_from(line.policy_version).expect("few versions"),
                lapses_at: line.lapses_at.map(seconds),
            };
            lines.push((line, facts));
            lines.len() - 1
        });
        LineId(u16::try_from(index + 1).expect("few lines"))
    }
}

/// The midnight around which everything happens.
fn midnight() -> DateTime<Utc> {
    DateTime::from_timestamp(1_795_219_200, 0).expect("2026-11-21T00:00:00Z")
}

/// An instant by its seconds after midnight.
pub fn instant(seconds: i32) -> DateTime<Utc> {
    midnight() + TimeDelta::seconds(seconds.into())
}

fn policy(version: u32, (time_zone, limits): Version) -> Policy {
    Policy {
        id: PolicyId(1),
        name: PolicyName::new("benefit").expect("a name"),
        version,
        rule: rule(time_zone, limits),
        archived: false,
        effective_at: midnight(),
        changed_at: midnight(),
        changed_by: "model".to_owned(),
        reason: None,
    }
}
