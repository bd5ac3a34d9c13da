//! Changes of policies, overrides and keys, in one order.

use chrono::TimeDelta;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::http::v1::keys::{end, make_role, revoke};
use crate::http::{all_items, archive, invalid_places, problem};
use crate::support::app::{App, Ground, KEY, NOON, Stack, instant};

use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

const CHANGES: &str = "/v1/changes";

on_every_store!(
    each_change_tells_what_it_was_and_became_by_whom_and_why,
    filters_combine,
    no_change_is_left_out_while_many_are_made,
    an_erased_subject_has_no_name,
);

fn rule(max: u64, reason: Option<&str>) -> Value {
    let limits = json!([{ "max": max, "per": "day" }]);
    json!({ "time_zone": "GMT+8", "limits": limits, "reason": reason })
}

/// The revisions in a list of changes.
fn revisions(items: &[Value]) -> Vec<u64> {
    let revision = |change: &Value| change["revision"].as_u64().expect("a revision");
    items.iter().map(revision).collect()
}

async fn each_change_tells_what_it_was_and_became_by_whom_and_why(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    assert_eq!(all_items(&app, CHANGES).await, Vec::<Value>::new());
    let tick = || clock.advance(TimeDelta::hours(1));
    let put = async |secret: &str, body: Value, status: u16| {
        let answer = app.ask_as(secret, "PUT /v1/policies/benefit", body).await;
        answer.is(status);
    };
    let read = async |path: &str| {
        let mut version = app.get(&format!("/v1/{path}")).await.is(200);
        // A use of a key is no change.
        version
            .as_object_mut()
            .expect("an object")
            .remove("last_used_on");
        version
    };
    put(KEY, rule(3, None), 201).await;
    tick();
    // The last admin key cannot be revoked, so the test makes two admin keys.
    let root = format!("keys/{}", make_role(&app, "admin", None).await.id);
    let root = read(&root).await;
    tick();
    let admin = make_role(&app, "admin", None).await;
    let of_key = format!("keys/{}", admin.id);
    let made = read(&of_key).await;
    tick();
    put(&admin.secret, rule(5, Some("campaign 7")), 200).await;
    tick();
    // The same policy again is no change.
    put(KEY, rule(5, Some("campaign 7")), 200).await;
    archive(&app).await;
    tick();
    put(KEY, rule(5, Some("campaign 8")), 201).await;
    let of_override = "policies/benefit/overrides/member-42";
    tick();
    app.override_day("member-42", 10).await;
    let first = read(of_override).await;
    tick();
    app.delete_override("member-42").await.is(200);
    tick();
    app.override_day("member-42", 7).await;
    let again = read(of_override).await;
    tick();
    let until = Some("2027-01-01T00:00:00Z");
    end(&app, KEY, &admin.id, until).await.is(200);
    let ended = read(&of_key).await;
    tick();
    revoke(&app, KEY, &admin.id).await.is(200);
    let revoked = read(&of_key).await;

    let versions = all_items(&app, "/v1/policies/benefit/versions").await;
    let [fourth, third, second, version] = &versions[..] else {
        panic!("{versions:?}");
    };
    let nothing = &Value::Null;
    let settings = "PERDIEM_ADMIN_KEY";
    let test = Some("a test");
    let over = Some("it is over");
    let campaign = Some("campaign 7");
    #[rustfmt::skip]
    let expected = [
        ("policy", settings, None, nothing, version),
        ("key", settings, None, nothing, &root),
        ("key", settings, None, nothing, &made),
        ("policy", &admin.id, campaign, version, second),
        ("policy", settings, over, second, third),
        ("policy", settings, Some("campaign 8"), third, fourth),
        ("override", settings, test, nothing, &first),
        ("override", settings, test, &first, nothing),
        ("override", settings, test, nothing, &again),
        ("key", settings, test, &made, &ended),
        ("key", settings, test, &ended, &revoked),
    ];
    let items = all_items(&app, CHANGES).await;
    assert_eq!(items.len(), expected.len());
    let changes = (0..).zip(items.iter().rev());
    for ((hours, change), (kind, by, reason, before, after)) in changes.zip(expected) {
        let expected = json!({
            "revision": hours + 1, "at": instant(NOON) + TimeDelta::hours(hours), "kind": kind,
            "policy": (kind != "key").then_some("benefit"),
            "subject": (kind == "override").then_some("member-42"),
            "key": (kind == "key").then_some(&after["id"]),
            "by": by, "reason": reason, "before": before, "after": after,
        });
        assert_eq!(*change, expected);
    }
    let text = app.get(CHANGES).await.text;
    assert!(!text.contains(&admin.secret) && !text.contains("secret"));
}

async fn filters_combine(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let tick = || clock.advance(TimeDelta::minutes(1));
    for name in ["benefit", "other"] {
        app.put_policy(name, rule(3, Some("a test"))).await.is(201);
        tick();
    }
    app.override_day("member-1", 5).await;
    tick();
    make_role(&app, "claim", Some("benefit")).await;
    tick();
    let audit = make_role(&app, "audit", Some("benefit")).await.secret;
    archive(&app).await;
    let at = |minute: u32, second: &str| format!("2026-11-21T03:{:02}:{second}Z", 4 + minute);
    let first = at(1, "05.678901");
    let third = at(3, "05.678901");
    // Stores keep microseconds.
    let later = at(1, "05.6789011");
    for (query, expected) in [
        (String::new(), &[6, 5, 4, 3, 2, 1][..]),
        // The filter by policy finds the changes of the policy and of its overrides, also for an
        // archived policy. A key belongs to no policy.
        ("policy=benefit".to_owned(), &[6, 3, 1]),
        ("policy=other".to_owned(), &[2]),
        (format!("from={first}"), &[6, 5, 4, 3, 2]),
        (format!("to={third}"), &[3, 2, 1]),
        (format!("from={first}&to={third}"), &[3, 2]),
        (format!("from={first}&policy=benefit"), &[6, 3]),
        (format!("from={later}"), &[6, 5, 4, 3]),
        (format!("to={later}"), &[2, 1]),
    ] {
        let items = all_items(&app, &format!("{CHANGES}?{query}")).await;
        assert_eq!(revisions(&items), expected, "{query}");
    }
    let refused = app.get(&format!("{CHANGES}?policy=nothing")).await;
    problem(&refused, 404, "unknown-policy");
    let page = app.get(&format!("{CHANGES}?limit=1")).await;
    let cursor = page.at("/next_cursor");
    let cursor = format!(
        "policy=benefit&cursor={}",
        cursor.as_str().expect("a cursor")
    );
    for (query, places) in [
        (
            "policy=No&from=soon&to=1&limit=0",
            &["policy", "from", "to", "limit"][..],
        ),
        (&cursor, &["cursor"]),
        ("cursor=x", &["cursor"]),
    ] {
        let refused = app.get(&format!("{CHANGES}?{query}")).await;
        assert_eq!(invalid_places(&refused), places);
    }
    // A confined key must name its policy.
    for (query, status) in [("policy=benefit", 200), ("policy=other", 403), ("", 403)] {
        let line = format!("GET {CHANGES}?{query}");
        let answer = app.ask_as(&audit, &line, Value::Null).await;
        assert_eq!(answer.status, status, "{query}");
    }
}

/// Two instances change policies, overrides and keys at the same time. A client that lists the
/// changes meanwhile sees every revision from the newest down, of every kind.
async fn no_change_is_left_out_while_many_are_made(stack: Stack) {
    let ground = Ground::new(stack);
    let apps = [App::start(&ground).await, App::start(&ground).await];
    apps[0].benefit(1, "UTC").await;
    let write = async |writer: usize| {
        let instance = writer % 2;
        let app = &apps[instance];
        let subject = format!("member-{instance}");
        for number in 2..22 {
            match writer / 2 {
                0 => drop(app.benefit(100 * number + instance as u64, "UTC").await),
                1 => app.override_day(&subject, number).await,
                _ => drop(make_role(app, "claim", None).await),
            }
        }
    };
    let writers = join_all((0..6).map(write));
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
    let mut direct = Direct::to(&ground).await;
    assert_eq!(direct.execute(sql, sql).await, 1);
    let change = app.get(CHANGES).await.at("/items/0");
    assert_eq!(change["kind"], "override");
    assert_eq!(change["subject"], Value::Null);
    assert_eq!(change["after"]["subject"], Value::Null);
}
