//! PostgreSQL loses its connections, has a full disk, or fails over. Nothing is decided during that
//! time.

use super::setup::Setup;
use super::trial::Trial;
use crate::support::disk::Disk;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::{Postgres, Redis, postgres};

/// The name in a database's URL.
fn name_of(database_url: &str) -> String {
    let name = database_url.rsplit('/').next();
    name.expect("a name").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_are_terminated() {
    let redis = Redis::start();
    let name = "all_connections_are_terminated";
    connections_are_terminated(name, Some(redis.url()), 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_are_terminated_without_redis() {
    let name = "all_connections_are_terminated_without_redis";
    connections_are_terminated(name, None, 20).await;
}

async fn connections_are_terminated(name: &'static str, redis_url: Option<String>, times: u32) {
    let database_url = postgres().create_database();
    let database = name_of(&database_url);
    let setup = Setup::of(2, database_url, redis_url);
    let trial = Trial::begin(name, setup).await;
    let mut cut = 0;
    // First all connections. Then, several times, only the connections of claims, mostly during a
    // claim.
    for (condition, times) in [("", 6), ("AND query LIKE '%entries%'", times)] {
        let sql = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = '{database}' AND application_name = 'perdiem' {condition}"
        );
        for _ in 0..times {
            let count = postgres().execute(&database, &sql);
            cut += count.parse::<usize>().expect("a number");
            trial.mark("connections are terminated");
            trial.grants(6).await;
        }
        trial.everybody_grants(10).await;
    }
    assert!(cut > 20, "only {cut} connections were cut");
    trial.judge().await.tells_one_story().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_of_the_ledger_is_full() {
    let Some(disk) = Disk::mount(160) else { return };
    let mut postgres = Postgres::start_in(disk.folder());
    let redis = Redis::start();
    let setup = Setup::plain(postgres.create_database(), redis.url());
    let mut trial = Trial::begin("the_disk_of_the_ledger_is_full", setup).await;
    for _ in 0..2 {
        disk.fill();
        trial.mark("the disk is full");
        trial.pause(3000, 4000).await;
        disk.empty();
        // PostgreSQL exits when its log has no space. A supervisor starts it again.
        if !postgres.answers() {
            postgres.restart();
        }
        trial.mark("there is room");
        trial.everybody_grants(40).await;
    }
    trial.end().await;
}

/// The primary dies, and its synchronous standby becomes the primary, behind the same address. It has every answered
/// grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_fails_over() {
    fails_over("the_ledger_fails_over", Failover::SameAddress).await;
}

/// The same, where the URL names both hosts, the standby first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_fails_over_to_another_host() {
    fails_over("the_ledger_fails_over_to_another_host", Failover::OtherHost).await;
}

/// The same, where nothing more comes from the host of the primary: no answer, and no refusal. Two servers take
/// writes then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledgers_host_falls_silent() {
    fails_over("the_ledgers_host_falls_silent", Failover::Silence).await;
}

/// How a primary is lost.
#[derive(Clone, Copy, PartialEq)]
enum Failover {
    SameAddress,
    OtherHost,
    Silence,
}

async fn fails_over(name: &'static str, how: Failover) {
    let mut primary = Postgres::start();
    let redis = Redis::start();
    let database_url = primary.create_database();
    let standby = primary.start_standby();
    for sql in [
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
        "SELECT pg_reload_conf()",
    ] {
        primary.execute("postgres", sql);
    }
    let proxy = Proxy::before(primary.port()).await;
    let database = name_of(&database_url);
    let url = match how {
        Failover::SameAddress => proxy.url(&database_url),
        Failover::OtherHost => standby.url_or(primary.port(), &database),
        Failover::Silence => standby.url_or(proxy.port, &database),
    };
    let mut setup = Setup::plain(url, redis.url());
    setup.database_url = standby.url(&database);
    let mut trial = Trial::begin(name, setup).await;
    let is_synchronous = || {
        let sql = "SELECT sync_state FROM pg_stat_replication";
        primary.execute("postgres", sql) == "sync"
    };
    trial
        .until("the standby is synchronous", is_synchronous)
        .await;
    trial.everybody_grants(40).await;
    trial.pause(0, 500).await;
    match how {
        Failover::SameAddress | Failover::OtherHost => primary.kill(),
        Failover::Silence => proxy.set(Mode::Hold),
    }
    trial.mark("the primary is lost");
    trial.pause(0, 1000).await;
    standby.promote();
    if how == Failover::SameAddress {
        proxy.lead_to(standby.port());
    }
    trial.mark("the standby is the primary");
    trial.everybody_grants(40).await;
    trial.end().await;
}
