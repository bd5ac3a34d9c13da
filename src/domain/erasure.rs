//! The erasure of a subject: when the rest of its account may get another id, and which texts name
//! the subject.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value};

use super::claim::Subject;
use super::grant::Line;
use super::identity::AccountId;
use super::limit::total::Total;
use super::policy::PolicyId;

/// How long after its entry a key belongs to the same claim.
pub const KEY_MEMORY: TimeDelta = TimeDelta::hours(48);

/// The steps of the erasure of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErasureStep {
    /// The texts of the account are being erased.
    Texts,
    /// The account continues to count under its old id, without a name.
    Counts,
    /// The account has a random id. The counter of the old id must be deleted.
    Counter,
    /// The keys of the account must be deleted.
    Keys,
}

impl ErasureStep {
    pub const ALL: [Self; 4] = [Self::Texts, Self::Counts, Self::Counter, Self::Keys];
}

/// An account in erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasingAccount {
    /// The id of the account: the keyed hash of policy and subject.
    pub account: AccountId,
    /// The random id that replaces it.
    pub replacement: AccountId,
    pub policy: PolicyId,
    /// The revision of the act that started the erasure.
    pub revision: u64,
    pub step: ErasureStep,
    /// The number of the last entry that the step has finished.
    pub done: u64,
    /// Whether the override of the account was ended.
    pub override_ended: bool,
}

/// The instant from which on nothing counts in an account: all units of its last line have
/// returned, and its holds have ended. `margin` is the largest difference of clocks. Limits per
/// `ever` are ignored: for them an erased subject is a new subject.
pub fn over_at(
    last: Option<&Line>,
    holds_end: Option<DateTime<Utc>>,
    margin: TimeDelta,
) -> Option<DateTime<Utc>> {
    let totals = last.into_iter().flat_map(|line| line.totals.iter());
    // After a move of its calendar, an account counts the units of a window that has ended in the next one too.
    let counts_on = |total: &Total| {
        let is_own = last.is_some_and(|line| line.calendar.is_some());
        let window = total.window().filter(|_| is_own)?;
        let lasts = window.end - window.start;
        // The next one can be a little longer, as a month is after February.
        Some(total.resets_at()? + lasts + lasts / 2)
    };
    let ends = totals.filter_map(|total| counts_on(total).or_else(|| total.resets_at()));
    let ends = ends.chain(holds_end);
    ends.chain(last.map(|line| line.at))
        .max()
        .and_then(|end| end.checked_add_signed(margin))
}

/// The instant from which on no key of an account belongs to a claim.
pub fn keys_over_at(last: &Line) -> DateTime<Utc> {
    let over = last.at.checked_add_signed(KEY_MEMORY);
    over.unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// Whether a text names a subject: the name stands in it with no letter or digit before or after
/// it.
pub fn names(text: &str, subject: &Subject) -> bool {
    let goes_on = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
    text.match_indices(subject.as_str()).any(|(start, name)| {
        let before = &text[..start];
        let behind = &text[start + name.len()..];
        !goes_on(before.chars().next_back()) && !goes_on(behind.chars().next())
    })
}

/// The text of an act without the filters that name a subject. The names of these filters remain in
/// `erased`. `None` if no filter names the subject.
pub fn without_subject(about: &str, subject: &Subject) -> Option<String> {
    let mut about: Map<String, Value> = serde_json::from_str(about).ok()?;
    let filters = about.get_mut("filters")?.as_object_mut()?;
    let is_of_subject = |(name, value): (&String, &Value)| {
        let value = value.as_str().unwrap_or_default();
        let is_named = match name.strip_prefix("metadata.") {
            Some(_) => names(value, subject),
            None => name == "subject" && value == subject.as_str(),
        };
        is_named.then(|| name.clone())
    };
    let erased: Vec<String> = filters.iter().filter_map(is_of_subject).collect();
    if erased.is_empty() {
        return None;
    }
    for name in &erased {
        filters.remove(name);
    }
    let names = about.entry("erased").or_insert(Value::Array(Vec::new()));
    let names = names.as_array_mut()?;
    names.extend(erased.into_iter().map(Value::String));
    Some(Value::Object(about).to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::limit::total::{LimitState, WindowUse};
    use crate::window::{Length, Window};

    #[test]
    fn an_account_is_over_after_its_windows_and_holds() {
        let at = |hour| DateTime::UNIX_EPOCH + TimeDelta::hours(hour);
        let total = |start, end| Total {
            max: 3,
            reset_at: None,
            state: LimitState::Calendar(WindowUse {
                division: Some(Length::Day.into()),
                used: 3,
                window: Window {
                    start: at(start),
                    end: at(end),
                },
            }),
        };
        let line = Line {
            number: 1,
            at: at(5),
            policy_version: 1,
            lapses_at: None,
            calendar: None,
            top_ups: None,
            totals: Arc::new([total(0, 24), total(-24, 12)]),
        };
        let margin = TimeDelta::hours(1);
        assert_eq!(over_at(None, None, margin), None);
        assert_eq!(over_at(Some(&line), None, margin), Some(at(25)));
        assert_eq!(over_at(Some(&line), Some(at(30)), margin), Some(at(31)));
        assert_eq!(keys_over_at(&line), at(53));
        // The next window of an account with a calendar of its own can count what was used in this one: here
        // up to half as much again as the 36 hours of the second one, after its end.
        let own = Line {
            calendar: Some(Arc::default()),
            ..line
        };
        assert_eq!(
            over_at(Some(&own), None, margin),
            Some(at(12 + 36 + 18 + 1))
        );
    }

    #[test]
    fn a_text_names_a_subject_by_the_whole_name() {
        let subject = Subject::new("+86 1").unwrap();
        for text in ["+86 1", "of (+86 1)", "+86 12, +86 1"] {
            assert!(names(text, &subject), "{text}");
        }
        for text in ["", "+86 12", "a+86 1", "+861"] {
            assert!(!names(text, &subject), "{text}");
        }
    }

    #[test]
    fn an_act_keeps_what_names_nobody() {
        let subject = Subject::new("ann").unwrap();
        let without = |about: &str| without_subject(about, &subject);
        let about = r#"{"as_of":3,"filters":{"metadata.mail":"x ann@y","policy":"ann","subject":"ann"},"format":"csv"}"#;
        let erased = r#"{"as_of":3,"erased":["metadata.mail","subject"],"filters":{"policy":"ann"},"format":"csv"}"#;
        assert_eq!(without(about).as_deref(), Some(erased));
        for other in [
            r#"{"filters":{"subject":"anna"}}"#,
            r#"{"accounts":3}"#,
            "none",
        ] {
            assert_eq!(without(other), None);
        }
    }
}
