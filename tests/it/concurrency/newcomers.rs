//! Every instance knows a policy or a key for the next request after one instance accepted it.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use perdiem::engine::generate_secret;
use perdiem::host::clock::Clock;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::app::{Answer, App, Ground, Stack, eventually};
use crate::support::crowd::all_at_once;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers;

/// The least time between the beginnings of two reads, in milliseconds.
const READS_APART_MILLIS: u128 = 20;

/// Two instances on one ledger.
async fn pair() -> (App, App) {
    let ground = Ground::new(Stack::Postgres);
    (App::start(&ground).await, App::start(&ground).await)
}

fn policy() -> Value {
    json!({ "time_zone": "GMT+8", "limits": [{ "max": 9, "per": "day" }], "reason": "a test" })
}

async fn put(app: &App, name: &str) {
    let answer = app.put_policy(name, policy()).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

async fn archive(app: &App, name: &str) {
    let path = format!("/v1/policies/{name}?reason=a+test");
    let answer = Answer::of(app.request(Method::DELETE, &path)).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

/// Makes a key for all policies. Returns its id and its secret.
async fn make_key(app: &App) -> (String, String) {
    let body = json!({ "name": "shop", "role": "audit" });
    let answer = Answer::of(app.request(Method::POST, "/v1/keys").json(&body)).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let text = |name: &str| answer.json()[name].as_str().expect("a text").to_owned();
    (text("id"), text("secret"))
}

async fn end_key(app: &App, id: &str, ends_at: Option<&str>) {
    let body = json!({ "ends_at": ends_at, "reason": "a test" });
    let request = app.request(Method::PATCH, &format!("/v1/keys/{id}"));
    let answer = Answer::of(request.json(&body)).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

async fn with(app: &App, secret: &str) -> Answer {
    let request = app.bare_request(Method::GET, "/v1/policies");
    Answer::of(request.bearer_auth(secret)).await
}

/// Every request that names a policy, as method, path and body.
fn questions(name: &str) -> Vec<(Method, String, Value)> {
    let get = |path: String| (Method::GET, path, Value::Null);
    let post = |path: String, body: Value| (Method::POST, path, body);
    let claim = json!({ "policy": name, "subject": "member-42" });
    let of_policy = format!("/v1/policies/{name}");
    let of_subject = format!("{of_policy}/subjects/member-42");
    vec![
        post(
            format!("{of_policy}/claims"),
            json!({ "subject": "member-42" }),
        ),
        post(
            format!("{of_policy}/claims"),
            json!({ "subject": "member-42", "dry_run": true }),
        ),
        post("/v1/claims".to_owned(), json!({ "claims": [claim] })),
        post(
            "/v1/claims".to_owned(),
            json!({ "claims": [claim], "atomic": true }),
        ),
        post(
            format!("{of_subject}/adjustments"),
            json!({ "units": 1, "reason": "a test" }),
        ),
        post(
            format!("{of_policy}/backtest"),
            json!({ "policy": policy(), "from": "2026-11-01", "to": "2026-11-02" }),
        ),
        get(of_subject.clone()),
        get(format!("{of_subject}/entries")),
        get(of_policy.clone()),
        get(format!("{of_policy}/versions")),
        get(format!("{of_policy}/windows")),
        get(format!("{of_policy}/overrides")),
        get(format!("/v1/grants?policy={name}")),
        get(format!("/v1/grants/export?format=csv&policy={name}")),
        get(format!("/v1/changes?policy={name}")),
    ]
}

async fn ask(app: &App, (method, path, body): (Method, String, Value)) -> Answer {
    let request = app.request(method, &path);
    let request = match body {
        Value::Null => request,
        body => request.json(&body),
    };
    Answer::of(request).await
}

/// How often an instance read the ledger for an unknown name or key.
async fn reads(app: &App) -> u128 {
    let text = app.get("/metrics").await.text;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("perdiem_unknown_reads_total "));
    line.expect("the metric").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_policy_is_known_to_every_request_at_the_other_instance() {
    let (one, other) = pair().await;
    for round in 0..questions("").len() {
        let name = format!("benefit-{round}");
        put(&one, &name).await;
        let question = questions(&name).swap_remove(round);
        let answer = ask(&other, question.clone()).await;
        assert!(answer.status.is_success(), "{question:?}: {answer:?}");
        assert!(
            !answer.text.contains("unknown-policy"),
            "{question:?}: {answer:?}"
        );
    }
}

/// A list without a policy contains the grants of all policies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subjects_grants_under_a_new_policy_are_listed_at_the_other_instance() {
    let (one, other) = pair().await;
    put(&one, "benefit").await;
    assert_eq!(
        one.claim("member-42", None).await.status,
        StatusCode::CREATED
    );
    let list = other.get("/v1/grants?subject=member-42").await;
    assert_eq!(list.json()["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revived_policy_takes_claims_at_the_other_instance() {
    let (one, other) = pair().await;
    for round in 0..10 {
        put(&one, "benefit").await;
        let usage = other.get("/v1/policies/benefit/subjects/member-42").await;
        assert_eq!(usage.status, StatusCode::OK, "{round}: {usage:?}");
        archive(&one, "benefit").await;
        eventually("the policy is archived there too", || async {
            other.claim("member-42", None).await.status == StatusCode::NOT_FOUND
        })
        .await;
        put(&one, "benefit").await;
        let answer = other.claim(&format!("member-{round}"), None).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{round}: {answer:?}");
    }
}

/// A key that has ended gets a later end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_goes_on_works_at_the_other_instance() {
    let (one, other) = pair().await;
    let (id, secret) = make_key(&one).await;
    for round in 0..3 {
        let soon = Clock::system().now() + TimeDelta::milliseconds(500);
        end_key(&one, &id, Some(&soon.to_rfc3339())).await;
        eventually("the key has ended there too", || async {
            with(&other, &secret).await.status == StatusCode::UNAUTHORIZED
        })
        .await;
        end_key(&one, &id, None).await;
        let answer = with(&other, &secret).await;
        assert_eq!(answer.status, StatusCode::OK, "{round}: {answer:?}");
    }
}

/// A flood of unknown names and keys costs the ledger a bounded number of reads. A client with a
/// new key and a new policy still gets its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_unknown_names_and_keys_costs_few_reads() {
    let (one, other) = pair().await;
    let other = &other;
    let began = Instant::now();
    let before = reads(other).await;
    let flood = all_at_once(40, |client| {
        async move {
            // Wrong keys are slowed down.
            for _ in 0..2 {
                let answer = with(other, &generate_secret()).await;
                let status = answer.status.as_u16();
                assert!(matches!(status, 401 | 429), "{answer:?}");
            }
            for round in 0..10 {
                let name = format!("unknown-{client}-{round}");
                let answer = other
                    .claim_under(&name, json!({ "subject": "member-42" }), None)
                    .await;
                assert_eq!(answer.status, StatusCode::NOT_FOUND, "{answer:?}");
            }
        }
    });
    let newcomers = async {
        for round in 0..20 {
            let name = format!("benefit-{round}");
            put(&one, &name).await;
            let (_, secret) = make_key(&one).await;
            let answer = with(other, &secret).await;
            assert_eq!(answer.status, StatusCode::OK, "{round}: {answer:?}");
            let answer = other
                .claim_under(&name, json!({ "subject": "member-42" }), None)
                .await;
            assert_eq!(answer.status, StatusCode::CREATED, "{round}: {answer:?}");
        }
    };
    tokio::join!(flood, newcomers);
    let read = reads(other).await - before;
    let most = began.elapsed().as_millis() / READS_APART_MILLIS + 1;
    assert!(
        (1..=most).contains(&read),
        "{read} reads, {most} are allowed"
    );
}

/// An instance refuses a mistyped key without a read of the ledger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistyped_key_costs_no_read() {
    let app = App::on(Stack::Postgres).await;
    let before = reads(&app).await;
    for secret in ["wrong", "perdiem_", &generate_secret()[1..]] {
        let answer = with(&app, secret).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{answer:?}");
    }
    assert_eq!(reads(&app).await, before);
}

/// While the ledger is unavailable, an unknown name is not denied. A known name still works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_ledger_the_unknown_is_not_denied() {
    let ground = Ground::new(Stack::Postgres);
    let proxy = Proxy::before(servers::postgres().port()).await;
    let app = App::start_with(&ground, |options| {
        options.database_url = proxy.url(&options.database_url);
        options.claim_deadline = Duration::from_secs(2);
    })
    .await;
    let (_, known) = make_key(&app).await;
    for mode in [Mode::Hold, Mode::Refuse] {
        proxy.set(mode);
        let unavailable = |answer: &Answer| {
            assert_eq!(answer.status, 503, "{mode:?}: {answer:?}");
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
        };
        // Before the instance finds that the ledger does not answer, and afterwards.
        for _ in 0..2 {
            unavailable(&with(&app, &generate_secret()).await);
            unavailable(&app.claim("member-42", None).await);
            unavailable(&app.get("/v1/policies/benefit/subjects/member-42").await);
            unavailable(&app.get("/v1/grants?policy=benefit").await);
            let request = app.bare_request(Method::GET, "/metrics");
            let metrics = Answer::of(request.bearer_auth(&known)).await;
            assert_eq!(metrics.status, StatusCode::OK, "{metrics:?}");
            let mistyped = with(&app, &known[1..]).await;
            assert_eq!(mistyped.status, StatusCode::UNAUTHORIZED, "{mistyped:?}");
            eventually("the instance knows that the ledger is silent", || async {
                app.get("/readyz").await.status == 503
            })
            .await;
        }
        proxy.set(Mode::Pass);
        eventually("the ledger answers again", || async {
            app.get("/readyz").await.status == StatusCode::OK
        })
        .await;
        let answer = app.claim("member-42", None).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{mode:?}: {answer:?}");
        let answer = with(&app, &generate_secret()).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{answer:?}");
    }
}
