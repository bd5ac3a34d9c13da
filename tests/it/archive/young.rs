//! Entries of less than 400 days are dropped where their policy does not need them for longer, and nowhere else.

use perdiem::domain::record::RecordPlace;
use perdiem::ledger::CutText;
use reqwest::Method;
use serde_json::{Value, json};

use super::dropping::{figures_are_made, is_sealed, reconciled, rows};
use super::forged::drop_triggers;
use super::{Archivist, act_of};
use crate::http::{items, problem};
use crate::seals::{ledger, verified};
use crate::support::app::{Answer, Stack, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;
use crate::support::terminal::Said;

on_every_store!(
    each_policy_keeps_its_entries_as_long_as_it_needs_them,
    nobody_drops_what_a_policy_needs,
    a_policy_that_changes_meanwhile_makes_the_cut_again,
    the_days_are_a_setting_of_the_policy,
);

/// The first day of the entries, and that of the drop.
const DAY_ONE: &str = "2026-01-05T10:00:00Z";
const DAY_SIXTEEN: &str = "2026-01-20T10:00:00Z";
const DAY_THREE: &str = "2026-01-07T00:00:00Z";

/// A ledger with three policies and two claims a subject of each on the first day, and one later. `sms` needs its
/// entries for 5 days, `monthly` for a month, and `benefit` for 400 days. Returns the first grant of each.
async fn with_weeks(stack: Stack) -> (Archivist, Vec<String>) {
    let archivist = Archivist::at(stack, DAY_ONE).await;
    let app = &archivist.app;
    let mut grants = Vec::new();
    for (policy, per, days) in [
        ("sms", "day", Some(5)),
        ("monthly", "month", Some(5)),
        ("benefit", "day", None),
    ] {
        let mut rule = json!({ "time_zone": "UTC", "limits": [{ "max": 5, "per": per }] });
        if let Some(days) = days {
            rule["idempotency_days"] = json!(days);
        }
        app.put_policy(policy, rule).await.is(201);
        grants.push(claimed(&archivist, policy, "member-1", Some("old-key")).await);
        claimed(&archivist, policy, "member-1", None).await;
        claimed(&archivist, policy, "member-2", None).await;
    }
    is_sealed(&archivist).await;
    archivist.clock.set(instant(DAY_SIXTEEN));
    for policy in ["sms", "monthly", "benefit"] {
        claimed(&archivist, policy, "member-2", None).await;
    }
    is_sealed(&archivist).await;
    figures_are_made(&archivist).await;
    (archivist, grants)
}

async fn claimed(archivist: &Archivist, policy: &str, subject: &str, key: Option<&str>) -> String {
    let body = json!({ "subject": subject });
    archivist
        .app
        .claim_under(policy, body, key)
        .await
        .grant_id()
}

async fn each_policy_keeps_its_entries_as_long_as_it_needs_them(stack: Stack) {
    let (archivist, grants) = with_weeks(stack).await;
    let app = &archivist.app;
    let dropped = archivist.drop_before(DAY_THREE).await.expect("a drop");
    // The first of member 1's two, of `sms` alone.
    assert_eq!((dropped.entries, dropped.kept, dropped.spared), (1, 8, 2));
    is_sealed(&archivist).await;
    verified(&archivist.ground, None).await.expect("valid");
    let cut = &items(&app.get("/v1/changes?kind=cut").await)[0];
    assert_eq!(cut["after"]["age_days"], 13);
    // 1. Only the policy whose entries are gone says so.
    problem(
        &app.get(&format!("/v1/grants/{}", grants[0])).await,
        410,
        "archived",
    );
    for grant in &grants[1..] {
        app.get(&format!("/v1/grants/{grant}/explanation"))
            .await
            .is(200);
    }
    for list in [
        "/v1/entries",
        "/v1/entries?policy=sms",
        "/v1/grants/export?format=ndjson",
    ] {
        problem(&app.get(list).await, 410, "archived");
    }
    for policy in ["monthly", "benefit"] {
        let list = app.get(&format!("/v1/entries?policy={policy}")).await;
        assert_eq!(items(&list).len(), 4, "{list:?}");
        let export = app
            .get(&format!("/v1/grants/export?format=ndjson&policy={policy}"))
            .await;
        assert_eq!(export.status, 200, "{export:?}");
    }
    // 2. A key is as good as the entry of its grant.
    assert_ne!(
        claimed(&archivist, "sms", "member-1", Some("old-key")).await,
        grants[0]
    );
    assert_eq!(
        claimed(&archivist, "monthly", "member-1", Some("old-key")).await,
        grants[1]
    );
    assert_eq!(
        claimed(&archivist, "benefit", "member-1", Some("old-key")).await,
        grants[2]
    );
    let report = reconciled(app).await;
    assert_eq!(
        (&report["alarm_count"], &report["difference_count"]),
        (&json!(0), &json!(0))
    );
    // 3. A later cut drops what has become old enough. What an earlier one dropped stays explained, also where its
    //    policy needs its entries for longer now.
    let longer = json!({ "idempotency_days": null, "reason": "longer" });
    patched(&archivist, "sms", longer).await.is(200);
    // What was claimed is recorded before the day changes.
    is_sealed(&archivist).await;
    archivist.clock.set(instant("2026-03-01T10:00:00Z"));
    claimed(&archivist, "benefit", "member-9", None).await;
    is_sealed(&archivist).await;
    figures_are_made(&archivist).await;
    let dropped = archivist
        .drop_before("2026-01-25T00:00:00Z")
        .await
        .expect("a drop");
    assert_eq!((dropped.entries, dropped.spared), (2, 2));
    is_sealed(&archivist).await;
    verified(&archivist.ground, None).await.expect("valid");
    problem(&app.get("/v1/entries?policy=sms").await, 410, "archived");
    problem(
        &app.get("/v1/entries?policy=monthly").await,
        410,
        "archived",
    );
    app.get("/v1/entries?policy=benefit").await.is(200);
    assert_eq!(reconciled(app).await["alarm_count"], 0);
    // 4. The same cut drops of each policy what it does not need: of `benefit` and `sms` what is older than 400 days.
    archivist.clock.set(instant("2027-03-01T10:00:00Z"));
    claimed(&archivist, "benefit", "member-9", None).await;
    is_sealed(&archivist).await;
    figures_are_made(&archivist).await;
    let dropped = archivist.drop_before("2027-01-25T00:00:00Z").await;
    let dropped = dropped.expect("a drop");
    // Of the entries of members 1 and 2 the last ones stay. Those of member 9 are younger.
    assert_eq!((dropped.entries, dropped.spared), (4, 2));
    is_sealed(&archivist).await;
    verified(&archivist.ground, None).await.expect("valid");
    for policy in ["sms", "monthly", "benefit"] {
        let list = app.get(&format!("/v1/entries?policy={policy}")).await;
        problem(&list, 410, "archived");
    }
    let list = app.get("/v1/entries?policy=benefit&from=2026-02-01").await;
    assert_eq!(items(&list).len(), 2, "{list:?}");
    let list = app.get("/v1/entries?from=2026-02-01T00:00:00Z").await;
    let problem = problem(&list, 410, "archived");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.ends_with("or from=2027-01-27T00:00:00Z"), "{detail}");
    app.get("/v1/entries?from=2027-01-27T00:00:00Z")
        .await
        .is(200);
    assert_eq!(reconciled(app).await["alarm_count"], 0);
    // The same command again, and one with an earlier date, find nothing more.
    for until in ["2027-01-25T00:00:00Z", "2026-02-01T00:00:00Z"] {
        let again = archivist.drop_before(until).await.expect("a drop");
        assert_eq!(again.entries, 0);
    }
}

async fn patched(archivist: &Archivist, policy: &str, body: Value) -> Answer {
    let path = format!("/v1/policies/{policy}");
    Answer::of(archivist.app.request(Method::PATCH, &path).json(&body)).await
}

async fn nobody_drops_what_a_policy_needs(stack: Stack) {
    let (archivist, _) = with_weeks(stack).await;
    // 1. No policy can lose entries that are younger than its days.
    let refusal = archivist.drop_before("2026-01-17T00:00:00Z").await;
    let refusal = refusal.expect_err("a refusal").to_string();
    assert!(refusal.contains("of sms of the last 5 days"), "{refusal}");
    assert!(refusal.contains("with --drop is 2026-01-15"), "{refusal}");
    assert_eq!(rows(&archivist, "acts WHERE kind = 'cut'").await, 0);
    // 2. The tables refuse a drop by hand of a policy that the cut spares.
    archivist.drop_before(DAY_THREE).await.expect("a drop");
    is_sealed(&archivist).await;
    let note = |policy: &str| {
        format!(
            "INSERT INTO dropped_entries (xact, id, revision, policy)
             SELECT xact, id, (SELECT max(revision) FROM acts WHERE kind = 'cut'), {policy} FROM entries
             WHERE number = 1 AND policy = (SELECT id FROM policies WHERE name = 'benefit')"
        )
    };
    for policy in ["policy", "(SELECT id FROM policies WHERE name = 'sms')"] {
        let mut direct = Direct::to(&archivist.ground).await;
        let refused = direct.try_execute(&note(policy), &note(policy)).await;
        refused.expect_err("the policy needs its entries for 400 days");
    }
    // 3. Who takes the triggers away is found.
    let ground = archivist.ground.clone();
    drop(archivist);
    drop_triggers(&ground, stack).await;
    ground.sql(&note("policy")).await;
    let gone = "DELETE FROM entries WHERE number = 1 AND policy = (SELECT id FROM policies WHERE name = 'benefit')
        AND EXISTS (SELECT 1 FROM dropped_entries AS d WHERE d.id = entries.id)";
    ground.sql(gone).await;
    let found = verified(&ground, None)
        .await
        .expect_err("a fault")
        .to_string();
    assert!(
        found.contains("needs its entries for more than the 13 days"),
        "{found}"
    );
}

async fn a_policy_that_changes_meanwhile_makes_the_cut_again(stack: Stack) {
    let (archivist, _) = with_weeks(stack).await;
    let writing = ledger(&archivist.ground).await;
    let as_of = writing.admin().revision().await.expect("a revision");
    let text = CutText {
        before: instant(DAY_THREE),
        age_days: 13,
        last_position: writing
            .record()
            .mark_before(instant(DAY_THREE))
            .await
            .expect("a mark")
            .position,
        kept_entries: 0,
        origin: "an archive".to_owned(),
        root: "a root".to_owned(),
    };
    let act = act_of(&text, DAY_SIXTEEN);
    let longer = json!({ "idempotency_days": 100, "reason": "longer" });
    patched(&archivist, "sms", longer).await.is(200);
    let day = text.before.date_naive();
    let add = async |as_of| {
        writing
            .record()
            .add_cut(&act, day, as_of)
            .await
            .expect("an answer")
    };
    assert_eq!(add(as_of).await, None);
    assert_eq!(
        writing
            .record()
            .last_cut(RecordPlace::LAST)
            .await
            .expect("a read"),
        None
    );
    // Other changes do not matter.
    archivist.app.override_day("member-1", 9).await;
    assert!(add(as_of + 1).await.is_some());
    writing.close().await;
}

async fn the_days_are_a_setting_of_the_policy(stack: Stack) {
    let (archivist, _) = with_weeks(stack).await;
    let app = &archivist.app;
    let days = async || app.get("/v1/policies/sms").await.is(200)["idempotency_days"].clone();
    assert_eq!(days().await, 5);
    for wrong in [json!(0), json!(3651), json!(-1)] {
        let body = json!({ "idempotency_days": wrong, "reason": "a test" });
        let answer = patched(&archivist, "sms", body).await;
        problem(&answer, 422, "invalid");
        assert!(answer.text.contains("write 1 to 3650 days"), "{answer:?}");
    }
    let said = async |words: &[&str]| Said::by(app, words).await;
    let set = said(&[
        "policy",
        "set",
        "sms",
        "--idempotency-days",
        "30",
        "--reason",
        "a month",
    ])
    .await;
    set.well(0);
    assert_eq!(days().await, 30);
    let shown = said(&["policy", "show", "sms"]).await.well(0);
    assert!(shown.contains("idempotency days  30"), "{shown}");
    said(&[
        "policy",
        "set",
        "sms",
        "--idempotency-days",
        "none",
        "--reason",
        "as usual",
    ])
    .await
    .well(0);
    assert_eq!(days().await, json!(null));
    let fault = said(&[
        "policy",
        "set",
        "sms",
        "--idempotency-days",
        "soon",
        "--reason",
        "x",
    ])
    .await;
    assert_eq!(fault.code, 2, "{fault:?}");
    assert!(fault.stderr.contains("or none"), "{fault:?}");
}
