//! A fault in the ledger is an alarm, and stays one, because the ledger is append-only.

use reqwest::StatusCode;
use serde_json::Value;
use uuid::Uuid;

use super::{Scene, kinds, nothing_differs, reconcile};
use crate::support::app::{App, Stack, eventually, on_every_stack};
use crate::support::desk::{Desk, on_every_store};

on_every_stack!(a_wrong_total_is_an_alarm_with_its_figures);
on_every_store!(
    planted_faults_are_found,
    a_lost_account_is_missed,
    an_erased_subject_is_no_fault,
    accounts_of_any_length_are_checked,
);

async fn a_wrong_total_is_an_alarm_with_its_figures(stack: Stack) {
    let scene = Scene::live(stack).await;
    scene.grants("member-42", 3).await;
    scene.grants("member-43", 3).await;
    scene.ground.open_the_ledger().await;
    let account = scene.ground.literal(scene.account("member-42").0);
    let set = async |from: u64, to: u64| {
        let sql = format!(
            "UPDATE entries SET totals = replace(totals, 'd5,{from},', 'd5,{to},')
             WHERE number = 2 AND account = {account}"
        );
        scene.ground.sql(&sql).await;
    };
    set(2, 1).await;
    for apply in [false, true, true] {
        let report = reconcile(&scene.app, apply).await;
        // The changed entry, and the next entry, which was decided on the earlier totals.
        assert_eq!(kinds(&report), ["wrong_total"; 2], "{report}");
        let counts = ["difference_count", "alarm_count", "healed_count"];
        assert_eq!(counts.map(|name| &report[name]), [2, 2, 0]);
        let difference = &report["differences"][0];
        assert_eq!(
            ["alarm", "healed"].map(|name| &difference[name]),
            [true, false]
        );
        assert_eq!(
            ["policy", "subject"].map(|name| &difference[name]),
            ["benefit", "member-42"]
        );
        assert_eq!(difference["found_number"], 2);
        let window = &difference["windows"][0];
        assert_eq!(window["per"], "day");
        assert_eq!(["found", "expected"].map(|name| &window[name]), [1, 2]);
        let id = report["id"].as_str().expect("an id");
        eventually(
            "/readyz shows the alarm, and the instance still decides",
            || async {
                let answer = scene.app.get("/readyz").await;
                assert_eq!(answer.status, StatusCode::OK);
                answer.text.contains(id)
            },
        )
        .await;
    }
    // After a correction by hand, the newest report has no alarm.
    set(1, 2).await;
    nothing_differs(&scene.app, false).await;
    eventually("/readyz shows no alarm", || async {
        let answer = scene.app.get("/readyz").await;
        !answer.text.contains("contradicts itself")
    })
    .await;
}

/// An entry like the second one of the account, with another number, account and totals.
fn copy(number: u64, account: &str, totals: &str) -> String {
    format!(
        "INSERT INTO entries (number, account, id, totals, at, units, policy, policy_version, kind,
             flags)
         SELECT {number}, {account}, {{new}}, {totals}, at, units, policy, policy_version, kind,
             flags
         FROM entries WHERE number = 2"
    )
}

async fn planted_faults_are_found(stack: Stack) {
    let second = |change: &str| format!("UPDATE entries SET {change} WHERE number = 2");
    let earlier = match stack {
        Stack::Sqlite => "at = at - 1000000",
        _ => "at = at - interval '1 second'",
    };
    let lose = |number: u64| format!("DELETE FROM entries WHERE number = {number}");
    let skip = "UPDATE entries SET number = 9 WHERE number = 3".to_owned();
    let rename = "UPDATE accounts SET subject = 'member-43'".to_owned();
    let lower = "replace(totals, 'd5,2,', 'd5,1,')";
    let unchecked = match stack {
        Stack::Sqlite => "PRAGMA ignore_check_constraints = true",
        _ => "ALTER TABLE entries DROP CONSTRAINT entries_kind_check",
    };
    // An adjustment moves no calendar.
    let own_calendar = second("kind = 5, totals = '@Asia/Tokyo,;' || totals");
    let top_up =
        second("totals = '+0:01980000000070008000000000000000,1,1,4000000000000000,0;' || totals");
    let no_kind = format!("{unchecked}; {}", second("kind = 99"));
    #[rustfmt::skip]
    let faults = [
        ("more units", second("units = 2"), "wrong_total"),
        ("another window", second("totals = 'd5,2,0+86400'"), "wrong_total"),
        ("an earlier instant", second(earlier), "time_backwards"),
        ("a lost entry", lose(2), "gap wrong_total"),
        ("a lost first entry", lose(1), "gap wrong_total"),
        ("a number too high", skip, "gap"),
        ("another policy", second("policy = 999"), "foreign_entry"),
        ("totals that cannot be read", second("totals = 'junk'"), "unreadable_entry"),
        ("a calendar that nobody moved", own_calendar, "wrong_calendar"),
        ("a top-up that nobody gave", top_up, "wrong_top_ups wrong_top_ups"),
        ("no such kind", no_kind, "unreadable_entry"),
        ("an entry once more", copy(4, "account", "totals"), "time_backwards wrong_total"),
        // The entry's id, which contains its instant, was made elsewhere.
        ("an entry of nobody", copy(1, "{new}", lower), "foreign_entry time_backwards wrong_total"),
        ("another subject", rename, "foreign_entry"),
    ];
    for (what, fault, expected) in faults {
        let scene = Scene::new(stack).await;
        scene.grants("member-42", 3).await;
        nothing_differs(&scene.app, false).await;
        scene.ground.open_the_ledger().await;
        let new = scene.ground.literal(Uuid::new_v4());
        scene.ground.sql(&fault.replace("{new}", &new)).await;
        let report = reconcile(&scene.app, true).await;
        assert_eq!(kinds(&report).join(" "), expected, "{what}: {report}");
        assert_eq!(report["alarm_count"], kinds(&report).len(), "{what}");
        assert_eq!(report["healed_count"], 0, "{what}");
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
    let lose = format!("DELETE FROM entries WHERE account = {account}");
    scene.ground.sql(&lose).await;
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
    // A fault that was found before is still reported, without the subject.
    scene.ground.open_the_ledger().await;
    let fault = "UPDATE entries SET units = 2 WHERE number = 2";
    scene.ground.sql(fault).await;
    let report = reconcile(&scene.app, false).await;
    assert_eq!(report["differences"][0]["subject"], Value::Null);
    assert_eq!(report["differences"][0]["policy"], "benefit");
}

/// Also accounts that are longer than a page, and pages that end between two accounts.
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
