//! The check at rest: the statistics and the usage are the sums of the entries.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::Breach;
use super::accounts::used_now;
use super::history::{History, Outcome};
use super::stores::{Entry, Kind, Provisional, Row, Rule, Sql, Stores};
use super::totals::{RuleLimit, State, Total};

/// The figures that are not 0, by policy, local day and name.
pub type Figures = BTreeMap<(String, NaiveDate, String), i128>;

/// The figures that no entry makes. Only the table and the answers have them.
const OF_DENIALS: [&str; 2] = ["denied_claims", "denials_not_kept"];
/// The figure that only answers have: the table has its parts.
const NET: &str = "net_units";

/// What perdiem tells at rest, beside the entries.
#[derive(Debug, Clone, Default)]
pub struct Story {
    /// The figures in the tables.
    pub stored: Figures,
    /// The figures in the answers, one from each instance.
    pub told: Vec<Figures>,
    pub usages: Vec<ToldUsage>,
}

/// A subject's usage, as an instance told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldUsage {
    pub policy: String,
    pub subject: String,
    pub policy_version: i32,
    pub at: DateTime<Utc>,
    /// The `max` and `used` of each limit of the version.
    pub limits: Vec<(u64, u64)>,
}

/// How far the ledger's workers came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The lapses that are due and have no entry.
    pub due_lapses: i64,
    /// How many entries and changes there are.
    pub rows: i64,
    /// The position up to which the figures are made.
    pub figures: i64,
    /// How many denials are in the figures. They come later than their answers.
    pub denials: i64,
}

impl Progress {
    /// Reads how far the workers are at an instant.
    ///
    /// # Errors Returns the error of the store.
    pub async fn read(database_url: &str, now: DateTime<Utc>) -> anyhow::Result<Self> {
        let sql = Sql::of(database_url);
        // 7: a partial reversal, which leaves its hold open.
        let query = format!(
            "SELECT CAST(count(*) AS text),
                 CAST((SELECT count(*) FROM entries) + (SELECT revision FROM ledger) AS text),
                 CAST((SELECT position FROM day_figures_mark) AS text),
                 CAST((SELECT COALESCE(sum(denied + not_kept), 0) FROM denied_claims) AS text)
             FROM entry_details h WHERE h.held_until IS NOT NULL AND {} <= {}
                 AND NOT EXISTS (
                     SELECT 1 FROM entry_details o WHERE o.of_grant = h.id AND o.kind <> 7
                 )",
            sql.micros("h.held_until"),
            now.timestamp_micros(),
        );
        let mut row = sql.rows(&query).await?.remove(0);
        Ok(Self {
            due_lapses: row.number(),
            rows: row.number(),
            figures: row.number(),
            denials: row.number(),
        })
    }

    /// Whether nothing is left to do. Every position is of one row.
    pub fn is_at_rest(&self) -> bool {
        self.due_lapses == 0 && self.figures == self.rows
    }
}

impl Story {
    /// Reads the figures in a ledger's tables.
    ///
    /// # Errors Returns the error of the store.
    pub async fn read(database_url: &str) -> anyhow::Result<Self> {
        let of = |table: &str, figure: &str, value: &str| {
            format!(
                "SELECT p.name, f.counted_on, {figure}, CAST(sum(f.{value}) AS text)
                 FROM {table} f JOIN policies p ON p.id = f.policy
                 GROUP BY 1, 2, 3"
            )
        };
        let tables = [
            of("day_figures", "f.figure", "value"),
            of("denied_claims", "'denied_claims'", "denied"),
            of("denied_claims", "'denials_not_kept'", "not_kept"),
        ];
        let rows = Sql::of(database_url)
            .rows(&tables.join(" UNION ALL "))
            .await?;
        let figure = |mut row: Row| {
            let mut text = || row.text().expect("a text");
            let policy = text();
            let day = text().parse().expect("a day");
            ((policy, day, text()), row.number().into())
        };
        let figures = rows.into_iter().map(figure);
        Ok(Self {
            stored: figures.filter(|(_, figure)| *figure != 0).collect(),
            ..Self::default()
        })
    }

    /// Adds the days of an instance's statistics.
    pub fn tell(&mut self, days: &[Value]) {
        let mut figures = Figures::new();
        for day in days {
            let text = |name: &str| day[name].as_str().expect("a text").to_owned();
            let date: NaiveDate = text("date").parse().expect("a day");
            let members = day.as_object().expect("an object").iter();
            let numbers = members.filter_map(|(name, value)| Some((name, value.as_i64()?)));
            for (name, figure) in numbers.filter(|(_, figure)| *figure != 0) {
                figures.insert((text("policy"), date, name.clone()), figure.into());
            }
        }
        self.told.push(figures);
    }
}

/// The days of a policy between which nobody can choose: an entry is at the very instant of a change
/// of the zone, and was in the figures before or after it.
type Doubts = BTreeMap<String, BTreeSet<NaiveDate>>;

/// A policy's versions, in order.
struct LocalClock<'a>(Vec<&'a Rule>);

impl LocalClock<'_> {
    /// The version in force: the highest one whose time had come. The first version also counts for
    /// the time before it.
    fn in_force(&self, at: DateTime<Utc>) -> &Rule {
        let newest_first = self.0.iter().rev();
        let mut begun = newest_first.filter(|rule| rule.effective_at <= at);
        begun.next().unwrap_or(&self.0[0])
    }

    /// The local day on which an instant counts: the last one that the clock has shown until then.
    /// A change of the zone can set the clock back, and then the day goes on.
    fn day(&self, at: DateTime<Utc>) -> NaiveDate {
        let moment = TimeDelta::microseconds(1);
        let changes = self.0.iter().map(|rule| rule.effective_at);
        let before_changes = changes.filter(|change| *change <= at).map(|at| at - moment);
        let shown = before_changes.chain([at]);
        let days = shown.map(|at| self.in_force(at).calendar.name("day", at));
        let day = days.max().and_then(|day| i32::try_from(day).ok());
        day.and_then(NaiveDate::from_num_days_from_ce_opt)
            .expect("a day")
    }

    /// The clock as it was just before a change at an instant. The first version is always there.
    fn before(&self, at: DateTime<Utc>) -> Self {
        let versions = self.0.iter().enumerate();
        let kept = versions.filter(|(place, rule)| *place == 0 || rule.effective_at != at);
        Self(kept.map(|(_, rule)| *rule).collect())
    }
}

/// The figures that the entries make, and the days of which some are in doubt.
fn sums(stores: &Stores) -> (Figures, Doubts) {
    let mut clocks: BTreeMap<&str, LocalClock<'_>> = BTreeMap::new();
    for ((policy, _), rule) in &stores.rules {
        let clock = clocks.entry(policy).or_insert(LocalClock(Vec::new()));
        clock.0.push(rule);
    }
    let mut figures = Figures::new();
    let mut doubts = Doubts::new();
    // Each subject counts once on a day.
    let mut seen: BTreeSet<(&str, Uuid, NaiveDate)> = BTreeSet::new();
    for entry in &stores.entries {
        let Some(clock) = clocks.get(entry.policy.as_str()) else {
            continue;
        };
        let day = clock.day(entry.counted_at);
        let other = clock.before(entry.counted_at).day(entry.counted_at);
        if other != day {
            let days = doubts.entry(entry.policy.clone()).or_default();
            days.extend([day, other]);
        }
        let mut add = |name: &str, more: i128| {
            let figure = (entry.policy.clone(), day, name.to_owned());
            *figures.entry(figure).or_default() += more;
        };
        let units = i128::from(entry.units);
        add(NET, entry.added());
        match entry.kind {
            Kind::Grant => {
                add("grants", 1);
                add("units", units);
                add("provisional_grants", entry.provisional.is_some().into());
                let is_over = entry.provisional == Some(Provisional::Over);
                add("over_grants", is_over.into());
                add("would_deny_grants", entry.would_deny.into());
                let mut is_first = |figure| seen.insert((figure, entry.account, day));
                if is_first("subjects") {
                    add("subjects", 1);
                }
                if leaves_nothing(entry) && is_first("subjects_at_limit") {
                    add("subjects_at_limit", 1);
                }
            }
            Kind::Confirmation | Kind::Calendar | Kind::TopUp | Kind::TopUpReversal => {}
            Kind::Reset => add("resets", 1),
            Kind::Reversal => {
                add("reversed_grants", 1);
                add("reversed_units", units);
            }
            Kind::PartialReversal => add("reversed_units", units),
            Kind::Lapse => {
                add("lapsed_grants", 1);
                add("lapsed_units", units);
            }
            Kind::AdjustmentUp => {
                add("adjustments", 1);
                add("adjusted_up_units", units);
            }
            Kind::AdjustmentDown => {
                add("adjustments", 1);
                add("adjusted_down_units", units);
            }
        }
    }
    (figures, doubts)
}

/// Whether an entry left no units in a limit.
fn leaves_nothing(entry: &Entry) -> bool {
    let left = |total: &Total| match &total.state {
        State::Window { .. } | State::Ever => total.max.saturating_sub(total.used),
        State::Returns(limit, state) => state.left(limit),
    };
    entry.totals.iter().any(|total| left(total) == 0)
}

/// Puts the days of a doubt together, without the figures that count a subject once a day.
fn merged(figures: &Figures, doubts: &Doubts) -> Figures {
    let mut merged = Figures::new();
    for ((policy, day, name), figure) in figures {
        let days = doubts.get(policy).filter(|days| days.contains(day));
        let first = days.and_then(BTreeSet::first);
        if first.is_none() || !name.starts_with("subjects") {
            let figure_of_days = (policy.clone(), *first.unwrap_or(day), name.clone());
            *merged.entry(figure_of_days).or_default() += figure;
        }
    }
    merged
}

/// Compares figures with the sums that they should be.
fn compare(told: &Figures, sums: &Figures, doubts: &Doubts, breaches: &mut Vec<Breach>) {
    let [told, sums] = [told, sums].map(|figures| merged(figures, doubts));
    let all: BTreeSet<_> = told.keys().chain(sums.keys()).collect();
    for figure in all {
        let of = |figures: &Figures| figures.get(figure).copied().unwrap_or_default();
        let told = of(&told);
        let sum = of(&sums);
        if told != sum {
            let (policy, day, name) = figure.clone();
            breaches.push(Breach::FiguresDiffer {
                policy,
                day: Some(day),
                figure: name,
                told,
                sum,
            });
        }
    }
}

/// The figures in the table, and in each answer, are the sums of the entries. Each answer has the
/// denials of the table.
pub fn check_days(stores: &Stores, story: &Story) -> Vec<Breach> {
    let (mut sums, doubts) = sums(stores);
    let denials = story.stored.iter();
    let denials = denials.filter(|((_, _, name), _)| OF_DENIALS.contains(&name.as_str()));
    sums.extend(denials.map(|(figure, count)| (figure.clone(), *count)));
    let mut breaches = Vec::new();
    for told in &story.told {
        compare(told, &sums, &doubts, &mut breaches);
    }
    sums.retain(|(_, _, name), _| name != NET);
    compare(&story.stored, &sums, &doubts, &mut breaches);
    breaches
}

/// Each usage is the sum of the subject's entries, in the window of the version that was told.
pub fn check_usages(stores: &Stores, story: &Story) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for usage in &story.usages {
        let entries = stores.of_subject(&usage.policy, &usage.subject);
        let rule = &stores.rules[&(usage.policy.clone(), usage.policy_version)];
        for (limit, (max, told)) in rule.limits.iter().zip(&usage.limits) {
            let limit = RuleLimit {
                max: *max,
                ..limit.clone()
            };
            let sum = used_now(&entries, rule, &limit, usage.at);
            if sum != i128::from(*told) {
                breaches.push(Breach::UsageDiffers {
                    policy: usage.policy.clone(),
                    subject: usage.subject.clone(),
                    per: limit.per,
                    told: *told,
                    sum,
                });
            }
        }
    }
    breaches
}

/// Each policy's denials are those that clients were told.
pub fn check_denials(history: &History, story: &Story) -> Vec<Breach> {
    let mut denials: BTreeMap<&str, [i128; 2]> = BTreeMap::new();
    for ((policy, _, name), count) in &story.stored {
        if name == "denied_claims" {
            denials.entry(policy).or_default()[0] += count;
        }
    }
    for attempt in &history.attempts {
        if attempt.outcome == Outcome::Denied {
            let policy = &history.wishes[attempt.wish].policy;
            denials.entry(policy).or_default()[1] += 1;
        }
    }
    let differing = denials.into_iter().filter(|(_, [told, sum])| told != sum);
    let breaches = differing.map(|(policy, [told, sum])| Breach::FiguresDiffer {
        policy: policy.to_owned(),
        day: None,
        figure: "denied_claims".to_owned(),
        told,
        sum,
    });
    breaches.collect()
}
