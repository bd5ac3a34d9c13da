//! Reads of subjects as acts of the record: who looked at whom.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use perdiem::host::clock::{Clock, ManualClock};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::v1::keys::{Made, make_role, with};
use super::{all_items, items};
use crate::record::all_is_recorded;
use crate::seals::{all_is_sealed, sealing, verified};
use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant};
use crate::support::command_line::command;
use crate::support::desk::on_every_store;
use crate::support::operations::every_read_is_tried;

on_every_store!(
    every_read_of_a_subject_is_an_act,
    an_erasure_removes_the_name_from_reads,
    a_read_beyond_the_bound_is_refused,
    nothing_is_shown_without_its_act,
);

/// An instance that records reads and seals, whose clock stands at [`NOON`]. `a` has a grant, an
/// override and a block.
async fn recording(ground: &Ground) -> (App, ManualClock, [String; 2]) {
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_with(ground, |options| {
        sealing(options);
        options.record_reads = true;
        options.clock = Clock::Manual(clock.clone());
    })
    .await;
    app.benefit(1, "UTC").await;
    let claim = json!({ "policy": "benefit", "subject": "a" });
    let batch = json!({ "atomic": true, "claims": [claim] });
    let granted = app.ask("POST /v1/claims", batch).await.is(200);
    let ids = [&granted["items"][0]["grant"]["id"], &granted["bundle"]];
    let ids = ids.map(|id| id.as_str().expect("an id").to_owned());
    app.override_day("a", 2).await;
    assert_eq!(app.block("a").await.status, 201);
    app.tiers("benefit").await;
    app.put_tier("a", "gold", None).await.is(201);
    (app, clock, ids)
}

async fn read(app: &App, key: &Made, path: &str) -> Answer {
    Answer::of(with(app, &key.secret, Method::GET, path)).await
}

/// What the acts of reads tell: by whom, what, the policy and the subject.
async fn told_reads(app: &App, filter: &str) -> Vec<[String; 4]> {
    let acts = all_items(app, &format!("/v1/changes?kind=read{filter}")).await;
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    let told = |act: &Value| {
        let after = &act["after"];
        let filters = &after["filters"];
        assert!(act["at"].is_string(), "{act}");
        [
            text(&act["by"]),
            text(&after["read"]),
            text(&filters["policy"]),
            text(&filters["subject"]),
        ]
    };
    acts.iter().map(told).collect()
}

async fn every_read_of_a_subject_is_an_act(stack: Stack) {
    let ground = Ground::new(stack);
    let (app, clock, [grant, bundle]) = recording(&ground).await;
    let auditor = make_role(&app, "audit", None).await;
    let till = make_role(&app, "claim", None).await;
    all_is_recorded(&app, &ground).await;
    let export = app.get("/v1/entries/export?subject=a&format=csv").await;
    assert_eq!(export.status, 200, "{export:?}");
    all_is_sealed(&app, &ground).await;
    let changes = all_items(&app, "/v1/changes").await;
    let revision = |kind: &str| {
        let change = changes.iter().find(|change| change["kind"] == kind);
        change.expect("a change")["revision"].clone()
    };
    let exported = revision("export");
    let overridden = revision("override");
    let subject = "/v1/policies/benefit/subjects/a";
    let reads = [
        (subject.to_owned(), "usage", "benefit"),
        (format!("{subject}?units=1"), "explanation", "benefit"),
        (format!("{subject}/entries"), "entries", "benefit"),
        (format!("{subject}/denials"), "denials", "benefit"),
        (
            "/v1/policies/benefit/overrides/a".to_owned(),
            "override",
            "benefit",
        ),
        (
            "/v1/policies/benefit/blocks/a".to_owned(),
            "block",
            "benefit",
        ),
        ("/v1/policies/benefit/tiers/a".to_owned(), "tier", "benefit"),
        (
            "/v1/grants?subject=a&policy=benefit".to_owned(),
            "grants",
            "benefit",
        ),
        (
            "/v1/grants/export?subject=a&format=csv".to_owned(),
            "grants",
            "none",
        ),
        ("/v1/subjects/a".to_owned(), "usage", "none"),
        ("/v1/entries?subject=a".to_owned(), "entries", "none"),
        ("/v1/changes?subject=a".to_owned(), "changes", "none"),
        (format!("/v1/grants/{grant}"), "grant", "benefit"),
        (format!("/v1/bundles/{bundle}"), "grant", "benefit"),
        (
            format!("/v1/grants/{grant}/explanation"),
            "explanation",
            "benefit",
        ),
        (format!("/v1/changes/{overridden}/proof"), "proof", "none"),
        (format!("/v1/exports/{exported}"), "entries", "none"),
        (format!("/v1/grants/{grant}/proof"), "proof", "benefit"),
    ];
    let tried = reads.iter().map(|(path, ..)| path.clone());
    // A new export is another act.
    let tried: Vec<String> = tried.chain(["/v1/entries/export".to_owned()]).collect();
    every_read_is_tried(&tried, |_| true);
    // 1. Each read is an act once an hour, however often it is repeated.
    let mut expected = BTreeSet::new();
    for _ in 0..2 {
        for (path, kind, policy) in &reads {
            let answer = read(&app, &auditor, path).await;
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            expected.insert([&auditor.id, *kind, *policy, "a"].map(str::to_owned));
        }
    }
    assert_eq!(read(&app, &till, subject).await.status, 200);
    expected.insert([&till.id, "usage", "benefit", "a"].map(str::to_owned));
    let acts = told_reads(&app, "").await;
    assert_eq!(acts.len(), expected.len(), "{acts:?}");
    assert_eq!(BTreeSet::from_iter(acts), expected);
    // 2. Lists about nobody are no reads of a subject. Reads are listed only where they are asked for.
    for path in [
        "/v1/grants",
        "/v1/entries",
        "/v1/policies/benefit/overrides",
    ] {
        assert_eq!(read(&app, &auditor, path).await.status, 200);
    }
    let others = all_items(&app, "/v1/changes").await;
    assert!(
        others.iter().all(|change| change["kind"] != "read"),
        "{others:?}"
    );
    for (filter, count) in [
        (format!("&by={}", till.id), 1),
        (format!("&by={}&policy=benefit", auditor.id), 10),
        ("&policy=benefit".to_owned(), 11),
        ("&subject=b".to_owned(), 0),
        ("&subject=a&limit=2".to_owned(), expected.len()),
    ] {
        assert_eq!(told_reads(&app, &filter).await.len(), count, "{filter}");
    }
    let said = command(
        &app,
        "changes --kind read --subject a --policy benefit --limit 1",
    )
    .await;
    let said = said.well(0);
    assert!(said.contains("  read, by "), "{said}");
    // The two lists by subject above, and the command's, were reads too.
    let by_admin = told_reads(&app, "&by=PERDIEM_ADMIN_KEY").await;
    let kinds: Vec<&str> = by_admin.iter().map(|read| read[1].as_str()).collect();
    assert_eq!(kinds, ["changes"; 3], "{by_admin:?}");
    // 3. Equal reads at the same moment are one act. The next hour has its own.
    clock.advance(TimeDelta::hours(1));
    let mut same = JoinSet::new();
    for _ in 0..20 {
        same.spawn(with(&app, &till.secret, Method::GET, subject).send());
    }
    for answer in same.join_all().await {
        assert_eq!(answer.expect("an answer").status(), 200);
    }
    assert_eq!(told_reads(&app, &format!("&by={}", till.id)).await.len(), 2);
    // 4. The acts have positions, and seals cover them.
    all_is_sealed(&app, &ground).await;
    drop(app);
    verified(&ground, None).await.expect("nothing differs");
    // 5. Without the setting nothing is recorded.
    let app = App::start_with(&ground, |options| options.clock = Clock::Manual(clock)).await;
    let before = told_reads(&app, "").await.len();
    assert_eq!(
        read(&app, &till, "/v1/policies/benefit/subjects/z")
            .await
            .status,
        200
    );
    assert_eq!(told_reads(&app, "").await.len(), before);
}

async fn an_erasure_removes_the_name_from_reads(stack: Stack) {
    let ground = Ground::new(stack);
    let (app, clock, _) = recording(&ground).await;
    app.claim("b", None).await.is(201);
    let auditor = make_role(&app, "audit", None).await;
    let entries = |subject: &str| format!("/v1/policies/benefit/subjects/{subject}/entries");
    for subject in ["a", "b"] {
        read(&app, &auditor, &entries(subject)).await.is(200);
    }
    all_is_sealed(&app, &ground).await;
    let erase = async || {
        let reason = json!({ "reason": "request 17" });
        app.ask("POST /v1/subjects/a/erasure", reason).await
    };
    let named = async || {
        let mut named: Vec<String> = told_reads(&app, "")
            .await
            .into_iter()
            .map(|[.., it]| it)
            .collect();
        named.sort_unstable();
        named
    };
    assert_eq!(erase().await.status, 200);
    assert_eq!(named().await, ["b", "none"]);
    let act = items(&app.get("/v1/changes?kind=read").await);
    assert_eq!(act[1]["after"]["erased"], json!(["subject"]), "{act:?}");
    assert_eq!(act[1]["after"]["filters"], json!({ "policy": "benefit" }));
    // A later read of the name records it again, until it is erased again.
    clock.advance(TimeDelta::hours(1));
    read(&app, &auditor, &entries("a")).await.is(200);
    assert_eq!(named().await, ["a", "b", "none"]);
    assert_eq!(erase().await.status, 200);
    assert_eq!(named().await, ["b", "none", "none"]);
    all_is_sealed(&app, &ground).await;
    drop(app);
    verified(&ground, None).await.expect("nothing differs");
}

async fn a_read_beyond_the_bound_is_refused(stack: Stack) {
    let ground = Ground::new(stack);
    let (app, clock, _) = recording(&ground).await;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(make_role(&app, "audit", None).await);
    }
    let usage = |n: usize| format!("/v1/policies/benefit/subjects/m-{n}");
    // One key has half of the acts of a second; the clock stands.
    for key in &made[..2] {
        for n in 0..50 {
            assert_eq!(read(&app, key, &usage(n)).await.status, 200, "{n}");
        }
        assert_eq!(read(&app, key, &usage(50)).await.status, 503);
    }
    let refused = read(&app, &made[2], &usage(0)).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert!(
        refused.text.contains("too many came in a second"),
        "{refused:?}"
    );
    // What is recorded is answered.
    assert_eq!(read(&app, &made[0], &usage(7)).await.status, 200);
    eventually("the metrics count both", || async {
        let metrics = app.get("/metrics").await.text;
        metrics.contains("\nperdiem_reads_recorded_total 100\n")
            && metrics.contains("\nperdiem_reads_refused_total 3\n")
    })
    .await;
    assert_eq!(told_reads(&app, "").await.len(), 100);
    clock.advance(TimeDelta::seconds(1));
    for key in &made {
        assert_eq!(read(&app, key, &usage(50)).await.status, 200);
    }
}

async fn nothing_is_shown_without_its_act(stack: Stack) {
    let ground = Ground::new(stack);
    let (app, _clock, [grant, _]) = recording(&ground).await;
    let auditor = make_role(&app, "audit", None).await;
    let path = format!("/v1/grants/{grant}");
    ground.sql("ALTER TABLE acts RENAME TO acts_away").await;
    assert_eq!(read(&app, &auditor, &path).await.status, 503);
    ground.sql("ALTER TABLE acts_away RENAME TO acts").await;
    assert_eq!(read(&app, &auditor, &path).await.status, 200);
    assert_eq!(told_reads(&app, "").await.len(), 1);
}
