//! The rate limit service, as Envoy asks it. `scripts/check-gates` asks through Envoy itself.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use perdiem::http::GateOptions;
use perdiem::http::rate_limit_messages::{
    Code, Descriptor, DescriptorEntry, HeaderField, RateLimitRequest, RateLimitResponse, Unit,
};
use prost_types::value::Kind;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::app::{Answer, App, Ground, KEY, Stack, eventually, serve_options};
use crate::support::rate_limits::{
    Ended, METHOD, call, connect, descriptor, ended, framed, request, send,
};
use crate::support::servers::Postgres;

// The codes of gRPC.
const INVALID_ARGUMENT: u32 = 3;
const DEADLINE_EXCEEDED: u32 = 4;
const NOT_FOUND: u32 = 5;
const PERMISSION_DENIED: u32 = 7;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

/// An application with the service, whose key is confined to some policies.
struct Limited {
    app: App,
    address: SocketAddr,
}

impl Limited {
    async fn new(stack: Stack, policies: &[(&str, Value)]) -> Self {
        Self::on(&Ground::new(stack), policies).await
    }

    async fn on(ground: &Ground, policies: &[(&str, Value)]) -> Self {
        let key = Self::prepare(ground, policies).await;
        Self::with(ground, &key).await
    }

    /// Makes the policies and the key of the gate.
    async fn prepare(ground: &Ground, policies: &[(&str, Value)]) -> String {
        let app = App::start(ground).await;
        for (name, policy) in policies {
            let put = app.put_policy(name, policy.clone()).await;
            assert!(put.status.is_success(), "{put:?}");
        }
        let names: Vec<&str> = policies.iter().map(|(name, _)| *name).collect();
        let key = json!({ "name": "gate", "role": "claim", "policies": names });
        let key = app.request(Method::POST, "/v1/keys").json(&key);
        let key = Answer::of(key).await.is(201)["secret"].clone();
        drop(app);
        key.as_str().expect("a secret").to_owned()
    }

    async fn with(ground: &Ground, key: &str) -> Self {
        Self::hasty(ground, key, Duration::from_secs(60)).await
    }

    /// With these times of connections, and half of one for a claim.
    async fn hasty(ground: &Ground, key: &str, time: Duration) -> Self {
        let mut options = serve_options();
        options.idle_time = time;
        options.request_time = time;
        options.gate = Some(GateOptions {
            bind: None,
            grpc_bind: Some("127.0.0.1:0".to_owned()),
            key: key.into(),
        });
        let app = App::try_serve(ground, options, |engine| engine.claim_deadline = time / 2).await;
        let app = app.expect("the application starts");
        let address = app.rate_limits.expect("a rate limit service");
        Self { app, address }
    }

    async fn ask(&self, request: RateLimitRequest) -> Ended {
        let mut connection = connect(self.address).await;
        send(&mut connection, METHOD, &framed(&request)).await
    }

    /// Asks for one descriptor.
    async fn one(&self, entries: &[(&str, &str)]) -> RateLimitResponse {
        let asked = self.ask(request(&[entries])).await;
        asked.expect("an answer")
    }

    async fn used(&self, policy: &str, subject: &str) -> Value {
        let path = format!("/v1/policies/{policy}/subjects/{subject}");
        self.app.get(&path).await.is(200)["limits"][0]["used"].clone()
    }

    async fn post(&self, path: &str) {
        let request = self.app.request(Method::POST, path);
        let answer = Answer::of(request.json(&json!({ "reason": "a test" }))).await;
        assert!(answer.status.is_success(), "{answer:?}");
    }

    async fn put(&self, path: &str) {
        let request = self.app.request(Method::PUT, path);
        let answer = Answer::of(request.json(&json!({ "reason": "a test" }))).await;
        assert!(answer.status.is_success(), "{answer:?}");
    }
}

fn per_day(max: u64) -> Value {
    json!({ "time_zone": "UTC", "limits": [{ "max": max, "per": "day" }] })
}

/// A field that the proxy is to add.
fn added<'a>(fields: &'a [HeaderField], name: &str) -> Vec<&'a str> {
    let found = fields.iter().filter(|field| field.key == name);
    found.map(|field| field.value.as_str()).collect()
}

fn grants(answer: &RateLimitResponse) -> Vec<&str> {
    added(&answer.request_headers_to_add, "perdiem-grant")
}

#[track_caller]
fn is_ok(answer: &RateLimitResponse) {
    assert_eq!(answer.overall_code(), Code::Ok, "{answer:?}");
    assert_eq!(answer.raw_body, b"");
    assert_eq!(
        added(&answer.response_headers_to_add, "content-type"),
        [""; 0]
    );
}

/// Checks a refusal. Returns its document.
#[track_caller]
fn is_over(answer: &RateLimitResponse, kind: &str) -> Value {
    assert_eq!(answer.overall_code(), Code::OverLimit, "{answer:?}");
    let document: Value = serde_json::from_slice(&answer.raw_body).expect("a document");
    assert_eq!(document["code"], kind, "{answer:?}");
    assert_eq!(document["request_id"], "r1");
    let told = added(&answer.response_headers_to_add, "content-type");
    assert_eq!(told, ["application/problem+json"]);
    assert_eq!(grants(answer), [""; 0]);
    document
}

#[track_caller]
fn failed(ended: &Ended, code: u32, says: &str) {
    let (found, message) = ended.as_ref().expect_err("no answer");
    assert_eq!(*found, code, "{message}");
    assert!(message.contains(says), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_descriptor_is_a_claim() {
    let limited = Limited::new(Stack::Sqlite, &[("benefit", per_day(2))]).await;
    let ann = [("policy", "benefit"), ("remote_address", "192.0.2.1")];
    let first = limited.one(&ann).await;
    is_ok(&first);
    let [status] = first.statuses.as_slice() else {
        panic!("{first:?}");
    };
    assert_eq!(status.code(), Code::Ok);
    let limit = status.current_limit.as_ref().expect("a limit");
    assert_eq!(limit.requests_per_unit, 2);
    assert_eq!(limit.unit(), Unit::Day);
    assert_eq!(limit.name, "benefit/day");
    assert_eq!(status.limit_remaining, 1);
    let until = status.duration_until_reset.expect("an end");
    assert!((1..=86_400).contains(&until.seconds), "{until:?}");
    let left = added(&first.response_headers_to_add, "ratelimit");
    assert!(left[0].starts_with("\"day\";r=1;t="), "{left:?}");
    let quota = added(&first.response_headers_to_add, "ratelimit-policy");
    assert_eq!(quota, ["\"day\";q=2;w=86400"]);
    // The grant is in the ledger, by the gate's key.
    let [id] = grants(&first)[..] else {
        panic!("{first:?}");
    };
    let grant = limited.app.get(&format!("/v1/grants/{id}")).await;
    assert_eq!(grant.is(200)["subject"], "192.0.2.1");
    is_ok(&limited.one(&ann).await);
    // Denied: nothing is counted.
    let denied = limited.one(&ann).await;
    let document = is_over(&denied, "quota-exceeded");
    assert_eq!(document["violated-policies"], json!(["day"]));
    assert_eq!(denied.statuses[0].code(), Code::OverLimit);
    assert_eq!(denied.statuses[0].limit_remaining, 0);
    let wait = added(&denied.response_headers_to_add, "retry-after");
    let until = denied.statuses[0].duration_until_reset.expect("an end");
    assert_eq!(wait, [until.seconds.to_string()]);
    let metadata = denied.dynamic_metadata.expect("metadata").fields;
    let Some(Kind::ListValue(violated)) = &metadata["violated_limits"].kind else {
        panic!("{metadata:?}");
    };
    let violated = violated.values[0].kind.clone();
    assert_eq!(violated, Some(Kind::StringValue("benefit/day".to_owned())));
    assert_eq!(limited.used("benefit", "192.0.2.1").await, 2);
    // Units that come back are there for others.
    limited.post(&format!("/v1/grants/{id}/reversal")).await;
    is_ok(&limited.one(&ann).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_descriptors_are_granted_together_or_not_at_all() {
    let month = json!({ "time_zone": "UTC", "limits": [{ "max": 100, "per": "month" }] });
    let policies = [("narrow", per_day(1)), ("broad", month)];
    let limited = Limited::new(Stack::RedisAndPostgres, &policies).await;
    let both: [&[_]; 2] = [
        &[("policy", "broad"), ("org", "acme")],
        &[("policy", "narrow"), ("user", "ann")],
    ];
    let granted = limited.ask(request(&both)).await.expect("an answer");
    is_ok(&granted);
    assert_eq!(grants(&granted).len(), 2);
    // The application can take both back at once.
    let [bundle] = added(&granted.request_headers_to_add, "perdiem-bundle")[..] else {
        panic!("{granted:?}");
    };
    limited
        .post(&format!("/v1/bundles/{bundle}/reversal"))
        .await;
    assert_eq!(limited.used("broad", "acme").await, 0);
    let granted = limited.ask(request(&both)).await.expect("an answer");
    is_ok(&granted);
    // One descriptor alone is no bundle.
    let alone = limited.one(&[("policy", "broad"), ("org", "other")]).await;
    assert_eq!(
        added(&alone.request_headers_to_add, "perdiem-bundle"),
        [""; 0]
    );
    // The fields are those of the policy with the fewest units left.
    let left = added(&granted.response_headers_to_add, "ratelimit");
    assert!(left[0].starts_with("\"day\";r=0;"), "{left:?}");
    // The narrow one denies, and the broad one is unchanged.
    let denied = limited.ask(request(&both)).await.expect("an answer");
    let document = is_over(&denied, "quota-exceeded");
    assert_eq!(document["policy"], "narrow");
    let codes: Vec<Code> = denied.statuses.iter().map(|it| it.code()).collect();
    assert_eq!(codes, [Code::Ok, Code::OverLimit]);
    assert_eq!(limited.used("broad", "acme").await, 1);
    assert_eq!(limited.used("narrow", "ann").await, 1);
    // A claim that could not be decided leaves the question undecided, unless another is refused.
    let unknown = limited.ask(request(&[
        both[0],
        &[("policy", "narrow"), ("user", "\u{0}")],
    ]));
    is_over(&unknown.await.expect("an answer"), "invalid");
    assert_eq!(limited.used("broad", "acme").await, 1);
    // Of two refusals, the one that lasts longest tells when to come again.
    limited.put("/v1/policies/broad/blocks/acme").await;
    let refused = limited.ask(request(&both)).await.expect("an answer");
    is_over(&refused, "subject-blocked");
    assert_eq!(
        added(&refused.response_headers_to_add, "retry-after"),
        [""; 0]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_gets_exactly_what_both_accounts_have() {
    let policies = [("narrow", per_day(3)), ("broad", per_day(10))];
    let limited = Limited::new(Stack::RedisAndPostgres, &policies).await;
    let connection = connect(limited.address).await;
    let users: Vec<String> = (0..8).map(|user| format!("user-{user}")).collect();
    let asked = (0..64).map(|number| {
        let user = &users[number % users.len()];
        let mut connection = connection.clone();
        async move {
            let both: [&[_]; 2] = [
                &[("policy", "broad"), ("org", "acme")],
                &[("policy", "narrow"), ("user", user)],
            ];
            let answer = send(&mut connection, METHOD, &framed(&request(&both))).await;
            answer.expect("an answer")
        }
    });
    let answers = join_all(asked).await;
    let granted = answers
        .iter()
        .filter(|answer| answer.overall_code() == Code::Ok);
    assert_eq!(granted.count(), 10);
    assert_eq!(limited.used("broad", "acme").await, 10);
    let mut sum = 0;
    for user in &users {
        let used = limited.used("narrow", user).await;
        let used = used.as_u64().expect("a number");
        assert!(used <= 3, "{user}: {used}");
        sum += used;
    }
    assert_eq!(sum, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_makes_a_question_count_once() {
    let policies = [("one", per_day(5)), ("two", per_day(5))];
    let limited = Limited::new(Stack::Sqlite, &policies).await;
    let alone = [("policy", "one"), ("user", "ann"), ("idempotency_key", "k")];
    let first = limited.one(&alone).await;
    let again = limited.one(&alone).await;
    is_ok(&again);
    assert_eq!(grants(&first), grants(&again));
    assert_eq!(limited.used("one", "ann").await, 1);
    // One descriptor names the key of all.
    let both: [&[_]; 2] = [
        &[("policy", "one"), ("user", "bob"), ("idempotency_key", "l")],
        &[("policy", "two"), ("user", "bob")],
    ];
    let first = limited.ask(request(&both)).await.expect("an answer");
    let again = limited.ask(request(&both)).await.expect("an answer");
    is_ok(&again);
    assert_eq!(grants(&first).len(), 2);
    assert_eq!(grants(&first), grants(&again));
    for policy in ["one", "two"] {
        assert_eq!(limited.used(policy, "bob").await, 1);
    }
    // Other units under the same key, and the key of a grant that was given back.
    let other = RateLimitRequest {
        hits_addend: 2,
        ..request(&[&alone])
    };
    is_over(
        &limited.ask(other).await.expect("an answer"),
        "idempotency-key-reused",
    );
    let id = grants(&first)[0];
    limited.post(&format!("/v1/grants/{id}/reversal")).await;
    let reversed = limited.ask(request(&both)).await.expect("an answer");
    is_over(&reversed, "grant-reversed");
    // Neither the order of the descriptors nor a missing one makes it another question.
    let both: [&[_]; 2] = [
        &[("policy", "two"), ("user", "cat")],
        &[("policy", "one"), ("user", "cat"), ("idempotency_key", "m")],
    ];
    is_ok(&limited.ask(request(&both)).await.expect("an answer"));
    let turned = request(&[both[1], both[0]]);
    is_ok(&limited.ask(turned).await.expect("an answer"));
    is_ok(&limited.one(both[1]).await);
    for policy in ["one", "two"] {
        assert_eq!(limited.used(policy, "cat").await, 1);
    }
    // The same account twice is asked for twice, and once with the key.
    let twice = request(&[both[1], both[1]]);
    for _ in 0..2 {
        is_ok(&limited.ask(twice.clone()).await.expect("an answer"));
        assert_eq!(limited.used("one", "cat").await, 2);
    }
    // Any value is a key, but an empty one lets nothing through.
    for key in ["k\n", "k\u{e9}", "x".repeat(1000).as_str()] {
        let any = [("policy", "two"), ("user", "dan"), ("idempotency_key", key)];
        is_ok(&limited.one(&any).await);
        is_ok(&limited.one(&any).await);
    }
    assert_eq!(limited.used("two", "dan").await, 3);
    let empty = [("policy", "one"), ("user", "dan"), ("idempotency_key", "")];
    is_over(&limited.one(&empty).await, "invalid");
    assert_eq!(limited.used("one", "dan").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explicit_zero_only_looks() {
    let policies = [("one", per_day(1)), ("two", per_day(5))];
    let limited = Limited::new(Stack::Sqlite, &policies).await;
    let look = Descriptor {
        hits_addend: Some(0),
        ..descriptor(&[("policy", "one"), ("user", "ann")])
    };
    let take = descriptor(&[("policy", "two"), ("user", "ann")]);
    let asked = RateLimitRequest {
        descriptors: vec![look, take],
        hits_addend: 2,
        ..request(&[])
    };
    for used in [2, 4] {
        let granted = limited.ask(asked.clone()).await.expect("an answer");
        is_ok(&granted);
        assert_eq!(grants(&granted).len(), 1);
        assert_eq!(limited.used("one", "ann").await, 0);
        assert_eq!(limited.used("two", "ann").await, used);
    }
    // A question with a key is granted again, whatever its look would find now.
    let mut keyed = asked.clone();
    let key = DescriptorEntry {
        key: "idempotency_key".to_owned(),
        value: b"k".to_vec(),
    };
    keyed.descriptors[1].entries.push(key);
    keyed.descriptors[1].hits_addend = Some(1);
    is_ok(&limited.ask(keyed.clone()).await.expect("an answer"));
    // Where the look finds nothing, the others take nothing.
    is_ok(&limited.one(&[("policy", "one"), ("user", "ann")]).await);
    let refused = limited.ask(asked).await.expect("an answer");
    assert_eq!(is_over(&refused, "quota-exceeded")["policy"], "one");
    let codes: Vec<Code> = refused.statuses.iter().map(|it| it.code()).collect();
    assert_eq!(codes, [Code::OverLimit, Code::Ok]);
    assert_eq!(limited.used("two", "ann").await, 5);
    let again = limited.ask(keyed).await.expect("an answer");
    is_ok(&again);
    assert_eq!(grants(&again).len(), 1);
    assert_eq!(limited.used("two", "ann").await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_decided_and_not_granted_is_over_the_limit() {
    let observing = json!({
        "time_zone": "UTC",
        "limits": [{ "max": 1, "per": "day" }],
        "mode": "observe",
    });
    let policies = [("benefit", per_day(2)), ("watched", observing)];
    let limited = Limited::new(Stack::Sqlite, &policies).await;
    let of = |user| [("policy", "benefit"), ("user", user)];
    // Units that never fit, and subjects that perdiem does not take.
    let large = RateLimitRequest {
        hits_addend: 3,
        ..request(&[&of("ann")])
    };
    is_over(&limited.ask(large).await.expect("an answer"), "invalid");
    let long = "x".repeat(257);
    for user in ["", "a\u{7}", "e\u{301}", long.as_str()] {
        is_over(&limited.one(&of(user)).await, "invalid");
    }
    // A value that is no text, and a question that is too large: the user can have written both.
    let mut wrong = request(&[&of("ann")]);
    wrong.descriptors[0].entries[1].value = b"ann\xff".to_vec();
    is_over(&limited.ask(wrong).await.expect("an answer"), "invalid");
    let long = "x".repeat(150_000);
    let long = request(&[&of(&long), &of(&long)]);
    is_over(&limited.ask(long).await.expect("an answer"), "too-large");
    assert_eq!(limited.used("benefit", "ann").await, 0);
    limited.put("/v1/policies/benefit/blocks/ann").await;
    is_over(&limited.one(&of("ann")).await, "subject-blocked");
    limited.put("/v1/policies/benefit/pause").await;
    is_over(&limited.one(&of("bob")).await, "policy-inactive");
    // A policy that only observes lets everything through.
    let watched = [("policy", "watched"), ("user", "ann")];
    let first = limited.one(&watched).await;
    is_ok(&first);
    assert_eq!(
        added(&first.request_headers_to_add, "perdiem-would-deny"),
        [""; 0]
    );
    let second = limited.one(&watched).await;
    is_ok(&second);
    assert_eq!(
        added(&second.request_headers_to_add, "perdiem-would-deny"),
        ["true"]
    );
    let metadata = second.dynamic_metadata.expect("metadata").fields;
    assert_eq!(metadata["would_deny"].kind, Some(Kind::BoolValue(true)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_decided_is_an_error() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::start(&ground).await;
    app.benefit(2, "UTC").await;
    app.put_policy("other", per_day(2)).await;
    let mut secrets = Vec::new();
    for policies in [json!(null), json!(["benefit"])] {
        let key = json!({ "name": "gate", "role": "claim", "policies": policies });
        let key = app.request(Method::POST, "/v1/keys").json(&key);
        let key = Answer::of(key).await.is(201).clone();
        secrets.push(key["secret"].as_str().expect("a secret").to_owned());
    }
    drop(app);
    let limited = Limited::with(&ground, &secrets[0]).await;
    let of = |policy| request(&[&[("policy", policy), ("user", "ann")]]);
    failed(&limited.ask(of("none")).await, NOT_FOUND, "no policy none");
    failed(
        &limited.ask(of("None")).await,
        INVALID_ARGUMENT,
        "descriptor 1",
    );
    let elsewhere = RateLimitRequest {
        domain: "envoy".to_owned(),
        ..of("benefit")
    };
    failed(
        &limited.ask(elsewhere).await,
        INVALID_ARGUMENT,
        "write perdiem",
    );
    // What is no question at all.
    let mut connection = connect(limited.address).await;
    let right = framed(&of("benefit"));
    let elsewhere = send(&mut connection, "/grpc.health.v1.Health/Check", &right).await;
    failed(&elsewhere, UNIMPLEMENTED, METHOD);
    let garbage = Bytes::from_static(&[0, 0, 0, 0, 3, 0xff, 0xff, 0xff]);
    failed(&send(&mut connection, METHOD, &garbage).await, INTERNAL, "");
    let nothing = send(&mut connection, METHOD, &Bytes::new()).await;
    failed(&nothing, INTERNAL, "");
    let compressed = Bytes::from_static(&[1, 0, 0, 0, 0]);
    failed(
        &send(&mut connection, METHOD, &compressed).await,
        INTERNAL,
        "",
    );
    // The connection is as good as before.
    let granted = send(&mut connection, METHOD, &right).await;
    is_ok(&granted.expect("an answer"));
    drop(limited);
    // A key that may not claim of the policy, and one that was revoked.
    let limited = Limited::with(&ground, &secrets[1]).await;
    failed(
        &limited.ask(of("other")).await,
        PERMISSION_DENIED,
        "PERDIEM_GATE_KEY",
    );
    let mixed = [
        &[("policy", "benefit"), ("user", "bob")][..],
        &[("policy", "other"), ("user", "bob")],
    ];
    failed(&limited.ask(request(&mixed)).await, PERMISSION_DENIED, "");
    assert_eq!(limited.used("benefit", "bob").await, 0);
    drop(limited);
    let limited = Limited::with(&ground, KEY).await;
    failed(&limited.ask(of("benefit")).await, PERMISSION_DENIED, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_redis_decides_goes_with_others() {
    let counted = json!({
        "time_zone": "UTC",
        "limits": [{ "max": 2, "per": "day" }],
        "durability": "counted",
    });
    let policies = [("quick", counted), ("benefit", per_day(2))];
    let limited = Limited::new(Stack::RedisAndSqlite, &policies).await;
    let quick: &[_] = &[("policy", "quick"), ("user", "ann")];
    let both = request(&[quick, &[("policy", "benefit"), ("user", "ann")]]);
    is_ok(&limited.one(quick).await);
    is_ok(&limited.ask(both.clone()).await.expect("an answer"));
    is_over(
        &limited.ask(both).await.expect("an answer"),
        "quota-exceeded",
    );
    is_over(&limited.one(quick).await, "quota-exceeded");
    assert_eq!(limited.used("benefit", "ann").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_has_bounds() {
    let ground = Ground::new(Stack::Sqlite);
    let time = Duration::from_millis(200);
    let limited = Limited::hasty(&ground, KEY, time).await;
    // A body that does not arrive.
    let mut connection = connect(limited.address).await;
    let (_sender, frames) = tokio::sync::mpsc::unbounded_channel::<Frame<Bytes>>();
    let frames = futures_util::stream::unfold(frames, async |mut frames| {
        let frame = frames.recv().await?;
        Some((Ok::<_, std::io::Error>(frame), frames))
    });
    let slow = call(METHOD, StreamBody::new(Box::pin(frames)));
    let late = connection.send_request(slow).await.expect("an answer");
    failed(&ended(late).await, DEADLINE_EXCEEDED, "in time");
    // A connection on which nothing is asked, and one that is no HTTP/2.
    eventually("the connection ends", async || connection.is_closed()).await;
    let mut silent = TcpStream::connect(limited.address)
        .await
        .expect("a connection");
    // The server's own settings, and then the end.
    drop(silent.read_to_end(&mut Vec::new()).await);
    let mut other = TcpStream::connect(limited.address)
        .await
        .expect("a connection");
    let old = b"GET / HTTP/1.1\r\nHost: gate\r\n\r\n";
    other.write_all(old).await.expect("bytes are taken");
    let mut rest = Vec::new();
    drop(other.read_to_end(&mut rest).await);
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_ends_its_connections() {
    let limited = Limited::new(Stack::Sqlite, &[("benefit", per_day(2))]).await;
    let _silent = TcpStream::connect(limited.address)
        .await
        .expect("a connection");
    let mut connection = connect(limited.address).await;
    let question = framed(&request(&[&[("policy", "benefit"), ("user", "ann")]]));
    is_ok(
        &send(&mut connection, METHOD, &question)
            .await
            .expect("an answer"),
    );
    // Else the server would wait for the drain time.
    let began = std::time::Instant::now();
    drop(limited);
    assert!(
        began.elapsed() < serve_options().drain_time,
        "{:?}",
        began.elapsed()
    );
    eventually("the connection ends", async || connection.is_closed()).await;
}

/// The ledger hangs: a question is not decided. When the ledger continues, the same question counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_is_away_is_unavailable() {
    let postgres = Postgres::start();
    let mut ground = Ground::new(Stack::Sqlite);
    ground.database_url = postgres.create_database();
    let key = Limited::prepare(&ground, &[("one", per_day(5)), ("two", per_day(5))]).await;
    let limited = Limited::hasty(&ground, &key, Duration::from_secs(3)).await;
    let alone = [("policy", "one"), ("user", "ann"), ("idempotency_key", "k")];
    let both: [&[_]; 2] = [
        &[("policy", "one"), ("user", "bob"), ("idempotency_key", "k")],
        &[("policy", "two"), ("user", "bob")],
    ];
    let questions = [request(&[&alone]), request(&both)];
    is_ok(&limited.one(&[("policy", "one"), ("user", "eve")]).await);
    postgres.pause();
    for question in &questions {
        failed(
            &limited.ask(question.clone()).await,
            UNAVAILABLE,
            "could not be decided",
        );
    }
    postgres.resume();
    for question in &questions {
        eventually("the question is decided", async || {
            let answer = limited.ask(question.clone()).await;
            answer.is_ok_and(|answer| answer.overall_code() == Code::Ok)
        })
        .await;
    }
    for (policy, user) in [("one", "ann"), ("one", "bob"), ("two", "bob")] {
        assert_eq!(limited.used(policy, user).await, 1, "{policy} {user}");
    }
}
