//! The ledger goes back in time: a standby that lags is promoted, or a copy is restored. What
//! the copy lacks is lost, and all else must hold.

use std::time::Duration;

use super::setup::{Setup, by_the_minute, roomy};
use super::trial::Trial;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::{Postgres, Redis};

/// A copy of the ledger, which lacks what is committed after it was made.
pub struct LedgerCopy {
    /// It has what was committed before this.
    made_at: Duration,
    /// The standby that is the copy. `None` for a database beside the ledger's.
    standby: Option<Postgres>,
}

/// How a copy is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// A standby is cut off its primary.
    Standby,
    /// The database is copied on its server.
    Database,
}

impl LedgerCopy {
    /// Makes a copy of a trial's ledger.
    pub async fn make(means: Means, postgres: &Postgres, trial: &Trial) -> Self {
        let made_at = trial.time();
        let standby = match means {
            Means::Standby => {
                let standby = postgres.start_standby();
                standby.cut_off().await;
                Some(standby)
            }
            Means::Database => {
                postgres.copy_database(trial.database());
                None
            }
        };
        Self { made_at, standby }
    }

    /// Ends the ledger. The copy takes its place, and the ways lead there. By lot they hold new
    /// connections meanwhile, as a pooler does that is told to pause.
    pub fn replace(self, postgres: &mut Postgres, ways: &[Proxy], trial: &mut Trial) {
        let database = trial.database().to_owned();
        match &self.standby {
            Some(_) => postgres.kill(),
            None => postgres.drop_database(&database),
        }
        if trial.dice.percent(70) {
            ways.iter().for_each(|way| way.set(Mode::Hold));
        }
        if let Some(standby) = self.standby {
            standby.promote();
            ways.iter().for_each(|way| way.lead_to(standby.port()));
            *postgres = standby;
        } else {
            postgres.rename_copy(&database);
        }
        trial.ledger_is_copy(self.made_at, postgres.url(&database));
        ways.iter().for_each(|way| way.set(Mode::Pass));
    }
}

/// Under load a copy takes the ledger's place, three times. `are_stopped` says whether the instances
/// end before, and start again afterwards. Without Redis each instance goes by its memory alone.
async fn copies_replace_the_ledger(
    name: &'static str,
    means: Means,
    are_stopped: bool,
    redis: Option<Redis>,
) {
    let mut postgres = Postgres::start();
    let database_url = postgres.create_database();
    let ways = [Proxy::before(postgres.port()).await];
    let redis_url = redis.as_ref().map(Redis::url);
    let mut setup = Setup::of(2, ways[0].url(&database_url), redis_url);
    setup.database_url = database_url;
    // Where an account has room, and one instance alone serves it, that one knows its last line.
    // Not all of the clients may wait already when the copy takes the ledger's place.
    setup.habits.apart = true;
    setup.habits.pause = (5, 250);
    setup
        .policies
        .extend([("points", roomy()), ("miles", roomy())]);
    let mut trial = Trial::begin(name, setup).await;
    for _ in 0..3 {
        trial.everybody_grants(10).await;
        let copy = LedgerCopy::make(means, &postgres, &trial).await;
        trial.mark("a copy is made");
        // A version that the copy lacks.
        trial.put_policy(0, "points", by_the_minute()).await;
        trial.everybody_grants(20).await;
        if are_stopped {
            for instance in &mut trial.instances {
                instance.process.terminate();
                let status = instance.process.wait();
                assert!(status.success(), "{status}");
            }
        }
        copy.replace(&mut postgres, &ways, &mut trial);
        if are_stopped {
            for instance in &mut trial.instances {
                instance.start_again(&[]);
            }
        }
        trial.mark("the copy is the ledger");
        trial.everybody_grants(40).await;
    }
    trial.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_lags_is_promoted() {
    let name = "a_standby_that_lags_is_promoted";
    copies_replace_the_ledger(name, Means::Standby, false, Some(Redis::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_lags_is_promoted_without_redis() {
    let name = "a_standby_that_lags_is_promoted_without_redis";
    copies_replace_the_ledger(name, Means::Standby, false, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_restored_while_instances_run() {
    let name = "a_copy_is_restored_while_instances_run";
    copies_replace_the_ledger(name, Means::Database, false, Some(Redis::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_restored_while_instances_are_stopped() {
    let name = "a_copy_is_restored_while_instances_are_stopped";
    copies_replace_the_ledger(name, Means::Database, true, Some(Redis::start())).await;
}
