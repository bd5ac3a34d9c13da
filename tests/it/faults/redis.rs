//! Redis dies, stops, forgets, errs and fills up. The ledger decides meanwhile.

use super::trial::{Setup, Trial};
use crate::support::servers::{Redis, postgres};

fn setup(redis: &Redis) -> Setup {
    Setup::plain(postgres().create_database(), redis.url())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_dies_and_comes_back_empty() {
    let mut redis = Redis::start();
    let mut trial = Trial::begin("redis_dies_and_comes_back_empty", setup(&redis)).await;
    trial.mark("Redis dies");
    redis.kill();
    trial.everybody_grants(40).await;
    trial.pause(0, 500).await;
    redis.restart();
    trial.mark("it is back, empty");
    trial.everybody_grants(40).await;
    trial.end().await;
}
