//! Breaches in the statistics and in the usage: in what was told, and in the tables of a real ledger.

use chrono::{NaiveDate, TimeDelta};
use serde_json::json;

use super::super::Breach::{self, *};
use super::super::figures::{Figures, Story, ToldUsage};
use super::super::history::Outcome;
use super::super::stores::{Kind, Stores};
use super::super::{Wish, judge_at_rest, judge_denials};
use super::{Entry, Zone, assert_found, at, id, sound, tell};
use crate::support::app::{NOON, Stack, instant};
use crate::support::crowd::Fleet;
use crate::support::desk::on_every_store;

on_every_store!(what_is_planted_in_the_statistics_is_found);

/// The day of all entries, as an instance tells it.
fn told() -> Story {
    let mut story = Story::default();
    story.tell(&[json!({
        "policy": "benefit", "date": "2026-11-21", "starts_at": "2026-11-20T16:00:00Z",
        "grants": 3, "units": 3, "net_units": 3, "subjects": 1, "subjects_at_limit": 1,
        "reversed_units": 0, "denied_claims": 2,
    })]);
    story.stored = story.told[0].clone();
    story.stored.retain(|(_, _, name), _| name != "net_units");
    story.usages.push(ToldUsage {
        policy: "benefit".to_owned(),
        subject: "member-42".to_owned(),
        policy_version: 1,
        at: at(9),
        limits: vec![(3, 3)],
    });
    story
}

/// The breaches after a figure was changed, or removed if it is 0.
fn with_figure(of: fn(&mut Story) -> &mut Figures, name: &str, value: i128) -> Vec<Breach> {
    found(|story, _| {
        of(story).insert(figure(name), value);
        of(story).retain(|_, value| *value != 0);
    })
}

/// The breaches after a change of what is told, and of the ledger.
fn found(change: impl FnOnce(&mut Story, &mut Stores)) -> Vec<Breach> {
    let (_, mut stores) = sound();
    let mut story = told();
    change(&mut story, &mut stores);
    judge_at_rest(&stores, &story)
}

fn figure(name: &str) -> (String, NaiveDate, String) {
    let day = "2026-11-21".parse().expect("a day");
    ("benefit".to_owned(), day, name.to_owned())
}

#[test]
fn one_story() {
    assert_eq!(found(|_, _| {}), []);
    // Nobody was asked.
    let silent = |story: &mut Story, _: &mut Stores| {
        story.told.clear();
        story.usages.clear();
    };
    assert_eq!(found(silent), []);
}

#[test]
fn a_figure_that_is_not_the_sum() {
    let in_table = |name, value| with_figure(|story| &mut story.stored, name, value);
    let in_answer = |name, value| with_figure(|story| &mut story.told[0], name, value);
    assert_found!(in_table("units", 4), only FiguresDiffer { told: 4, sum: 3, .. });
    assert_found!(in_answer("net_units", 2), only FiguresDiffer { told: 2, sum: 3, .. });
    assert_found!(in_table("subjects", 0), only FiguresDiffer { told: 0, sum: 1, .. });
    // A figure that no entry makes, and denials that only the table has.
    assert_found!(in_table("lapsed_units", 1), only FiguresDiffer { told: 1, sum: 0, .. });
    assert_found!(in_answer("denied_claims", 0), only FiguresDiffer { told: 0, sum: 2, .. });
}

#[test]
fn an_entry_that_nobody_tells() {
    let lapse = found(|_, stores| {
        let grant = stores.entries[0].clone();
        stores.entries.push(Entry {
            kind: Kind::Lapse,
            of: Some(grant.id),
            number: 4,
            id: id(4),
            ..grant
        });
    });
    // The figures and the net units of both, and the usage.
    assert_eq!(lapse.len(), 6, "{lapse:#?}");
    assert_found!(
        lapse,
        FiguresDiffer { .. },
        UsageDiffers {
            told: 3,
            sum: 2,
            ..
        }
    );
}

#[test]
fn units_on_another_day() {
    // The policy moved to UTC, where it is still the day before. So the day goes on.
    let change = |story: &mut Story, stores: &mut Stores, zone| {
        let mut rule = stores.rules.values().next().cloned().expect("a rule");
        (rule.effective_at, rule.calendar.zone) = (at(2), Zone::parse(zone));
        stores.rules.insert(("benefit".to_owned(), 2), rule);
        story.usages.clear();
    };
    assert_eq!(found(|story, stores| change(story, stores, "UTC")), []);
    // In this zone it is the same date.
    assert_eq!(found(|story, stores| change(story, stores, "+09:00")), []);
    // In the evening in GMT+8, a zone of the next day.
    let evening = |story: &mut Story, stores: &mut Stores| {
        change(story, stores, "+14:00");
        for entry in &mut stores.entries[1..] {
            entry.counted_at += TimeDelta::hours(20);
        }
    };
    let late = found(evening);
    assert_found!(
        late,
        FiguresDiffer {
            told: 3,
            sum: 1,
            ..
        },
        FiguresDiffer {
            told: 0,
            sum: 2,
            ..
        }
    );
    // At the very instant of the change, nobody knows the day. No unit may be lost.
    let at_once = |story: &mut Story, stores: &mut Stores| {
        evening(story, stores);
        let at = stores.entries[1].counted_at;
        stores.entries[2].counted_at = at;
        let newest = stores.rules.values_mut().next_back();
        newest.expect("a rule").effective_at = at;
    };
    assert_eq!(found(at_once), []);
    let lost = found(|story, stores| {
        at_once(story, stores);
        story.stored.insert(figure("units"), 2);
    });
    assert_found!(lost, only FiguresDiffer { told: 2, sum: 3, .. });
}

#[test]
fn a_usage_that_is_not_the_sum() {
    let usage = found(|story, _| story.usages[0].limits[0].1 = 2);
    assert_found!(usage, only UsageDiffers { told: 2, sum: 3, .. });
    // On the next day nothing is used.
    let late = found(|story, _| story.usages[0].at += TimeDelta::days(1));
    assert_found!(late, only UsageDiffers { told: 3, sum: 0, .. });
}

#[test]
fn denials_that_nobody_was_told() {
    let (mut history, _) = sound();
    assert_eq!(judge_denials(&history, &told()), []);
    // Another claim of an atomic batch was denied.
    tell(&mut history, 3, 7, Outcome::Skipped);
    assert_eq!(judge_denials(&history, &told()), []);
    tell(&mut history, 3, 8, Outcome::Denied);
    let denials = judge_denials(&history, &told());
    assert_found!(denials, only FiguresDiffer { day: None, told: 2, sum: 3, .. });
}

async fn what_is_planted_in_the_statistics_is_found(stack: Stack) {
    let fleet = Fleet::start_sweeping(stack, instant(NOON)).await;
    fleet
        .put("GMT+8", json!([{ "max": 2, "per": "day" }]))
        .await;
    let claims = |client| vec![Wish::of(&format!("member-{client}")); 3];
    assert_eq!(fleet.claim_all(2, claims).await, [4, 0, 2]);
    fleet.tells_one_story().await;
    fleet.denials_are_counted().await;
    let find = async || {
        let stores = fleet.ground.stores().await;
        let story = Story::read(&fleet.ground.database_url).await;
        judge_at_rest(&stores, &story.expect("figures"))
    };
    let run = async |sql: &str| fleet.ground.sql(sql).await;
    assert_eq!(find().await, []);
    run("UPDATE day_figures SET value = value + 1 WHERE figure = 'units'").await;
    assert_found!(find().await, only FiguresDiffer { told: 5, sum: 4, .. });
    fleet.ground.open_the_figures().await;
    run("UPDATE day_figures SET value = value - 1 WHERE figure = 'units'").await;
    run("DELETE FROM day_figures WHERE figure = 'subjects'").await;
    assert_found!(find().await, only FiguresDiffer { told: 0, sum: 2, .. });
}
