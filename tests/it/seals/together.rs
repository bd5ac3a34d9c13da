//! Several instances seal one ledger at the same time.

use perdiem::domain::seal::note::Checkpoint;
use perdiem::engine::SealTarget;
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{all_is_sealed, all_is_well, sealing, verified};
use crate::support::app::{App, Ground, Stack, eventually};

/// SQLite has one instance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_make_one_log() {
    let ground = Ground::new(Stack::Postgres);
    let outside = TempDir::new().expect("a folder");
    let mut apps = Vec::new();
    for _ in 0..3 {
        let target = SealTarget::Folder(outside.path().to_owned());
        let app = App::start_with(&ground, |options| {
            sealing(options);
            options.seal_to = Some(target);
        });
        apps.push(app.await);
    }
    apps[0].benefit(1000, "UTC").await;
    let mut claims = JoinSet::new();
    for round in 0..12 {
        for (index, app) in apps.iter().enumerate() {
            let claim = |n| json!({ "policy": "benefit", "subject": format!("m-{index}-{n}") });
            let body = json!({ "claims": (0..100).map(claim).collect::<Vec<_>>() });
            let request = app.request(Method::POST, "/v1/claims").json(&body);
            claims.spawn(async move { request.send().await.expect("an answer").status() });
        }
        // The sealers find some entries while more are recorded.
        if round % 4 == 3 {
            eventually("some entries are sealed", || async {
                let latest = apps[0].get("/v1/seals/latest").await;
                latest.status == 200 && latest.json()["size"].as_u64() > Some(200 * round)
            })
            .await;
        }
    }
    while let Some(status) = claims.join_next().await {
        assert_eq!(status.expect("a status"), 200);
    }
    let seal = all_is_sealed(&apps[1], &ground).await;
    assert!(seal.size > 3600, "{}", seal.size);
    for app in &apps {
        all_is_well(app).await;
    }
    eventually("the newest seal is copied outside", || async {
        let note = std::fs::read_to_string(outside.path().join("checkpoint"));
        note.is_ok_and(|note| Checkpoint::parse(&note).expect("a whole note") == seal)
    })
    .await;
    drop(apps);
    let well = verified(&ground, Some(seal.clone()))
        .await
        .expect("nothing differs");
    assert_eq!((well.sealed, well.unsealed), (seal.size, 0));
    assert!(well.seals > 1);
}
