//! An instance dies, stops, or is asked to end.

use super::trial::{Setup, Trial};
use crate::support::servers::{Redis, postgres};

/// `kill -9` at random, twenty times, at either instance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_is_killed_twenty_times() {
    let redis = Redis::start();
    let setup = Setup::plain(postgres().create_database(), redis.url());
    let mut trial = Trial::begin("an_instance_is_killed_twenty_times", setup).await;
    for round in 1..=20 {
        trial.pause(0, 400).await;
        let victim = trial.dice.below(2);
        if round == 1 {
            trial.mark("an instance dies");
        }
        trial.instances[victim].process.kill();
        trial.pause(0, 200).await;
        trial.instances[victim].start_again(&[]);
    }
    trial.mark("the last is back");
    trial.everybody_grants(20).await;
    trial.end().await;
}
