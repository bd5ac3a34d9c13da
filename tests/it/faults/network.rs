//! The network between an instance and its stores breaks. The other instance has its own way.

use super::setup::Setup;
use super::trial::Trial;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::{Redis, postgres};

/// Two instances on one ledger and one Redis, the first of which goes by proxies.
struct Crossing {
    redis: Redis,
    to_redis: Proxy,
    to_ledger: Proxy,
}

impl Crossing {
    async fn begin(name: &'static str) -> (Self, Trial) {
        let redis = Redis::start();
        let to_redis = Proxy::before(redis.port()).await;
        let to_ledger = Proxy::before(postgres().port()).await;
        let mut setup = Setup::plain(postgres().create_database(), redis.url());
        let place = &mut setup.places[0];
        place.redis_url = Some(format!("redis://127.0.0.1:{}", to_redis.port));
        place.database_url = to_ledger.url(&place.database_url);
        let trial = Trial::begin(name, setup).await;
        let crossing = Self {
            redis,
            to_redis,
            to_ledger,
        };
        (crossing, trial)
    }
}

/// Redis is cut from one instance only, in every way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_is_cut_from_one_instance() {
    let (crossing, mut trial) = Crossing::begin("redis_is_cut_from_one_instance").await;
    for (mode, what) in [
        (Mode::Refuse, "Redis refuses"),
        (Mode::Hold, "Redis is held"),
        (Mode::Swallow, "replies are dropped"),
        (Mode::HangUp { every: 4 }, "every fourth reply is cut"),
    ] {
        crossing.to_redis.set(mode);
        trial.mark(what);
        trial.everybody_grants(30).await;
        trial.pause(300, 1000).await;
        crossing.to_redis.set(Mode::Pass);
        trial.mark("the way is free");
        trial.everybody_grants(15).await;
    }
    let stays: String = crossing.redis.command(&["PING"]);
    assert_eq!(stays, "PONG");
    trial.end().await;
}

/// The reply to a commit, or to whatever else one instance asks the ledger, is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_the_ledger_are_lost() {
    let (crossing, trial) = Crossing::begin("replies_of_the_ledger_are_lost").await;
    for every in [20, 10, 6] {
        crossing.to_ledger.set(Mode::HangUp { every });
        trial.mark("replies are lost, and their connections");
        trial.everybody_grants(40).await;
    }
    crossing.to_ledger.set(Mode::Pass);
    trial.mark("the way is free");
    assert!(
        crossing.to_ledger.cuts() > 10,
        "{}",
        crossing.to_ledger.cuts()
    );
    trial.everybody_grants(20).await;
    trial.end().await;
}

/// The ledger is cut from one instance only, in every way, for longer than the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_is_cut_from_one_instance() {
    let (crossing, mut trial) = Crossing::begin("the_ledger_is_cut_from_one_instance").await;
    for (mode, what) in [
        (Mode::Refuse, "the ledger refuses"),
        (Mode::Hold, "the ledger is held"),
        (Mode::Swallow, "replies are dropped"),
    ] {
        crossing.to_ledger.set(mode);
        trial.mark(what);
        trial.instance_grants(1, 20).await;
        trial.pause(2500, 3000).await;
        crossing.to_ledger.set(Mode::Pass);
        trial.mark("the way is free");
        trial.everybody_grants(15).await;
    }
    trial.end().await;
}

/// Those who are connected wait for ever, as for a machine that lost its power; whoever
/// connects anew is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_connections_are_stranded() {
    let (crossing, trial) = Crossing::begin("old_connections_are_stranded").await;
    crossing.to_redis.strand();
    trial.mark("connections to Redis are stranded");
    trial.everybody_grants(20).await;
    crossing.to_ledger.strand();
    trial.mark("connections to the ledger are stranded");
    trial.everybody_grants(20).await;
    trial.end().await;
}
