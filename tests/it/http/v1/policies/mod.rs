//! Policies: put, read, archived, revived; preconditions; versions and lists.

mod schedules;

use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{
    all_items, archive, column, has_version, invalid_places, items, problem, replace,
};
use crate::support::app::{Answer, App, NOON, Stack, instant, on_every_stack};
use crate::support::desk::on_every_store;

const POLICY: &str = "/v1/policies/benefit";

fn rule(max: u64) -> Value {
    json!({ "time_zone": "GMT+8", "limits": [{ "max": max, "per": "day" }], "reason": "a test" })
}

/// As a list of versions has it.
fn listed(mut policy: Value) -> Value {
    let members = policy.as_object_mut().expect("an object");
    members.remove("in_force_version").expect("a version");
    policy
}

async fn put_if(app: &App, max: u64, header: (&str, &str)) -> Answer {
    let request = app.request(Method::PUT, POLICY).json(&rule(max));
    Answer::of(request.header(header.0, header.1)).await
}

on_every_store!(a_policy_lives);

async fn a_policy_lives(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    problem(&app.get(POLICY).await, 404, "unknown-policy");
    let put = json!({
        "description": "3 benefit claims per member per day",
        "time_zone": "gmt+8",
        "limits": [{ "max": 3, "per": "day" }, { "max": 30, "per": "month" }],
        "day_starts_at": "06:00", "week_starts_on": "sunday",
        "active_from": "2026-01-01T00:00:00+08:00", "active_until": null,
    });
    let created = app.put_policy("benefit", put.clone()).await;
    has_version(&created, 201, 1);
    assert_eq!(
        created.json(),
        json!({
            "name": "benefit", "version": 1,
            "description": "3 benefit claims per member per day",
            "time_zone": "+08:00",
            "limits": [{ "max": 3, "per": "day" }, { "max": 30, "per": "month" }],
            "day_starts_at": "06:00", "week_starts_on": "sunday",
            "active_from": "2025-12-31T16:00:00Z", "active_until": null,
            "paused": false, "mode": "enforce", "durability": "recorded", "on_ledger_outage": "refuse",
            "archived": false, "effective_at": NOON, "in_force_version": 1,
            "changed_at": NOON, "changed_by": "PERDIEM_ADMIN_KEY", "reason": null,
        })
    );
    let read = app.get(POLICY).await;
    has_version(&read, 200, 1);
    assert_eq!(read.json(), created.json());

    // The same again is no change, and needs no reason.
    clock.advance(chrono::TimeDelta::hours(1));
    let again = app.put_policy("benefit", put.clone()).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, created.json()));

    // A change needs one, and makes a version.
    let mut changed = put;
    changed["limits"][0]["max"] = json!(4);
    let answer = app.put_policy("benefit", changed.clone()).await;
    assert_eq!(invalid_places(&answer), ["#/reason"]);
    changed["reason"] = json!("campaign 7");
    let replaced = app.put_policy("benefit", changed).await;
    has_version(&replaced, 200, 2);
    let replaced = replaced.json();
    assert_eq!(replaced["version"], 2);
    assert_eq!(replaced["reason"], "campaign 7");
    assert_eq!(replaced["changed_at"], "2026-11-21T04:04:05.678901Z");
    assert_eq!(app.get(POLICY).await.json(), replaced);

    // To archive needs a reason too.
    let answer = Answer::of(app.request(Method::DELETE, POLICY)).await;
    assert_eq!(invalid_places(&answer), ["reason"]);
    let blank = app.request(Method::DELETE, &format!("{POLICY}?reason=%20"));
    assert_eq!(invalid_places(&Answer::of(blank).await), ["reason"]);
    let archived = archive(&app).await.json();
    assert_eq!(archived["archived"], true);
    assert_eq!(archived["version"], 3);
    assert_eq!(archived["reason"], "it is over");
    assert_eq!(archived["limits"], replaced["limits"]);
    problem(&app.get(POLICY).await, 404, "unknown-policy");
    let path = format!("{POLICY}?reason=again");
    let twice = Answer::of(app.request(Method::DELETE, &path)).await;
    problem(&twice, 404, "unknown-policy");
    assert_eq!(app.get("/v1/policies").await.json()["items"], json!([]));

    // Its history stays.
    let versions = app.get("/v1/policies/benefit/versions").await.json();
    assert_eq!(versions["next_cursor"], Value::Null);
    assert_eq!(
        versions["items"],
        json!([listed(archived), listed(replaced), listed(created.json())])
    );

    // A put revives it, as a new version and without a reason.
    let mut fresh = rule(3);
    fresh["reason"] = Value::Null;
    let revived = app.put_policy("benefit", fresh).await;
    has_version(&revived, 201, 4);
    assert_eq!(revived.json()["archived"], false);
    assert_eq!(app.get(POLICY).await.json(), revived.json());
}

on_every_store!(preconditions);

async fn preconditions(stack: Stack) {
    let app = App::on(stack).await;
    let archive_if = async |etag: &str| {
        let path = format!("{POLICY}?reason=x");
        Answer::of(app.request(Method::DELETE, &path).header("If-Match", etag)).await
    };
    for etag in ["*", "\"1\""] {
        let answer = put_if(&app, 3, ("If-Match", etag)).await;
        problem(&answer, 412, "precondition-failed");
    }
    assert_eq!(put_if(&app, 3, ("If-None-Match", "*")).await.status, 201);
    let answer = put_if(&app, 4, ("If-None-Match", "*")).await;
    problem(&answer, 412, "precondition-failed");
    assert_eq!(answer.header("etag"), Some("\"1\""));
    assert_eq!(put_if(&app, 4, ("If-Match", "\"1\"")).await.status, 200);
    // A stale one, also where the rule is the same already.
    for max in [4, 5] {
        let answer = put_if(&app, max, ("If-Match", "\"1\"")).await;
        problem(&answer, 412, "precondition-failed");
        assert_eq!(answer.header("etag"), Some("\"2\""));
    }
    let either = put_if(&app, 5, ("If-Match", "\"1\", \"2\"")).await;
    assert_eq!(either.status, 200);
    assert_eq!(put_if(&app, 6, ("If-Match", "*")).await.status, 200);
    // A weak one never matches; another service's never either.
    for etag in ["W/\"4\"", "\"abc\"", "\"04x\"", "\"\""] {
        let answer = put_if(&app, 7, ("If-Match", etag)).await;
        problem(&answer, 412, "precondition-failed");
    }
    for (name, value) in [
        ("If-Match", "4"),
        ("If-Match", ""),
        ("If-None-Match", "\"4\""),
    ] {
        let answer = put_if(&app, 7, (name, value)).await;
        assert_eq!(invalid_places(&answer), [name], "{value}");
    }
    problem(&archive_if("\"3\"").await, 412, "precondition-failed");
    assert_eq!(archive_if("\"4\"").await.status, 200);
    // An archived policy does not exist.
    let answer = put_if(&app, 3, ("If-Match", "\"5\"")).await;
    problem(&answer, 412, "precondition-failed");
    assert_eq!(put_if(&app, 3, ("If-None-Match", "*")).await.status, 201);
    assert_eq!(app.get(POLICY).await.json()["version"], 6);
}

on_every_stack!(a_revived_policy_goes_on_counting);

async fn a_revived_policy_goes_on_counting(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    for _ in 0..2 {
        assert_eq!(app.claim("member-42", None).await.status, 201);
    }
    archive(&app).await;
    problem(&app.claim("member-42", None).await, 404, "unknown-policy");
    let usage = "/v1/policies/benefit/subjects/member-42";
    for path in [usage, "/v1/policies/benefit/windows"] {
        problem(&app.get(path).await, 404, "unknown-policy");
    }
    let history = app.get("/v1/grants?policy=benefit").await;
    assert_eq!(items(&history).len(), 2);

    app.benefit(3, "GMT+8").await;
    assert_eq!(app.get(usage).await.json()["limits"][0]["used"], 2);
    let third = app.claim("member-42", None).await;
    assert_eq!(third.status, 201, "{third:?}");
    assert_eq!(third.json()["grant"]["policy_version"], 3);
    problem(&app.claim("member-42", None).await, 429, "quota-exceeded");
}

on_every_store!(a_policy_that_is_not_active_grants_nothing);

async fn a_policy_that_is_not_active_grants_nothing(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let (from, until) = ("2026-11-21T03:05:00Z", "2026-11-21T03:06:00Z");
    replace(&app, json!({ "active_from": from, "active_until": until })).await;
    let inactive = async |words: &str| {
        for (key, dry_run) in [(None, false), (Some("a key"), false), (None, true)] {
            let body = json!({ "subject": "member-42", "dry_run": dry_run });
            let answer = app.claim_body(body, key).await;
            let problem = problem(&answer, 409, "policy-inactive");
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert!(detail.contains(words), "{detail}");
        }
    };
    inactive("before 2026-11-21T03:05:00").await;
    let micro = chrono::TimeDelta::microseconds(1);
    clock.set(instant(from) - micro);
    inactive("before 2026-11-21T03:05:00").await;
    clock.advance(micro);
    assert_eq!(app.claim("member-42", None).await.status, 201);
    clock.set(instant(until) - micro);
    assert_eq!(app.claim("member-42", None).await.status, 201);
    clock.advance(micro);
    inactive("since 2026-11-21T03:06:00").await;
    replace(&app, json!({ "paused": true })).await;
    inactive("paused").await;
    replace(&app, json!({})).await;
    let claimed = app.claim("member-42", None).await.json();
    assert_eq!(claimed["limits"][0]["used"], 3);
}

on_every_store!(policies_are_listed_by_name_page_by_page);

async fn policies_are_listed_by_name_page_by_page(stack: Stack) {
    let app = App::on(stack).await;
    let longest = "z".repeat(63);
    let names = ["b", "a-1", "a", "0", longest.as_str(), "ab", "c", "a0"];
    for name in names {
        assert_eq!(app.put_policy(name, rule(1)).await.status, 201);
    }
    let answer = Answer::of(app.request(Method::DELETE, "/v1/policies/c?reason=x")).await;
    assert_eq!(answer.status, 200);
    let mut wanted: Vec<&str> = names.into_iter().filter(|name| *name != "c").collect();
    wanted.sort_unstable();
    for limit in [1, 2, 3, 7, 8] {
        let items = all_items(&app, &format!("/v1/policies?limit={limit}")).await;
        assert_eq!(column(&items, "name"), wanted, "{limit} a page");
    }
    // Policies that come in between.
    let page = app.get("/v1/policies?limit=2").await.json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2));
    let cursor = page["next_cursor"].as_str().expect("a cursor");
    for name in ["00", "a-0", "y"] {
        assert_eq!(app.put_policy(name, rule(1)).await.status, 201);
    }
    let rest = all_items(&app, &format!("/v1/policies?cursor={cursor}")).await;
    let rest = column(&rest, "name");
    let all = items(&app.get("/v1/policies").await);
    let after = column(&all, "name")
        .into_iter()
        .filter(|name| *name > wanted[1]);
    assert_eq!(rest, after.collect::<Vec<&str>>());
}

on_every_store!(versions_are_listed_newest_first_page_by_page);

async fn versions_are_listed_newest_first_page_by_page(stack: Stack) {
    let app = App::on(stack).await;
    let versions = "/v1/policies/benefit/versions";
    problem(&app.get(versions).await, 404, "unknown-policy");
    for max in 1..=7 {
        let answer = app.put_policy("benefit", rule(max)).await;
        assert!(answer.status.is_success());
    }
    let list = async |query: &str| {
        let items = all_items(&app, &format!("{versions}?{query}")).await;
        let numbers = items.iter().filter_map(|item| item["version"].as_u64());
        numbers.collect::<Vec<u64>>()
    };
    for limit in [1, 2, 3, 7, 8] {
        let found = list(&format!("limit={limit}")).await;
        assert_eq!(found, [7, 6, 5, 4, 3, 2, 1], "{limit} a page");
    }
    let page = app.get(&format!("{versions}?limit=4")).await.json();
    let cursor = page["next_cursor"].as_str().expect("a cursor");
    app.put_policy("benefit", rule(8)).await;
    assert_eq!(list(&format!("cursor={cursor}")).await, [3, 2, 1]);
    // A cursor is good for its own list only.
    app.put_policy("other", rule(1)).await;
    for path in [
        format!("/v1/policies/other/versions?cursor={cursor}"),
        format!("/v1/policies?cursor={cursor}"),
        format!("/v1/grants?cursor={cursor}"),
        format!("/v1/policies/benefit/windows?cursor={cursor}"),
        format!("{versions}?cursor={cursor}A"),
        format!("{versions}?cursor=A{cursor}"),
        format!("{versions}?cursor={}", &cursor[1..]),
    ] {
        assert_eq!(invalid_places(&app.get(&path).await), ["cursor"], "{path}");
    }
}

/// Without a precondition the last writer wins; with one, one of many does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_writers_with_the_same_etag_wins() {
    let app = App::on(Stack::Postgres).await;
    app.benefit(1, "GMT+8").await;
    let writers = (2..12).map(|max| put_if(&app, max, ("If-Match", "\"1\"")));
    let answers = futures_util::future::join_all(writers).await;
    let won = answers.iter().filter(|answer| answer.status == 200).count();
    let lost = answers.iter().filter(|answer| answer.status == 412).count();
    assert_eq!((won, lost), (1, 9));
    let writers = (2..12).map(|max| app.put_policy("benefit", rule(max)));
    let answers = futures_util::future::join_all(writers).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    let items = all_items(&app, "/v1/policies/benefit/versions").await;
    let newest = app.get(POLICY).await.json();
    assert_eq!(items[0], listed(newest.clone()));
    assert_eq!(newest["version"].as_u64(), Some(items.len() as u64));
}
