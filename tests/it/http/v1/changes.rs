//! Changes: of policies, overrides and keys, in one order.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::v1::keys::{end, make, make_role, revoke, with};
use crate::http::{all_items, archive, invalid_places, problem};
use crate::support::app::{Answer, App, Ground, KEY, NOON, Stack, instant};
use crate::support::desk::on_every_store;

const CHANGES: &str = "/v1/changes";

on_every_store!(
    each_change_tells_what_it_was_and_became_by_whom_and_why,
    filters_combine,
    pages_stay_right_while_changes_come_in,
    no_change_is_left_out_while_many_are_made,
    an_erased_subject_has_no_name,
);

/// A change as `revision kind policy subject`.
fn lines(items: &[Value]) -> Vec<String> {
    let line = |change: &Value| {
        let text = |name: &str| change[name].as_str().unwrap_or("-").to_owned();
        format!(
            "{} {} {} {}",
            change["revision"],
            text("kind"),
            text("policy"),
            text("subject")
        )
    };
    items.iter().map(line).collect()
}

async fn each_change_tells_what_it_was_and_became_by_whom_and_why(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let now = || clock.advance(TimeDelta::hours(1));
    assert_eq!(all_items(&app, CHANGES).await, Vec::<Value>::new());

    // A policy: made, replaced by another key, kept, archived, revived.
    let rule = |max: u64| json!({ "time_zone": "GMT+8", "limits": [{ "max": max, "per": "day" }] });
    assert_eq!(app.put_policy("benefit", rule(3)).await.status, 201);
    now();
    // The last one cannot be revoked.
    make_role(&app, "admin", None).await;
    now();
    let admin = make_role(&app, "admin", None).await;
    now();
    let mut more = rule(5);
    more["reason"] = json!("campaign 7");
    let put = with(&app, &admin.secret, Method::PUT, "/v1/policies/benefit");
    assert_eq!(Answer::of(put.json(&more)).await.status, 200);
    now();
    assert_eq!(app.put_policy("benefit", more).await.status, 200);
    archive(&app).await;
    now();
    assert_eq!(app.put_policy("benefit", rule(5)).await.status, 201);
    // An override: made, deleted, made again.
    now();
    app.override_day("member-42", 10).await;
    now();
    assert_eq!(app.delete_override("member-42").await.status, 200);
    now();
    app.override_day("member-42", 0).await;
    // The key: given an end, revoked.
    now();
    let until = "2027-01-01T00:00:00Z";
    assert_eq!(end(&app, KEY, &admin.id, Some(until)).await.status, 200);
    now();
    assert_eq!(revoke(&app, KEY, &admin.id).await.status, 200);

    let items = all_items(&app, CHANGES).await;
    assert_eq!(
        lines(&items),
        [
            "11 key - -",
            "10 key - -",
            "9 override benefit member-42",
            "8 override benefit member-42",
            "7 override benefit member-42",
            "6 policy benefit -",
            "5 policy benefit -",
            "4 policy benefit -",
            "3 key - -",
            "2 key - -",
            "1 policy benefit -",
        ]
    );
    // An hour lies between two changes, and the PUT that changed nothing is none.
    for (hours, change) in (0..).zip(items.iter().rev()) {
        let at = instant(NOON) + TimeDelta::hours(hours);
        assert_eq!(change["at"], json!(at), "{change}");
    }
    let change = |revision: u64| {
        let found = items.iter().find(|change| change["revision"] == revision);
        found.expect("a change").clone()
    };

    // Policies, as their versions tell them.
    let versions = all_items(&app, "/v1/policies/benefit/versions").await;
    for (version, revision) in [(1, 1), (2, 4), (3, 5), (4, 6)] {
        let change = change(revision);
        let stands = |version: usize| versions.get(4 - version).cloned();
        assert_eq!(Some(&change["after"]), stands(version).as_ref());
        let before = (version > 1).then(|| stands(version - 1)).flatten();
        assert_eq!(change["before"], before.unwrap_or_default());
        for (name, own) in [
            ("at", "changed_at"),
            ("by", "changed_by"),
            ("reason", "reason"),
        ] {
            assert_eq!(change[name], change["after"][own]);
        }
        assert_eq!(change["key"], Value::Null);
    }
    assert_eq!(change(4)["by"], admin.id.as_str());
    assert_eq!(change(4)["reason"], "campaign 7");
    assert_eq!(
        (&change(1)["by"], &change(1)["reason"]),
        (&json!("PERDIEM_ADMIN_KEY"), &Value::Null)
    );
    assert_eq!(change(5)["after"]["archived"], true);

    // Overrides: what was deleted is nothing.
    let [first, deleted, again] = [7, 8, 9].map(change);
    assert_eq!(
        (&first["before"], &first["after"]["version"]),
        (&Value::Null, &json!(1))
    );
    assert_eq!(
        first["after"]["limits"],
        json!([{ "max": 10, "per": "day" }])
    );
    assert_eq!(deleted["before"], first["after"]);
    assert_eq!(deleted["after"], Value::Null);
    assert_eq!(deleted["reason"], "a test");
    let stands = app.get("/v1/policies/benefit/overrides/member-42").await;
    assert_eq!(again["before"], Value::Null);
    assert_eq!(again["after"], stands.json());

    // Keys, without their secrets.
    let [made, ended, revoked] = [3, 10, 11].map(change);
    assert_eq!(made["before"], Value::Null);
    assert_eq!(made["key"], admin.id.as_str());
    assert_eq!(made["after"]["role"], "admin");
    assert_eq!(ended["before"], made["after"]);
    assert_eq!(ended["after"]["ends_at"], until);
    assert_eq!(revoked["before"], ended["after"]);
    let stands = app.get(&format!("/v1/keys/{}", admin.id)).await;
    assert_eq!(revoked["after"], stands.json());
    let text = app.get(CHANGES).await.text;
    assert!(!text.contains(&admin.secret) && !text.contains("secret"));
}

async fn filters_combine(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let rule =
        json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }], "reason": "a test" });
    for name in ["benefit", "other"] {
        app.put_policy(name, rule.clone()).await;
        clock.advance(TimeDelta::minutes(1));
    }
    app.override_day("member-1", 5).await;
    clock.advance(TimeDelta::minutes(1));
    make_role(&app, "claim", Some("benefit")).await;
    clock.advance(TimeDelta::minutes(1));
    let body = json!({ "name": "audit", "role": "audit", "policies": ["benefit"] });
    let audit = make(&app, body).await;
    archive(&app).await;
    let list = async |query: &str| {
        let items = all_items(&app, &format!("{CHANGES}?{query}")).await;
        let revisions = items.iter().map(|change| change["revision"].as_u64());
        revisions
            .map(Option::unwrap_or_default)
            .collect::<Vec<u64>>()
    };
    assert_eq!(list("").await, [6, 5, 4, 3, 2, 1]);
    // A policy's own changes and its overrides', also once it is archived; keys' are nobody's.
    assert_eq!(list("policy=benefit").await, [6, 3, 1]);
    assert_eq!(list("policy=other").await, [2]);
    let at = |minute: u32, second: &str| format!("2026-11-21T03:{:02}:{second}Z", 4 + minute);
    let (first, third) = (at(1, "05.678901"), at(3, "05.678901"));
    assert_eq!(list(&format!("from={first}")).await, [6, 5, 4, 3, 2]);
    assert_eq!(list(&format!("to={third}")).await, [3, 2, 1]);
    assert_eq!(list(&format!("from={first}&to={third}")).await, [3, 2]);
    assert_eq!(list(&format!("from={first}&policy=benefit")).await, [6, 3]);
    assert_eq!(list(&format!("from={third}&to={third}")).await, [0; 0]);
    // Stores keep microseconds.
    assert_eq!(
        list(&format!("from={}", at(1, "05.6789011"))).await,
        [6, 5, 4, 3]
    );
    assert_eq!(list(&format!("to={}", at(1, "05.6789011"))).await, [2, 1]);

    let refused = app.get(&format!("{CHANGES}?policy=nothing")).await;
    problem(&refused, 404, "unknown-policy");
    let wrong = format!("{CHANGES}?policy=No&from=soon&to=1&limit=0");
    let refused = app.get(&wrong).await;
    assert_eq!(invalid_places(&refused), ["policy", "from", "to", "limit"]);
    let refused = app.get(&format!("{CHANGES}?subject=a")).await;
    problem(&refused, 400, "malformed");
    let page = app.get(&format!("{CHANGES}?limit=1")).await.json();
    let cursor = page["next_cursor"].as_str().expect("a cursor");
    for query in [
        format!("policy=benefit&cursor={cursor}"),
        "cursor=x".to_owned(),
    ] {
        let answer = app.get(&format!("{CHANGES}?{query}")).await;
        assert_eq!(invalid_places(&answer), ["cursor"]);
    }

    // A confined key names its policy.
    let status = async |query: &str| {
        let path = format!("{CHANGES}?{query}");
        let answer = Answer::of(with(&app, &audit.secret, Method::GET, &path)).await;
        (
            answer.status.as_u16(),
            answer.json()["items"].as_array().map(Vec::len),
        )
    };
    assert_eq!(status("policy=benefit").await, (200, Some(3)));
    assert_eq!(status("policy=other").await, (403, None));
    assert_eq!(status("").await, (403, None));
}

async fn pages_stay_right_while_changes_come_in(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(1, "UTC").await;
    let change = async |number: u64| match number % 3 {
        0 => drop(app.benefit(number, "UTC").await),
        1 => app.override_day("member-42", number).await,
        _ => drop(make_role(&app, "claim", None).await),
    };
    for number in 3..14 {
        change(number).await;
    }
    let whole = all_items(&app, CHANGES).await;
    assert_eq!(whole.len(), 12);
    for limit in [1, 2, 5, 11, 12, 1000] {
        assert_eq!(
            all_items(&app, &format!("{CHANGES}?limit={limit}")).await,
            whole
        );
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    for number in 20.. {
        let page = app.get(&format!("{CHANGES}?limit=4{cursor}")).await.json();
        seen.extend(page["items"].as_array().expect("items").iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else {
            break;
        };
        cursor = format!("&cursor={next}");
        change(number).await;
    }
    assert_eq!(seen, whole);
    let after = all_items(&app, CHANGES).await;
    assert_eq!(after[after.len() - whole.len()..], whole);
    assert_eq!(after.len(), 14);
}

/// Two instances change policies, overrides and keys at once. Whoever lists meanwhile sees each
/// revision from the newest on down, whatever kind it is of.
async fn no_change_is_left_out_while_many_are_made(stack: Stack) {
    let ground = Ground::new(stack);
    let apps = [App::start(&ground).await, App::start(&ground).await];
    apps[0].benefit(1, "UTC").await;
    let write = async |app: &App, kind: usize, instance: usize| {
        for number in 2..22 {
            match kind {
                0 => drop(app.benefit(100 * number + instance as u64, "UTC").await),
                1 => {
                    app.override_day(&format!("member-{instance}"), number)
                        .await
                }
                _ => drop(make_role(app, "claim", None).await),
            }
        }
    };
    let writers = async {
        let [one, other] = &apps;
        tokio::join!(
            write(one, 0, 0),
            write(one, 1, 0),
            write(one, 2, 0),
            write(other, 0, 1),
            write(other, 1, 1),
            write(other, 2, 1),
        );
    };
    let revisions = |items: &[Value]| -> Vec<u64> {
        let revisions = items.iter().map(|change| change["revision"].as_u64());
        revisions.map(Option::unwrap_or_default).collect()
    };
    let reader = async |app: &App| {
        loop {
            let page = app.get(&format!("{CHANGES}?limit=10")).await.json();
            let seen = revisions(page["items"].as_array().expect("items"));
            let newest = seen[0];
            let without_gaps: Vec<u64> = (1..=newest).rev().take(10).collect();
            assert_eq!(seen, without_gaps);
            if newest == 121 {
                break;
            }
        }
    };
    tokio::join!(writers, reader(&apps[0]), reader(&apps[1]));
    let whole = all_items(&apps[0], &format!("{CHANGES}?limit=7")).await;
    assert_eq!(revisions(&whole), (1..=121).rev().collect::<Vec<u64>>());
}

async fn an_erased_subject_has_no_name(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    app.benefit(3, "UTC").await;
    app.override_day("member-42", 5).await;
    let sql = "UPDATE overrides SET subject = NULL";
    let mut direct = crate::support::direct::Direct::to(&ground).await;
    assert_eq!(direct.execute(sql, sql).await, 1);
    let page = app.get(CHANGES).await.json();
    let change = &page["items"][0];
    assert_eq!(change["kind"], "override");
    assert_eq!(
        (&change["subject"], &change["after"]["subject"]),
        (&Value::Null, &Value::Null)
    );
}
