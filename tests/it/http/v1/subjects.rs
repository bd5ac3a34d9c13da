//! A subject under all policies.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::http::{all_items, column, invalid_places, items, problem, replace};
use crate::support::app::{App, Ground, Stack, eventually, on_every_store_with_redis};
use crate::support::desk::on_every_store;

on_every_store!(
    a_subject_is_shown_under_every_policy_that_knows_it,
    a_subject_that_was_never_seen_is_told,
    subjects_are_found_by_their_beginnings,
    subjects_near_a_limit_are_listed,
    near_follows_each_limit,
);
on_every_store_with_redis!(what_redis_counts_is_shown_too);

async fn put(app: &App, name: &str) {
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    app.put_policy(name, rule).await.is(201);
}

async fn shown(app: &App, subject: &str) -> Vec<Value> {
    items(&app.get(&format!("/v1/subjects/{subject}")).await)
}

async fn a_subject_is_shown_under_every_policy_that_knows_it(stack: Stack) {
    let app = App::on(stack).await;
    for name in ["c", "b", "a", "benefit", "gone", "other"] {
        put(&app, name).await;
    }
    let subject = json!({ "subject": "member-42" });
    for name in ["c", "a", "gone"] {
        app.claim_under(name, subject.clone(), None).await.is(201);
    }
    app.override_day("member-42", 9).await;
    let block = json!({ "reason": "fraud" });
    app.ask("PUT /v1/policies/b/blocks/member-42", block)
        .await
        .is(201);
    app.claim_under("other", json!({ "subject": "member-4" }), None)
        .await
        .is(201);
    app.ask("DELETE /v1/policies/gone?reason=x", Value::Null)
        .await
        .is(200);

    let found = shown(&app, "member-42").await;
    assert_eq!(column(&found, "policy"), ["a", "b", "benefit", "c"]);
    let has_entries: Vec<&Value> = found.iter().map(|item| &item["has_entries"]).collect();
    assert_eq!(has_entries, [true, false, false, true]);
    assert!(found[1]["block"].is_object() && found[2]["override"].is_object());
    // Each item is what the policy shows by itself.
    for item in &found {
        let policy = item["policy"].as_str().expect("a name");
        let path = format!("/v1/policies/{policy}/subjects/member-42");
        assert_eq!(app.get(&path).await.json(), *item);
    }
    let later = items(&app.get("/v1/subjects/member-42?after=b").await);
    assert_eq!(column(&later, "policy"), ["benefit", "c"]);
    let wrong = app.get("/v1/subjects/member-42?after=B").await;
    assert_eq!(invalid_places(&wrong), ["after"]);
}

async fn a_subject_that_was_never_seen_is_told(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "UTC").await;
    let path = "/v1/policies/benefit/subjects/nobody";
    assert_eq!(app.get(path).await.at("/has_entries"), false);
    let nobody = app.get("/v1/subjects/nobody").await.json();
    assert_eq!(
        nobody,
        json!({ "subject": "nobody", "items": [], "next_after": null })
    );
    problem(&app.get("/v1/subjects/%00").await, 422, "invalid");
    app.claim("nobody", None).await.is(201);
    assert_eq!(app.get(path).await.at("/has_entries"), true);
    assert_eq!(shown(&app, "nobody").await.len(), 1);
}

/// A page has at most a hundred policies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subject_of_many_policies_is_shown_page_by_page() {
    let app = App::on(Stack::Sqlite).await;
    let names: Vec<String> = (0..103).map(|number| format!("p{number:03}")).collect();
    for name in &names {
        put(&app, name).await;
        app.claim_under(name, json!({ "subject": "a" }), None)
            .await
            .is(201);
    }
    let first = app.get("/v1/subjects/a").await;
    assert_eq!(items(&first).len(), 100);
    assert_eq!(first.at("/next_after"), "p099");
    let second = app.get("/v1/subjects/a?after=p099").await;
    assert_eq!(column(&items(&second), "policy"), names[100..]);
    assert_eq!(second.at("/next_after"), Value::Null);
}

async fn what_redis_counts_is_shown_too(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    replace(&app, json!({ "durability": "counted" })).await;
    put(&app, "other").await;
    let grant = app.claim("a", None).await.grant_id();
    let is_shown = async || column(&shown(&app, "a").await, "policy") == ["benefit"];
    eventually("the ledger has the grant", is_shown).await;
    assert_eq!(shown(&app, "b").await, [json!(null); 0]);
    // A subject whose units were given back was seen all the same.
    app.reverse(&grant, "a test").await.is(201);
    let usage = "/v1/policies/benefit/subjects/a";
    assert_eq!(app.get(usage).await.at("/limits/0/used"), 0);
    assert_eq!(app.get(usage).await.at("/has_entries"), true);
    assert!(is_shown().await);
}

/// The names of the subjects that a list has, page by page.
async fn listed(app: &App, path: &str) -> Vec<String> {
    let found = all_items(app, path).await;
    column(&found, "subject")
        .iter()
        .map(ToString::to_string)
        .collect()
}

async fn subjects_are_found_by_their_beginnings(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(9, "UTC").await;
    put(&app, "other").await;
    for subject in [
        "member-2",
        "member-10",
        "Member-1",
        "mem",
        "ünal",
        "m%_1",
        "n",
    ] {
        app.claim(subject, None).await.is(201);
    }
    app.claim("member-2", None).await.is(201);
    app.claim_under("other", json!({ "subject": "member-2" }), None)
        .await
        .is(201);
    // An override and a block make a subject known too.
    app.override_day("member-3", 9).await;
    app.block("member-4").await.is(201);

    // In the order of bytes, each once, also page by page.
    let members = ["member-10", "member-2", "member-3", "member-4"];
    for limit in [1, 2, 3, 4, 100] {
        let path = format!("/v1/subjects?prefix=member-&limit={limit}");
        assert_eq!(listed(&app, &path).await, members, "{limit}");
    }
    let found = items(&app.get("/v1/subjects?prefix=member-2").await);
    assert_eq!(
        found,
        [json!({ "subject": "member-2", "policies": ["benefit", "other"] })]
    );
    for (prefix, expected) in [
        (
            "mem",
            &["mem", "member-10", "member-2", "member-3", "member-4"][..],
        ),
        ("Mem", &["Member-1"]),
        ("%C3%BC", &["ünal"]),
        ("m%25_", &["m%_1"]),
        ("member-10", &["member-10"]),
        ("member-100", &[]),
        ("z", &[]),
    ] {
        let path = format!("/v1/subjects?prefix={prefix}");
        assert_eq!(listed(&app, &path).await, expected, "{prefix}");
    }
    assert_eq!(listed(&app, "/v1/subjects").await.len(), 9);
    assert_eq!(
        listed(&app, "/v1/subjects?policy=other").await,
        ["member-2"]
    );
    for (query, place) in [
        ("prefix=", "prefix"),
        ("prefix=%00", "prefix"),
        ("policy=B", "policy"),
        ("limit=0", "limit"),
        ("cursor=nonsense", "cursor"),
    ] {
        let wrong = app.get(&format!("/v1/subjects?{query}")).await;
        assert_eq!(invalid_places(&wrong), [place], "{query}");
    }
    problem(
        &app.get("/v1/subjects?policy=none").await,
        404,
        "unknown-policy",
    );
    // A cursor is one of its list.
    let first = app.get("/v1/subjects?prefix=member-&limit=1").await;
    let cursor = first.at("/next_cursor");
    let other = format!(
        "/v1/subjects?prefix=m&cursor={}",
        cursor.as_str().expect("a cursor")
    );
    assert_eq!(invalid_places(&app.get(&other).await), ["cursor"]);

    // An archived policy is left out, unless it is named. An erased subject is gone at once.
    app.ask("DELETE /v1/policies/other?reason=x", Value::Null)
        .await
        .is(200);
    let found = items(&app.get("/v1/subjects?prefix=member-2").await);
    assert_eq!(found[0]["policies"], json!(["benefit"]));
    assert_eq!(
        listed(&app, "/v1/subjects?policy=other").await,
        ["member-2"]
    );
    for subject in ["member-2", "member-3"] {
        let path = format!("POST /v1/subjects/{subject}/erasure");
        app.ask(&path, json!({ "reason": "asked for" }))
            .await
            .is(200);
    }
    assert_eq!(
        listed(&app, "/v1/subjects?prefix=member-").await,
        ["member-10", "member-4"]
    );
    let near = listed(&app, "/v1/policies/benefit/near?at_least=0.001").await;
    assert!(!near.contains(&"member-2".to_owned()), "{near:?}");
    assert_eq!(near.len(), 6);
}

async fn subjects_near_a_limit_are_listed(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(5, "UTC").await;
    // Ids of one instant have no order.
    let near = async |query: &str| {
        let mut found = listed(&app, &format!("/v1/policies/benefit/near{query}")).await;
        found.sort();
        found
    };
    assert_eq!(near("").await, [""; 0]);
    // Yesterday's claims do not count.
    for _ in 0..5 {
        app.claim("yesterday", None).await.is(201);
    }
    clock.advance(TimeDelta::days(1));
    for (subject, claims) in [("full", 5), ("four", 4), ("three", 3), ("reversed", 5)] {
        for number in 0..claims {
            let grant = app.claim(subject, None).await;
            if (subject, number) == ("reversed", 0) {
                app.reverse(&grant.grant_id(), "a test").await.is(201);
            }
        }
    }
    assert_eq!(near("").await, ["four", "full", "reversed"]);
    assert_eq!(near("?at_least=1&per=day").await, ["full"]);
    assert_eq!(
        near("?at_least=0.6").await,
        ["four", "full", "reversed", "three"]
    );
    assert_eq!(
        near("?at_least=0.601&limit=1").await,
        ["four", "full", "reversed"]
    );
    let found = items(&app.get("/v1/policies/benefit/near?at_least=1").await);
    let usage = app.get("/v1/policies/benefit/subjects/full").await;
    assert_eq!(found[0]["limits"][0]["used"], usage.at("/limits/0/used"));
    assert_eq!(found[0]["limits"][0]["remaining"], 0);

    // It is the present usage under the present terms: of an override, and of a new version.
    app.override_day("full", 100).await;
    app.override_day("three", 3).await;
    assert_eq!(near("").await, ["four", "reversed", "three"]);
    replace(&app, json!({ "limits": [{ "max": 100, "per": "day" }] })).await;
    assert_eq!(near("").await, ["three"]);
    // An adjustment of the past comes after the entries of its account in the walk, and its subject is listed once.
    let past = json!({ "units": 1, "at": "2026-11-21T00:30:00Z", "reason": "a test" });
    app.adjust("three", past, None).await.is(201);
    app.adjust("adjusted", json!({ "units": 90, "reason": "a test" }), None)
        .await
        .is(201);
    assert_eq!(near("").await, ["adjusted", "three"]);
    // Also page by page, and with entries before and after it.
    let past = |hour: u32| json!({ "units": 1, "at": format!("2026-11-21T0{hour}:00:00Z"), "reason": "a test" });
    for hour in [1, 2] {
        app.adjust("adjusted", past(hour), None).await.is(201);
        clock.advance(TimeDelta::milliseconds(1));
        app.claim("adjusted", None).await.is(201);
    }
    for limit in [1, 2, 9] {
        assert_eq!(
            near(&format!("?limit={limit}")).await,
            ["adjusted", "three"]
        );
    }
    clock.advance(TimeDelta::days(1));
    assert_eq!(near("?at_least=0.001").await, [""; 0]);

    for (query, place) in [
        ("at_least=0", "at_least"),
        ("at_least=80", "at_least"),
        ("at_least=80%25", "at_least"),
        ("per=fortnight", "per"),
        ("per=month", "per"),
        ("cursor=nonsense", "cursor"),
    ] {
        let wrong = app.get(&format!("/v1/policies/benefit/near?{query}")).await;
        assert_eq!(invalid_places(&wrong), [place], "{query}");
    }
    problem(
        &app.get("/v1/policies/none/near").await,
        404,
        "unknown-policy",
    );
}

/// Each kind of limit, and a walk of several pages.
async fn near_follows_each_limit(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limits = json!([
        { "max": 4, "per": "60s", "kind": "sliding" },
        { "max": 5, "per": "1h", "kind": "from_first_claim" },
        { "max": 10, "per": "ever" },
    ]);
    app.put_policy("benefit", json!({ "time_zone": "UTC", "limits": limits }))
        .await
        .is(201);
    let near = async |per: &str| {
        listed(
            &app,
            &format!("/v1/policies/benefit/near?at_least=1&limit=1&per={per}"),
        )
        .await
    };
    let claim = async |subject: &str, units: u64| {
        app.claim_body(json!({ "subject": subject, "units": units }), None)
            .await
            .is(201);
    };
    claim("a", 4).await;
    clock.advance(TimeDelta::seconds(59));
    assert_eq!(near("60s").await, ["a"]);
    clock.advance(TimeDelta::seconds(1));
    claim("a", 1).await;
    claim("b", 4).await;
    assert_eq!(
        (near("60s").await, near("1h").await),
        (vec!["b".to_owned()], vec!["a".to_owned()])
    );
    clock.advance(TimeDelta::days(40));
    assert_eq!((near("60s").await.len(), near("1h").await.len()), (0, 0));
    claim("a", 4).await;
    clock.advance(TimeDelta::minutes(2));
    claim("a", 1).await;
    assert_eq!(near("ever").await, ["a"]);
    // More entries than a page reads: each subject is met once, wherever its entries are.
    for number in 0..260 {
        claim(&format!("many-{number:03}"), 1).await;
        claim(&format!("many-{number:03}"), 1).await;
    }
    claim("c", 4).await;
    assert_eq!(near("60s").await, ["c"]);
    let all = listed(
        &app,
        "/v1/policies/benefit/near?at_least=0.2&per=ever&limit=1000",
    )
    .await;
    assert_eq!(all.len(), 263, "{all:?}");
}
