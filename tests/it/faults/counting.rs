//! Policies whose claims Redis alone decides, always or while the ledger does not answer.

use serde_json::{Value, json};

use super::redis::tamper;
use super::setup::{Setup, by_the_minute, daily};
use super::trial::Trial;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::{Postgres, Redis, postgres};

/// A rule that says something more.
fn with(mut rule: Value, field: &str, value: &str) -> Value {
    rule[field] = json!(value);
    rule
}

/// Three policies: one for the ledger alone, one that Redis decides in an outage, and one that
/// it always decides.
pub fn setup(database_url: String, redis: &Redis) -> Setup {
    let mut setup = Setup::plain(database_url, redis.url());
    // While the ledger is down clients should not wait long for what it alone decides.
    setup.set("PERDIEM_CLAIM_DEADLINE_MS", "700");
    setup.policies = vec![
        ("benefit", daily()),
        ("sms", with(by_the_minute(), "on_ledger_outage", "count")),
        ("clicks", with(daily(), "durability", "counted")),
    ];
    setup
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_decides_while_the_ledger_is_down() {
    let (mut postgres, redis) = (Postgres::start(), Redis::start());
    let setup = setup(postgres.create_database(), &redis);
    let mut trial = Trial::begin("redis_decides_while_the_ledger_is_down", setup).await;
    for _ in 0..2 {
        postgres.kill();
        trial.mark("PostgreSQL dies");
        trial.everybody_grants(15).await;
        trial.pause(0, 1000).await;
        postgres.restart();
        trial.mark("it is back");
        trial.everybody_grants(15).await;
    }
    trial.end().await;
}

/// Nothing is lost that a Redis with a log counted, whichever instance dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_and_redis_die_while_it_counts() {
    let mut redis = Redis::start_with(&["--appendonly", "yes"]);
    let setup = setup(postgres().create_database(), &redis);
    let mut trial = Trial::begin("instances_and_redis_die_while_it_counts", setup).await;
    for _ in 0..4 {
        let victim = trial.dice.below(2);
        trial.instances[victim].process.kill();
        trial.mark("an instance dies");
        trial.pause(0, 300).await;
        if trial.dice.percent(50) {
            redis.kill();
            trial.mark("Redis dies, too");
            trial.pause(0, 500).await;
            redis.restart();
        }
        trial.instances[victim].start_again(&[]);
        trial.grants(30).await;
    }
    assert!(trial.provisional_grants() > 0);
    trial.mark("all are back");
    trial.everybody_grants(20).await;
    trial.end().await;
}

/// Counters are no truth where Redis decides, either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_are_tampered_with_while_redis_counts() {
    let redis = Redis::start();
    let setup = setup(postgres().create_database(), &redis);
    let mut trial = Trial::begin("counters_are_tampered_with_while_redis_counts", setup).await;
    trial.mark("tampering begins");
    for _ in 0..6 {
        tamper(&redis, &mut trial.dice);
        trial.everybody_grants(8).await;
        trial.pause(0, 200).await;
    }
    trial.mark("tampering ends");
    trial.everybody_grants(20).await;
    trial.end().await;
}

/// An instance aborts at each step of counting, and of recording what was counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_aborts_at_each_step_of_counting() {
    let redis = Redis::start();
    let setup = setup(postgres().create_database(), &redis);
    let mut trial = Trial::begin("an_instance_aborts_at_each_step_of_counting", setup).await;
    trial.instances[0].process.kill();
    for step in [
        "count.begun",
        "count.ended",
        "drain.begun",
        "drain.appended",
    ] {
        trial.aborts_at(0, step, 10).await;
    }
    trial.instances[0].start_again(&[]);
    trial.mark("it is back");
    trial.everybody_grants(20).await;
    trial.end().await;
}

/// Replies of the ledger are lost: what it may hold already is counted under the same id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_the_ledger_are_lost_while_redis_counts() {
    let redis = Redis::start();
    let ledger = Proxy::before(postgres().port()).await;
    let mut setup = setup(postgres().create_database(), &redis);
    for place in &mut setup.places {
        place.database_url = ledger.url(&place.database_url);
    }
    let name = "replies_of_the_ledger_are_lost_while_redis_counts";
    let mut trial = Trial::begin(name, setup).await;
    for mode in [
        Mode::HangUp { every: 12 },
        Mode::Swallow,
        Mode::HangUp { every: 8 },
        Mode::Hold,
    ] {
        ledger.set(mode);
        trial.mark(&format!("{mode:?}"));
        trial.everybody_grants(20).await;
        trial.pause(0, 800).await;
        ledger.set(Mode::Pass);
        trial.mark("the way is free");
        trial.everybody_grants(20).await;
    }
    trial.end().await;
}

/// Redis loses what it counted while the ledger was down: that may be gone, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_die_while_redis_counts() {
    let (mut postgres, mut redis) = (Postgres::start(), Redis::start());
    let setup = setup(postgres.create_database(), &redis);
    let trial = Trial::begin("both_die_while_redis_counts", setup).await;
    postgres.kill();
    trial.mark("PostgreSQL dies");
    trial.everybody_grants(15).await;
    redis.kill();
    trial.redis_lost_data();
    redis.restart();
    trial.mark("Redis dies, and is back, empty");
    trial.everybody_grants(20).await;
    postgres.restart();
    trial.mark("PostgreSQL is back");
    trial.everybody_grants(20).await;
    trial.end().await;
}
