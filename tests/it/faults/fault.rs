//! The faults: how each one begins, which part it affects, which instances still grant, and how it
//! ends. A trial runs faults one after the other (`table`), or many at random (`torture`).

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::copy::{LedgerCopy, Means};
use super::redis::tamper;
use super::setup::{daily, of_any_kind};
use super::trial::Trial;
use super::world::World;
use crate::support::proxy::Mode;

/// The longest time until an instance reaches the fail point at which it aborts.
const REACHED_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    LedgerDies,
    LedgerStops,
    ConnectionsTerminated,
    TableLocked,
    LedgerGoesBack(Means),
    /// Redis comes back with the data on its disk: nothing, or its log.
    RedisDies,
    RedisStops,
    RedisForgets,
    /// Redis comes back with the data from the beginning of the fault.
    RedisGoesBack,
    ScriptsForgotten,
    CountersTampered,
    MemoryFull,
    LedgerCut(usize, Mode),
    LedgerStranded(usize),
    RedisCut(usize, Mode),
    RedisStranded(usize),
    InstanceDies(usize),
    InstanceAborts(usize, &'static str),
    InstanceStops(usize),
    InstanceEnds(usize),
    /// The policy changes to limits of any kind, and back.
    PolicyChanges,
}

/// The part that a fault affects. Parts are repaired in this order, because an instance starts only
/// when its stores answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Ledger,
    Redis,
    WayToLedger(usize),
    WayToRedis(usize),
    Instance(usize),
    Policy,
}

impl Fault {
    pub fn part(self) -> Part {
        match self {
            Self::LedgerDies
            | Self::LedgerStops
            | Self::ConnectionsTerminated
            | Self::TableLocked
            | Self::LedgerGoesBack(_) => Part::Ledger,
            Self::RedisDies
            | Self::RedisStops
            | Self::RedisForgets
            | Self::RedisGoesBack
            | Self::ScriptsForgotten
            | Self::CountersTampered
            | Self::MemoryFull => Part::Redis,
            Self::LedgerCut(instance, _) | Self::LedgerStranded(instance) => {
                Part::WayToLedger(instance)
            }
            Self::RedisCut(instance, _) | Self::RedisStranded(instance) => {
                Part::WayToRedis(instance)
            }
            Self::InstanceDies(instance)
            | Self::InstanceAborts(instance, _)
            | Self::InstanceStops(instance)
            | Self::InstanceEnds(instance) => Part::Instance(instance),
            Self::PolicyChanges => Part::Policy,
        }
    }

    /// Whether an instance grants during the fault. `counts` says whether Redis decides some claims
    /// without the ledger.
    pub fn spares(self, instance: usize, counts: bool) -> bool {
        match self {
            Self::LedgerDies | Self::LedgerStops | Self::TableLocked => counts,
            Self::LedgerCut(_, Mode::HangUp { .. }) => true,
            Self::LedgerCut(of, _) => counts || of != instance,
            Self::InstanceDies(of)
            | Self::InstanceAborts(of, _)
            | Self::InstanceStops(of)
            | Self::InstanceEnds(of) => of != instance,
            _ => true,
        }
    }

    /// Begins the fault.
    pub async fn begin(self, world: &mut World, trial: &mut Trial) {
        match self {
            Self::LedgerDies => world.own_postgres().kill(),
            Self::LedgerStops => world.own_postgres().pause(),
            Self::ConnectionsTerminated => {
                terminate(world, trial, "application_name = 'perdiem'");
            }
            Self::TableLocked => {
                let sql = "BEGIN; LOCK TABLE entries; SELECT pg_sleep(60)";
                world.locker = Some(world.postgres().begin(trial.database(), sql));
            }
            Self::LedgerGoesBack(means) => {
                world.copy = Some(LedgerCopy::make(means, world.postgres(), trial).await);
            }
            Self::RedisDies => world.redis.kill(),
            Self::RedisStops => world.redis.pause(),
            Self::RedisForgets => {
                trial.load.redis_lost_data();
                world.redis.command::<()>(&["FLUSHALL", "SYNC"]);
            }
            Self::RedisGoesBack => world.redis.command(&["SAVE"]),
            Self::ScriptsForgotten => world.redis.command(&["SCRIPT", "FLUSH"]),
            Self::CountersTampered => tamper(&world.redis, &mut trial.dice),
            Self::MemoryFull => world.redis.command(&["CONFIG", "SET", "maxmemory", "1mb"]),
            Self::LedgerCut(instance, mode) => world.to_ledger[instance].set(mode),
            Self::LedgerStranded(instance) => world.to_ledger[instance].strand(),
            Self::RedisCut(instance, mode) => world.to_redis[instance].set(mode),
            Self::RedisStranded(instance) => world.to_redis[instance].strand(),
            Self::InstanceDies(instance) => trial.instances[instance].process.kill(),
            Self::InstanceAborts(instance, point) => {
                trial.instances[instance].process.kill();
                let points = format!("{point}={}*off->return", trial.dice.between(0, 30));
                trial.instances[instance].start_again(&[("FAILPOINTS", &points)]);
                let deadline = Instant::now() + REACHED_WITHIN;
                let process = &mut trial.instances[instance].process;
                while process.ended().is_none() && Instant::now() < deadline {
                    sleep(Duration::from_millis(5)).await;
                }
            }
            Self::InstanceStops(instance) => trial.instances[instance].process.pause(),
            Self::InstanceEnds(instance) => trial.instances[instance].process.terminate(),
            Self::PolicyChanges => {
                let rule = of_any_kind(&mut trial.dice);
                trial.try_put_policy(0, "benefit", rule).await;
            }
        }
    }

    /// Ends the fault.
    pub async fn end(self, world: &mut World, trial: &mut Trial) {
        match self {
            Self::LedgerDies => world.own_postgres().restart(),
            Self::LedgerStops => world.own_postgres().resume(),
            Self::TableLocked => {
                if let Some(mut locker) = world.locker.take() {
                    // The process can have ended with its connection.
                    let _ = locker.kill();
                    let _ = locker.wait();
                }
                terminate(world, trial, "query LIKE '%LOCK TABLE%'");
            }
            Self::LedgerGoesBack(_) => {
                if let Some(copy) = world.copy.take() {
                    let postgres = world.own_postgres.as_mut().expect("its own PostgreSQL");
                    copy.replace(postgres, &world.to_ledger, trial);
                }
            }
            Self::RedisDies | Self::RedisGoesBack => world.redis.restart(),
            Self::RedisStops => world.redis.resume(),
            Self::MemoryFull => world.redis.command(&["CONFIG", "SET", "maxmemory", "0"]),
            Self::LedgerCut(instance, _) => world.to_ledger[instance].set(Mode::Pass),
            Self::RedisCut(instance, _) => world.to_redis[instance].set(Mode::Pass),
            Self::InstanceDies(instance) => trial.instances[instance].start_again(&[]),
            Self::InstanceAborts(instance, _) => {
                trial.instances[instance].process.kill();
                trial.instances[instance].start_again(&[]);
            }
            Self::InstanceStops(instance) => trial.instances[instance].process.resume(),
            Self::InstanceEnds(instance) => {
                let status = trial.instances[instance].process.wait();
                assert!(status.success(), "{status}");
                trial.instances[instance].start_again(&[]);
            }
            Self::PolicyChanges => trial.try_put_policy(1, "benefit", daily()).await,
            Self::ConnectionsTerminated
            | Self::RedisForgets
            | Self::ScriptsForgotten
            | Self::CountersTampered
            | Self::LedgerStranded(_)
            | Self::RedisStranded(_) => {}
        }
    }
}

/// Ends the connections to a trial's ledger for which `condition` is true.
fn terminate(world: &World, trial: &Trial, condition: &str) {
    let sql = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = '{}' AND pid <> pg_backend_pid() AND {condition}",
        trial.database()
    );
    world.postgres().execute("postgres", &sql);
}
