//! A key looks at itself.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{end, make, make_role, revoke};
use crate::http::problem;
use crate::support::app::{Answer, App, Ground, KEY, Stack, instant};
use crate::support::desk::on_every_store;
use crate::support::servers::Postgres;

on_every_store!(
    every_key_learns_who_it_is,
    a_key_learns_its_new_end_and_nothing_after_it,
);

const ENDS_AT: &str = "2026-11-21T04:00:00Z";

async fn who_am_i(app: &App, secret: &str) -> Answer {
    app.ask_as(secret, "GET /v1/keys/me", Value::Null).await
}

async fn every_key_learns_who_it_is(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    let body = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    app.put_policy("other", body).await;
    let of_settings = json!({ "name": "PERDIEM_ADMIN_KEY", "role": "admin" });
    let mut rows = vec![(KEY.to_owned(), of_settings)];
    for role in ["claim", "audit", "admin"] {
        let key = make_role(&app, role, None).await;
        let expected = json!({ "id": key.id, "name": format!("a {role}"), "role": role });
        rows.push((key.secret, expected));
    }
    for role in ["claim", "audit"] {
        let body = json!({
            "name": "shop", "role": role, "policies": ["other", "benefit"], "ends_at": ENDS_AT,
            "reason": "nobody but an auditor reads it",
        });
        let key = make(&app, body).await;
        let expected = json!({
            "id": key.id, "name": "shop", "role": role, "policies": ["other", "benefit"],
            "ends_at": ENDS_AT,
        });
        rows.push((key.secret, expected));
    }
    // A key stays confined to a policy that is archived.
    let archive = "DELETE /v1/policies/benefit?reason=x";
    app.ask(archive, Value::Null).await.is(200);
    for (secret, expected) in rows {
        let told = who_am_i(&app, &secret).await;
        // The whole answer: it has nothing of the secret, and not who made the key and why.
        assert_eq!(told.is(200), expected);
        assert_eq!(told.header("cache-control"), Some("no-store"));
    }
}

async fn a_key_learns_its_new_end_and_nothing_after_it(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let key = make_role(&app, "claim", None).await;
    let other = make_role(&app, "claim", None).await;
    assert_eq!(
        who_am_i(&app, &key.secret).await.is(200).get("ends_at"),
        None
    );
    end(&app, KEY, &key.id, Some(ENDS_AT)).await.is(200);
    assert_eq!(who_am_i(&app, &key.secret).await.at("/ends_at"), ENDS_AT);
    clock.set(instant(ENDS_AT) - TimeDelta::microseconds(1));
    who_am_i(&app, &key.secret).await.is(200);
    clock.set(instant(ENDS_AT));
    problem(&who_am_i(&app, &key.secret).await, 401, "unauthorized");
    revoke(&app, KEY, &other.id).await.is(200);
    problem(&who_am_i(&app, &other.secret).await, 401, "unauthorized");
    for wrong in ["wrong", "perdiem_"] {
        problem(&who_am_i(&app, wrong).await, 401, "unauthorized");
    }
}

/// `me` is the name of no key: nobody can end or revoke a key by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn me_is_no_id() {
    let app = App::on(Stack::Sqlite).await;
    let key = make_role(&app, "admin", None).await;
    for answer in [
        end(&app, &key.secret, "me", Some("2100-01-01T00:00:00Z")).await,
        revoke(&app, &key.secret, "me").await,
    ] {
        problem(&answer, 405, "method-not-allowed");
        assert_eq!(answer.header("allow"), Some("GET, HEAD"));
    }
    assert_eq!(who_am_i(&app, &key.secret).await.at("/id"), key.id);
    // Another spelling is an id that nobody has.
    for path in ["/v1/keys/Me", "/v1/keys/me%20"] {
        let answer = app.get(path).await;
        assert!([404, 422].contains(&answer.status.as_u16()), "{answer:?}");
    }
}

/// The instance has its keys in memory, so it can tell what it acts on while the ledger does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_learns_who_it_is_without_the_ledger() {
    let mut postgres = Postgres::start();
    let ground = Ground::of_database(postgres.create_database());
    let app = App::start_with(&ground, |options| {
        options.answer_time = Duration::from_secs(1)
    })
    .await;
    let key = make_role(&app, "claim", None).await;
    let before = who_am_i(&app, &key.secret).await.is(200);
    postgres.kill();
    assert_eq!(who_am_i(&app, &key.secret).await.is(200), before);
    let listed = app.get("/v1/keys").await;
    problem(&listed, 503, "unavailable");
}
