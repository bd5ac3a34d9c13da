//! `/v1/policies/{policy}/subjects/{subject}?at=` and `/v1/grants/{id}/explanation`: the reason why
//! a claim was granted or denied.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};

use super::exports::copy_grant;
use crate::http::v1::keys::{make_role, with};
use crate::http::{archive, invalid_parts, items, problem, replace};
use crate::support::app::{App, Ground, NOON, Stack, eventually};
use crate::support::desk::on_every_store;

on_every_store!(
    a_denial_is_explained_by_the_entries_before_it,
    a_grant_is_explained_with_what_became_of_it,
    a_hold_that_has_lapsed_needs_no_entry,
    a_long_account_is_cut,
);

const USAGE: &str = "/v1/policies/benefit/subjects/a";

async fn explained(app: &App, query: &str) -> Value {
    app.get(&format!("{USAGE}?{query}")).await.is(200)
}

/// Waits until this number of entries has positions, and returns the entries.
async fn recorded(app: &App, count: usize) -> Vec<Value> {
    let list = async || items(&app.get("/v1/entries").await);
    eventually("the entries are listed", || async {
        list().await.len() >= count
    })
    .await;
    list().await
}

/// The members of a value with these names.
fn members(value: &Value, names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| value[name].clone()).collect()
}

/// The outcome, the reason and the limits without room.
fn outcome(explanation: &Value) -> Value {
    members(explanation, &["outcome", "reason", "lacking"]).into()
}

async fn a_denial_is_explained_by_the_entries_before_it(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "Asia/Shanghai").await;
    let shop = make_role(&app, "claim", None).await;
    let claims = "/v1/policies/benefit/claims";
    let claim = with(&app, &shop.secret, Method::POST, claims).json(&json!({ "subject": "a" }));
    assert_eq!(claim.send().await.expect("an answer").status(), 201);
    let second = app.claim("a", None).await.grant_id();
    let adjusted = json!({ "units": 1, "at": "2026-11-20T16:00:00Z", "reason": "by phone" });
    app.adjust("a", adjusted, None).await;
    app.claim("b", None).await;
    let denied = app.claim("a", None).await;
    assert_eq!(denied.status, 429);
    let entries = recorded(&app, 4).await;
    let now = explained(&app, "units=1").await;
    assert_eq!(outcome(&now), json!(["denied", "no_room", ["day"]]));
    let detail = "there was no room for 1 more: 3 of 3 per day were used";
    assert_eq!(now["detail"], detail);
    let limit = &now["limits"][0];
    let shown = [
        "per",
        "max",
        "used",
        "remaining",
        "window_start",
        "resets_at",
    ];
    assert_eq!(
        members(limit, &shown),
        members(&denied.json()["limits"][0], &shown)
    );
    assert_eq!(limit["window_start_local"], "2026-11-21T00:00:00+08:00");
    assert_eq!(limit["resets_at_local"], "2026-11-22T00:00:00+08:00");
    assert_eq!(
        members(limit, &["entry_count", "entries_cut"]),
        [json!(3), json!(false)]
    );
    let told = limit["entries"].as_array().expect("entries");
    let shown = [
        "id",
        "kind",
        "units",
        "counted_at",
        "at",
        "position",
        "reason",
    ];
    for (told, listed) in told
        .iter()
        .zip([2, 1, 0].map(|place: usize| &entries[place]))
    {
        assert_eq!(members(told, &shown), members(listed, &shown));
    }
    assert_eq!(told[2]["key"]["id"].as_str(), Some(&*shop.id));
    assert_eq!(told[2]["key"]["name"], "a claim");
    assert_eq!(told[1]["by"], "PERDIEM_ADMIN_KEY");
    assert_eq!(told[0]["by"], "PERDIEM_ADMIN_KEY");
    let version = &now["terms"]["version"];
    assert_eq!(
        members(version, &["version", "changed_by"]),
        [json!(1), json!("PERDIEM_ADMIN_KEY")]
    );
    // Before the second entry was known, there was room.
    let known_at = &entries[0]["position"];
    let first = explained(&app, &format!("known_at={known_at}&units=2")).await;
    assert_eq!(outcome(&first), json!(["granted", "room", []]));
    assert_eq!(first["limits"][0]["used"], 1);
    assert_eq!(&first["known_at"], known_at);
    // Later entries and changes do not change what was known at a position.
    let known_at = &entries[3]["position"];
    let then = format!("{USAGE}?at={NOON}&known_at={known_at}");
    let before = app.get(&then).await;
    clock.advance(TimeDelta::hours(1));
    app.reverse(&second, "a test").await;
    replace(&app, json!({ "limits": [{ "max": 9, "per": "day" }] })).await;
    app.override_day("a", 1).await;
    recorded(&app, 5).await;
    assert_eq!(app.get(&then).await.text, before.text);
    let at_noon = explained(&app, &format!("at={NOON}")).await;
    assert_eq!(outcome(&at_noon), json!(["denied", "no_room", ["day"]]));
    let now = explained(&app, "units=1").await;
    assert_eq!(
        members(&now["limits"][0], &["used", "max"]),
        [json!(2), json!(1)]
    );
    // The next day begins at zero.
    clock.advance(TimeDelta::hours(24));
    assert_eq!(
        explained(&app, "units=1").await["limits"][0]["entry_count"],
        0
    );
}

async fn a_grant_is_explained_with_what_became_of_it(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(9, "Asia/Shanghai").await;
    app.override_day("a", 5).await;
    app.claim("a", None).await;
    let shop = make_role(&app, "claim", None).await;
    let claims = "/v1/policies/benefit/claims";
    let body = json!({ "subject": "a", "units": 2, "hold_seconds": 600 });
    let claim = with(&app, &shop.secret, Method::POST, claims).json(&body);
    let claimed: Value = claim
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    let id = claimed["grant"]["id"].as_str().expect("an id");
    app.delete_override("a").await;
    let path = format!("/v1/grants/{id}/explanation");
    let grant = recorded(&app, 2).await.remove(1);
    let held = app.get(&path).await.is(200);
    let took = json!([{ "per": "day", "first": 2, "last": 3, "max": 5 }]);
    assert_eq!(held["took"], took);
    assert_eq!(held["grant"]["state"], "held");
    assert_eq!(
        members(&held["entry"], &["position"]),
        members(&grant, &["position"])
    );
    assert_eq!(held["entry"]["key"]["id"].as_str(), Some(&*shop.id));
    assert_eq!(held["limits"][0]["used"], 1);
    assert_eq!(held["terms"]["override"]["version"], 1);
    assert_eq!(
        held["terms"]["override"]["limits"],
        json!([{ "max": 5, "per": "day" }])
    );
    let note = held["notes"][0].as_str().expect("a note");
    assert!(
        note.starts_with("it is a hold: it lapses at 2026-11-21T03:14:05"),
        "{note}"
    );
    clock.advance(TimeDelta::seconds(60));
    app.confirm(id).await;
    app.reverse(id, "SMS gateway refused").await;
    recorded(&app, 4).await;
    let now = app.get(&path).await.is(200);
    assert_eq!(now["grant"]["state"], "reversed");
    let kinds = ["confirmation", "reversal"];
    for (entry, kind) in now["since"].as_array().expect("entries").iter().zip(kinds) {
        assert_eq!(
            members(entry, &["kind", "by"]),
            [kind, "PERDIEM_ADMIN_KEY"].map(Value::from)
        );
    }
    assert_eq!(now["since"][1]["reason"], "SMS gateway refused");
    assert_eq!(
        members(&now, &["took", "limits"]),
        members(&held, &["took", "limits"])
    );
    // The state at the position of the hold.
    let then = format!("{path}?known_at={}", grant["position"]);
    let then = app.get(&then).await.is(200);
    assert_eq!(
        members(&then, &["grant", "since"]),
        members(&held, &["grant", "since"])
    );
    let earlier = format!(
        "{path}?known_at={}",
        grant["position"].as_u64().expect("one") - 1
    );
    problem(&app.get(&earlier).await, 404, "not-found");
}

async fn a_hold_that_has_lapsed_needs_no_entry(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "UTC").await;
    let body = json!({ "subject": "a", "units": 2, "hold_seconds": 60 });
    let hold = app.claim_body(body, None).await.grant_id();
    clock.advance(TimeDelta::seconds(59));
    let held = explained(&app, "units=2").await;
    assert_eq!(outcome(&held), json!(["denied", "no_room", ["day"]]));
    clock.advance(TimeDelta::seconds(1));
    let at = clock
        .now()
        .to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    clock.advance(TimeDelta::seconds(1));
    let lapsed = explained(&app, &format!("at={at}&units=2")).await;
    assert_eq!(outcome(&lapsed), json!(["granted", "room", []]));
    let limit = &lapsed["limits"][0];
    assert_eq!(
        members(limit, &["used", "entry_count"]),
        [json!(0), json!(2)]
    );
    let names = ["id", "kind", "units", "at", "grant", "position"];
    let expected = json!([null, "lapse", -2, at, hold, null]);
    assert_eq!(json!(members(&limit["entries"][0], &names)), expected);
    // The entry of the lapse comes with the next grant, a second later. It is at the end of the hold.
    app.claim("a", None).await;
    recorded(&app, 3).await;
    let again = explained(&app, &format!("at={at}&units=2")).await;
    let names = ["kind", "units", "at", "counted_at", "grant"];
    let entries = [&again, &lapsed].map(|told| members(&told["limits"][0]["entries"][0], &names));
    assert_eq!(entries[0], entries[1]);
    assert_eq!(again["limits"][0]["entries"][0]["position"], 3);
    let now = explained(&app, "units=2").await;
    let kinds = now["limits"][0]["entries"]
        .as_array()
        .expect("entries")
        .iter();
    let kinds: Vec<&Value> = kinds.map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["grant", "lapse", "grant"]);
}

async fn a_long_account_is_cut(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "year" }] });
    app.put_policy("benefit", rule).await;
    let first = app.claim("a", None).await;
    copy_grant(&ground, 2, 9_999, false).await;
    let limit = explained(&app, "units=1").await["limits"][0].clone();
    assert_eq!(
        members(&limit, &["entry_count", "entries_cut"]),
        [json!(10_000), json!(true)]
    );
    let entries = limit["entries"].as_array().expect("entries");
    assert_eq!(entries.len(), 1000);
    assert_ne!(entries[999]["id"], first.grant_id());
}

/// Reasons other than a limit that deny a claim, and reasons that grant a claim over a limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_reasons_are_told() {
    let (app, clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "UTC").await;
    let mut steps = Vec::new();
    let mut step = async |expected: Value| {
        let at = clock
            .now()
            .to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        steps.push((at, expected));
        clock.advance(TimeDelta::hours(1));
    };
    step(json!(["denied", "never_fits", ["day"]])).await;
    app.pause(true).await.is(200);
    step(json!(["denied", "paused", ["day"]])).await;
    app.pause(false).await.is(200);
    replace(&app, json!({ "active_from": "2026-11-23T00:00:00Z" })).await;
    step(json!(["denied", "not_yet_active", ["day"]])).await;
    replace(&app, json!({ "active_until": "2026-11-21T06:00:00Z" })).await;
    step(json!(["denied", "no_longer_active", ["day"]])).await;
    replace(&app, json!({ "mode": "observe" })).await;
    step(json!(["granted", "observed", ["day"]])).await;
    replace(&app, json!({})).await;
    app.override_day("a", 9).await;
    step(json!(["granted", "room", []])).await;
    app.override_day("a", 1).await;
    step(json!(["denied", "never_fits", ["day"]])).await;
    app.block("a").await.is(201);
    step(json!(["denied", "blocked", ["day"]])).await;
    archive(&app).await;
    step(json!(["denied", "archived", ["day"]])).await;
    for (at, expected) in &steps {
        let explanation = explained(&app, &format!("at={at}&units=4")).await;
        assert_eq!(&outcome(&explanation), expected, "{explanation}");
    }
    // A block denies every claim, also of a subject that never claimed.
    let blocked = explained(&app, &format!("at={}", steps[7].0)).await;
    assert_eq!(outcome(&blocked), json!(["denied", "blocked", []]));
    assert_eq!(blocked["terms"]["block"]["reason"], "a test");
    assert_eq!(
        members(&blocked["limits"][0], &["used", "max", "entries"]),
        [json!(0), json!(1), json!([])]
    );
    let before = explained(&app, "at=2026-11-21T03:04:05Z").await;
    assert_eq!(outcome(&before), json!(["denied", "no_version", []]));
    assert_eq!(
        members(&before, &["terms", "limits"]),
        [Value::Null, json!([])]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provisional_grant_says_so() {
    let app = App::on(Stack::RedisAndSqlite).await;
    let limits = json!([{ "max": 3, "per": "day" }]);
    let rule = json!({ "time_zone": "UTC", "limits": limits, "durability": "counted" });
    app.put_policy("benefit", rule).await;
    app.claim("a", None).await;
    let id = app.claim("a", None).await.grant_id();
    let told = app
        .get(&format!("/v1/grants/{id}/explanation"))
        .await
        .is(200);
    assert_eq!(told["took"][0]["first"], 2);
    let note = told["notes"][0].as_str().expect("a note");
    assert!(note.starts_with("Redis alone decided it"), "{note}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanations_are_for_auditors() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "UTC").await;
    app.put_policy(
        "sms",
        json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] }),
    )
    .await;
    let grant = app.claim("a", None).await.grant_id();
    let grant = format!("/v1/grants/{grant}/explanation");
    let explanation = format!("{USAGE}?units=1");
    let shop = make_role(&app, "claim", None).await;
    let clerk = make_role(&app, "audit", Some("benefit")).await;
    let other = make_role(&app, "audit", Some("sms")).await;
    for (key, path, status) in [
        (&shop, USAGE, 200),
        (&shop, &explanation, 403),
        (&shop, &grant, 403),
        (&clerk, &explanation, 200),
        (&clerk, &grant, 200),
        (&other, &explanation, 403),
        (&other, &grant, 403),
    ] {
        let answer = with(&app, &key.secret, Method::GET, path).send().await;
        assert_eq!(answer.expect("an answer").status(), status, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_told_with_its_place() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "UTC").await;
    let grant = app.claim("a", None).await.grant_id();
    recorded(&app, 1).await;
    let grant = format!("/v1/grants/{grant}/explanation");
    for (path, query, place, words) in [
        (USAGE, "at=yesterday", "at", "RFC 3339"),
        (USAGE, "at=9999-01-01T00:00:00Z", "at", "in the future"),
        (USAGE, "units=0", "units", "1 to"),
        (USAGE, "units=-1", "units", "1 to"),
        (USAGE, "units=9007199254740992", "units", "1 to"),
        (USAGE, "known_at=-1", "known_at", "write a position"),
        (
            USAGE,
            "known_at=99",
            "known_at",
            "the record ends at position 2",
        ),
        (
            &grant,
            "known_at=99",
            "known_at",
            "the record ends at position 2",
        ),
        (
            &grant,
            "known_at=9999-01-01T00:00:00Z",
            "known_at",
            "in the future",
        ),
    ] {
        let parts = invalid_parts(&app.get(&format!("{path}?{query}")).await);
        assert_eq!(parts.len(), 1, "{query}: {parts:?}");
        assert_eq!(parts[0].0, place, "{query}");
        assert!(parts[0].1.contains(words), "{query}: {parts:?}");
    }
    problem(
        &app.get(&format!("{grant}?at={NOON}")).await,
        400,
        "malformed",
    );
    let unknown = "/v1/policies/nothing/subjects/a?units=1";
    problem(&app.get(unknown).await, 404, "unknown-policy");
    let nobodys = "/v1/grants/0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42/explanation";
    problem(&app.get(nobodys).await, 404, "not-found");
}
