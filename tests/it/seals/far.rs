//! A ledger whose database is far away is sealed and counted, although each statement waits.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use super::{all_is_sealed, sealing, verified};
use crate::http::items;
use crate::record::all_is_recorded;
use crate::support::app::{App, Ground, Stack, eventually};
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::postgres;

/// A follower that reads and writes mark by mark, or rests because the database is slow, needs
/// minutes for these entries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_done_in_large_steps() {
    let ground = Ground::new(Stack::Postgres);
    let app = App::start(&ground).await;
    app.benefit(1000, "UTC").await;
    // The figures of these entries are made in several batches. Each subject claims in two rounds.
    for round in 0..20 {
        let subject = |n| format!("m-{}-{}", round / 2, n % 600);
        let claim = |n| json!({ "policy": "benefit", "subject": subject(n) });
        let body = json!({ "claims": (0..1000).map(claim).collect::<Vec<_>>() });
        let claims = app.request(Method::POST, "/v1/claims").json(&body).send();
        assert_eq!(claims.await.expect("an answer").status(), 200);
    }
    let all = all_is_recorded(&app, &ground).await;
    drop(app);
    ground.make_figures_again().await;
    let proxy = Proxy::before(postgres().port()).await;
    proxy.set(Mode::Late(Duration::from_millis(50)));
    let mut far = ground.clone();
    far.database_url = proxy.url(&ground.database_url);
    let app = App::start_with(&far, sealing).await;
    let seal = all_is_sealed(&app, &ground).await;
    assert_eq!(seal.size, all);
    eventually("all is counted", || async {
        app.get("/v1/stats?policy=benefit").await.json()["as_of"] == all
    })
    .await;
    let sum = async |path: &str, figure: &str| -> u64 {
        let rows = items(&app.get(path).await);
        let figures = rows.iter().map(|row| row[figure].as_u64());
        figures.map(Option::unwrap_or_default).sum()
    };
    assert_eq!(sum("/v1/stats", "grants").await, 20_000);
    assert_eq!(sum("/v1/stats", "subjects").await, 6_000);
    assert_eq!(sum("/v1/stats/quarters", "units").await, 20_000);
    verified(&ground, Some(seal))
        .await
        .expect("nothing differs");
}
