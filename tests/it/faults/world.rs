//! The servers of a trial, each instance's connections to them, and the present faults.

use std::process::Child;

use super::copy::LedgerCopy;
use super::setup::{Setup, by_the_minute, daily, one_by_one, with};
use crate::support::proxy::Proxy;
use crate::support::servers::{self, Postgres, Redis};

pub struct World {
    /// `None` for a database in the PostgreSQL cluster that all tests share.
    pub own_postgres: Option<Postgres>,
    pub redis: Redis,
    /// One way for each instance.
    pub to_ledger: Vec<Proxy>,
    pub to_redis: Vec<Proxy>,
    /// A session that holds a lock.
    pub locker: Option<Child>,
    /// The copy that will replace the ledger.
    pub copy: Option<LedgerCopy>,
    pub counts: bool,
    /// Without Redis, each instance has only its own memory.
    pub has_redis: bool,
}

impl World {
    pub async fn new(own_postgres: Option<Postgres>, redis: Redis) -> Self {
        let ledger = own_postgres.as_ref().unwrap_or_else(|| servers::postgres());
        let ledger = ledger.port();
        let counters = redis.port();
        Self {
            to_ledger: ways(2, ledger).await,
            to_redis: ways(2, counters).await,
            own_postgres,
            redis,
            locker: None,
            copy: None,
            counts: false,
            has_redis: true,
        }
    }

    /// PostgreSQL has no fault, and Redis stores nothing on disk.
    pub async fn plain() -> Self {
        Self::new(None, Redis::start()).await
    }

    pub async fn own_ledger() -> Self {
        Self::new(Some(Postgres::start()), Redis::start()).await
    }

    /// A Redis that keeps a log.
    pub async fn with_log() -> Self {
        Self::new(None, Redis::start_with(&["--appendonly", "yes"])).await
    }

    /// Redis decides some claims.
    pub async fn counting() -> Self {
        Self {
            counts: true,
            ..Self::own_ledger().await
        }
    }

    /// Redis decides some claims, and loses none of them when it dies.
    pub async fn counting_with_log() -> Self {
        let redis = Redis::start_with(&["--appendonly", "yes"]);
        Self {
            counts: true,
            ..Self::new(Some(Postgres::start()), redis).await
        }
    }

    /// As [`World::counting_with_log`], with three instances.
    pub async fn of_three() -> Self {
        let world = Self::counting_with_log().await;
        Self {
            to_ledger: ways(3, world.postgres().port()).await,
            to_redis: ways(3, world.redis.port()).await,
            ..world
        }
    }

    pub fn postgres(&self) -> &Postgres {
        let own = self.own_postgres.as_ref();
        own.unwrap_or_else(|| servers::postgres())
    }

    pub fn own_postgres(&mut self) -> &mut Postgres {
        let own = self.own_postgres.as_mut();
        own.expect("the shared cluster must keep running")
    }

    /// A new ledger, with each instance's connections to it. Where Redis counts there
    /// are four policies: Redis decides one in an outage, and one always. The ledger alone decides
    /// two, one of which has limits that only the ledger can decide.
    pub fn setup(&self) -> Setup {
        let database_url = self.postgres().create_database();
        let count = self.to_ledger.len();
        let mut setup = Setup::of(count, database_url, Some(self.redis.url()));
        let ways = self.to_ledger.iter().zip(&self.to_redis);
        for (place, (ledger, redis)) in setup.places.iter_mut().zip(ways) {
            place.database_url = ledger.url(&place.database_url);
            place.redis_url = Some(format!("redis://127.0.0.1:{}", redis.port));
        }
        if !self.has_redis {
            setup.redis_urls.clear();
            setup
                .places
                .iter_mut()
                .for_each(|place| place.redis_url = None);
        }
        if self.counts {
            // While the ledger is down, clients should not wait long for claims that it alone
            // decides.
            setup.set("PERDIEM_CLAIM_DEADLINE_MS", "700");
            setup.policies = vec![
                ("benefit", daily()),
                ("sms", with(by_the_minute(), "on_ledger_outage", "count")),
                ("clicks", with(daily(), "durability", "counted")),
                ("codes", one_by_one()),
            ];
        }
        setup
    }
}

async fn ways(count: usize, port: u16) -> Vec<Proxy> {
    let mut ways = Vec::new();
    for _ in 0..count {
        ways.push(Proxy::before(port).await);
    }
    ways
}
