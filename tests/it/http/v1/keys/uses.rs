//! The last day on which a key was used.

use chrono::TimeDelta;
use perdiem::host::clock::ManualClock;
use serde_json::{Value, json};

use super::{Made, end, make_role, revoke, status_of};
use crate::http::items;
use crate::support::app::{App, Ground, KEY, NOON, Stack, eventually, instant};
use crate::support::desk::on_every_store;

on_every_store!(
    the_last_day_of_use_is_shown,
    a_key_that_is_not_accepted_is_not_used,
    instances_write_the_same_day,
    a_use_outlives_a_change_of_its_key,
    the_end_of_an_instance_loses_no_use,
);

/// The last day of use that a key shows; null where the field is absent.
async fn last_use(app: &App, key: &Made) -> Value {
    let shown = app.get(&format!("/v1/keys/{}", key.id)).await.is(200);
    let has_field = shown.get("last_used_on").is_some();
    assert_eq!(has_field, shown["last_used_on"].is_string());
    shown["last_used_on"].clone()
}

/// Waits until the use is written: the key shows it, and so does the list.
async fn was_used_on(app: &App, key: &Made, day: &str) {
    eventually("the use is written", || async {
        last_use(app, key).await == day
    })
    .await;
    let listed = items(&app.get("/v1/keys").await);
    let listed = listed.iter().find(|it| it["id"] == key.id.as_str());
    assert_eq!(listed.expect("the key")["last_used_on"], day);
}

async fn the_last_day_of_use_is_shown(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    let key = make_role(&app, "claim", Some("benefit")).await;
    assert_eq!(last_use(&app, &key).await, Value::Null);
    let claim = async || {
        let body = json!({ "subject": "a" });
        app.ask_as(&key.secret, "POST /v1/policies/benefit/claims", body)
            .await
    };
    claim().await.is(201);
    was_used_on(&app, &key, "2026-11-21").await;
    // The days are those of UTC, not of the policy.
    clock.set(instant("2026-11-21T23:59:59Z"));
    claim().await.is(201);
    let other = make_role(&app, "audit", None).await;
    assert_eq!(status_of(&app, &other.secret).await, 200);
    was_used_on(&app, &other, "2026-11-21").await;
    assert_eq!(last_use(&app, &key).await, "2026-11-21");
    clock.set(instant("2026-11-22T00:00:00Z"));
    claim().await.is(201);
    was_used_on(&app, &key, "2026-11-22").await;
    assert_eq!(last_use(&app, &other).await, "2026-11-21");
    // A use is no change, and no answer to a change shows it.
    assert_eq!(items(&app.get("/v1/changes?kind=key").await).len(), 2);
    let revoked = revoke(&app, KEY, &key.id).await.is(200);
    assert_eq!(revoked.get("last_used_on"), None);
    was_used_on(&app, &key, "2026-11-22").await;
}

/// A request that is refused for the role of its key shows that somebody has the key. So it is a use.
async fn a_key_that_is_not_accepted_is_not_used(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let [revoked, ended, claimer] = [(); 3].map(|()| make_role(&app, "claim", None));
    let revoked = revoked.await;
    let ended = ended.await;
    let claimer = claimer.await;
    revoke(&app, KEY, &revoked.id).await.is(200);
    let ends_at = Some("2026-11-21T04:00:00Z");
    end(&app, KEY, &ended.id, ends_at).await.is(200);
    assert_eq!(status_of(&app, &ended.secret).await, 200);
    was_used_on(&app, &ended, "2026-11-21").await;
    clock.advance(TimeDelta::days(1));
    for key in [&revoked, &ended] {
        assert_eq!(status_of(&app, &key.secret).await, 401);
    }
    let refused = app.ask_as(&claimer.secret, "GET /v1/policies", Value::Null);
    assert_eq!(refused.await.status, 403);
    was_used_on(&app, &claimer, "2026-11-22").await;
    assert_eq!(last_use(&app, &revoked).await, Value::Null);
    assert_eq!(last_use(&app, &ended).await, "2026-11-21");
}

async fn instances_write_the_same_day(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let start = || App::start_at(&ground, &clock);
    let one = start().await;
    let key = make_role(&one, "audit", None).await;
    let other = make_role(&one, "audit", None).await;
    assert_eq!(status_of(&one, &key.secret).await, 200);
    was_used_on(&one, &key, "2026-11-21").await;
    // Two instances share PostgreSQL. On SQLite the second one comes after the first.
    let one = if stack == Stack::Sqlite {
        drop(one);
        None
    } else {
        Some(one)
    };
    let two = start().await;
    for secret in [&key.secret, &other.secret] {
        assert_eq!(status_of(&two, secret).await, 200);
    }
    // The second instance wrote both uses in one transaction.
    was_used_on(&two, &other, "2026-11-21").await;
    assert_eq!(last_use(&two, &key).await, "2026-11-21");
    clock.advance(TimeDelta::days(1));
    for app in one.iter().chain([&two]) {
        assert_eq!(status_of(app, &key.secret).await, 200);
        was_used_on(app, &key, "2026-11-22").await;
    }
}

async fn a_use_outlives_a_change_of_its_key(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    for _ in 0..3 {
        let key = make_role(&app, "audit", None).await;
        assert_eq!(status_of(&app, &key.secret).await, 200);
        revoke(&app, KEY, &key.id).await.is(200);
        let today = clock.now().date_naive().to_string();
        was_used_on(&app, &key, &today).await;
        clock.advance(TimeDelta::days(1));
    }
}

async fn the_end_of_an_instance_loses_no_use(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let start = || App::start_at(&ground, &clock);
    let app = start().await;
    let key = make_role(&app, "audit", None).await;
    let mut today = String::new();
    for _ in 0..3 {
        assert_eq!(status_of(&app, &key.secret).await, 200);
        today = clock.now().date_naive().to_string();
        was_used_on(&app, &key, &today).await;
        clock.advance(TimeDelta::days(1));
    }
    assert_eq!(today, "2026-11-23");
    // The instance ends just after the use.
    assert_eq!(status_of(&app, &key.secret).await, 200);
    drop(app);
    let app = start().await;
    assert_eq!(last_use(&app, &key).await, "2026-11-24");
}
