//! `/v1/entries`: the entries of all accounts, by position.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::v1::keys::{make_role, with};
use crate::http::{all_items, invalid_parts, invalid_places, items, problem, replace, send};
use crate::support::app::{App, Stack, eventually};
use crate::support::desk::on_every_store;

on_every_store!(
    filters_combine,
    days_are_those_that_were_lived,
    lists_as_of_an_instant_stay,
    grants_have_the_same_filters,
    changes_are_listed_by_kind_actor_and_subject,
);

/// Waits until this number of entries is listed, and returns the entries.
async fn listed(app: &App, filter: &str, count: usize) -> Vec<Value> {
    let path = format!("/v1/entries?{filter}&limit=2");
    eventually("the entries are listed", || async {
        all_items(app, &path).await.len() >= count
    })
    .await;
    let found = all_items(app, &path).await;
    assert_eq!(found.len(), count, "{filter}: {found:#?}");
    found
}

async fn filters_combine(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "Asia/Shanghai").await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    app.put_policy("sms", rule).await;
    let shop = make_role(&app, "claim", None).await;
    let metadata = json!({ "order": "A-17" });
    let body = json!({ "subject": "a", "metadata": metadata });
    let claims = "/v1/policies/benefit/claims";
    let claimed = with(&app, &shop.secret, Method::POST, claims).json(&body);
    assert_eq!(claimed.send().await.expect("an answer").status(), 201);
    app.claim("b", None).await;
    let grant = app
        .claim_under("sms", json!({ "subject": "a" }), None)
        .await
        .grant_id();
    app.reverse(&grant, "a test").await;
    let adjusted = json!({ "units": 2, "at": "2020-02-29T16:30:00Z", "reason": "opening" });
    app.adjust("c", adjusted, None).await;
    let all = listed(&app, "", 5).await;
    let first = &all[0];
    assert_eq!(first["key"]["id"].as_str(), Some(&*shop.id), "{first}");
    assert_eq!(first["metadata"], metadata);
    assert_eq!(first["policy"], "benefit");
    assert_eq!(first["limits"][0]["used"], 1);
    let reversal = &all[3];
    let adjustment = &all[4];
    assert_eq!(
        (&reversal["kind"], &reversal["units"]),
        (&json!("reversal"), &json!(-1))
    );
    assert_eq!(reversal["grant"], grant);
    assert_eq!(
        adjustment["counted_on"], "2020-03-01",
        "the date in Shanghai: {adjustment}"
    );
    assert_eq!(adjustment["reason"], "opening");
    assert!(adjustment.get("key").is_none() && adjustment.get("metadata").is_none());
    let by_shop = format!("by={}", shop.id);
    for (filter, places) in [
        ("policy=benefit", &[0, 1, 4][..]),
        ("subject=a", &[0, 2, 3]),
        ("policy=sms&subject=a", &[2, 3]),
        ("kind=grant", &[0, 1, 2]),
        ("kind=adjustment", &[4]),
        ("kind=lapse", &[]),
        (&by_shop, &[0]),
        ("by=PERDIEM_ADMIN_KEY", &[1, 2, 3, 4]),
        ("policy=benefit&on=2020-03-01", &[4]),
        ("policy=benefit&on=2020-02-29", &[]),
        ("to=2020-03-01T00:00:00Z", &[4]),
        ("from=2020-03-01T00:00:00Z", &[0, 1, 2, 3]),
        ("policy=benefit&from=2020-03-01&to=2020-03-02", &[4]),
        ("subject=c&policy=benefit&from=2020-03-02", &[]),
        ("recorded_to=2020-01-01T00:00:00Z", &[]),
        ("recorded_from=2020-01-01T00:00:00Z&kind=reversal", &[3]),
    ] {
        let expected: Vec<&Value> = places.iter().map(|place: &usize| &all[*place]).collect();
        let found = all_items(&app, &format!("/v1/entries?{filter}&limit=2")).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter}");
    }
    let after = format!("/v1/entries?after={}", all[1]["position"]);
    assert_eq!(items(&app.get(&after).await), all[2..]);
    let before = format!("/v1/entries?as_of={}", all[1]["position"]);
    assert_eq!(items(&app.get(&before).await), all[..2]);
    // A confined key sees the entries of a policy that the query names.
    let clerk = make_role(&app, "audit", Some("sms")).await;
    let status = async |path: &str| {
        let request = with(&app, &clerk.secret, Method::GET, path);
        request.send().await.expect("an answer").status().as_u16()
    };
    assert_eq!(status("/v1/entries?policy=sms").await, 200);
    assert_eq!(status("/v1/entries?policy=benefit").await, 403);
    assert_eq!(status("/v1/entries").await, 403);
}

/// The policy moves from Shanghai to New York in the middle of a day. The day of this change is
/// longer.
async fn days_are_those_that_were_lived(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    // 11:04 on the 21st in Shanghai, 22:04 on the 20th in New York.
    app.benefit(9, "Asia/Shanghai").await;
    app.claim("a", None).await;
    replace(&app, json!({ "time_zone": "America/New_York" })).await;
    app.claim("b", None).await;
    // 23:04 on the 21st in New York, and noon on the 22nd in Shanghai.
    clock.advance(TimeDelta::hours(25));
    app.claim("c", None).await;
    clock.advance(TimeDelta::hours(1));
    let grant = app.claim("d", None).await.grant_id();
    clock.advance(TimeDelta::hours(24));
    app.reverse(&grant, "a test").await;
    let all = listed(&app, "", 5).await;
    let dates: Vec<&str> = all
        .iter()
        .map(|item| item["counted_on"].as_str().unwrap())
        .collect();
    let expected = [
        "2026-11-21",
        "2026-11-21",
        "2026-11-21",
        "2026-11-22",
        "2026-11-22",
    ];
    assert_eq!(dates, expected);
    for date in ["2026-11-20", "2026-11-21", "2026-11-22", "2026-11-23"] {
        let on: Vec<&Value> = all
            .iter()
            .filter(|item| item["counted_on"] == date)
            .collect();
        let found = all_items(&app, &format!("/v1/entries?policy=benefit&on={date}")).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), on, "{date}");
    }
}

async fn lists_as_of_an_instant_stay(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(9, "UTC").await;
    app.claim("a", None).await;
    listed(&app, "", 1).await;
    clock.advance(TimeDelta::seconds(1));
    let then = "/v1/entries?as_of=2026-11-21T03:04:06Z";
    let list = app.get(then).await;
    assert_eq!(items(&list).len(), 1, "{list:?}");
    clock.advance(TimeDelta::seconds(60));
    app.claim("a", None).await;
    listed(&app, "", 2).await;
    assert_eq!(app.get(then).await.text, list.text);
    let told = app.get("/v1/entries?as_of=2026-11-21T04:00:00Z").await;
    assert_eq!(invalid_places(&told), ["as_of"]);
}

async fn grants_have_the_same_filters(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "Asia/Shanghai").await;
    let shop = make_role(&app, "claim", None).await;
    let claims = "/v1/policies/benefit/claims";
    let claim = with(&app, &shop.secret, Method::POST, claims).json(&json!({ "subject": "a" }));
    let first = claim.send().await.expect("an answer").json::<Value>().await;
    let first = first.expect("a grant")["grant"]["id"].clone();
    clock.advance(TimeDelta::hours(24));
    let second = json!(app.claim("a", None).await.grant_id());
    for (filter, found) in [
        ("policy=benefit&on=2026-11-21".to_owned(), vec![&first]),
        ("policy=benefit&on=2026-11-23".to_owned(), vec![]),
        (
            "policy=benefit&subject=a&from=2026-11-22".to_owned(),
            vec![&second],
        ),
        (
            "policy=benefit&from=2026-11-21&to=2026-11-23".to_owned(),
            vec![&second, &first],
        ),
        (format!("by={}", shop.id), vec![&first]),
        (format!("by={}&state=held", shop.id), vec![]),
        ("by=PERDIEM_ADMIN_KEY&subject=a".to_owned(), vec![&second]),
    ] {
        let grants = all_items(&app, &format!("/v1/grants?{filter}&limit=1")).await;
        let ids: Vec<&Value> = grants.iter().map(|grant| &grant["id"]).collect();
        assert_eq!(ids, found, "{filter}");
        let export = app
            .get(&format!("/v1/grants/export?format=ndjson&{filter}"))
            .await;
        assert_eq!(
            export.text.lines().count(),
            found.len(),
            "{filter}: {export:?}"
        );
    }
    for (query, place) in [
        ("on=2026-11-21", "on"),
        ("by=shop", "by"),
        ("to=2026-11-21", "to"),
    ] {
        let told = app.get(&format!("/v1/grants?{query}")).await;
        assert_eq!(invalid_places(&told), [place], "{query}");
    }
}

async fn changes_are_listed_by_kind_actor_and_subject(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "UTC").await;
    let admin = make_role(&app, "admin", None).await;
    app.override_day("a", 5).await;
    app.override_day("b", 5).await;
    let path = "/v1/policies/benefit/overrides/a";
    let deleted = with(
        &app,
        &admin.secret,
        Method::DELETE,
        &format!("{path}?reason=a+test"),
    );
    assert_eq!(deleted.send().await.expect("an answer").status(), 200);
    for (filter, revisions) in [
        ("kind=policy".to_owned(), vec![1]),
        ("kind=override".to_owned(), vec![5, 4, 3]),
        ("kind=key".to_owned(), vec![2]),
        (format!("by={}", admin.id), vec![5]),
        ("by=PERDIEM_ADMIN_KEY".to_owned(), vec![4, 3, 2, 1]),
        ("by=perdiem".to_owned(), vec![]),
        ("subject=a".to_owned(), vec![5, 3]),
        (
            "subject=a&policy=benefit&by=PERDIEM_ADMIN_KEY".to_owned(),
            vec![3],
        ),
        ("subject=c".to_owned(), vec![]),
        ("subject=a&kind=policy".to_owned(), vec![]),
        ("policy=benefit&kind=key".to_owned(), vec![]),
    ] {
        let found = all_items(&app, &format!("/v1/changes?{filter}&limit=1")).await;
        let found: Vec<&Value> = found.iter().map(|change| &change["revision"]).collect();
        assert_eq!(found, revisions, "{filter}");
    }
    for (query, place) in [
        ("kind=rule", "kind"),
        ("by=shop", "by"),
        ("subject=", "subject"),
    ] {
        let told = app.get(&format!("/v1/changes?{query}")).await;
        assert_eq!(invalid_places(&told), [place], "{query}");
    }
}

/// After a change of the zone in the middle of a window, the list has the windows of both zones. A
/// change of another member adds no window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_are_those_of_the_version_in_force() {
    let (app, clock) = App::with_clock(Stack::Sqlite).await;
    // 11:04 on the 21st in Shanghai.
    app.benefit(3, "Asia/Shanghai").await;
    clock.advance(TimeDelta::hours(1));
    replace(&app, json!({ "time_zone": "UTC" })).await;
    replace(
        &app,
        json!({ "time_zone": "UTC", "description": "by mail" }),
    )
    .await;
    clock.advance(TimeDelta::hours(48));
    let path = "/v1/policies/benefit/windows?from=2026-11-20T12:00:00Z&to=2026-11-22T12:00:00Z";
    let windows = all_items(&app, &format!("{path}&limit=1")).await;
    let told: Vec<String> = windows
        .iter()
        .map(|window| format!("{} {}", window["start"], window["local_date"]))
        .map(|line| line.replace('"', ""))
        .collect();
    let expected = [
        "2026-11-19T16:00:00Z 2026-11-20",
        "2026-11-20T16:00:00Z 2026-11-21",
        "2026-11-21T00:00:00Z 2026-11-21",
        "2026-11-22T00:00:00Z 2026-11-22",
    ];
    assert_eq!(told, expected);
    // The windows of the second zone begin before the last window of the first zone ends.
    let (app, clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "+14:00").await;
    clock.advance(TimeDelta::hours(12));
    replace(&app, json!({ "time_zone": "UTC" })).await;
    let path = "/v1/policies/benefit/windows?from=2026-11-20T12:00:00Z&to=2026-11-23T12:00:00Z";
    let whole = items(&app.get(path).await);
    assert_eq!(whole.len(), 5, "{whole:?}");
    for limit in 1..6 {
        let pages = all_items(&app, &format!("{path}&limit={limit}")).await;
        assert_eq!(pages, whole, "{limit} items a page");
    }
}

/// An auditor may start a reconciliation. Only an admin may heal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_auditor_starts_a_reconciliation_that_does_not_heal() {
    let app = App::on(Stack::Sqlite).await;
    let clerk = make_role(&app, "audit", None).await;
    for (apply, status) in [(false, 201), (true, 403)] {
        let request = with(&app, &clerk.secret, Method::POST, "/v1/reconciliations");
        let answer = request.json(&json!({ "apply": apply })).send().await;
        assert_eq!(answer.expect("an answer").status(), status, "{apply}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_told_with_its_place() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "UTC").await;
    listed(&app, "", 0).await;
    for (query, place, words) in [
        ("policy=A", "policy", "policy"),
        ("subject=", "subject", "subject"),
        (
            "kind=gift",
            "kind",
            "write one of the kinds grant, confirmation",
        ),
        ("by=shop", "by", "write a key's id, or PERDIEM_ADMIN_KEY"),
        (
            "by=0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42",
            "by",
            "no key with this id",
        ),
        ("policy=benefit&on=3.11.2026", "on", "write a date"),
        ("on=2026-11-03", "on", "name the policy too"),
        ("from=2026-11-03", "from", "name the policy too"),
        ("to=yesterday", "to", "or write a date, such as"),
        (
            "recorded_from=2026-11-03",
            "recorded_from",
            "name the policy too",
        ),
        ("as_of=-1", "as_of", "write a position"),
        ("as_of=9223372036854775808", "as_of", "write a position"),
        ("as_of=99", "as_of", "the record ends at position"),
        ("as_of=9999-01-01T00:00:00Z", "as_of", "in the future"),
        ("after=99", "after", "the record ends at position"),
        ("after=1.5", "after", "write a position"),
        ("wait=31", "wait", "0 to 30 seconds"),
        ("wait=1&as_of=0", "wait", "gets no new entries"),
        (
            "wait=1&recorded_to=2026-11-03T00:00:00Z",
            "wait",
            "gets no new entries",
        ),
        ("limit=0", "limit", "1 to 1000"),
        ("cursor=AAAA", "cursor", "start again without a cursor"),
    ] {
        let told = app.get(&format!("/v1/entries?{query}")).await;
        let parts = invalid_parts(&told);
        assert_eq!(parts.len(), 1, "{query}: {parts:?}");
        assert_eq!(parts[0].0, place, "{query}");
        assert!(parts[0].1.contains(words), "{query}: {parts:?}");
    }
    problem(&app.get("/v1/entries?polcy=x").await, 400, "malformed");
    problem(
        &app.get("/v1/entries?policy=nothing").await,
        404,
        "unknown-policy",
    );
    let posted = send(&app, Method::POST, "/v1/entries", "{}").await;
    assert_eq!(posted.status, 405);
}
