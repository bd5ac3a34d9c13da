//! What a standby shows is what the primary shows.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use super::Pair;
use crate::support::app::eventually;
use crate::support::operations::{OPEN, operations};

/// A request for each `GET` that needs a key, with the path in the specification. Exports and metrics
/// have tests of their own.
fn requests(pair: &Pair, bundle: &str, report: &str) -> Vec<(&'static str, String)> {
    let grant = &pair.grant;
    let key = &pair.auditor.id;
    let same = |path: &'static str| (path, path.to_owned());
    let under = |path: &'static str| {
        let filled = path.replace("{policy}", "benefit");
        let filled = filled.replace("{subject}", "member-42");
        (path, filled.replace("{id}", grant))
    };
    vec![
        same("/v1/policies"),
        under("/v1/policies/{policy}"),
        under("/v1/policies/{policy}/versions"),
        (
            "/v1/policies/{policy}/windows",
            "/v1/policies/benefit/windows?per=day&from=2026-11-20&to=2026-11-23".to_owned(),
        ),
        under("/v1/policies/{policy}/overrides"),
        (
            "/v1/policies/{policy}/overrides/{subject}",
            "/v1/policies/benefit/overrides/member-9".to_owned(),
        ),
        under("/v1/policies/{policy}/blocks"),
        (
            "/v1/policies/{policy}/blocks/{subject}",
            "/v1/policies/benefit/blocks/member-10".to_owned(),
        ),
        under("/v1/policies/{policy}/tiers"),
        (
            "/v1/policies/{policy}/tiers/{subject}",
            "/v1/policies/benefit/tiers/member-11".to_owned(),
        ),
        under("/v1/policies/{policy}/subjects/{subject}"),
        under("/v1/policies/{policy}/subjects/{subject}/entries"),
        under("/v1/policies/{policy}/subjects/{subject}/denials"),
        under("/v1/policies/{policy}/near"),
        under("/v1/policies/{policy}/total"),
        same("/v1/denials"),
        same("/v1/subjects"),
        ("/v1/subjects/{subject}", "/v1/subjects/member-9".to_owned()),
        same("/v1/entries"),
        ("/v1/stats", "/v1/stats?policy=benefit".to_owned()),
        same("/v1/stats/quarters"),
        same("/v1/grants"),
        (
            "/v1/grants/export",
            "/v1/grants/export?format=csv&policy=benefit".to_owned(),
        ),
        under("/v1/grants/{id}"),
        under("/v1/grants/{id}/explanation"),
        under("/v1/grants/{id}/proof"),
        ("/v1/bundles/{id}", format!("/v1/bundles/{bundle}")),
        same("/v1/changes"),
        (
            "/v1/changes/{revision}/proof",
            "/v1/changes/1/proof".to_owned(),
        ),
        same("/v1/reconciliations"),
        (
            "/v1/reconciliations/{id}",
            format!("/v1/reconciliations/{report}"),
        ),
        same("/v1/seals"),
        (
            "/v1/seals/consistency",
            "/v1/seals/consistency?from=1".to_owned(),
        ),
        same("/v1/log/checkpoint"),
        ("/v1/log/tile/{tile}", "/v1/log/tile/0/000.p/3".to_owned()),
        same("/v1/keys"),
        same("/v1/keys/me"),
        ("/v1/keys/{id}", format!("/v1/keys/{key}")),
    ]
}

/// These answers differ, or need an export.
const OTHERS: [&str; 5] = [
    "/metrics",
    "/v1/seals/latest",
    "/v1/entries/export",
    "/v1/exports/{revision}",
    "/v1/sandbox/clock",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_list_is_that_of_the_primary() {
    let pair = Pair::start().await;
    let reports = pair.writer.get("/v1/reconciliations").await;
    let report = reports.at("/items/0/id");
    let claim = json!({ "policy": "benefit", "subject": "member-12" });
    let claims = json!({ "atomic": true, "claims": [claim] });
    let batch = pair.writer.ask("POST /v1/claims", claims).await;
    let bundle = batch.at("/bundle");
    let text = |id: &Value| id.as_str().expect("an id").to_owned();
    let requests = requests(&pair, &text(&bundle), &text(&report));
    let asked: BTreeSet<_> = requests.iter().map(|(path, _)| *path).collect();
    for operation in operations() {
        let path = operation.path.as_str();
        let is_asked = asked.contains(path) || OPEN.contains(&path) || OTHERS.contains(&path);
        assert!(is_asked || operation.method != Method::GET, "{path}");
    }
    for (_, path) in &requests {
        eventually(path, || async {
            let [ours, theirs] = [pair.writer.get(path).await, pair.reader.get(path).await];
            assert!(ours.header("perdiem-lag").is_none(), "{ours:?}");
            assert_eq!(ours.status, 200, "{path}: {ours:?}");
            let lag = theirs.header("perdiem-lag").expect("an age");
            assert!(lag.parse::<f64>().is_ok(), "{lag}");
            theirs.status == 200 && theirs.text == ours.text
        })
        .await;
    }
    // A reader without the key of the seals shows the notes that others have signed.
    let [ours, theirs] = [&pair.writer, &pair.reader].map(|app| app.get("/v1/seals/latest"));
    let ours = ours.await.is(200);
    let theirs = theirs.await.is(200);
    assert_eq!(ours["note"], theirs["note"]);
    assert!(theirs["verifier_key"].is_null());
    assert!(ours["verifier_key"].is_string());
}
