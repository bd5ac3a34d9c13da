//! Atomic batches that share an account, as "per user and per organisation" does.

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::judge::{Outcome, Wish};
use crate::support::app::{Answer, Stack, on_every_stack};
use crate::support::crowd::Fleet;

on_every_stack!(an_organisation_gets_exactly_its_limit);

const ORGANISATION: &str = "organisation";
const CLIENTS: usize = 96;
const MAX: usize = 50;

/// Each client claims twice, for itself and for the organisation. All batches race for the organisation's units.
async fn an_organisation_gets_exactly_its_limit(stack: Stack) {
    let fleet = Fleet::with_max(stack, MAX).await;
    let granted = join_all((0..CLIENTS).map(|client| claim_twice(&fleet, client))).await;
    assert_eq!(granted.into_iter().sum::<usize>(), MAX);
    let stores = fleet.finds_nothing().await;
    assert_eq!(stores.entries.len(), 2 * MAX);
}

/// How many of two batches of a client are granted.
async fn claim_twice(fleet: &Fleet, client: usize) -> usize {
    let mut granted = 0;
    for _ in 0..2 {
        granted += usize::from(claim_together(fleet, client).await);
    }
    granted
}

/// Whether a batch is granted.
async fn claim_together(fleet: &Fleet, client: usize) -> bool {
    let member = Wish::of(&format!("member-{client}"));
    let wishes = fleet.wishes([member, Wish::of(ORGANISATION)]);
    let claims = wishes.iter().map(|wish| {
        let mut claim = fleet.history().wishes[*wish].body(*wish);
        claim["policy"] = json!("benefit");
        claim
    });
    let body = json!({ "claims": claims.collect::<Vec<Value>>(), "atomic": true });
    let began = fleet.time();
    let app = fleet.app(client);
    let answer = Answer::of(app.request(Method::POST, "/v1/claims").json(&body)).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let items = answer.json()["items"].as_array().expect("items").clone();
    let status = |item: &Value| item["status"].as_u64().expect("a status") as u16;
    let granted = items.iter().filter(|item| status(item) == 201).count();
    assert!(granted == 0 || granted == 2, "{answer:?}");
    for (item, wish) in items.iter().zip(wishes) {
        let status = StatusCode::from_u16(status(item)).expect("a status");
        fleet.note(client, wish, began, Outcome::of(status, &item.to_string()));
    }
    granted == 2
}
