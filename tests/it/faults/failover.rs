//! Redis with Sentinel and as a Cluster: primaries fail over or lag, two primaries exist, and slots
//! move.

use super::setup::Setup;
use super::trial::Trial;
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis_groups::{Cluster, Watched};
use crate::support::servers::{Redis, postgres};

/// The primary dies while its replica lags. Sentinel promotes the replica, whose counters are old.
/// Later Redis fails over back. No instance is restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_promotes_a_lagging_replica() {
    let primary = Redis::start();
    let replication = Proxy::before(primary.port()).await;
    let mut watched = Watched::start(primary, replication.port);
    let setup = Setup::plain(postgres().create_database(), watched.url());
    let mut trial = Trial::begin("sentinel_promotes_a_lagging_replica", setup).await;
    replication.set(Mode::Hold);
    trial.mark("replication is cut");
    trial.everybody_grants(50).await;
    watched.servers[0].kill();
    trial.mark("the primary dies");
    watched.wait_for_primary(1);
    trial.mark("the lagging replica is the primary");
    trial.everybody_grants(30).await;
    // An instance reports no trouble only after Redis works again. Until then the ledger decides
    // alone.
    trial.everybody_is_untroubled().await;
    trial.mark("both instances use it");
    trial.everybody_grants(30).await;
    replication.set(Mode::Pass);
    watched.servers[0].restart();
    watched.fail_over_to(0);
    trial.mark("it failed over back again");
    trial.everybody_grants(30).await;
    trial.everybody_is_untroubled().await;
    trial.counters_are_in(vec![watched.servers[0].url()]);
    trial.end().await;
}

/// The primary stops, and wakes up after its replica was promoted. For some time two servers act as
/// the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_wakes_up() {
    let primary = Redis::start();
    let port = primary.port();
    let watched = Watched::start(primary, port);
    let setup = Setup::plain(postgres().create_database(), watched.url());
    let mut trial = Trial::begin("an_old_primary_wakes_up", setup).await;
    watched.servers[0].pause();
    trial.mark("the primary stops");
    watched.wait_for_primary(1);
    trial.mark("the replica is the primary");
    trial.everybody_grants(20).await;
    watched.servers[0].resume();
    trial.mark("the old primary wakes up");
    trial.everybody_grants(60).await;
    trial.everybody_is_untroubled().await;
    trial.counters_are_in(vec![watched.servers[1].url()]);
    trial.end().await;
}

/// The network splits. One side has an instance and the old primary, the other side has an instance
/// and the promoted replica. Then both instances use the new primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_primaries_with_an_instance_each() {
    let one = Redis::start();
    let other = Redis::start_with(&["--replicaof", "127.0.0.1", &one.port().to_string()]);
    let ways = [
        Proxy::before(one.port()).await,
        Proxy::before(one.port()).await,
    ];
    let mut setup = Setup::plain(postgres().create_database(), other.url());
    for (place, way) in setup.places.iter_mut().zip(&ways) {
        place.redis_url = Some(format!("redis://127.0.0.1:{}", way.port));
    }
    let trial = Trial::begin("two_primaries_with_an_instance_each", setup).await;
    other.command::<()>(&["REPLICAOF", "NO", "ONE"]);
    ways[1].set(Mode::Refuse);
    ways[1].lead_to(other.port());
    ways[1].set(Mode::Pass);
    trial.mark("there are two primaries");
    trial.everybody_is_untroubled().await;
    trial.everybody_grants(80).await;
    one.command::<()>(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    trial.mark("one of them is a replica");
    trial.everybody_grants(20).await;
    ways[0].set(Mode::Refuse);
    ways[0].lead_to(other.port());
    ways[0].set(Mode::Pass);
    trial.mark("both instances are at the other");
    trial.everybody_is_untroubled().await;
    trial.everybody_grants(30).await;
    trial.end().await;
}

/// A primary of a Redis Cluster dies, and its replica replaces it. Later the old primary comes
/// back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_of_a_cluster_dies() {
    let mut cluster = Cluster::start();
    let setup = Setup::plain(postgres().create_database(), cluster.url());
    let mut trial = Trial::begin("a_primary_of_a_cluster_dies", setup).await;
    let primaries = cluster.primaries();
    let victim = primaries[trial.dice.below(primaries.len())];
    cluster.nodes[victim].kill();
    trial.mark("a primary dies");
    trial
        .until("the replica replaces the primary", || {
            cluster.primaries().len() == primaries.len() && cluster.is_whole()
        })
        .await;
    trial.mark("its replica took its place");
    trial.everybody_grants(30).await;
    trial.everybody_is_untroubled().await;
    trial.mark("both instances use all shards");
    cluster.nodes[victim].restart();
    trial
        .until("the cluster serves every slot", || cluster.is_whole())
        .await;
    trial.mark("it is back, as a replica");
    trial.everybody_grants(30).await;
    trial.counters_are_in(cluster.urls_of_primaries());
    trial.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_of_a_cluster_move() {
    let cluster = Cluster::start();
    let setup = Setup::plain(postgres().create_database(), cluster.url());
    let mut trial = Trial::begin("slots_of_a_cluster_move", setup).await;
    trial.everybody_grants(40).await;
    let primaries = cluster.primaries();
    trial.mark("slots move");
    for round in 0..3 {
        cluster.move_slots(primaries[round], primaries[(round + 1) % 3], 700);
        trial.everybody_grants(10).await;
    }
    trial.mark("they have moved");
    trial
        .until("the cluster serves every slot", || cluster.is_whole())
        .await;
    trial.everybody_grants(30).await;
    trial.everybody_is_untroubled().await;
    trial.counters_are_in(cluster.urls_of_primaries());
    trial.end().await;
}
