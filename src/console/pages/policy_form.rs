//! The form of a policy: its fields, what they mean for `/v1`, and what is wrong with them.

use std::cell::RefCell;

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::parts::Field;
use crate::visit::FormFields;
use api::instant::written;
use api::policies::{LimitBody, PolicyAnswer};
use api::problem::InvalidPart;
use api::tiers::TierBody;

/// The fields of the form that are texts of the policy.
const TEXTS: [&str; 14] = [
    "description",
    "time_zone",
    "day_starts_at",
    "week_starts_on",
    "calendar",
    "active_from",
    "active_until",
    "mode",
    "durability",
    "on_ledger_outage",
    "warn_at",
    "idempotency_days",
    "tiers",
    "total",
];
/// Those that say how the change is made.
const OF_CHANGE: [&str; 3] = ["effective", "reason", "orphaned_overrides"];
const WEEKDAYS: [(&str, &str); 7] = [
    ("monday", "Monday"),
    ("tuesday", "Tuesday"),
    ("wednesday", "Wednesday"),
    ("thursday", "Thursday"),
    ("friday", "Friday"),
    ("saturday", "Saturday"),
    ("sunday", "Sunday"),
];
const KINDS: [(&str, &str); 5] = [
    ("", "per window of the calendar, or in all"),
    ("calendar", "in each part of a local day"),
    ("sliding", "in any span of this length"),
    ("from_first_claim", "in a span from the first claim"),
    ("rate", "returning evenly"),
];

/// A limit as the form has it.
#[derive(Debug, Clone, Default)]
struct LimitRow {
    max: String,
    per: String,
    kind: String,
    /// The step of a sliding limit, the burst of a rate, or the first day of several weeks.
    more: String,
}

/// One in a line.
fn in_lines(items: &[impl ToString]) -> String {
    let lines: Vec<String> = items.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn written_lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty())
}

/// What somebody wants a policy to be.
#[derive(Debug, Clone)]
pub struct PolicyDraft {
    pub name: String,
    /// The version that the form was made from: a number, `new` or `archived`.
    pub version: String,
    texts: Vec<(&'static str, String)>,
    limits: Vec<LimitRow>,
    of_change: Vec<(&'static str, String)>,
}

impl PolicyDraft {
    /// A new policy, with what most policies have.
    pub fn new() -> Self {
        let mut draft = Self {
            name: String::new(),
            version: "new".to_owned(),
            texts: TEXTS.map(|name| (name, String::new())).to_vec(),
            limits: vec![LimitRow::default()],
            of_change: OF_CHANGE.map(|name| (name, String::new())).to_vec(),
        };
        draft.limits[0].per = "day".to_owned();
        draft
    }

    /// The settings of a version.
    pub fn of(of: &PolicyAnswer, version: String) -> Self {
        let limits = of.limits.iter().map(|limit| LimitRow {
            max: limit.max.to_string(),
            per: limit.per.to_string(),
            kind: limit.kind.as_deref().unwrap_or_default().to_owned(),
            more: {
                let step = limit.step.map(|step| step.to_string());
                let burst = limit.burst.map(|burst| burst.to_string());
                let from = limit.from.map(|from| from.to_string());
                step.or(burst).or(from).unwrap_or_default()
            },
        });
        let text = |name: &str| match name {
            "description" => of.description.clone(),
            "time_zone" => of.time_zone.clone(),
            "day_starts_at" => of.day_starts_at.clone(),
            "week_starts_on" => of.week_starts_on.to_string(),
            "calendar" => of.calendar.to_string(),
            "active_from" => of.active_from.map_or_else(String::new, written),
            "active_until" => of.active_until.map_or_else(String::new, written),
            "mode" => of.mode.to_string(),
            "durability" => of.durability.to_string(),
            "on_ledger_outage" => of.on_ledger_outage.to_string(),
            "warn_at" => {
                let levels: Vec<String> = of.warn_at.iter().map(u8::to_string).collect();
                levels.join(", ")
            }
            "idempotency_days" => {
                (of.idempotency_days).map_or_else(String::new, |days| days.to_string())
            }
            "tiers" => in_lines(&of.tiers),
            _ => in_lines(&of.total),
        };
        Self {
            name: of.name.clone(),
            version,
            texts: TEXTS.map(|name| (name, text(name))).to_vec(),
            limits: limits.collect(),
            of_change: OF_CHANGE.map(|name| (name, String::new())).to_vec(),
        }
    }

    /// What a form sends.
    pub fn read(name: &str, form: &FormFields) -> Self {
        let columns = ["max", "per", "kind", "more"].map(|column| form.all(column));
        let at = |column: usize, row: usize| {
            let value = columns[column].get(row).copied();
            value.unwrap_or_default().to_owned()
        };
        let row = |index: usize| LimitRow {
            max: at(0, index),
            per: at(1, index),
            kind: at(2, index),
            more: at(3, index),
        };
        let rows = (0..columns[0].len()).map(row);
        let is_used = |row: &LimitRow| !row.max.is_empty() || !row.more.is_empty();
        let mut limits: Vec<LimitRow> = rows.filter(is_used).collect();
        if limits.is_empty() || form.has("add") {
            limits.push(LimitRow::default());
        }
        let texts = |names: &[&'static str]| {
            let text = |name: &&'static str| (*name, form.get(name).to_owned());
            names.iter().map(text).collect()
        };
        Self {
            name: name.to_owned(),
            version: form.get("version").to_owned(),
            texts: texts(&TEXTS),
            limits,
            of_change: texts(&OF_CHANGE),
        }
    }

    fn text(&self, name: &str) -> &str {
        let mut all = self.texts.iter().chain(&self.of_change);
        all.find(|(known, _)| *known == name)
            .map_or("", |(_, text)| text)
    }

    /// Whether the draft says what becomes of orphaned overrides and tiers.
    pub fn decides_on_orphans(&self) -> bool {
        !self.text("orphaned_overrides").is_empty()
    }

    /// Whether the change takes effect when it is made.
    pub fn is_at_once(&self) -> bool {
        ["", "now"].contains(&self.text("effective"))
    }

    /// The settings alone, as a backtest takes them.
    pub fn settings(&self) -> Result<Value, Vec<InvalidPart>> {
        self.body_of(&self.texts)
    }

    /// The body of `PUT /v1/policies/{policy}`.
    ///
    /// # Errors
    /// What is no number.
    pub fn body(&self) -> Result<Value, Vec<InvalidPart>> {
        let texts = [&self.texts[..], &self.of_change[..]].concat();
        self.body_of(&texts)
    }

    fn body_of(&self, texts: &[(&'static str, String)]) -> Result<Value, Vec<InvalidPart>> {
        let faults = RefCell::new(Vec::new());
        let fault = |place: &str, says: String| {
            faults.borrow_mut().push(InvalidPart::body(place, says));
            Value::Null
        };
        let whole = |place: String, text: &str| match text.parse::<u64>() {
            Ok(number) => json!(number),
            Err(_) => fault(&place, format!("write a whole number instead of {text:?}")),
        };
        let tier = |line: &str| match line.parse::<TierBody>() {
            Ok(tier) => json!(tier),
            Err(says) => fault("/tiers", format!("{says} in a line, instead of {line:?}")),
        };
        let total = |line: &str| match line.parse::<LimitBody>() {
            Ok(limit) => json!(limit),
            Err(says) => fault("/total", format!("{says} in a line, instead of {line:?}")),
        };
        let mut limits = Vec::new();
        for (index, row) in self.limits.iter().enumerate() {
            let mut limit = Map::new();
            limit.insert(
                "max".to_owned(),
                whole(format!("/limits/{index}/max"), &row.max),
            );
            limit.insert("per".to_owned(), json!(row.per));
            if !row.kind.is_empty() {
                limit.insert("kind".to_owned(), json!(row.kind));
            }
            match (&*row.kind, &*row.more) {
                (_, "") => {}
                ("rate", burst) => {
                    let burst = whole(format!("/limits/{index}/burst"), burst);
                    limit.insert("burst".to_owned(), burst);
                }
                ("" | "calendar", from) => {
                    limit.insert("from".to_owned(), json!(from));
                }
                (_, step) => {
                    limit.insert("step".to_owned(), json!(step));
                }
            }
            limits.push(Value::Object(limit));
        }
        // What a policy must have is sent in any case: `/v1` says what to write.
        let is_sent = |(name, text): &&(&str, String)| !text.is_empty() || *name == "time_zone";
        let given = texts.iter().filter(is_sent);
        let texts = given.map(|(name, text)| {
            let value = match *name {
                "warn_at" => {
                    let levels = text.split(',').map(str::trim);
                    levels
                        .map(|level| whole("/warn_at".to_owned(), level))
                        .collect()
                }
                "idempotency_days" => whole("/idempotency_days".to_owned(), text),
                "tiers" => written_lines(text).map(tier).collect(),
                "total" => written_lines(text).map(total).collect(),
                _ => json!(text),
            };
            ((*name).to_owned(), value)
        });
        let mut body: Map<String, Value> = texts.collect();
        body.insert("limits".to_owned(), Value::Array(limits));
        let faults = faults.take();
        if faults.is_empty() {
            Ok(Value::Object(body))
        } else {
            Err(faults)
        }
    }

    /// The draft in hidden fields, for the form that makes the change.
    pub fn hidden(&self) -> Markup {
        let texts = self.texts.iter().chain(&self.of_change);
        // Buttons may say it.
        let texts = texts.filter(|(name, text)| *name != "orphaned_overrides" || !text.is_empty());
        html! {
            input type="hidden" name="version" value=(self.version);
            @for (name, text) in texts { input type="hidden" name=(name) value=(text); }
            @for row in &self.limits {
                input type="hidden" name="max" value=(row.max);
                input type="hidden" name="per" value=(row.per);
                input type="hidden" name="kind" value=(row.kind);
                input type="hidden" name="more" value=(row.more);
            }
        }
    }

    /// The fields of the form.
    pub fn fields(&self, faults: &[InvalidPart]) -> Markup {
        let about = |place: &str| {
            let is_about = |fault: &&InvalidPart| {
                let pointer = fault.pointer.as_deref().unwrap_or_default();
                pointer.trim_start_matches('#').starts_with(place)
            };
            faults
                .iter()
                .find(is_about)
                .map(|fault| fault.detail.clone())
        };
        let field = |name: &'static str, label: &'static str, hint: &'static str, kind: Input| {
            let fault = about(&format!("/{name}"));
            let field = Field {
                name,
                label,
                hint,
                value: self.text(name),
                fault: fault.as_deref(),
                required: matches!(name, "time_zone" | "reason"),
            };
            match kind {
                Input::Line => field.line(),
                Input::Lines => field.lines(),
                Input::Choice(values) => field.choice(values),
            }
        };
        html! {
            (field("description", "Description", "What the policy is for, in your words.", Input::Lines))
            fieldset {
                legend { "Limits of each subject" }
                @for (index, row) in self.limits.iter().enumerate() {
                    (limit_row(index, row, about(&format!("/limits/{index}"))))
                }
                @if let Some(fault) = about("/limits").filter(|_| faults.iter().any(is_about_all_limits)) {
                    p.fault { (fault) }
                }
                button.plain name="add" value="limit" formnovalidate { "Add a limit" }
                p.hint { "To remove a limit, empty its number." }
            }
            (field("time_zone", "Time zone", "Such as Asia/Shanghai or +08:00. Days begin at its midnight.", Input::Line))
            (field("day_starts_at", "Days begin at", "A time such as 06:00. Empty: midnight.", Input::Line))
            (field("week_starts_on", "Weeks begin on", "", Input::Choice(&WEEKDAYS)))
            (field("calendar", "Calendar", "", Input::Choice(&[
                ("policy", "policy: all subjects have the calendar of the policy"),
                ("subject", "subject: each subject can have its own time zone, and its own first day"),
                ("first_grant", "first_grant: the same, counted from the day of a subject's first entry"),
            ])))
            (field("active_from", "Active from", "An instant such as 2026-12-01T00:00:00Z. Empty: always.", Input::Line))
            (field("active_until", "Active until", "An instant. Empty: without an end.", Input::Line))
            (field("mode", "Mode", "", Input::Choice(&[
                ("enforce", "enforce: claims over the limit are denied"),
                ("observe", "observe: every claim is granted, and marked if it would be denied"),
            ])))
            (field("durability", "Durability", "", Input::Choice(&[
                ("recorded", "recorded: a grant is on disk before it is answered"),
                ("counted", "counted: Redis answers, and the record follows"),
            ])))
            (field("on_ledger_outage", "Without the ledger", "", Input::Choice(&[
                ("refuse", "refuse: claims wait until the ledger is back"),
                ("count", "count: Redis decides meanwhile"),
            ])))
            (field("warn_at", "Warn at", "Percents such as 80, 100: the entry that reaches one is marked. Empty: none.", Input::Line))
            (field("idempotency_days", "Idempotency days", "For at least how many days a claim can be repeated with its key. Empty: 400.", Input::Line))
            (field("tiers", "Tiers", "One in a line, such as gold: 10 per day, 30 per week. Other maxima for the subjects that are put into it.", Input::Lines))
            (field("total", "Total of all subjects", "One in a line, such as 1000 per day: all subjects share it.", Input::Lines))
            (field("effective", "Takes effect", "now, next_window, a local date, or an instant. Empty: now.", Input::Line))
            (field("orphaned_overrides", "Overrides without their limit, subjects without their tier", "", Input::Choice(&[
                ("", "ask me"),
                ("keep", "keep them, without an effect"),
                ("drop", "drop them"),
            ])))
            (field("reason", "Reason", "Why you change it. It stays in the record.", Input::Lines))
        }
    }
}

fn is_about_all_limits(fault: &InvalidPart) -> bool {
    fault.pointer.as_deref() == Some("#/limits")
}

enum Input {
    Line,
    Lines,
    Choice(&'static [(&'static str, &'static str)]),
}

fn limit_row(index: usize, row: &LimitRow, fault: Option<String>) -> Markup {
    let id = |column: &str| format!("{column}-{index}");
    let described = fault.is_some().then(|| id("limit-fault"));
    html! {
        div.limit {
            label for=(id("max")) { "Units" }
            input id=(id("max")) name="max" inputmode="numeric" size="8" value=(row.max) aria-describedby=[described];
            label for=(id("per")) { "per" }
            input id=(id("per")) name="per" size="8" value=(row.per) list="lengths";
            label for=(id("kind")) { "counted" }
            select id=(id("kind")) name="kind" {
                @for (value, says) in KINDS { option value=(value) selected[value == row.kind] { (says) } }
            }
            label for=(id("more")) { "step, burst or first day" }
            input id=(id("more")) name="more" size="10" value=(row.more);
            @if let Some(fault) = fault { p.fault id=(id("limit-fault")) { (fault) } }
        }
        @if index == 0 {
            datalist id="lengths" {
                @for length in ["minute", "hour", "day", "week", "month", "quarter", "year", "2 weeks", "ever", "24h", "7d"] {
                    option value=(length) {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_comes_back_as_it_went_into_the_form() {
        let version = json!({
            "name": "benefit", "version": 3, "description": "d", "time_zone": "Asia/Shanghai",
            "limits": [
                { "max": 3, "per": "day" },
                { "max": 500, "per": "24h", "kind": "sliding", "step": "1h" },
                { "max": 10, "per": "1s", "kind": "rate", "burst": 20 },
            ],
            "day_starts_at": "06:00", "week_starts_on": "sunday",
            "calendar": "first_grant", "active_from": null,
            "active_until": "2026-12-01T00:00:00Z", "paused": false, "mode": "enforce",
            "durability": "recorded", "on_ledger_outage": "refuse", "warn_at": [80, 100],
            "idempotency_days": 30,
            "total": [{ "max": 1000, "per": "day" }, { "max": 5, "per": "6h", "kind": "calendar" }],
            "tiers": [{ "name": "gold", "limits": [{ "max": 10, "per": "day" }, { "max": 90, "per": "1s" }] },
                { "name": "silver", "limits": [{ "max": 5, "per": "day" }] }],
            "archived": false,
            "effective_at": "2026-11-01T00:00:00Z", "changed_at": "2026-11-01T00:00:00Z",
            "changed_by": "x", "reason": null,
        });
        let version: PolicyAnswer = serde_json::from_value(version).unwrap();
        let body = PolicyDraft::of(&version, "3".to_owned()).body().unwrap();
        let again: api::policies::PolicyBody = serde_json::from_value(body).unwrap();
        let expected = api::policies::PolicyBody::from(version);
        assert_eq!(json!(again), {
            let mut expected = json!(expected);
            // What is empty is not sent.
            expected
                .as_object_mut()
                .unwrap()
                .retain(|_, value| !value.is_null());
            expected
        });
    }

    #[test]
    fn what_is_no_number_is_told_at_its_place() {
        let form = FormFields::read(b"max=three&per=day&kind=&more=&max=&per=&kind=&more=");
        let faults = PolicyDraft::read("benefit", &form).body().unwrap_err();
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].pointer.as_deref(), Some("#/limits/0/max"));
        let form =
            FormFields::read(b"max=3&per=day&kind=&more=&tiers=gold%3A+10+per+day%0D%0Asilver");
        let faults = PolicyDraft::read("benefit", &form).body().unwrap_err();
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].pointer.as_deref(), Some("#/tiers"));
        assert!(faults[0].detail.contains("silver"), "{}", faults[0].detail);
    }
}
