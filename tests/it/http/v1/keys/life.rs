//! The end of a key: by the clock and by revocation, at every instance. The last admin key cannot
//! end.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use perdiem::host::clock::Clock;
use perdiem::host::clock::ManualClock;
use serde_json::{Value, json};

use super::{Made, end, make, make_role, revoke, status_at, status_of};
use crate::http::{all_items, problem};
use crate::support::app::{App, Ground, KEY, NOON, Stack, eventually, instant};
use crate::support::desk::on_every_store;
use crate::support::process::Process;
#[cfg(feature = "faults")]
use crate::support::proxy::{Mode, Proxy};
#[cfg(feature = "faults")]
use crate::support::servers::postgres;

on_every_store!(
    a_key_ends_by_the_clock,
    the_last_admin_key_stays,
    of_two_admins_who_revoke_each_other_one_stays,
);

async fn a_key_ends_by_the_clock(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let ends_at = "2026-11-21T04:00:00Z";
    let body = json!({ "name": "a guest", "role": "audit", "ends_at": ends_at });
    let key = make(&app, body).await;
    assert_eq!(status_of(&app, &key.secret).await, 200);
    clock.set(instant(ends_at) - TimeDelta::microseconds(1));
    assert_eq!(status_of(&app, &key.secret).await, 200);
    clock.set(instant(ends_at));
    assert_eq!(status_of(&app, &key.secret).await, 401);
    // A key that has ended can get a later end.
    let later = end(&app, KEY, &key.id, Some("2026-11-21T05:00:00Z")).await;
    assert_eq!(later.status, 200, "{later:?}");
    assert_eq!(status_of(&app, &key.secret).await, 200);
    clock.advance(TimeDelta::hours(1));
    assert_eq!(status_of(&app, &key.secret).await, 401);
    assert_eq!(end(&app, KEY, &key.id, None).await.status, 200);
    assert_eq!(status_of(&app, &key.secret).await, 200);
}

/// The instances share a ledger on PostgreSQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_known_at_every_instance() {
    for stack in [Stack::Postgres, Stack::RedisAndPostgres] {
        let ground = Ground::new(stack);
        let one = App::start(&ground).await;
        let two = App::start(&ground).await;
        one.benefit(3, "GMT+8").await;
        let key = make_role(&one, "claim", Some("benefit")).await;
        let is = async |status| {
            eventually("the other instance knows the change", || async {
                status_of(&two, &key.secret).await == status
            })
            .await;
        };
        is(200).await;
        revoke(&one, KEY, &key.id).await;
        is(401).await;
        // An instance that starts afterwards knows the change from its start.
        let three = App::start(&ground).await;
        assert_eq!(status_of(&three, &key.secret).await, 401);
        let another = make_role(&two, "audit", None).await;
        let four = App::start(&ground).await;
        assert_eq!(status_of(&four, &another.secret).await, 200);
        assert_eq!(all_items(&four, "/v1/keys").await.len(), 2);
    }
}

/// An instance that was paused could not poll. It reads the ledger before it accepts a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_is_refused_after_a_pause() {
    let ground = Ground::new(Stack::Postgres);
    let one = App::start(&ground).await;
    let two = Process::start(&ground.database_url, &[]);
    for _ in 0..3 {
        let key = key_known_at(&two, &one).await;
        two.pause();
        revoke_a_while_ago(&one, &key).await;
        let asked = status_at(&two.url, &key.secret);
        let resumed = async { two.resume() };
        assert_eq!(tokio::join!(asked, resumed).0, 401);
    }
}

/// The pause comes in the middle of a poll. When the process continues, the poll's time is over.
/// The ledger answers a little later, or the connection closes first.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_that_a_pause_cuts_is_no_silence() {
    let ground = Ground::new(Stack::Postgres);
    let one = App::start(&ground).await;
    for mode in [Mode::Hold, Mode::Swallow] {
        let proxy = Proxy::before(postgres().port()).await;
        let url = proxy.url(&ground.database_url);
        let stops = [("FAILPOINTS", "policies.polled=12*off->1*return(stop)")];
        let two = Process::start(&url, &stops);
        let key = key_known_at(&two, &one).await;
        eventually("a poll was stopped", || async { two.is_stopped() }).await;
        proxy.set(mode);
        revoke_a_while_ago(&one, &key).await;
        let asked = status_at(&two.url, &key.secret);
        let resumed = async {
            two.resume();
            // The ledger is slow and not silent.
            tokio::time::sleep(Duration::from_millis(100)).await;
            proxy.set(Mode::Pass);
        };
        assert_eq!(tokio::join!(asked, resumed).0, 401, "{mode:?}");
    }
}

async fn key_known_at(two: &Process, one: &App) -> Made {
    let key = make_role(one, "audit", None).await;
    eventually("the other instance knows the key", || async {
        status_at(&two.url, &key.secret).await == 200
    })
    .await;
    key
}

/// Revokes a key, and waits longer than a change needs to reach every instance.
async fn revoke_a_while_ago(app: &App, key: &Made) {
    assert_eq!(revoke(app, KEY, &key.id).await.status, 200);
    let revoked_at = Instant::now();
    eventually("a second has passed", || async {
        revoked_at.elapsed() > Duration::from_secs(1)
    })
    .await;
}

/// Checks that the key works and has no end.
async fn lasts(app: &App, key: &Made) {
    let found = app.get(&format!("/v1/keys/{}", key.id)).await.is(200);
    assert_eq!(found["revoked"], false);
    assert_eq!(found["ends_at"], Value::Null);
    assert_eq!(status_of(app, &key.secret).await, 200);
}

async fn the_last_admin_key_stays(stack: Stack) {
    let app = App::on(stack).await;
    let far = Some("2100-01-01T00:00:00Z");
    let first = make_role(&app, "admin", None).await;
    // None of these keys counts as an admin key without an end.
    make_role(&app, "claim", None).await;
    make_role(&app, "audit", None).await;
    let guest = json!({ "name": "a guest", "role": "admin", "ends_at": far });
    let guest = make(&app, guest).await;
    let refuses = async |key: &Made| {
        for answer in [
            revoke(&app, KEY, &key.id).await,
            revoke(&app, &key.secret, &key.id).await,
            end(&app, KEY, &key.id, far).await,
            end(&app, &key.secret, &key.id, far).await,
        ] {
            let problem = problem(&answer, 409, "last-admin-key");
            let detail = problem["detail"].as_str().expect("a detail");
            assert!(
                detail.contains("create another admin key first"),
                "{detail}"
            );
        }
        lasts(&app, key).await;
    };
    refuses(&first).await;
    let second = make_role(&app, "admin", None).await;
    assert_eq!(end(&app, &second.secret, &first.id, far).await.status, 200);
    refuses(&second).await;
    // An admin key with an end may be revoked. A key that loses its end counts again.
    assert_eq!(revoke(&app, KEY, &guest.id).await.status, 200);
    assert_eq!(end(&app, KEY, &first.id, None).await.status, 200);
    assert_eq!(revoke(&app, KEY, &second.id).await.status, 200);
    refuses(&first).await;
}

async fn of_two_admins_who_revoke_each_other_one_stays(stack: Stack) {
    let ground = Ground::new(stack);
    let one = App::start(&ground).await;
    let two = App::start(&ground).await;
    let mut survivor = make_role(&one, "admin", None).await;
    for round in 0..8 {
        let rival = make_role(&one, "admin", None).await;
        eventually("both instances know both keys", || async {
            status_of(&two, &rival.secret).await == 200
                && status_of(&two, &survivor.secret).await == 200
        })
        .await;
        let strike = async |app: &App, by: &Made, of: &Made| match round % 2 {
            0 => revoke(app, &by.secret, &of.id).await,
            _ => end(app, &by.secret, &of.id, Some("2100-01-01T00:00:00Z")).await,
        };
        let (first, second) = tokio::join!(
            strike(&one, &survivor, &rival),
            strike(&two, &rival, &survivor)
        );
        let won = [&first, &second].map(|answer| answer.status == 200);
        assert!(won[0] != won[1], "{first:?} {second:?}");
        let loser = if won[0] { &second } else { &first };
        // The request came too late, or its key was revoked already.
        assert!([401, 409].contains(&loser.status.as_u16()), "{loser:?}");
        if won[1] {
            survivor = rival;
        }
        lasts(&one, &survivor).await;
    }
}

/// At each request an instance reads its own clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_instance_ends_keys_by_its_own_clock() {
    let ground = Ground::new(Stack::Postgres);
    let clock = ManualClock::at(instant(NOON));
    let one = App::start_with(&ground, |options| {
        options.clock = Clock::Manual(ManualClock::at(instant(NOON)));
    })
    .await;
    let body = json!({ "name": "x", "role": "audit", "ends_at": "2026-11-21T04:00:00Z" });
    let key = make(&one, body).await;
    let two = App::start_at(&ground, &clock).await;
    assert_eq!(status_of(&two, &key.secret).await, 200);
    clock.advance(TimeDelta::hours(1));
    assert_eq!(status_of(&two, &key.secret).await, 401);
    assert_eq!(status_of(&one, &key.secret).await, 200);
}

/// The key of the settings is an admin key, and the ledger does not have this key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_the_settings_stays_an_admin() {
    let ground = Ground::new(Stack::Sqlite);
    // The key has the form of perdiem's keys and is none of them.
    let lookalike = "perdiem_not-a-checksum-at-all";
    let app = App::start_with(&ground, |options| {
        options.admin_key = Some(lookalike.to_owned());
    })
    .await;
    let list = app.ask_as(lookalike, "GET /v1/keys", Value::Null).await;
    assert_eq!(list.at("/items"), json!([]));
    let create = async |secret: &str| {
        let body = json!({ "name": "x", "role": "admin" });
        app.ask_as(secret, "POST /v1/keys", body).await.is(201)
    };
    let made = create(lookalike).await;
    assert_eq!(made["changed_by"], "PERDIEM_ADMIN_KEY");
    // A change that a key of the ledger makes has the key's id.
    let secret = made["secret"].as_str().expect("a secret");
    assert_eq!(create(secret).await["changed_by"], made["id"]);
}
