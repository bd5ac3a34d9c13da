//! Limits as a request has them, before they are checked.

use chrono::{Datelike, NaiveDate};

use super::fit::{misfit, parse_step};
use super::per::Per;
use super::shape::{LIMITS_MOST, Limit, LimitKind, Shape};
use crate::calendar_words::parse_date;
use crate::claim::UNITS_MAX;
use crate::elapsed::Elapsed;
use crate::fault::Fault;
use crate::window::{Division, PartOfDay, WeekRun, Weeks};

/// The longest time in which a rate's bucket is refilled, in seconds: 4000 days.
const REFILL_MAX_SECONDS: u128 = 4000 * 86_400;

/// A limit as a request has it: any number and any text is possible.
#[derive(Debug, Clone, Default)]
pub struct LimitDraft {
    /// Any whole number.
    pub max: i128,
    /// Any text.
    pub per: String,
    /// Any text. `None` for a calendar limit.
    pub kind: Option<String>,
    /// Any text. Only a sliding limit has a step.
    pub step: Option<String>,
    /// Any whole number. Only a rate has a burst.
    pub burst: Option<i128>,
    /// Any text. Only a run of weeks begins on a date.
    pub from: Option<String>,
}

pub(super) fn check_count(limits: usize, place: &str, faults: &mut Vec<Fault>) {
    let detail = match limits {
        0 => "name at least one limit".to_owned(),
        1..=LIMITS_MOST => return,
        _ => format!("there are {limits} limits: write at most {LIMITS_MOST}"),
    };
    faults.push(Fault::new(place, detail));
}

/// Checks a policy's limits.
pub fn check_limits(drafts: &[LimitDraft], faults: &mut Vec<Fault>) -> Vec<Limit> {
    check_all("/limits", drafts, |_| Ok(()), faults)
}

fn check_all(
    place: &str,
    drafts: &[LimitDraft],
    check_shape: impl Fn(Shape) -> Result<(), &'static str>,
    faults: &mut Vec<Fault>,
) -> Vec<Limit> {
    check_count(drafts.len(), place, faults);
    let mut limits: Vec<Limit> = Vec::with_capacity(drafts.len());
    let mut names: Vec<Per> = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        let mut checking = Checking {
            place,
            index,
            faults,
        };
        let max = checking.max(draft.max, 1);
        let Some(per) = checking.per(&draft.per) else {
            continue;
        };
        checking.only_one(per, names.iter().copied());
        names.push(per);
        let shape = checking.shape(draft, max, per);
        if let Some(Err(detail)) = shape.map(&check_shape) {
            checking.fault("kind", detail);
        }
        if let (Some(max), Some(shape)) = (max, shape) {
            limits.push(Limit::new(max, shape));
        }
    }
    limits
}

/// Checks the limits that all subjects of a policy share.
pub fn check_shared(drafts: &[LimitDraft], faults: &mut Vec<Fault>) -> Vec<Limit> {
    if drafts.is_empty() {
        return Vec::new();
    }
    let is_shared = |shape: Shape| match shape {
        Shape::Calendar(_) | Shape::Ever => Ok(()),
        Shape::FromFirstClaim(_) | Shape::Sliding { .. } | Shape::Rate { .. } => Err(
            "a total is of the calendar, such as per day or per 6h of kind calendar, or per ever",
        ),
    };
    check_all("/total", drafts, is_shared, faults)
}

/// Finds what is wrong with one limit.
pub(super) struct Checking<'a> {
    /// Where the limits are, such as `/limits`.
    pub place: &'a str,
    pub index: usize,
    pub faults: &'a mut Vec<Fault>,
}

impl Checking<'_> {
    fn fault(&mut self, field: &str, detail: impl std::fmt::Display) {
        let pointer = format!("{}/{}/{field}", self.place, self.index);
        self.faults.push(Fault::new(pointer, detail));
    }

    fn whole(&mut self, field: &str, given: i128, least: u64) -> Option<u64> {
        let number = u64::try_from(given).ok();
        let number = number.filter(|number| (least..=UNITS_MAX).contains(number));
        if number.is_none() {
            let detail = format!("{field} is a whole number from {least} to {UNITS_MAX}");
            self.fault(field, detail);
        }
        number
    }

    pub fn max(&mut self, given: i128, least: u64) -> Option<u64> {
        self.whole("max", given, least)
    }

    pub fn per(&mut self, given: &str) -> Option<Per> {
        let per = given.parse();
        per.map_err(|error| self.fault("per", error)).ok()
    }

    pub fn only_one(&mut self, per: Per, mut others: impl Iterator<Item = Per>) {
        if others.any(|other| other == per) {
            let detail = format!("there is a limit per {per} already; keep one of them");
            self.fault("per", detail);
        }
    }

    fn kind(&mut self, given: &str) -> Option<LimitKind> {
        let kind = LimitKind::ALL.into_iter().find(|of| of.as_str() == given);
        if kind.is_none() {
            self.fault("kind", "write calendar, from_first_claim, sliding or rate");
        }
        kind
    }

    fn shape(&mut self, draft: &LimitDraft, max: Option<u64>, per: Per) -> Option<Shape> {
        let kind = match &draft.kind {
            Some(given) => Some(self.kind(given)?),
            None => None,
        };
        let shape = match (per, kind) {
            (Per::Calendar(length), None | Some(LimitKind::Calendar)) => length.into(),
            (Per::Ever, None | Some(LimitKind::Calendar)) => Shape::Ever,
            (Per::Weeks(weeks), None | Some(LimitKind::Calendar)) => {
                let from = self.from(draft.from.as_deref(), weeks)?;
                Shape::Calendar(Division::Weeks(WeekRun { weeks, from }))
            }
            (Per::Calendar(_) | Per::Weeks(_) | Per::Ever, Some(kind)) => {
                let kind = kind.as_str();
                let detail = format!(
                    "a limit per {per} is of the calendar: leave kind out, or write per as a \
                     duration, such as \"24h\", to which {kind} applies"
                );
                self.fault("kind", detail);
                return None;
            }
            (Per::Elapsed(per), None) => {
                let windows = match PartOfDay::new(per) {
                    Ok(_) => format!("calendar (windows of {per} divide each local day), "),
                    Err(_) => String::new(),
                };
                let detail = format!(
                    "{per} is a duration: write {windows}from_first_claim (all units return {per} after \
                     the first grant), sliding (each unit returns {per} after it was taken) or rate \
                     (units return evenly); or write per as a calendar word, such as \"day\""
                );
                self.fault("kind", detail);
                return None;
            }
            (Per::Elapsed(per), Some(LimitKind::Calendar)) => {
                let part = PartOfDay::new(per);
                let part = part.map_err(|error| self.fault("per", error)).ok()?;
                Shape::Calendar(Division::PartOfDay(part))
            }
            (Per::Elapsed(per), Some(LimitKind::FromFirstClaim)) => Shape::FromFirstClaim(per),
            (Per::Elapsed(per), Some(LimitKind::Sliding)) => Shape::Sliding {
                per,
                step: self.step(draft.step.as_deref(), per),
            },
            (Per::Elapsed(per), Some(LimitKind::Rate)) => Shape::Rate {
                per,
                burst: self.burst(draft.burst, max, per),
            },
        };
        if draft.step.is_some() && shape.kind() != LimitKind::Sliding {
            self.fault("step", "only a sliding limit has a step: leave it out");
        }
        if draft.burst.is_some() && shape.kind() != LimitKind::Rate {
            self.fault("burst", "only a rate has a burst: leave it out");
        }
        if draft.from.is_some() && shape.first_day().is_none() {
            self.fault(
                "from",
                "only a limit per 2 weeks or more has a first day: leave it out",
            );
        }
        // If the step cannot be read, the bounds of `max` are not known.
        let has_wrong_step =
            matches!(shape, Shape::Sliding { step: None, .. }) && draft.step.is_some();
        let misfit = max.and_then(|max| misfit(shape, max));
        if let Some(detail) = misfit.filter(|_| !has_wrong_step) {
            self.fault("max", detail);
        }
        Some(shape)
    }

    /// The first day of a run of weeks.
    fn from(&mut self, given: Option<&str>, weeks: Weeks) -> Option<NaiveDate> {
        let date = given.and_then(parse_date);
        let date = date.filter(|date| (0..=9999).contains(&date.year()));
        if date.is_none() {
            let detail = format!(
                "write the first day of a window of {} weeks as a date, such as \"2026-01-05\"",
                weeks.get()
            );
            self.fault("from", detail);
        }
        date
    }

    fn step(&mut self, given: Option<&str>, per: Elapsed) -> Option<Elapsed> {
        let step = parse_step(given?, per);
        step.map_err(|detail| self.fault("step", detail)).ok()
    }

    fn burst(&mut self, given: Option<i128>, max: Option<u64>, per: Elapsed) -> Option<u64> {
        let burst = self.whole("burst", given?, 1)?;
        if let Some(max) = max {
            let most = REFILL_MAX_SECONDS * u128::from(max) / u128::from(per.seconds());
            if u128::from(burst) > most {
                let detail = format!(
                    "a burst returns within 4000 days: write {most} at most, or a higher max"
                );
                self.fault("burst", detail);
            }
        }
        Some(burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Length;

    /// A limit per a text; the rest as `with` says.
    fn draft(max: i128, per: &str, with: impl Fn(&mut LimitDraft)) -> LimitDraft {
        let mut draft = LimitDraft {
            max,
            per: per.to_owned(),
            ..LimitDraft::default()
        };
        with(&mut draft);
        draft
    }

    fn kind(kind: &str) -> impl Fn(&mut LimitDraft) {
        move |draft| draft.kind = Some(kind.to_owned())
    }

    fn with_step(step: &str) -> impl Fn(&mut LimitDraft) {
        move |draft| {
            draft.kind = Some("sliding".to_owned());
            draft.step = Some(step.to_owned());
        }
    }

    fn with_burst(burst: i128) -> impl Fn(&mut LimitDraft) {
        move |draft| {
            draft.kind = Some("rate".to_owned());
            draft.burst = Some(burst);
        }
    }

    fn from(date: &str) -> impl Fn(&mut LimitDraft) {
        move |draft| draft.from = Some(date.to_owned())
    }

    #[test]
    fn weeks_begin_on_a_date() {
        let write = "write the first day of a window of 2 weeks as a date";
        is_wrong(draft(80, "2 weeks", |_| {}), "from", write);
        for wrong in [
            "",
            "monday",
            "2026-1-5",
            "2026-02-30",
            " 2026-01-05",
            "+2026-01-05",
            "-0001-01-05",
            "12026-01-05",
            "2026-01-05T00:00:00Z",
        ] {
            is_wrong(draft(80, "2 weeks", from(wrong)), "from", write);
        }
        for per in ["week", "day", "ever"] {
            is_wrong(draft(80, per, from("2026-01-05")), "from", "leave it out");
        }
        let mut sliding = draft(80, "24h", kind("sliding"));
        sliding.from = Some("2026-01-05".to_owned());
        is_wrong(sliding, "from", "leave it out");
        is_wrong(
            draft(80, "2 weeks", kind("sliding")),
            "kind",
            "leave kind out",
        );
    }

    fn elapsed(text: &str) -> Elapsed {
        text.parse().unwrap()
    }

    /// Each fault's pointer and detail.
    fn faults(drafts: &[LimitDraft]) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        check_limits(drafts, &mut faults);
        let faults = faults.into_iter();
        faults.map(|fault| (fault.pointer, fault.detail)).collect()
    }

    /// The one fault of a limit is at a field, and its detail says what to write.
    #[track_caller]
    fn is_wrong(draft: LimitDraft, field: &str, says: &str) {
        let found = faults(std::slice::from_ref(&draft));
        let [(pointer, detail)] = &found[..] else {
            panic!("{draft:?}: {found:?}")
        };
        let place = format!("/limits/0/{field}");
        assert_eq!(pointer, &place, "{draft:?}: {detail}");
        assert!(detail.contains(says), "{draft:?}: {detail}");
    }

    #[test]
    fn each_kind_can_be_written() {
        let day = elapsed("24h");
        let second = elapsed("1s");
        let sliding = |step: Option<&str>| Shape::Sliding {
            per: day,
            step: step.map(elapsed),
        };
        let rate = |burst| Shape::Rate { per: second, burst };
        let part = PartOfDay::new(elapsed("6h")).unwrap();
        let part = Shape::Calendar(Division::PartOfDay(part));
        let weeks = Shape::Calendar(Division::Weeks(WeekRun {
            weeks: Weeks::new(2).unwrap(),
            from: "2026-01-05".parse().unwrap(),
        }));
        for (draft, max, shape) in [
            (draft(3, "day", |_| {}), 3, Length::Day.into()),
            (draft(3, "day", kind("calendar")), 3, Length::Day.into()),
            (draft(5, "360m", kind("calendar")), 5, part),
            (draft(80, "2 weeks", from("2026-01-05")), 80, weeks),
            (draft(1, "ever", |_| {}), 1, Shape::Ever),
            (draft(1, "ever", kind("calendar")), 1, Shape::Ever),
            (
                draft(5, "1d", kind("from_first_claim")),
                5,
                Shape::FromFirstClaim(day),
            ),
            (draft(100, "86400s", kind("sliding")), 100, sliding(None)),
            (
                draft(500, "24h", with_step("1h")),
                500,
                sliding(Some("60m")),
            ),
            (draft(5, "24h", with_step("24h")), 5, sliding(Some("24h"))),
            // 100 steps of 864 seconds.
            (draft(5, "24h", with_step("864s")), 5, sliding(Some("864s"))),
            (draft(10, "1s", kind("rate")), 10, rate(None)),
            (draft(10, "1s", with_burst(1)), 10, rate(Some(1))),
            (
                draft(1_000_000, "1s", with_burst(20)),
                1_000_000,
                rate(Some(20)),
            ),
            (
                draft(1, "1s", with_burst(4000 * 86_400)),
                1,
                rate(Some(345_600_000)),
            ),
        ] {
            let mut faults = Vec::new();
            let limits = check_limits(std::slice::from_ref(&draft), &mut faults);
            assert_eq!(limits, [Limit::new(max, shape)], "{draft:?}: {faults:?}");
            assert!(faults.is_empty(), "{faults:?}");
        }
    }

    #[test]
    fn a_kind_that_does_not_belong_to_the_time_is_told() {
        for per in ["24h", "60s", "7d", "6h"] {
            for word in ["from_first_claim", "sliding", "rate", "\"day\""] {
                is_wrong(draft(3, per, |_| {}), "kind", word);
            }
        }
        is_wrong(draft(3, "6h", |_| {}), "kind", "calendar (windows of 6h");
        is_wrong(draft(3, "7h", kind("calendar")), "per", "does not divide");
        for per in ["day", "minute", "ever"] {
            for other in ["from_first_claim", "sliding", "rate"] {
                is_wrong(draft(3, per, kind(other)), "kind", "leave kind out");
                is_wrong(draft(3, per, kind(other)), "kind", "\"24h\"");
            }
        }
        for unknown in ["fixed", "", "Sliding", "from-first-claim"] {
            let write = "write calendar, from_first_claim, sliding or rate";
            is_wrong(draft(3, "24h", kind(unknown)), "kind", write);
            is_wrong(draft(3, "day", kind(unknown)), "kind", write);
        }
    }

    #[test]
    fn no_two_limits_have_one_name() {
        let sliding = |max, per| draft(max, per, kind("sliding"));
        for (one, two, name) in [
            (draft(3, "day", |_| {}), draft(4, "day", |_| {}), "day"),
            (draft(3, "ever", |_| {}), draft(4, "ever", |_| {}), "ever"),
            (sliding(3, "24h"), sliding(4, "1d"), "24h"),
            (sliding(3, "24h"), draft(3, "1440m", kind("rate")), "24h"),
            (sliding(3, "60s"), draft(3, "1m", with_burst(2)), "1m"),
            (sliding(3, "6h"), draft(3, "360m", kind("calendar")), "6h"),
        ] {
            let found = faults(&[one, two]);
            let detail = format!("there is a limit per {name} already; keep one of them");
            assert_eq!(found, [("/limits/1/per".to_owned(), detail)]);
        }
        // Also where the first one has another fault.
        let found = faults(&[draft(3, "24h", |_| {}), sliding(3, "1d")]);
        let pointers: Vec<&str> = found.iter().map(|(pointer, _)| &**pointer).collect();
        assert_eq!(pointers, ["/limits/0/kind", "/limits/1/per"]);
        // A day of the calendar is not a time of 24 hours.
        assert_eq!(faults(&[draft(3, "day", |_| {}), sliding(3, "24h")]), []);
        assert_eq!(faults(&[])[0].0, "/limits");
    }

    #[test]
    fn a_step_is_of_a_sliding_limit() {
        let says = "write a step that does, such as 15m";
        is_wrong(draft(5, "24h", with_step("7h")), "step", says);
        // What fits under the max is not told before the step is right.
        is_wrong(draft(500, "24h", with_step("7h")), "step", says);
        let leave_out = "only a sliding limit has a step: leave it out";
        for (per, other) in [
            ("day", None),
            ("ever", None),
            ("24h", Some("from_first_claim")),
            ("24h", Some("rate")),
        ] {
            let with = |draft: &mut LimitDraft| {
                draft.kind = other.map(str::to_owned);
                draft.step = Some("1h".to_owned());
            };
            is_wrong(draft(5, per, with), "step", leave_out);
        }
    }

    #[test]
    fn an_exact_log_needs_a_small_max() {
        for (per, step) in [
            ("24h", "15m"),
            ("1s", "1s"),
            ("400d", "96h"),
            ("101s", "101s"),
        ] {
            let says = format!("a max of 100 at most: give the limit a step, such as \"{step}\"");
            is_wrong(draft(101, per, kind("sliding")), "max", &says);
            // What the detail says to write is right.
            assert_eq!(faults(&[draft(101, per, with_step(step))]), []);
        }
    }

    #[test]
    fn a_burst_is_of_a_rate_and_returns_in_time() {
        is_wrong(
            draft(5, "1s", with_burst(0)),
            "burst",
            "a whole number from 1 to",
        );
        is_wrong(
            draft(5, "1s", with_burst(-1)),
            "burst",
            "a whole number from 1 to",
        );
        is_wrong(
            draft(5, "1s", with_burst(1 << 53)),
            "burst",
            "a whole number from 1 to",
        );
        let most = "within 4000 days: write 10 at most, or a higher max";
        is_wrong(draft(1, "400d", with_burst(11)), "burst", most);
        assert_eq!(faults(&[draft(1, "400d", with_burst(10))]), []);
        assert_eq!(faults(&[draft(2, "400d", with_burst(20))]), []);
        is_wrong(
            draft(7, "24h", with_burst(28_001)),
            "burst",
            "write 28000 at most",
        );
        // The max alone is wrong here.
        is_wrong(
            draft(0, "24h", with_burst(5000)),
            "max",
            "a whole number from 1 to",
        );
        let leave_out = "only a rate has a burst: leave it out";
        for (per, other) in [
            ("day", None),
            ("24h", Some("from_first_claim")),
            ("24h", Some("sliding")),
        ] {
            let with = |draft: &mut LimitDraft| {
                draft.kind = other.map(str::to_owned);
                draft.burst = Some(3);
            };
            is_wrong(draft(5, per, with), "burst", leave_out);
        }
    }

    #[test]
    fn a_rate_has_a_million_units_a_second_at_most() {
        let says = "write a max of 1000000 at most per 1s";
        is_wrong(draft(1_000_001, "1s", kind("rate")), "max", says);
        is_wrong(draft(1_000_001, "1s", with_burst(5)), "max", says);
        let says = "write a max of 60000000 at most per 1m";
        is_wrong(draft(60_000_001, "60s", kind("rate")), "max", says);
        assert_eq!(faults(&[draft(60_000_000, "60s", kind("rate"))]), []);
    }

    #[test]
    fn a_time_has_bounds() {
        for per in ["0s", "401d", "9601h", "1w", "24", "", "1.5h", "-1s", "Day"] {
            let says = "a duration from 1s to 400d, such as 24h";
            is_wrong(draft(3, per, kind("sliding")), "per", says);
        }
        for per in ["1s", "400d", "9600h"] {
            assert_eq!(faults(&[draft(3, per, kind("sliding"))]), []);
        }
        is_wrong(
            draft(0, "day", |_| {}),
            "max",
            "a whole number from 1 to 9007199254740991",
        );
        is_wrong(
            draft(1 << 53, "day", |_| {}),
            "max",
            "a whole number from 1 to",
        );
    }

    #[test]
    fn every_fault_is_told_at_once() {
        let with = |draft: &mut LimitDraft| {
            draft.step = Some("1h".to_owned());
            draft.burst = Some(3);
        };
        let found = faults(&[
            draft(0, "day", with),
            draft(3, "fortnight", |_| {}),
            draft(101, "24h", kind("sliding")),
        ]);
        let pointers: Vec<&str> = found.iter().map(|(pointer, _)| &**pointer).collect();
        let expected = [
            "/limits/0/max",
            "/limits/0/step",
            "/limits/0/burst",
            "/limits/1/per",
            "/limits/2/max",
        ];
        assert_eq!(pointers, expected);
    }
}
