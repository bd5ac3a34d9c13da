//! Erasures that need several transactions, and instances that end between two transactions.

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::claim::Subject;
use perdiem::domain::erasure::{ErasingAccount, ErasureStep};
use perdiem::domain::policy::PolicyName;
use perdiem::host::clock::{Clock, ManualClock};
use perdiem::ledger::{Act, ActKind, Ledger, NewErasure};
use reqwest::Method;
use serde_json::{Value, json};

use super::{all_are_past, erasing};
use crate::http::all_items;
use crate::http::v1::statistics::are_sums_of_the_entries;
use crate::judge::judge_ledger;
use crate::seals::{all_is_sealed, ledger, sealing, verified};
use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

on_every_store!(an_erasure_goes_on_where_an_instance_ended);

const SUBJECT: &str = "member-42";
/// The entries of the account: three transactions for each step.
const ENTRIES: usize = 2500;
/// The claims of a batch.
const BATCH: usize = 1000;
/// The difference between two clocks that is allowed for.
const MARGIN: TimeDelta = TimeDelta::minutes(1);

async fn start(ground: &Ground, clock: &ManualClock) -> App {
    App::start_with(ground, |options| {
        sealing(options);
        options.clock = Clock::Manual(clock.clone());
    })
    .await
}

/// Many grants of one subject, each with a key and metadata.
async fn fill(app: &App) {
    app.benefit(10_000, "UTC").await;
    app.claim("member-7", None).await.is(201);
    for first in (0..ENTRIES).step_by(BATCH) {
        let claim = |number: usize| {
            json!({
                "policy": "benefit", "subject": SUBJECT,
                "idempotency_key": format!("key-{number}"), "metadata": { "of": SUBJECT },
            })
        };
        let last = ENTRIES.min(first + BATCH);
        let body = json!({ "claims": (first..last).map(claim).collect::<Vec<_>>() });
        let batch = Answer::of(app.request(Method::POST, "/v1/claims").json(&body)).await;
        assert_eq!(batch.status, 200, "{batch:?}");
    }
}

/// Acts as an instance that ends early: it begins to erase the subject, and erases the texts of the
/// first entries.
async fn begins_and_ends(ledger: &Ledger, now: DateTime<Utc>) {
    let subject = Subject::new(SUBJECT).expect("a subject");
    let policy = PolicyName::new("benefit").expect("a name");
    let act = Act {
        revision: 0,
        kind: ActKind::Erasure,
        about: String::new(),
        at: now,
        by: "a test".to_owned(),
        reason: Some("request 118".to_owned()),
    };
    let new = NewErasure {
        subject: &subject,
        accounts: &[ledger.identity().account(&policy, &subject)],
        act,
        about: |accounts| json!({ "accounts": accounts }).to_string(),
        due_at: now + TimeDelta::seconds(30),
    };
    let act = ledger.admin().begin_erasure(&new).await.expect("an act");
    let act = act.expect("the subject is known");
    let erasing = ledger
        .admin()
        .erasing_of(act.revision)
        .await
        .expect("the subject's accounts");
    let has_more = ledger.admin().erase_texts(&erasing[0], MARGIN, now).await;
    assert!(has_more.expect("an erasure of texts"));
}

/// The account whose next step is due. The test expects that it is this step.
async fn due(ledger: &Ledger, now: DateTime<Utc>, step: ErasureStep) -> ErasingAccount {
    let due = ledger
        .admin()
        .due_erasures(now, 2)
        .await
        .expect("the due erasures");
    let [one] = &due[..] else {
        panic!("one account is due: {due:?}");
    };
    assert_eq!(one.step, step);
    one.clone()
}

/// Asserts that the ledger equals its seals and that a reconciliation finds nothing, while a step
/// is not done. `clock` is the clock of an instance for which nothing is due.
async fn nothing_differs(ground: &Ground, clock: &ManualClock, days: &[Value]) {
    let app = start(ground, clock).await;
    let check = app.request(Method::POST, "/v1/reconciliations");
    let report = Answer::of(check.json(&json!({ "apply": false }))).await;
    assert_eq!(report.json()["difference_count"], 0, "{report:?}");
    let seal = all_is_sealed(&app, ground).await;
    drop(app);
    let verified = verified(ground, Some(seal)).await;
    assert_eq!(verified.expect("nothing differs").unsealed, 0);
    let app = start(ground, clock).await;
    assert_eq!(all_items(&app, "/v1/stats").await, days);
}

/// How many entries have a part that an erasure removes.
async fn entries_where(ground: &Ground, what: &str) -> usize {
    let sql = format!("SELECT CAST(COUNT(*) AS text) FROM entries WHERE {what}");
    let count = Direct::to(ground).await.texts(&sql).await;
    count[0].parse().expect("a number")
}

async fn an_erasure_goes_on_where_an_instance_ended(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let app = start(&ground, &clock).await;
    fill(&app).await;
    all_is_sealed(&app, &ground).await;
    let days = are_sums_of_the_entries(&app).await;
    let kept = all_is_sealed(&app, &ground).await;
    drop(app);

    // 1. An instance ends while it erases texts. Another instance continues after half a minute.
    let instance = ledger(&ground).await;
    begins_and_ends(&instance, instant(NOON)).await;
    instance.close().await;
    let texts = "metadata IS NOT NULL";
    assert_eq!(entries_where(&ground, texts).await, ENTRIES - BATCH);
    nothing_differs(&ground, &clock, &days).await;
    assert_eq!(erasing(&ground, 1).await, 1);
    let app = start(&ground, &clock).await;
    // The name already finds nothing, and no view contains it.
    let all = all_items(&app, "/v1/entries?limit=1000").await;
    let named = all.iter().filter(|entry| entry["subject"] == SUBJECT);
    assert_eq!((all.len(), named.count()), (ENTRIES + 1, 0));
    let listed = all_items(&app, &format!("/v1/grants?subject={SUBJECT}")).await;
    assert!(listed.is_empty(), "{listed:?}");
    clock.advance(TimeDelta::seconds(30));
    eventually("the texts are gone", || async {
        erasing(&ground, 1).await == 0
    })
    .await;
    assert_eq!(entries_where(&ground, texts).await, 0);
    drop(app);
    nothing_differs(&ground, &clock, &days).await;

    // 2. The next instance ends while entries get a random id.
    let next_day = instant("2026-11-22T00:10:00Z");
    let instance = ledger(&ground).await;
    let account = due(&instance, next_day, ErasureStep::Counts).await;
    let has_more = instance
        .admin()
        .replace_account(&account, MARGIN, next_day)
        .await;
    assert!(has_more.expect("entries are replaced"));
    instance.close().await;
    let of_old = format!("account = {}", ground.literal(account.account.0));
    assert_eq!(entries_where(&ground, &of_old).await, ENTRIES - BATCH + 1);
    nothing_differs(&ground, &clock, &days).await;
    clock.set(next_day);
    let app = start(&ground, &clock).await;
    all_are_past(&ground, 3, &clock).await;
    assert_eq!(entries_where(&ground, &of_old).await, 0);
    drop(app);
    nothing_differs(&ground, &clock, &days).await;

    // 3. The third instance ends while it deletes keys.
    let third_day = next_day + TimeDelta::hours(48);
    let instance = ledger(&ground).await;
    let account = due(&instance, third_day, ErasureStep::Keys).await;
    let has_more = instance.admin().clear_keys(&account, third_day).await;
    assert!(has_more.expect("an erasure of keys"));
    instance.close().await;
    let keys = "key IS NOT NULL";
    assert_eq!(entries_where(&ground, keys).await, ENTRIES - BATCH);
    nothing_differs(&ground, &clock, &days).await;
    clock.set(third_day);
    let app = start(&ground, &clock).await;
    all_are_past(&ground, 4, &clock).await;
    assert_eq!(entries_where(&ground, keys).await, 0);

    // The ledger still equals the first seal, and one entry has a subject.
    let stores = ground.stores().await;
    assert_eq!(judge_ledger(&stores), []);
    assert_eq!(are_sums_of_the_entries(&app).await, days);
    verified(&ground, Some(kept))
        .await
        .expect("nothing differs");
    let all = all_items(&app, "/v1/entries?limit=1000").await;
    assert_eq!(all.len(), ENTRIES + 1);
    let named = all.iter().filter(|entry| !entry["subject"].is_null());
    assert_eq!(named.count(), 1);
}
