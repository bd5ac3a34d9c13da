//! Whatever is planted in the ledger is an alarm, and stays one: the ledger is append-only.

use chrono::TimeDelta;
use reqwest::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Scene, kinds, nothing_differs, reconcile};
use crate::support::app::{App, Stack, eventually, on_every_stack};
use crate::support::desk::{Desk, on_every_store};

on_every_stack!(a_wrong_total_is_an_alarm_with_its_figures);
on_every_store!(
    planted_faults_are_found,
    a_lost_account_is_missed,
    an_erased_subject_is_no_fault,
    changes_of_a_policy_are_no_fault,
    accounts_of_any_length_are_checked,
);

async fn a_wrong_total_is_an_alarm_with_its_figures(stack: Stack) {
    let scene = Scene::live(stack).await;
    scene.grants("member-42", 3).await;
    scene.grants("member-43", 3).await;
    scene.ground.open_the_ledger().await;
    let account = scene.ground.literal(scene.account("member-42").0);
    scene
        .ground
        .sql(&format!(
            "UPDATE entries SET totals = replace(totals, 'd5,2,', 'd5,1,')
             WHERE number = 2 AND account = {account}"
        ))
        .await;
    for apply in [false, true, true] {
        let report = reconcile(&scene.app, apply).await;
        // The entry, and the one after it, which was decided on what stood there before.
        assert_eq!(kinds(&report), ["wrong_total"; 2], "{report}");
        assert_eq!(report["difference_count"], 2);
        assert_eq!(report["alarm_count"], 2);
        assert_eq!(report["healed_count"], 0);
        let difference = &report["differences"][0];
        assert_eq!(difference["alarm"], true);
        assert_eq!(difference["healed"], false);
        assert_eq!(difference["policy"], "benefit");
        assert_eq!(difference["subject"], "member-42");
        assert_eq!(difference["found_number"], 2);
        let window = &difference["windows"][0];
        assert_eq!(
            (&window["per"], &window["found"], &window["expected"]),
            (&json!("day"), &json!(1), &json!(2))
        );
        let id = report["id"].as_str().expect("an id");
        eventually("/readyz shows it, and decides all the same", || async {
            let answer = scene.app.get("/readyz").await;
            assert_eq!(answer.status, StatusCode::OK);
            answer.text.contains(id)
        })
        .await;
    }
    // Put right by hand: the newest report says so.
    scene
        .ground
        .sql(&format!(
            "UPDATE entries SET totals = replace(totals, 'd5,1,', 'd5,2,')
             WHERE number = 2 AND account = {account}"
        ))
        .await;
    nothing_differs(&scene.app, false).await;
    eventually("/readyz is content", || async {
        let answer = scene.app.get("/readyz").await;
        !answer.text.contains("at odds with itself")
    })
    .await;
}

/// An entry like the second one of the account, with some columns changed.
fn insert(scene: &Scene, columns: &[(&str, String)]) -> String {
    let names = [
        "number",
        "at",
        "units",
        "policy",
        "policy_version",
        "kind",
        "flags",
        "account",
        "id",
        "totals",
    ];
    let id = ("id", scene.ground.literal(Uuid::new_v4()));
    let value = |name: &str| {
        let mut columns = columns.iter().chain([&id]);
        let changed = columns.find(|(column, _)| *column == name);
        changed.map_or(name.to_owned(), |(_, value)| value.clone())
    };
    let values: Vec<String> = names.iter().map(|name| value(name)).collect();
    format!(
        "INSERT INTO entries ({}) SELECT {} FROM entries WHERE number = 2",
        names.join(", "),
        values.join(", ")
    )
}

async fn planted_faults_are_found(stack: Stack) {
    let update = |change: &str| format!("UPDATE entries SET {change} WHERE number = 2");
    let earlier = match stack {
        Stack::Sqlite => "at = at - 1000000",
        _ => "at = at - interval '1 second'",
    };
    type Fault = Box<dyn Fn(&Scene) -> String>;
    let told = |sql: String| -> Fault { Box::new(move |_| sql.clone()) };
    let faults: Vec<(&str, Fault, &[&str])> = vec![
        ("more units", told(update("units = 2")), &["wrong_total"]),
        (
            "another window",
            told(update("totals = 'd5,2,0+86400'")),
            &["wrong_total"],
        ),
        (
            "an earlier instant",
            told(update(earlier)),
            &["time_backwards"],
        ),
        (
            "a lost entry",
            told("DELETE FROM entries WHERE number = 2".to_owned()),
            &["gap", "wrong_total"],
        ),
        (
            "a lost first entry",
            told("DELETE FROM entries WHERE number = 1".to_owned()),
            &["gap", "wrong_total"],
        ),
        (
            "a number too high",
            told("UPDATE entries SET number = 9 WHERE number = 3".to_owned()),
            &["gap"],
        ),
        (
            "another policy",
            told(update("policy = 999")),
            &["foreign_entry"],
        ),
        (
            "totals that cannot be read",
            told(update("totals = 'junk'")),
            &["unreadable_entry"],
        ),
        (
            "no such kind",
            told(update("kind = 99")),
            &["unreadable_entry"],
        ),
        (
            "an entry once more",
            Box::new(|scene| insert(scene, &[("number", "4".to_owned())])),
            &["time_backwards", "wrong_total"],
        ),
        (
            "an entry of nobody",
            Box::new(|scene| {
                let account = scene.ground.literal(Uuid::new_v4());
                let totals = "replace(totals, 'd5,2,', 'd5,1,')".to_owned();
                let columns = [
                    ("account", account),
                    ("number", "1".to_owned()),
                    ("totals", totals),
                ];
                insert(scene, &columns)
            }),
            // Its id, which bears its instant, was made elsewhere.
            &["foreign_entry", "time_backwards", "wrong_total"],
        ),
        (
            "another subject",
            told("UPDATE accounts SET subject = 'member-43'".to_owned()),
            &["foreign_entry"],
        ),
    ];
    for (what, fault, expected) in faults {
        let scene = Scene::new(stack).await;
        scene.grants("member-42", 3).await;
        nothing_differs(&scene.app, false).await;
        scene.ground.open_the_ledger().await;
        scene.ground.sql(&fault(&scene)).await;
        let report = reconcile(&scene.app, true).await;
        assert_eq!(kinds(&report), expected, "{what}: {report}");
        assert_eq!(report["alarm_count"], expected.len(), "{what}: {report}");
        assert_eq!(report["healed_count"], 0);
        for difference in report["differences"].as_array().expect("differences") {
            assert_eq!(difference["alarm"], true, "{what}");
            assert!(difference["account"].is_string(), "{what}");
        }
    }
}

async fn a_lost_account_is_missed(stack: Stack) {
    let scene = Scene::new(stack).await;
    scene.grants("member-42", 2).await;
    scene.grants("member-43", 2).await;
    scene.ground.open_the_ledger().await;
    let account = scene.ground.literal(scene.account("member-42").0);
    scene
        .ground
        .sql(&format!("DELETE FROM entries WHERE account = {account}"))
        .await;
    let report = reconcile(&scene.app, false).await;
    assert_eq!(kinds(&report), ["gap"], "{report}");
    let difference = &report["differences"][0];
    assert_eq!(difference["subject"], "member-42");
    assert_eq!(difference["found_number"], Value::Null);
    assert_eq!(difference["expected_number"], 1);
}

async fn an_erased_subject_is_no_fault(stack: Stack) {
    let scene = Scene::new(stack).await;
    scene.grants("member-42", 2).await;
    scene.ground.sql("UPDATE accounts SET subject = NULL").await;
    nothing_differs(&scene.app, false).await;
    // A fault found before is still told, without the subject.
    scene.ground.open_the_ledger().await;
    scene
        .ground
        .sql("UPDATE entries SET units = 2 WHERE number = 2")
        .await;
    let report = reconcile(&scene.app, false).await;
    assert_eq!(report["differences"][0]["subject"], Value::Null);
    assert_eq!(report["differences"][0]["policy"], "benefit");
}

/// Windows that the line before does not tell are summed by the ledger.
async fn changes_of_a_policy_are_no_fault(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let rules = [
        ("GMT+8", json!([{ "max": 30, "per": "day" }])),
        (
            "UTC",
            json!([{ "max": 30, "per": "day" }, { "max": 90, "per": "month" }]),
        ),
        ("America/New_York", json!([{ "max": 60, "per": "week" }])),
        (
            "GMT+8",
            json!([{ "max": 20, "per": "hour" }, { "max": 30, "per": "day" }]),
        ),
    ];
    for round in 0..3 {
        for (zone, limits) in &rules {
            let body = json!({ "time_zone": zone, "limits": limits, "reason": "a test" });
            assert!(app.put_policy("benefit", body).await.status.is_success());
            for subject in ["member-1", "member-2"] {
                for units in 1..=2 {
                    let body = json!({ "subject": subject, "units": units });
                    let answer = app.claim_body(body, None).await;
                    assert_eq!(answer.status, StatusCode::CREATED, "{round}: {answer:?}");
                }
            }
            clock.advance(TimeDelta::minutes(75));
        }
    }
    let report = nothing_differs(&app, true).await;
    assert_eq!(report["entry_count"], 48);
    assert_eq!(report["account_count"], 2);
}

/// Also those that do not fit into a page, and where pages end between accounts.
async fn accounts_of_any_length_are_checked(stack: Stack) {
    let desk = Desk::open(stack).await;
    for (subject, count) in [("long", 900), ("short", 1), ("half", 500), ("other", 130)] {
        let draft = desk.draft(subject, None, count);
        desk.append(draft).await;
    }
    let app = App::start(&desk.ground).await;
    let report = nothing_differs(&app, false).await;
    assert_eq!(report["account_count"], 4);
    assert_eq!(report["entry_count"], 1531);
    desk.ground.open_the_ledger().await;
    let numbers = "UPDATE entries SET units = 2 WHERE number IN (1, 130, 500, 501, 900)";
    desk.ground.sql(numbers).await;
    let report = reconcile(&app, false).await;
    assert_eq!(report["alarm_count"], 4 + 3 + 2 + 1 + 1, "{report}");
}
