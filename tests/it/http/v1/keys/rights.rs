//! Every route with every role, and the policies that confined keys reach.

use reqwest::{Method, header};
use serde_json::{Value, json};

use super::{client_from, make, make_role, with};
use crate::http::{column, items, problem, used};
use crate::support::app::{Answer, App, KEY, Stack};
use crate::support::desk::on_every_store;
use crate::support::operations::{Operation, RIGHTS, ROLES, filled, operations, rights};

on_every_store!(
    a_confined_key_sees_its_policies_and_grants_only,
    a_confined_key_claims_and_corrects_only_its_own,
);

/// The operations, besides those on a grant, whose handlers keep a confined key to its policies. A test tries each
/// with a key of another policy: here, or in `entry_exports.rs`.
const BY_HANDLER: [&str; 5] = [
    "/v1/claims",
    "/v1/exports/{revision}",
    "/v1/policies",
    "/v1/subjects",
    "/v1/subjects/{subject}",
];

#[test]
fn every_route_has_its_rights_and_tells_them() {
    assert!(
        RIGHTS == perdiem::http::rights(),
        "docs/rights.md is out of date: run `cargo run -- rights > docs/rights.md`, and read what changed"
    );
    let operations = operations();
    let rights = rights();
    assert_eq!(operations.len(), rights.len());
    for right in rights {
        let place = format!("{} {}", right.method, right.path);
        let names_policy = right.path.contains("{policy}");
        assert_eq!(right.confined == "path", names_policy, "{place}");
        let is_tried = is_of_grants(right.path) || BY_HANDLER.contains(&right.path);
        assert!(
            right.confined != "handler" || is_tried,
            "{place}: try it with a key of another policy, and list it"
        );
        let is_free = !right.path.starts_with("/v1/");
        assert_eq!(
            right.bounds == "Open",
            is_free,
            "{place} may read the ledger"
        );
        let is_it = |it: &&Operation| it.path == right.path && it.method == right.method;
        let operation = operations.iter().find(is_it).expect("an operation");
        let description = operation.said["description"].as_str().unwrap_or_default();
        let told = description.split("Roles: ").nth(1);
        let names: Vec<String> = right.roles.iter().map(|it| format!("`{it}`")).collect();
        let needs_key = !right.roles.contains(&"no key");
        let expected = needs_key.then(|| format!("{}.", names.join(", ")));
        assert_eq!(told, expected.as_deref(), "{place}");
    }
}

/// The body and the query of these requests cannot be read. 401 and 403 come before these faults,
/// and nothing changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_route_takes_its_roles_and_no_others() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let mut keys = vec![("no key", None), ("admin", Some(KEY.to_owned()))];
    for role in ROLES {
        keys.push((role, Some(make_role(&app, role, None).await.secret)));
    }
    for right in rights() {
        for (role, secret) in &keys {
            let path = format!("{}?no-such-parameter=1", filled(right.path));
            let request = app.bare_request(right.method.clone(), &path);
            let mut request = request.body("{");
            if let Some(secret) = secret {
                request = request.bearer_auth(secret);
            }
            let answer = Answer::of(request).await;
            let place = format!("{} {path} with {role}: {answer:?}", right.method);
            if right.roles.contains(role) {
                let status = answer.status.as_u16();
                assert!(![401, 403].contains(&status) && status < 500, "{place}");
            } else if secret.is_none() {
                problem(&answer, 401, "unauthorized");
            } else {
                let told = problem(&answer, 403, "forbidden")["detail"].to_string();
                assert!(told.contains(role) && told.contains("use a key"), "{place}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confined_keys_reach_their_policies_and_no_others() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let body = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    for name in ["other", "third"] {
        app.put_policy(name, body.clone()).await;
    }
    for role in ["claim", "audit"] {
        let theirs = make_role(&app, role, Some("benefit")).await.secret;
        let others = json!({ "name": "x", "role": role, "policies": ["other", "third"] });
        let others = make(&app, others).await.secret;
        for right in rights() {
            if !right.roles.contains(&role) {
                continue;
            }
            let status = async |secret: &str, path: String| {
                let request = with(&app, secret, right.method.clone(), &path).body("{");
                let answer = Answer::of(request).await;
                if answer.status == 403 {
                    problem(&answer, 403, "forbidden");
                }
                answer.status.as_u16()
            };
            let path = filled(right.path);
            let place = format!("{} {path} with {role}", right.method);
            let bare = (
                status(&theirs, path.clone()).await,
                status(&others, path.clone()).await,
            );
            match right.confined {
                "taken" | "handler" => {
                    assert!(bare.0 != 403 && bare.1 != 403, "{place}: {bare:?}");
                }
                "path" => assert!(bare.0 != 403 && bare.1 == 403, "{place}: {bare:?}"),
                "refused" => assert_eq!(bare, (403, 403), "{place}"),
                other => {
                    assert_eq!(other, "query", "{place}");
                    assert_eq!(bare, (403, 403), "{place}");
                    for (query, expected) in [
                        ("policy=benefit", (false, true)),
                        ("policy=other", (true, false)),
                        ("policy=nothing", (true, true)),
                        ("policy=NOTHING", (true, true)),
                        ("policy=", (true, true)),
                        ("policy=benefit&policy=other", (true, true)),
                        ("no-such=1&policy=benefit", (false, true)),
                        ("policy=%62enefit", (false, true)),
                        ("subject=policy%3Dbenefit", (true, true)),
                    ] {
                        let path = format!("{path}?{query}");
                        let theirs = status(&theirs, path.clone()).await == 403;
                        let others = status(&others, path.clone()).await == 403;
                        assert_eq!((theirs, others), expected, "{place} {query}");
                    }
                }
            }
        }
    }
}

/// The path of an operation on a grant, or on a bundle.
fn is_of_grants(path: &str) -> bool {
    path.starts_with("/v1/grants/{id}") || path.starts_with("/v1/bundles/{id}")
}

/// No operation on a grant or a bundle reaches a grant of another policy. Only the handler knows the policy. So the
/// grant is a real one, and one of the bodies can be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_operation_on_a_grant_reaches_another_policy() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    app.put_policy("other", rule).await;
    let hold = json!({ "policy": "other", "subject": "member-42", "hold_seconds": 600 });
    let batch = json!({ "atomic": true, "claims": [hold] });
    let held = app.ask("POST /v1/claims", batch).await.is(200);
    let text = |id: &Value| id.as_str().expect("an id").to_owned();
    let grant = text(&held["items"][0]["grant"]["id"]);
    let bundle = text(&held["bundle"]);
    let mut tried = 0;
    for role in ["claim", "audit", "support"] {
        let key = make_role(&app, role, Some("benefit")).await.secret;
        for right in rights() {
            if !is_of_grants(right.path) || !right.roles.contains(&role) {
                continue;
            }
            let is_bundle = right.path.starts_with("/v1/bundles/");
            let path = right
                .path
                .replace("{id}", if is_bundle { &bundle } else { &grant });
            let mut statuses = Vec::new();
            for body in [json!({}), json!({ "reason": "a test" })] {
                let request = with(&app, &key, right.method.clone(), &path).json(&body);
                statuses.push(Answer::of(request).await.status.as_u16());
            }
            let is_refused = statuses.contains(&403) && statuses.iter().all(|it| *it >= 400);
            assert!(
                is_refused,
                "{} {path} with {role}: {statuses:?}",
                right.method
            );
            tried += 1;
        }
    }
    assert!(tried >= 8, "{tried}");
    let held = app.get(&format!("/v1/grants/{grant}")).await.json();
    assert_eq!(held["state"], "held");
}

async fn a_confined_key_sees_its_policies_and_grants_only(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    let body = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    for name in ["a", "b", "c"] {
        app.put_policy(name, body.clone()).await;
    }
    let grant = app.claim("member-42", None).await.grant_id();
    let subject = json!({ "subject": "member-42" });
    let other = app.claim_under("a", subject, None).await.grant_id();
    let body = json!({ "name": "x", "role": "audit", "policies": ["c", "benefit", "b"] });
    let key = make(&app, body).await.secret;
    let get = async |path: &str| app.ask_as(&key, &format!("GET {path}"), Value::Null).await;

    let first = get("/v1/policies?limit=2").await;
    assert_eq!(column(&items(&first), "name"), ["b", "benefit"]);
    let cursor = first.at("/next_cursor");
    let cursor = cursor.as_str().expect("a cursor");
    let second = get(&format!("/v1/policies?limit=2&cursor={cursor}")).await;
    assert_eq!(column(&items(&second), "name"), ["c"]);
    assert_eq!(second.at("/next_cursor"), Value::Null);

    let subject = get("/v1/subjects/member-42").await;
    assert_eq!(column(&items(&subject), "policy"), ["benefit"]);
    let subjects = items(&get("/v1/subjects?prefix=member").await);
    assert_eq!(subjects.len(), 1);
    assert_eq!(subjects[0]["policies"], json!(["benefit"]));
    problem(&get("/v1/subjects?policy=a").await, 403, "forbidden");

    get(&format!("/v1/grants/{grant}")).await.is(200);
    let grants = get("/v1/grants?policy=benefit&subject=member-42").await;
    assert_eq!(items(&grants).len(), 1);
    for (path, told) in [
        (format!("/v1/grants/{other}"), ""),
        ("/v1/grants".to_owned(), "policy="),
        ("/v1/reconciliations".to_owned(), "not confined"),
    ] {
        let refused = get(&path).await;
        problem(&refused, 403, "forbidden");
        assert!(refused.text.contains(told), "{refused:?}");
        assert!(!refused.text.contains("member-42"), "{refused:?}");
    }
}

async fn a_confined_key_claims_and_corrects_only_its_own(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(9, "GMT+8").await;
    let body = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
    app.put_policy("other", body).await;
    let key = make_role(&app, "claim", Some("benefit")).await.secret;
    let post =
        async |path: &str, body: Value| app.ask_as(&key, &format!("POST {path}"), body).await;
    let both = |atomic: bool| {
        json!({ "atomic": atomic, "claims": [
            { "policy": "benefit", "subject": "member-42" },
            { "policy": "other", "subject": "member-42" },
        ] })
    };
    let statuses = async |atomic| {
        let answer = post("/v1/claims", both(atomic)).await;
        let status = |item: &Value| item["status"].as_u64().expect("a status");
        items(&answer).iter().map(status).collect::<Vec<u64>>()
    };
    assert_eq!(statuses(true).await, [424, 403]);
    assert_eq!(statuses(false).await, [201, 403]);
    assert_eq!(used(&app, "other", "member-42").await, [0]);

    let hold = json!({ "subject": "member-42", "hold_seconds": 600 });
    let theirs = app.claim_body(hold.clone(), None).await.grant_id();
    let others = app.claim_under("other", hold, None).await.grant_id();
    for (correction, body) in [
        ("confirmation", json!({})),
        ("reversal", json!({ "reason": "a test" })),
    ] {
        let refused = post(&format!("/v1/grants/{others}/{correction}"), body.clone()).await;
        problem(&refused, 403, "forbidden");
        assert!(!refused.text.contains("member-42"), "{refused:?}");
        let corrected = post(&format!("/v1/grants/{theirs}/{correction}"), body).await;
        assert_eq!(corrected.status, 201, "{corrected:?}");
    }
    assert_eq!(used(&app, "other", "member-42").await, [1]);
    let held = app.get(&format!("/v1/grants/{others}")).await.json();
    assert_eq!(held["state"], "held");
}

/// Another spelling of a policy's path gives no access to another policy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_means_the_same_to_the_check_and_to_the_handler() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let key = make_role(&app, "claim", Some("benefit")).await.secret;
    for (path, status) in [
        ("/v1/policies/benefit/subjects/a", 200),
        ("/v1/policies/%62enefit/subjects/a", 200),
        ("/v1/policies/benefi%74/subjects/a", 200),
        ("/v1/policies/BENEFIT/subjects/a", 403),
        ("/v1/policies/benefit%00/subjects/a", 403),
        ("/v1/policies/%2562enefit/subjects/a", 403),
        ("/v1/policies/other/subjects/a", 403),
    ] {
        let answer = Answer::of(with(&app, &key, Method::GET, path)).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
}

/// Only the `Authorization` header with `Bearer` carries a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_taken_from_its_header_alone() {
    let app = App::on(Stack::Sqlite).await;
    let client = client_from([1, 1]);
    let url = format!("{}/v1/policies", app.url);
    #[rustfmt::skip]
    let rows = [
        client.get(format!("{url}?key={KEY}&access_token={KEY}")),
        client.get(&url).header("X-Api-Key", KEY),
        client.get(&url).header(header::COOKIE, format!("key={KEY}")),
        client.get(&url).basic_auth(KEY, Some(KEY)),
        client.get(&url).header(header::PROXY_AUTHORIZATION, format!("Bearer {KEY}")),
    ];
    for request in rows {
        problem(&Answer::of(request).await, 401, "unauthorized");
    }
}
