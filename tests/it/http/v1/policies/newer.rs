//! A policy or an override that a newer perdiem wrote, or a policy whose zone this machine lacks.
//! This instance stops the claims of this policy only.

use reqwest::Method;
use serde_json::{Value, json};

use crate::http::problem;
use crate::support::app::{Answer, App, Ground, Stack, eventually};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

on_every_store!(
    a_rule_that_cannot_be_read_stops_its_policy_alone,
    an_override_that_cannot_be_read_stops_its_policy_alone,
);

/// Parts of a stored policy, and the text that a newer perdiem or newer zones could have there.
const NEWER: [(&str, &str); 4] = [
    (r#""per":"day""#, r#""per":"24h","kind":"leaky""#),
    (r#""per":"day""#, r#""per":"day","carry_over":1"#),
    (r#""paused":false"#, r#""paused":false,"carry_over":1"#),
    (r#""UTC""#, r#""Mars/Olympus_Mons""#),
];

/// Adds a row with the ledger's next revision.
async fn as_next(direct: &mut Direct, add: &str) {
    let next = "UPDATE ledger SET revision = revision + 1";
    for sql in ["BEGIN", next, add, "COMMIT"] {
        direct.execute(sql, sql).await;
    }
}

/// Adds the next version of a policy as another instance does. One part of the stored policy is
/// replaced.
async fn write_version(direct: &mut Direct, policy: &str, (part, other): (&str, &str)) {
    let add = format!(
        "INSERT INTO policy_versions (policy, version, revision, rule, archived, effective_at,
             changed_at, changed_by, reason, xact)
         SELECT policy, version + 1, (SELECT revision FROM ledger),
             replace(rule, '{part}', '{other}'), archived, effective_at, changed_at, changed_by,
             reason, xact
         FROM policy_versions AS v WHERE policy = (SELECT id FROM policies WHERE name = '{policy}')
         ORDER BY version DESC LIMIT 1"
    );
    as_next(direct, &add).await;
}

fn stopped(answer: &Answer, what: &str) {
    problem(answer, 503, "unavailable");
    let detail = answer.json()["detail"].to_string();
    assert!(detail.contains(what), "{detail}");
    assert!(
        detail.contains("newer instances decide its claims"),
        "{detail}"
    );
    assert!(answer.header("retry-after").is_some());
}

/// Checks that the policy's claims are refused, and that the metrics count one unreadable policy.
async fn is_stopped(app: &App, what: &str) {
    eventually("the policy is stopped", || async {
        app.claim("b", None).await.status == 503
    })
    .await;
    stopped(&app.claim("a", None).await, what);
    stopped(&app.claim("a", Some("a key")).await, what);
    let dry = json!({ "subject": "a", "dry_run": true });
    stopped(&app.claim_body(dry, None).await, what);
    stopped(&app.get("/v1/policies/benefit/subjects/a").await, what);
    let sms = app
        .claim_under("sms", json!({ "subject": "a" }), None)
        .await;
    assert_eq!(sms.status, 201);
    let claims: Vec<Value> = ["benefit", "sms"]
        .iter()
        .map(|policy| json!({ "policy": policy, "subject": "c" }))
        .collect();
    let batch = app.request(Method::POST, "/v1/claims");
    let batch = batch.json(&json!({ "claims": claims }));
    let batch: Value = batch
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    let statuses = [&batch["items"][0]["status"], &batch["items"][1]["status"]];
    assert_eq!(statuses, [503, 201], "{batch}");
    assert_eq!(app.get("/readyz").await.status, 200);
    let metrics = app.get("/metrics").await.text;
    assert!(
        metrics.contains("perdiem_unreadable_policies 1"),
        "{metrics}"
    );
}

async fn a_rule_that_cannot_be_read_stops_its_policy_alone(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    for policy in ["benefit", "sms"] {
        let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
        assert_eq!(app.put_policy(policy, rule).await.status, 201);
    }
    let grant = app.claim("a", Some("a key")).await.grant_id();
    let mut direct = Direct::to(&ground).await;
    for newer in NEWER {
        write_version(&mut direct, "benefit", newer).await;
        is_stopped(&app, "version").await;
        stopped(&app.reverse(&grant, "a test").await, "version");
        stopped(&app.get("/v1/policies/benefit").await, "version");
        // A restart also stops this policy only.
        let again = App::start(&ground).await;
        is_stopped(&again, "version").await;
        drop(again);
        // The claims continue with a version that can be read.
        write_version(&mut direct, "benefit", (newer.1, newer.0)).await;
        eventually("claims are decided again", || async {
            app.claim("a", Some("a key")).await.status == 200
        })
        .await;
    }
}

async fn an_override_that_cannot_be_read_stops_its_policy_alone(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    for policy in ["benefit", "sms"] {
        let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
        assert_eq!(app.put_policy(policy, rule).await.status, 201);
    }
    let limits = json!({ "limits": [{ "max": 1, "per": "day" }] });
    assert_eq!(app.put_override("a", limits).await.status, 201);
    let mut direct = Direct::to(&ground).await;
    let add =
        "INSERT INTO override_versions (account, version, revision, limits, until, changed_at,
             changed_by, reason, xact)
         SELECT account, version + 1, (SELECT revision FROM ledger),
             replace(limits, 'day', 'fortnight'), until, changed_at, changed_by, reason, xact
         FROM override_versions";
    as_next(&mut direct, add).await;
    is_stopped(&app, "an override").await;
    let readable =
        "INSERT INTO override_versions (account, version, revision, limits, until, changed_at,
             changed_by, reason, xact)
         SELECT account, version + 2, (SELECT revision FROM ledger), NULL, NULL, changed_at,
             changed_by, reason, xact
         FROM override_versions WHERE version = 1";
    as_next(&mut direct, readable).await;
    eventually("claims are decided again", || async {
        app.claim("a", None).await.status == 201
    })
    .await;
}
