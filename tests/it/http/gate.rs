//! The gate, as proxies ask it. `scripts/check-gates` asks through the proxies themselves.

use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::problem;
use crate::support::app::{Answer, App, Ground, KEY, Stack, client, serve_options};
use http::GateOptions;

/// An application with a gate, and the key of the gate.
struct Gated {
    app: App,
    key: String,
    client: Client,
}

impl Gated {
    /// With a policy `benefit` of 2 a day, on which a key is confined.
    async fn new() -> Self {
        let ground = Ground::new(Stack::Sqlite);
        let app = App::start(&ground).await;
        app.benefit(2, "UTC").await;
        let key = json!({ "name": "gate", "role": "claim", "policies": ["benefit"] });
        let key = app.request(Method::POST, "/v1/keys").json(&key);
        let key = Answer::of(key).await.is(201)["secret"].clone();
        let key = key.as_str().expect("a secret").to_owned();
        drop(app);
        Self::with(&ground, key).await
    }

    async fn with(ground: &Ground, key: String) -> Self {
        Self {
            app: serve(ground, &key).await,
            key,
            client: client(),
        }
    }

    async fn ask(&self, method: Method, path: &str, fields: &[(&str, &str)]) -> Answer {
        let gate = self.app.gate_url.as_ref().expect("a gate");
        let mut request = self.client.request(method, format!("{gate}{path}"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        Answer::of(request).await
    }

    async fn get(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.ask(Method::GET, path, fields).await
    }

    async fn used(&self, subject: &str) -> Value {
        let path = format!("/v1/policies/benefit/subjects/{subject}");
        let usage = self.app.get(&path);
        usage.await.is(200)["limits"][0]["used"].clone()
    }

    async fn put_policy(&self, name: &str, body: Value) {
        let put = self.app.put_policy(name, body).await;
        assert!(put.status.is_success(), "{put:?}");
    }
}

#[track_caller]
fn status(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
}

/// Checks a refusal with status 403, whose document has the status that it has elsewhere.
#[track_caller]
fn refused(answer: &Answer, elsewhere: u16, kind: &str) {
    status(answer, 403);
    let document = answer.json();
    assert_eq!(document["code"], kind, "{answer:?}");
    assert_eq!(document["status"], elsewhere, "{answer:?}");
}

async fn serve(ground: &Ground, key: &str) -> App {
    let mut options = serve_options();
    options.gate = Some(GateOptions {
        bind: Some("127.0.0.1:0".to_owned()),
        grpc_bind: None,
        key: key.into(),
    });
    let app = App::try_serve(ground, options, |_| {}).await;
    app.expect("the application starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_a_claim() {
    let gated = Gated::new().await;
    let granted = gated.get("/benefit/by=x-user", &[("x-user", "ann")]).await;
    status(&granted, 200);
    assert_eq!(granted.text, "");
    assert_eq!(granted.header("cache-control"), Some("no-store"));
    assert!(
        granted
            .header("ratelimit")
            .is_some_and(|it| it.contains("r=1"))
    );
    assert!(granted.header("ratelimit-policy").is_some());
    // The grant is in the ledger, by the gate's key, and the key can give it back.
    let id = granted.header("perdiem-grant").expect("a grant").to_owned();
    let grant = gated.app.get(&format!("/v1/grants/{id}")).await;
    assert_eq!(grant.is(200)["subject"], "ann");
    // Every method asks the same, and what follows the settings means nothing.
    let path = "/benefit/by=x-user/orders/../2?by=x-other&units=5";
    status(
        &gated.ask(Method::PUT, path, &[("x-user", "ann")]).await,
        200,
    );
    assert_eq!(gated.used("ann").await, 2);
    let denied = gated.get("/benefit/by=x-user/", &[("x-user", "ann")]).await;
    let denied = problem(&denied, 429, "quota-exceeded");
    assert_eq!(denied["subject"], "ann");
    // HEAD has the fields, and no body.
    let head = gated.ask(Method::HEAD, "/benefit/by=x-user", &[("x-user", "ann")]);
    let head = head.await;
    status(&head, 429);
    assert!(head.header("retry-after").is_some());
    assert_eq!(head.text, "");
    let reversal = gated
        .app
        .bare_request(Method::POST, &format!("/v1/grants/{id}/reversal"));
    let reversal = reversal.json(&json!({ "reason": "a test" }));
    Answer::of(reversal.bearer_auth(&gated.key)).await.is(201);
    status(
        &gated.get("/benefit/by=x-user", &[("x-user", "ann")]).await,
        200,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_not_read() {
    let gated = Gated::new().await;
    let gate = gated.app.gate_url.as_ref().expect("a gate");
    for _ in 0..2 {
        let post = gated.client.post(format!("{gate}/benefit/by=x-user"));
        let post = post.header("x-user", "ann").body("x".repeat(10_000));
        status(&Answer::of(post).await, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_named_fields_count() {
    let gated = Gated::new().await;
    // A user's own key makes nothing count once, and a user's own secret is not looked at.
    let own = [
        ("x-user", "ann"),
        ("idempotency-key", "mine"),
        ("authorization", "Bearer a-key-of-another-service"),
    ];
    status(&gated.get("/benefit/by=x-user", &own).await, 200);
    status(&gated.get("/benefit/by=x-user", &own).await, 200);
    status(&gated.get("/benefit/by=x-user", &own).await, 429);
    // The field that the settings name makes retries safe.
    let retried = [("x-user", "bob"), ("x-request-id", "r1")];
    let path = "/benefit/by=x-user,key=x-request-id,units=2";
    let first = gated.get(path, &retried).await;
    let again = gated.get(path, &retried).await;
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(first.header("perdiem-grant"), again.header("perdiem-grant"));
    assert_eq!(again.header("x-request-id"), Some("r1"));
    assert_eq!(gated.used("bob").await, 2);
    // Names have any characters.
    let path = "/benefit/by=x-user";
    status(&gated.get(path, &[("x-user", "Zoë/?%2F")]).await, 200);
    assert_eq!(gated.used("Zo%C3%AB%2F%3F%252F").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_403_for_a_proxy_that_passes_no_other() {
    let gated = Gated::new().await;
    let user = [("x-user", "ann"), ("x-id", "k")];
    let usual = "/benefit/by=x-user";
    let strict = "/benefit/by=x-user,denied=403";
    // A claim that never fits, a denial, a reversed grant, a block, a pause.
    problem(
        &gated.get(&format!("{usual},units=3"), &user).await,
        422,
        "invalid",
    );
    refused(
        &gated.get(&format!("{strict},units=3"), &user).await,
        422,
        "invalid",
    );
    let granted = gated.get(&format!("{usual},key=x-id,units=2"), &user).await;
    problem(&gated.get(usual, &user).await, 429, "quota-exceeded");
    problem(
        &gated.get(&format!("{usual},denied=429"), &user).await,
        429,
        "quota-exceeded",
    );
    let denied = gated.get(strict, &user).await;
    assert!(denied.header("retry-after").is_some());
    refused(&denied, 429, "quota-exceeded");
    let id = granted.header("perdiem-grant").expect("a grant");
    let reversal = gated
        .app
        .request(Method::POST, &format!("/v1/grants/{id}/reversal"));
    Answer::of(reversal.json(&json!({ "reason": "a test" })))
        .await
        .is(201);
    let again = format!("{strict},key=x-id,units=2");
    refused(&gated.get(&again, &user).await, 409, "grant-reversed");
    let block = gated
        .app
        .request(Method::PUT, "/v1/policies/benefit/blocks/ann");
    Answer::of(block.json(&json!({ "reason": "a test" })))
        .await
        .is(201);
    problem(&gated.get(usual, &user).await, 403, "subject-blocked");
    let pause = gated.app.request(Method::PUT, "/v1/policies/benefit/pause");
    let pause = Answer::of(pause.json(&json!({ "reason": "a test" }))).await;
    assert!(pause.status.is_success(), "{pause:?}");
    let bob = [("x-user", "bob")];
    problem(&gated.get(usual, &bob).await, 409, "policy-inactive");
    refused(&gated.get(strict, &bob).await, 409, "policy-inactive");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_settings_say_what_to_write() {
    let gated = Gated::new().await;
    let ann = [("x-user", "ann")];
    for (settings, says) in [
        ("x-user", "none of by, key, units and denied"),
        ("units=2", "name the field with the subject"),
        ("by=", "by names a field"),
        ("by=x%20user", "by names a field"),
        ("by=x-user,by=x-user", "by stands twice"),
        ("by=authorization", "would store a secret"),
        ("by=x-user,key=Cookie", "would store a secret"),
        ("by=x-forwarded-for", "of which a user writes a part"),
        ("by=x-user,units=0", "units"),
        ("by=x-user,units=two", "units is a whole number from 1"),
        ("by=x-user,denied=200", "denied is 403 or 429"),
        ("by=x-user,", "between commas there is a setting"),
    ] {
        let answer = gated.get(&format!("/benefit/{settings}"), &ann).await;
        let detail = problem(&answer, 400, "malformed")["detail"].to_string();
        assert!(detail.contains(says), "{settings}: {detail}");
    }
    // The fields must have one value.
    for fields in [
        &[][..],
        &[("x-user", "")],
        &[("x-user", "a"), ("x-user", "b")],
    ] {
        let answer = gated.get("/benefit/by=x-user", fields).await;
        let detail = problem(&answer, 400, "malformed")["detail"].to_string();
        assert!(detail.contains("x-user must have one value"), "{detail}");
    }
    problem(
        &gated.get("/benefit/by=x-user,key=x-id", &ann).await,
        400,
        "malformed",
    );
    problem(
        &gated.get("/Benefit/by=x-user", &ann).await,
        400,
        "malformed",
    );
    for path in ["", "/benefit", "/benefit/"] {
        let answer = gated.get(path, &ann).await;
        let detail = problem(&answer, 404, "not-found")["detail"].to_string();
        assert!(detail.contains("/gate/POLICY/by=x-user"), "{detail}");
    }
    // Nothing of the API is here, and nothing of the gate is there.
    let gate = gated.app.gate_url.as_ref().expect("a gate");
    let root = gate.strip_suffix("/gate").expect("a gate");
    for path in ["/v1/policies", "/metrics", "/readyz", "/console"] {
        let asked = gated.client.get(format!("{root}{path}")).bearer_auth(KEY);
        problem(&Answer::of(asked).await, 404, "not-found");
    }
    problem(
        &gated.app.get("/gate/benefit/by=x-user").await,
        404,
        "not-found",
    );
    assert_eq!(gated.used("ann").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gate_has_no_more_rights_than_its_key() {
    let gated = Gated::new().await;
    let ann = [("x-user", "ann")];
    let other = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    gated.put_policy("other", other).await;
    // A proxy that asks for the wrong policy is a fault of the settings, and no refusal of a user.
    let wrong = gated.get("/other/by=x-user,denied=403", &ann).await;
    problem(&wrong, 503, "unavailable");
    assert_eq!(
        gated.app.get("/readyz").await.is(200)["troubles"],
        json!([])
    );
    // A key that is revoked ends the gate at once.
    status(&gated.get("/benefit/by=x-user", &ann).await, 200);
    let keys = gated.app.get("/v1/keys").await.json();
    let keys = keys["items"].as_array().expect("a list");
    let own = keys
        .iter()
        .find(|key| key["name"] == "gate")
        .expect("a key");
    let id = own["id"].as_str().expect("an id");
    let revoke = gated
        .app
        .request(Method::DELETE, &format!("/v1/keys/{id}?reason=test"));
    let revoked = Answer::of(revoke).await;
    assert!(revoked.status.is_success(), "{revoked:?}");
    let state = gated.app.get("/readyz").await.is(200);
    let trouble = state["troubles"][0].as_str().expect("a trouble");
    assert!(
        trouble.starts_with("the gate refuses every question"),
        "{trouble}"
    );
    // However often a proxy asks, this is no flood of wrong keys.
    for _ in 0..30 {
        let lost = gated.get("/benefit/by=x-user", &ann).await;
        let lost = problem(&lost, 503, "unavailable");
        assert!(
            lost["detail"].to_string().contains("PERDIEM_GATE_KEY"),
            "{lost}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_claims_with_no_other_role() {
    let ground = Ground::new(Stack::Sqlite);
    let gated = Gated::with(&ground, KEY.to_owned()).await;
    gated.app.benefit(2, "UTC").await;
    let lost = gated.get("/benefit/by=x-user", &[("x-user", "ann")]).await;
    problem(&lost, 503, "unavailable");
}
