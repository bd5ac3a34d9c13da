//! Corrections of a grant: reversals, holds and confirmations. Adjustments.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::http::{column, invalid_places, items, problem, replace};
use crate::support::app::{Answer, App, Stack, on_every_stack};
use crate::support::desk::on_every_store;

const SUBJECT: &str = "member-42";
const NEVER: &str = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42";

on_every_stack!(
    a_reversal_gives_back_once,
    a_hold_lapses_by_itself,
    units_are_entered_by_hand,
);

on_every_store!(
    corrections_reach_windows_that_no_line_tells,
    a_confirmed_hold_stays,
    grants_are_listed_by_state,
    more_holds_lapse_than_a_draft_takes,
);

/// Claims units, and returns the grant's id.
async fn granted(app: &App, units: u64) -> String {
    let body = json!({ "subject": SUBJECT, "units": units });
    let answer = app.claim_body(body, None).await;
    answer.is(201);
    answer.grant_id()
}

async fn hold(app: &App, seconds: u64) -> String {
    let body = json!({ "subject": SUBJECT, "hold_seconds": seconds });
    app.claim_body(body, None).await.grant_id()
}

async fn is_denied(app: &App) {
    problem(&app.claim(SUBJECT, None).await, 429, "quota-exceeded");
}

/// Adjusts the subject's units.
async fn adjust(app: &App, units: i64) -> Answer {
    let body = json!({ "units": units, "reason": "by phone" });
    app.adjust(SUBJECT, body, None).await
}

/// The units that are used in each limit's window.
async fn used(app: &App) -> Vec<u64> {
    crate::http::used(app, "benefit", SUBJECT).await
}

async fn state(app: &App, grant: &str) -> Value {
    app.get(&format!("/v1/grants/{grant}")).await.at("/state")
}

/// The account's entries as `kind units`, the newest first.
async fn entries(app: &App) -> Vec<String> {
    let path = format!("/v1/policies/benefit/subjects/{SUBJECT}/entries");
    let entry = |entry: &Value| {
        format!(
            "{} {}",
            entry["kind"].as_str().expect("a kind"),
            entry["units"]
        )
    };
    items(&app.get(&path).await).iter().map(entry).collect()
}

async fn a_reversal_gives_back_once(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    let grant = granted(&app, 3).await;
    is_denied(&app).await;
    let first = app.reverse(&grant, "SMS gateway refused").await;
    let told = first.is(201);
    assert_eq!(told["grant"]["state"], "reversed");
    assert_eq!(told["grant"]["reversal"]["reason"], "SMS gateway refused");
    assert_eq!(told["grant"]["reversal"]["by"], "PERDIEM_ADMIN_KEY");
    assert_eq!(told["limits"][0]["remaining"], 3);
    assert_eq!(app.reverse(&grant, "another reason").await.is(200), told);
    assert_eq!(used(&app).await, [0]);
    // Units that a reversal gave back can be claimed at once.
    granted(&app, 3).await;
    assert_eq!(state(&app, &grant).await, "reversed");
    assert_eq!(entries(&app).await, ["grant 3", "reversal -3", "grant 3"]);
    problem(&app.confirm(&grant).await, 409, "not-a-hold");
    // These ids belong to no grant.
    problem(&app.reverse(NEVER, "x").await, 404, "not-found");
    problem(&app.confirm(NEVER).await, 404, "not-found");
    problem(&app.reverse("17", "x").await, 422, "invalid");
    let adjustment = adjust(&app, 1).await.at("/id");
    let refused = app.reverse(adjustment.as_str().expect("an id"), "x").await;
    problem(&refused, 404, "not-found");
}

/// After a change of the zone the window has other hours. The ledger sums the entries of these
/// hours.
async fn corrections_reach_windows_that_no_line_tells(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limits = json!([{ "max": 5, "per": "day" }, { "max": 30, "per": "month" }]);
    replace(&app, json!({ "limits": limits })).await;
    let grant = granted(&app, 2).await;
    clock.advance(TimeDelta::days(1));
    granted(&app, 1).await;
    assert_eq!(used(&app).await, [1, 3]);
    app.reverse(&grant, "late").await.is(201);
    assert_eq!(used(&app).await, [1, 1]);
    let new_york = json!({ "time_zone": "America/New_York", "limits": limits });
    replace(&app, new_york).await;
    granted(&app, 1).await;
    assert_eq!(used(&app).await, [2, 2]);
    // The reversal and the adjustment give the same units back. The usage is 0 and not less, and
    // later grants count in full.
    clock.advance(TimeDelta::days(10));
    let grant = granted(&app, 3).await;
    adjust(&app, -2).await.is(201);
    app.reverse(&grant, "x").await.is(201);
    assert_eq!(used(&app).await, [0, 0]);
    for (zone, units) in [("UTC", 0), ("GMT+8", 5)] {
        if units > 0 {
            granted(&app, units).await;
        }
        replace(&app, json!({ "time_zone": zone, "limits": limits })).await;
        assert_eq!(used(&app).await, [units, units], "{zone}");
    }
}

async fn a_hold_lapses_by_itself(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(2, "GMT+8").await;
    let first = hold(&app, 60).await;
    clock.advance(TimeDelta::seconds(30));
    let second = hold(&app, 60).await;
    assert_eq!(state(&app, &first).await, "held");
    for _ in 0..3 {
        is_denied(&app).await;
    }
    // The hold lapses at its end and not earlier.
    clock.advance(TimeDelta::seconds(30) - TimeDelta::microseconds(1));
    assert_eq!(state(&app, &first).await, "held");
    is_denied(&app).await;
    clock.advance(TimeDelta::microseconds(1));
    assert_eq!(state(&app, &first).await, "lapsed");
    assert_eq!(used(&app).await, [1]);
    let dry = json!({ "subject": SUBJECT, "dry_run": true });
    assert_eq!(app.claim_body(dry, None).await.at("/outcome"), "granted");
    problem(&app.confirm(&first).await, 410, "hold-lapsed");
    problem(&app.reverse(&first, "too late").await, 410, "hold-lapsed");
    granted(&app, 1).await;
    is_denied(&app).await;
    assert_eq!(state(&app, &second).await, "held");
    clock.advance(TimeDelta::seconds(30));
    // The lapses come before the decision, also for a denied claim.
    let body = json!({ "subject": SUBJECT, "units": 2 });
    assert_eq!(app.claim_body(body, None).await.status, 429);
    assert_eq!(used(&app).await, [1]);
    let expected = ["lapse -1", "grant 1", "lapse -1", "grant 1", "grant 1"];
    assert_eq!(entries(&app).await, expected);
    granted(&app, 1).await;
}

async fn a_confirmed_hold_stays(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(2, "GMT+8").await;
    let claim = async |seconds: Value| {
        let body = json!({ "subject": SUBJECT, "hold_seconds": seconds });
        app.claim_body(body, Some("order-17")).await
    };
    let answer = claim(json!(60)).await;
    let grant = answer.grant_id();
    assert_eq!(answer.at("/grant/state"), "held");
    assert_eq!(
        answer.at("/grant/held_until"),
        "2026-11-21T03:05:05.678901Z"
    );
    let first = app.confirm(&grant).await.is(201);
    assert_eq!(first["grant"]["state"], "granted");
    assert_eq!(first["grant"]["confirmation"]["by"], "PERDIEM_ADMIN_KEY");
    clock.advance(TimeDelta::hours(1));
    assert_eq!(app.confirm(&grant).await.is(200), first);
    assert_eq!(used(&app).await, [1]);
    // The retry shows the present state of the hold. Another hold time makes another claim.
    let retry = claim(json!(60)).await.is(200);
    assert_eq!(retry["grant"]["state"], "granted");
    for seconds in [json!(61), json!(null)] {
        problem(&claim(seconds).await, 422, "idempotency-key-reused");
    }
    app.reverse(&grant, "changed their mind").await.is(201);
    assert_eq!(used(&app).await, [0]);
    problem(&app.confirm(&grant).await, 409, "grant-reversed");
    // A hold that was reversed in time does not lapse.
    let held = hold(&app, 60).await;
    app.reverse(&held, "refused").await.is(201);
    clock.advance(TimeDelta::hours(1));
    assert_eq!(used(&app).await, [0]);
    granted(&app, 1).await;
    assert_eq!(state(&app, &held).await, "reversed");
}

async fn units_are_entered_by_hand(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    let limits = json!([{ "max": 3, "per": "day" }, { "max": 30, "per": "month" }]);
    replace(&app, json!({ "limits": limits })).await;
    let open = async |units: i64| {
        let body = json!({
            "units": units, "at": "2026-11-03T00:00:00Z", "reason": "opening balance",
        });
        app.adjust(SUBJECT, body, Some("opening-1")).await
    };
    let first = open(17).await.is(201);
    assert_eq!(first["units"], 17);
    assert_eq!(first["counted_at"], "2026-11-03T00:00:00Z");
    assert_eq!(first["by"], "PERDIEM_ADMIN_KEY");
    assert_eq!(open(17).await.is(200), first);
    assert_eq!(used(&app).await, [0, 17]);
    problem(&open(18).await, 422, "idempotency-key-reused");
    // An adjustment of today counts in both windows, and may go over a limit.
    adjust(&app, 4).await.is(201);
    assert_eq!(used(&app).await, [4, 21]);
    is_denied(&app).await;
    for too_many in [-5, 9_007_199_254_740_991] {
        assert_eq!(invalid_places(&adjust(&app, too_many).await), ["#/units"]);
    }
    adjust(&app, -4).await.is(201);
    assert_eq!(used(&app).await, [0, 17]);
    granted(&app, 1).await;
    let expected = ["grant 1", "adjustment -4", "adjustment 4", "adjustment 17"];
    assert_eq!(entries(&app).await, expected);
    let unknown = "POST /v1/policies/unknown/subjects/member-42/adjustments";
    let answer = app.ask(unknown, json!({ "units": 1, "reason": "x" })).await;
    problem(&answer, 404, "unknown-policy");
}

async fn grants_are_listed_by_state(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(100, "GMT+8").await;
    let plain = granted(&app, 1).await;
    let reversed = granted(&app, 1).await;
    app.reverse(&reversed, "x").await;
    let lapsed = hold(&app, 1).await;
    let unseen = hold(&app, 2).await;
    let confirmed = hold(&app, 1).await;
    app.confirm(&confirmed).await;
    let held = hold(&app, 100).await;
    let undone = hold(&app, 100).await;
    app.reverse(&undone, "x").await;
    clock.advance(TimeDelta::seconds(1));
    // The entry before this grant records the first lapse. No entry records the second lapse.
    let last = granted(&app, 1).await;
    clock.advance(TimeDelta::seconds(1));
    for (state, expected) in [
        ("granted", vec![last, confirmed, plain]),
        ("reversed", vec![undone, reversed]),
        ("lapsed", vec![unseen, lapsed]),
        ("held", vec![held]),
    ] {
        let subject = format!("subject={SUBJECT}");
        for scope in ["", "policy=benefit", &subject, "from=2026-11-21T00:00:00Z"] {
            let found = items(&app.get(&format!("/v1/grants?state={state}&{scope}")).await);
            assert_eq!(column(&found, "id"), expected, "{state} {scope}");
            assert!(column(&found, "state").iter().all(|told| *told == state));
        }
    }
    let csv = app.get("/v1/grants/export?format=csv&state=reversed").await;
    assert_eq!(csv.text.lines().count(), 3, "{csv:?}");
}

/// All holds lapse before the claim is decided.
async fn more_holds_lapse_than_a_draft_takes(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(2500, "GMT+8").await;
    let hold = json!({ "policy": "benefit", "subject": SUBJECT, "hold_seconds": 60 });
    for count in [1000, 1000, 500] {
        let body = json!({ "claims": vec![hold.clone(); count], "atomic": true });
        app.ask("POST /v1/claims", body).await.is(200);
    }
    assert_eq!(used(&app).await, [2500]);
    is_denied(&app).await;
    clock.advance(TimeDelta::seconds(60));
    assert_eq!(used(&app).await, [0]);
    let dry = json!({ "subject": SUBJECT, "units": 2500, "dry_run": true });
    assert_eq!(app.claim_body(dry, None).await.at("/outcome"), "granted");
    granted(&app, 2500).await;
    assert_eq!(used(&app).await, [2500]);
    let lapsed = format!("/v1/grants?state=lapsed&subject={SUBJECT}&limit=1000");
    assert_eq!(items(&app.get(&lapsed).await).len(), 1000);
}
