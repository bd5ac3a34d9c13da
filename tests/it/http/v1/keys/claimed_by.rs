//! Each entry has the number of the key that made the entry.

use perdiem::domain::key::KeyNumber;
use serde_json::{Value, json};

use super::make_role;
use crate::support::app::{App, Ground, Stack, on_every_store_with_redis};
use crate::support::books::Books;

on_every_store_with_redis!(entries_tell_which_key_made_them);

async fn entries_tell_which_key_made_them(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    let books = Books::open(&ground).await;
    make_role(&app, "audit", None).await;
    let shop = make_role(&app, "claim", None).await;
    let send = async |path: &str, body: Value| {
        let answer = app
            .ask_as(&shop.secret, &format!("POST {path}"), body)
            .await;
        assert!(answer.status.is_success(), "{answer:?}");
        answer
    };
    for durability in ["recorded", "counted"] {
        let policy = json!({
            "time_zone": "GMT+8",
            "limits": [{ "max": 9, "per": "day" }],
            "durability": durability,
            "reason": "a test",
        });
        app.put_policy("benefit", policy).await;
        // The shop's key claims, claims in a batch and reverses. The key of the settings claims and
        // adjusts.
        let subject = json!({ "subject": durability });
        let claimed = send("/v1/policies/benefit/claims", subject.clone()).await;
        let batch = json!({ "claims": [{ "policy": "benefit", "subject": durability }] });
        send("/v1/claims", batch).await;
        app.claim_body(subject, None).await;
        books.has_recorded(durability, 3).await;
        let path = format!("/v1/grants/{}/reversal", claimed.grant_id());
        send(&path, json!({ "reason": "a test" })).await;
        let body = json!({ "units": 1, "reason": "a test" });
        let adjusted = app.adjust(durability, body, None).await;
        assert_eq!(adjusted.status, 201, "{adjusted:?}");

        let account = books.account_of(durability);
        let entries = books.entries().await.remove(&account);
        let entries = entries.expect("entries").into_iter();
        let mut numbers: Vec<u32> = entries
            .map(|entry| entry.claimed_by.map(|KeyNumber(number)| number))
            .collect::<Option<_>>()
            .expect("keys");
        // The queue in Redis does not order the grants of one instant.
        numbers[..3].sort_unstable();
        assert_eq!(numbers, [0, 2, 2, 2, 0]);
    }
}
