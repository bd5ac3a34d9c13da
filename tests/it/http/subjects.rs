//! Subjects that look like other subjects: no request can write them, and those that a ledger has can
//! be read, corrected and erased.

use perdiem::host::clock::ManualClock;
use reqwest::Method;
use serde_json::{Value, json};

use super::{CLAIMS, encoded, invalid_parts, items};
use crate::support::app::{Answer, App, Ground, NOON, Stack, instant};
use crate::support::desk::{Desk, on_every_store};

/// Each with words of the hint.
const LOOK_ALIKE: [(&str, &str); 9] = [
    ("ann\u{202e}", "U+202E"),
    ("a\u{200b}nn", "U+200B"),
    ("ann\u{fe0f}", "U+FE0F"),
    ("a\u{ad}nn", "send an id"),
    ("ann\u{2028}lee", "plain space"),
    ("ann\u{a0}lee", "U+00A0"),
    (" ann", "begins or ends with a blank"),
    ("ann\u{3000}", "begins or ends with a blank"),
    ("Zoe\u{308}", "NFC"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_double_of_a_subject_is_refused_with_a_hint() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "UTC").await;
    let told = |answer: &Answer, place: &str, hint: &str| {
        let [(found, detail)] = &invalid_parts(answer)[..] else {
            panic!("one fault: {answer:?}");
        };
        assert_eq!(found, place);
        assert!(detail.contains(hint), "{hint}: {detail}");
    };
    for (subject, hint) in LOOK_ALIKE {
        let claim = app.claim(subject, None).await;
        told(&claim, "#/subject", hint);
        let rehearsal = app.claim_body(json!({ "subject": subject, "dry_run": true }), None);
        told(&rehearsal.await, "#/subject", hint);
        let claims = json!({ "claims": [{ "policy": "benefit", "subject": subject }] });
        let batch = app.ask("POST /v1/claims", claims).await.is(200);
        assert_eq!(batch["items"][0]["status"], 422, "{batch}");
        let path = format!("/v1/policies/benefit/overrides/{}", encoded(subject));
        let limits = json!({ "limits": [{ "max": 9, "per": "day" }] });
        told(
            &app.ask(&format!("PUT {path}"), limits).await,
            "subject",
            hint,
        );
        let adjustment = json!({ "units": 1, "reason": "a test" });
        told(
            &app.adjust(&encoded(subject), adjustment, None).await,
            "subject",
            hint,
        );
    }
    assert_eq!(items(&app.get("/v1/grants").await), Vec::<Value>::new());
}

on_every_store!(subjects_that_are_refused_now_stay_readable);

/// The ledger has grants of subjects that new claims cannot have.
async fn subjects_that_are_refused_now_stay_readable(stack: Stack) {
    let ground = Ground::new(stack);
    let desk = Desk::on(ground.clone()).await;
    for (subject, _) in LOOK_ALIKE {
        desk.append(desk.draft(subject, None, 1)).await;
    }
    drop(desk);
    let app = App::start_at(&ground, &ManualClock::at(instant(NOON))).await;
    for (subject, _) in LOOK_ALIKE {
        let name = encoded(subject);
        let grants = items(&app.get(&format!("/v1/grants?subject={name}")).await);
        assert_eq!(grants.len(), 1, "{subject:?}");
        assert_eq!(grants[0]["subject"], subject);
        let account = format!("/v1/policies/benefit/subjects/{name}");
        let usage = app.get(&account).await.is(200);
        assert_eq!(usage["limits"][1]["used"], 1, "{subject:?}: {usage}");
        let entries = items(&app.get(&format!("{account}/entries")).await);
        assert_eq!(entries.len(), 1, "{subject:?}");
        app.get(&format!("{account}/denials")).await.is(200);
        app.get(&format!("/v1/changes?subject={name}"))
            .await
            .is(200);
        app.get(&format!("/v1/entries?subject={name}"))
            .await
            .is(200);
        let id = grants[0]["id"].as_str().expect("an id");
        app.reverse(id, "a test").await.is(201);
        let erasure = format!("/v1/subjects/{name}/erasure");
        let erased = app.request(Method::POST, &erasure);
        let erased = Answer::of(erased.json(&json!({ "reason": "a test" }))).await;
        assert!(erased.status.is_success(), "{subject:?}: {erased:?}");
        let left = items(&app.get(&format!("/v1/grants?subject={name}")).await);
        assert!(left.is_empty(), "{subject:?}: {left:?}");
    }
    // The audit recomputes the account of each subject that is left.
    app.benefit(3, "UTC").await;
    app.claim("ann", None).await.is(201);
    assert_eq!(CLAIMS, "/v1/policies/benefit/claims");
}
