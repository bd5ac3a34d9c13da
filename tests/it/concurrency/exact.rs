//! Clients get exactly the limit, and a denied claim costs nothing.

use chrono::TimeDelta;
use serde_json::json;

use crate::judge::{Outcome, Wish};
use crate::support::app::{NOON, Stack, instant, on_every_stack, on_every_way};
use crate::support::crowd::Fleet;

on_every_stack!(fifty_grants_for_sixty_four_clients, denials_cost_nothing);
on_every_way!(many_subjects_at_once, units_fill_a_limit_exactly);

const SUBJECT: &str = "member-42";

/// 64 clients, four claims each, on one subject with a limit of 50.
async fn fifty_grants_for_sixty_four_clients(stack: Stack) {
    let fleet = Fleet::with_max(stack, 50).await;
    let told = fleet.claim_all(64, |_| vec![Wish::of(SUBJECT); 4]).await;
    assert_eq!(told, [50, 0, 64 * 4 - 50]);
    fleet.finds_nothing().await;
}

/// Many accounts share each batch. A claim that loses in a batch must not affect the other claims.
async fn many_subjects_at_once(stack: Stack) {
    let fleet = Fleet::with_max(stack, 3).await;
    let claims = |client: usize| {
        let subjects = (0..20).map(|turn| (turn + client * 7) % 20);
        subjects
            .map(|subject| Wish::of(&format!("member-{subject}")))
            .collect()
    };
    let told = fleet.claim_all(64, claims).await;
    assert_eq!(told, [60, 0, 64 * 20 - 60]);
    fleet.finds_nothing().await;
}

/// Claims of 1 to 5 units at the same time. Every claim that fits is granted: at the end not even
/// one unit fits.
async fn units_fill_a_limit_exactly(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    let limits = json!([{ "max": 60, "per": "hour" }, { "max": 70, "per": "day" }]);
    fleet.put("Asia/Kolkata", limits).await;
    // The next hour has room for 60, the day for 10.
    for all in [60, 60 + 10] {
        let claims = [5, 4, 3, 2, 1, 1].map(|units| Wish::of(SUBJECT).units(units));
        fleet.claim_all(32, |_| claims.to_vec()).await;
        let stores = fleet.finds_nothing().await;
        let granted = stores.entries.iter().map(|entry| entry.units);
        assert_eq!(granted.sum::<u64>(), all);
        fleet.clock.advance(TimeDelta::hours(1));
    }
}

async fn denials_cost_nothing(stack: Stack) {
    let fleet = Fleet::with_max(stack, 2).await;
    let granted = fleet.claim_all(2, |_| vec![Wish::of(SUBJECT)]).await;
    assert_eq!(granted, [2, 0, 0]);
    let before = fleet.finds_nothing().await;
    let claims = (0..32).map(|client| Wish {
        has_key: client % 2 == 0,
        ..Wish::of(SUBJECT)
    });
    let claims = fleet.wishes(claims);
    let denied = fleet.send_all(32, |client| vec![claims[client]]).await;
    assert_eq!(denied, [0, 0, 32]);
    assert_eq!(fleet.finds_nothing().await.entries, before.entries);
    // A denied claim is not counted: the raise leaves exactly the room that it says.
    let limits = json!([{ "max": 4, "per": "day" }]);
    fleet.put("GMT+8", limits).await;
    for client in [0, 1] {
        // A denial is not remembered: the same key may be granted later.
        let outcome = fleet.send(client, claims[client * 2]).await;
        assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
    }
    assert_eq!(fleet.drain(2, SUBJECT).await, 0);
    fleet.finds_nothing().await;
}
