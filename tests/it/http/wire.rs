//! Each answer is read into its type of `perdiem::api`, and written again with the same bytes.

use perdiem::api::blocks::{BlockAnswer, BlockList};
use perdiem::api::bundles::BundleBody;
use perdiem::api::changes::ChangeList;
use perdiem::api::claims::{BatchAnswer, DenialBody, TotalBody, UsageBody};
use perdiem::api::entries::{EntryList, HistoryList};
use perdiem::api::explanation::{ClaimExplanation, GrantExplanation};
use perdiem::api::grants::{ClaimAnswer, CorrectionAnswer, GrantBody, GrantList};
use perdiem::api::keys::{KeyList, KeyReplacementAnswer, ListedKey, OwnKeyAnswer};
use perdiem::api::overrides::{OverrideAnswer, OverrideList};
use perdiem::api::policies::{PolicyAnswer, PolicyList, WindowList};
use perdiem::api::problem::Problem;
use perdiem::api::reconciliations::{ReconciliationAnswer, ReconciliationList};
use perdiem::api::statistics::{DenialItemList, DenialList, QuarterList, StatisticsList};
use perdiem::api::subjects::{NearList, SubjectAnswer, SubjectList};
use perdiem::api::tiers::{SubjectTierAnswer, SubjectTierList};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::items;
use crate::support::app::{Answer, App, Stack, eventually};
use crate::support::operations::operations;

fn again<T: DeserializeOwned + Serialize>(text: &str) -> String {
    let read: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    serde_json::to_string(&read).expect("JSON")
}

/// Reads an answer, and writes it again.
type Again = fn(&str) -> String;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_read_is_written_as_it_came() {
    let app = App::on(Stack::Sqlite).await;
    let same = |answer: &Answer, again: Again| assert_eq!(again(&answer.text), answer.text);
    // 1. The answers to changes.
    same(&app.benefit(5, "GMT+8").await, again::<PolicyAnswer>);
    same(&app.pause(true).await, again::<PolicyAnswer>);
    same(&app.pause(false).await, again::<PolicyAnswer>);
    let body = json!({ "subject": "a", "units": 2, "metadata": { "b": 1.50, "a": "x" } });
    let claimed = app.claim_body(body, None).await;
    same(&claimed, again::<ClaimAnswer>);
    let hold = app.claim_body(json!({ "subject": "a", "hold_seconds": 600 }), None);
    let hold = hold.await;
    same(&hold, again::<ClaimAnswer>);
    same(
        &app.confirm(&hold.grant_id()).await,
        again::<CorrectionAnswer>,
    );
    same(
        &app.claim_body(json!({ "subject": "a", "units": 3 }), None)
            .await,
        again::<DenialBody>,
    );
    same(
        &app.claim_body(json!({ "subject": "a", "units": 0 }), None)
            .await,
        again::<Problem>,
    );
    let claim = |subject: &str, policy: &str| json!({ "subject": subject, "policy": policy });
    let claims = json!({ "claims": [
        { "subject": "b", "policy": "benefit", "metadata": { "b": 1, "a": 2 } },
        { "subject": "b", "policy": "benefit", "units": 5 },
        claim("b", "nothing"),
    ] });
    let batch = Answer::of(app.request(Method::POST, "/v1/claims").json(&claims)).await;
    same(&batch, again::<BatchAnswer>);
    let claims = json!({ "atomic": true, "claims": [claim("b", "benefit")] });
    let batch = app.ask("POST /v1/claims", claims).await;
    same(&batch, again::<BatchAnswer>);
    let of_bundle = format!(
        "/v1/bundles/{}",
        batch.at("/bundle").as_str().expect("an id")
    );
    let grant = claimed.grant_id();
    let reversed = app.reverse_units(&grant, 1, "a test", "key").await;
    same(&reversed, again::<CorrectionAnswer>);
    app.override_day("a", 9).await;
    app.block("cheat").await;
    app.tiers("benefit").await;
    app.put_tier("a", "gold", None).await.is(201);
    let key = json!({ "name": "shop", "role": "claim", "policies": ["benefit"] });
    let key = Answer::of(app.request(Method::POST, "/v1/keys").json(&key)).await;
    let key = key.is(201)["id"].as_str().expect("an id").to_owned();
    let of_key = format!("/v1/keys/{key}");
    let replace = format!("POST {of_key}/replacement");
    let replaced = app.ask(&replace, json!({ "reason": "a test" })).await;
    same(&replaced, again::<KeyReplacementAnswer>);
    let secret = replaced.is(201)["secret"]
        .as_str()
        .expect("a secret")
        .to_owned();
    let of_new_key = format!(
        "/v1/keys/{}",
        replaced.is(201)["id"].as_str().expect("an id")
    );
    app.ask_as(&secret, "GET /v1/keys/me", json!(null))
        .await
        .is(200);
    let reconciliation = app
        .request(Method::POST, "/v1/reconciliations")
        .json(&json!({}));
    same(
        &Answer::of(reconciliation).await,
        again::<ReconciliationAnswer>,
    );
    // 2. What can be looked at, when it is in the record.
    let denials = "/v1/policies/benefit/subjects/a/denials";
    for path in ["/v1/entries", "/v1/stats/quarters", denials] {
        eventually(path, || async { !items(&app.get(path).await).is_empty() }).await;
    }
    eventually("the use of a key is written", || async {
        app.get(&of_new_key).await.json()["last_used_on"].is_string()
    })
    .await;
    let of_grant = format!("/v1/grants/{grant}");
    let explained = format!("{of_grant}/explanation");
    let rows: [(&str, Again); 34] = [
        ("/v1/policies", again::<PolicyList>),
        ("/v1/policies/benefit", again::<PolicyAnswer>),
        ("/v1/policies/benefit/versions", again::<PolicyList>),
        ("/v1/policies/benefit/windows", again::<WindowList>),
        ("/v1/policies/benefit/overrides", again::<OverrideList>),
        ("/v1/policies/benefit/overrides/a", again::<OverrideAnswer>),
        ("/v1/policies/benefit/blocks", again::<BlockList>),
        ("/v1/policies/benefit/blocks/cheat", again::<BlockAnswer>),
        ("/v1/policies/benefit/tiers", again::<SubjectTierList>),
        ("/v1/policies/benefit/tiers/a", again::<SubjectTierAnswer>),
        ("/v1/policies/benefit/total", again::<TotalBody>),
        ("/v1/policies/benefit/subjects/a", again::<UsageBody>),
        ("/v1/policies/benefit/subjects/cheat", again::<UsageBody>),
        (
            "/v1/policies/benefit/subjects/a?units=9",
            again::<ClaimExplanation>,
        ),
        (
            "/v1/policies/benefit/subjects/a/entries",
            again::<EntryList>,
        ),
        (denials, again::<DenialList>),
        ("/v1/denials", again::<DenialItemList>),
        ("/v1/policies/benefit/near", again::<NearList>),
        ("/v1/subjects", again::<SubjectList>),
        ("/v1/subjects/a", again::<SubjectAnswer>),
        ("/v1/entries", again::<HistoryList>),
        ("/v1/stats", again::<StatisticsList>),
        ("/v1/stats/quarters", again::<QuarterList>),
        ("/v1/grants", again::<GrantList>),
        (&of_grant, again::<GrantBody>),
        (&of_bundle, again::<BundleBody>),
        (&explained, again::<GrantExplanation>),
        ("/v1/changes", again::<ChangeList>),
        ("/v1/keys", again::<KeyList>),
        (&of_key, again::<ListedKey>),
        (&of_new_key, again::<ListedKey>),
        ("/v1/keys/me", again::<OwnKeyAnswer>),
        ("/v1/reconciliations", again::<ReconciliationList>),
        ("/v1/policies/nothing", again::<Problem>),
    ];
    for (path, again) in rows {
        same(&app.get(path).await, again);
    }
}

/// The types that tests of their own read: of seals, and of answers that are one of several types.
const ELSEWHERE: [&str; 6] = [
    "LatestSeal",
    "Manifest",
    "SandboxClockAnswer",
    "SealConsistency",
    "SealList",
    "UsageAnswer",
];

#[test]
fn every_answer_to_a_read_is_read_again() {
    let test = include_str!("wire.rs");
    let reads = operations();
    let reads = reads
        .iter()
        .filter(|it| it.method == Method::GET && it.path.starts_with("/v1/"));
    for operation in reads {
        let schema = &operation.said["responses"]["200"]["content"]["application/json"]["schema"];
        let name = schema["$ref"].as_str().and_then(|it| it.rsplit('/').next());
        let is_read = |name| test.contains(&format!("again::<{name}>"));
        assert!(
            name.is_none_or(|name| is_read(name) != ELSEWHERE.contains(&name)),
            "read {name:?} above, and write it again"
        );
    }
}
