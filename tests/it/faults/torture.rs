//! Everything breaks at random, for as long as one likes: see `scripts/torture`.

use std::io::Write;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use super::copies::{LedgerCopy, Means};
use super::counting;
use super::redis::tamper;
use super::seed::Seed;
use super::setup::{Setup, daily, roomy};
use super::trial::Trial;
use crate::support::dice::Dice;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::{Postgres, Redis};

/// After so much time a verdict is passed, and clients begin anew.
const ROUND: Duration = Duration::from_secs(45);
/// How long an instance may take to come to the fail point at which it should abort.
const REACHED_WITHIN: Duration = Duration::from_secs(5);
/// The points at which it may abort.
const POINTS: [&str; 12] = [
    "claim.received",
    "ask.answered",
    "append.begun",
    "append.turn",
    "append.looked",
    "append.decided",
    "append.committed",
    "append.answered",
    "settle.begun",
    "count.ended",
    "drain.begun",
    "drain.appended",
];

/// The servers, each instance's ways to them, and what is broken just now.
struct World {
    postgres: Postgres,
    redis: Redis,
    to_ledger: [Proxy; 2],
    to_redis: [Proxy; 2],
    /// A session that holds a lock.
    locker: Option<Child>,
    /// What is about to take the ledger's place.
    copy: Option<LedgerCopy>,
}

/// Something that breaks. Two that break at once never concern the same part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    LedgerDies,
    LedgerStops,
    ConnectionsTerminated,
    TableLocked,
    LedgerGoesBack(Means),
    RedisDies,
    RedisStops,
    RedisForgets,
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
    PolicyChanges,
}

/// What a fault concerns, in the order in which it is mended: an instance starts only where
/// the stores answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Ledger,
    Redis,
    WayToLedger(usize),
    WayToRedis(usize),
    Instance(usize),
    Policy,
}

impl Fault {
    fn draw(dice: &mut Dice) -> Self {
        let instance = dice.below(2);
        let modes = [
            Mode::Refuse,
            Mode::Hold,
            Mode::Swallow,
            Mode::HangUp {
                every: dice.between(4, 20),
            },
        ];
        let mode = modes[dice.below(modes.len())];
        let faults = [
            Self::LedgerDies,
            Self::LedgerStops,
            Self::ConnectionsTerminated,
            Self::TableLocked,
            Self::LedgerGoesBack(Means::Standby),
            Self::LedgerGoesBack(Means::Database),
            Self::RedisDies,
            Self::RedisStops,
            Self::RedisForgets,
            Self::ScriptsForgotten,
            Self::CountersTampered,
            Self::MemoryFull,
            Self::LedgerCut(instance, mode),
            Self::LedgerStranded(instance),
            Self::RedisCut(instance, mode),
            Self::RedisStranded(instance),
            Self::InstanceDies(instance),
            Self::InstanceAborts(instance, POINTS[dice.below(POINTS.len())]),
            Self::InstanceStops(instance),
            Self::InstanceEnds(instance),
            Self::PolicyChanges,
        ];
        faults[dice.below(faults.len())]
    }

    fn part(self) -> Part {
        match self {
            Self::LedgerDies
            | Self::LedgerStops
            | Self::ConnectionsTerminated
            | Self::TableLocked
            | Self::LedgerGoesBack(_) => Part::Ledger,
            Self::RedisDies
            | Self::RedisStops
            | Self::RedisForgets
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

    /// Breaks it.
    async fn begin(self, world: &mut World, trial: &mut Trial) {
        match self {
            Self::LedgerDies => world.postgres.kill(),
            Self::LedgerStops => world.postgres.pause(),
            Self::ConnectionsTerminated => {
                world.postgres.execute(
                    "postgres",
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE application_name = 'perdiem'",
                );
            }
            Self::TableLocked => {
                let sql = "BEGIN; LOCK TABLE entries; SELECT pg_sleep(60)";
                world.locker = Some(world.postgres.begin(trial.database(), sql));
            }
            Self::LedgerGoesBack(means) => {
                world.copy = Some(LedgerCopy::make(means, &world.postgres, trial).await);
            }
            Self::RedisDies => world.redis.kill(),
            Self::RedisStops => world.redis.pause(),
            Self::RedisForgets => {
                trial.redis_lost_data();
                world.redis.command::<()>(&["FLUSHALL", "SYNC"]);
            }
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
                let limits = json!([{ "max": trial.dice.between(2, 7), "per": "day" }]);
                let rule = json!({ "time_zone": "+05:30", "limits": limits });
                trial.try_put_policy(0, "benefit", rule).await;
            }
        }
    }

    /// Mends it.
    async fn end(self, world: &mut World, trial: &mut Trial) {
        match self {
            Self::LedgerDies => world.postgres.restart(),
            Self::LedgerStops => world.postgres.resume(),
            Self::TableLocked => {
                if let Some(mut locker) = world.locker.take() {
                    // It may have ended with its connection.
                    let _ = locker.kill();
                    let _ = locker.wait();
                }
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                           WHERE query LIKE '%LOCK TABLE%' AND pid <> pg_backend_pid()";
                world.postgres.execute("postgres", sql);
            }
            Self::LedgerGoesBack(_) => {
                if let Some(copy) = world.copy.take() {
                    copy.replace(&mut world.postgres, &world.to_ledger, trial);
                }
            }
            Self::RedisDies => world.redis.restart(),
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

impl World {
    async fn new() -> Self {
        let postgres = Postgres::start();
        // What Redis counted is in its log: it loses nothing when it dies.
        let redis = Redis::start_with(&["--appendonly", "yes"]);
        let to_ledger = [postgres.port(), postgres.port()].map(Proxy::before);
        let to_redis = [redis.port(), redis.port()].map(Proxy::before);
        let [ledger_one, ledger_other] = to_ledger;
        let [redis_one, redis_other] = to_redis;
        Self {
            to_ledger: [ledger_one.await, ledger_other.await],
            to_redis: [redis_one.await, redis_other.await],
            postgres,
            redis,
            locker: None,
            copy: None,
        }
    }

    /// A new ledger, with the two instances' ways to it. In every other round each instance has
    /// subjects of its own, and so knows the last lines of those that have room.
    fn setup(&self, seed: u64) -> Setup {
        let mut setup = counting::setup(self.postgres.create_database(), &self.redis);
        setup.policies.push(("points", roomy()));
        setup.habits.apart = seed.is_multiple_of(2);
        let ways = self.to_ledger.iter().zip(&self.to_redis);
        for (place, (ledger, redis)) in setup.places.iter_mut().zip(ways) {
            place.database_url = ledger.url(&place.database_url);
            place.redis_url = Some(format!("redis://127.0.0.1:{}", redis.port));
        }
        setup
    }

    /// Breaks things for a while, and passes a verdict. Returns how many things broke, and how
    /// often anything was asked.
    async fn round(&mut self, seed: u64, end: Instant) -> (usize, usize) {
        let setup = self.setup(seed);
        let seed = Seed {
            name: "torture",
            number: seed,
            again: format!("scripts/torture --minutes 1 --seed {seed}"),
        };
        let mut trial = Trial::begin_seeded(seed, setup).await;
        let mut count = 0;
        while Instant::now() < end {
            let mut faults: Vec<Fault> = Vec::new();
            for _ in 0..trial.dice.between(1, 3) {
                let fault = Fault::draw(&mut trial.dice);
                let mut others = faults.iter();
                if others.all(|other| other.part() != fault.part()) {
                    faults.push(fault);
                }
            }
            // An instance that starts at a fail point wants its stores.
            faults.sort_by_key(|fault| std::cmp::Reverse(fault.part()));
            trial.mark(&format!("{faults:?}"));
            for fault in &faults {
                fault.begin(self, &mut trial).await;
                trial.pause(0, 500).await;
            }
            trial.pause(0, 2500).await;
            faults.sort_by_key(|fault| fault.part());
            for fault in &faults {
                fault.end(self, &mut trial).await;
            }
            count += faults.len();
            trial.mark("all is mended");
            trial.everybody_grants(5).await;
        }
        let judge = trial.judge().await;
        let attempts = judge.attempts();
        judge.finds_nothing().await;
        (count, attempts)
    }
}

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable);
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// For `PERDIEM_TORTURE_SECONDS`, from `PERDIEM_FAULTS_SEED`.
#[ignore = "it takes as long as it is told to: scripts/torture"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torture() {
    let seconds = number("PERDIEM_TORTURE_SECONDS", 60);
    let end = Instant::now() + Duration::from_secs(seconds);
    let seed = Seed::choose("torture").number;
    let mut world = World::new().await;
    let (mut rounds, mut faults, mut attempts) = (0, 0, 0);
    while rounds == 0 || Instant::now() < end {
        let round_ends = end.min(Instant::now() + ROUND);
        let (broken, asked) = world.round(seed.wrapping_add(rounds), round_ends).await;
        rounds += 1;
        faults += broken;
        attempts += asked;
    }
    let verdict = format!(
        "torture: nothing wrong after {faults} faults and {attempts} attempts in {rounds} rounds, \
         from seed {seed}"
    );
    let _ = writeln!(std::io::stderr(), "{verdict}");
}
