//! More claims than an instance accepts.

use futures_util::future::join_all;

use crate::http::problem;
use crate::support::app::{App, Ground, Stack, eventually};
use crate::support::servers::Postgres;

/// The ledger hangs. The claims that wait take all places of their key. The next claim gets 503 at
/// once. The claims that wait are decided when the ledger continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_what_it_takes_on_the_answer_is_503() {
    let postgres = Postgres::start();
    let mut ground = Ground::new(Stack::Sqlite);
    ground.database_url = postgres.create_database();
    let app = App::start_with(&ground, |options| options.claims_most = 8).await;
    app.benefit(100, "UTC").await;
    postgres.pause();
    let waiting = async {
        let subjects = ["member-1", "member-2", "member-3", "member-4"];
        join_all(subjects.map(|subject| app.claim(subject, None))).await
    };
    let one_too_many = async {
        eventually("the key has no free place", || async {
            let metrics = app.get("/metrics").await.text;
            metrics.contains("\nperdiem_claims_under_way 4\n")
        })
        .await;
        let answer = app.claim("member-5", None).await;
        postgres.resume();
        answer
    };
    let (waited, refused) = tokio::join!(waiting, one_too_many);
    problem(&refused, 503, "undecided");
    assert_eq!(refused.header("Retry-After"), Some("1"));
    for answer in waited {
        answer.is(201);
    }
}
