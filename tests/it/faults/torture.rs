//! Random faults, for as long as you like: see `scripts/torture`.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use super::copy::Means;
use super::fault::Fault;
use super::load::Habits;
use super::seed::Seed;
use super::setup::{from_the_first, of_members, of_the_crowd, roomy};
use super::trial::Trial;
use super::world::World;
use crate::judge::{History, Kind, Outcome};
use crate::support::dice::Dice;
use crate::support::proxy::Mode;

/// After this time the judge checks the stores, and new clients start.
const ROUND: Duration = Duration::from_secs(45);
/// A round of fewer attempts may lack something that it draws.
const ATTEMPTS_FEW: usize = 12_000;
/// The fail points at which an instance may abort.
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

fn draw(dice: &mut Dice, instances: usize) -> Fault {
    let instance = dice.below(instances);
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
        Fault::LedgerDies,
        Fault::LedgerStops,
        Fault::ConnectionsTerminated,
        Fault::TableLocked,
        Fault::LedgerGoesBack(Means::Standby),
        Fault::LedgerGoesBack(Means::Database),
        Fault::RedisDies,
        Fault::RedisStops,
        Fault::RedisForgets,
        Fault::ScriptsForgotten,
        Fault::CountersTampered,
        Fault::MemoryFull,
        Fault::LedgerCut(instance, mode),
        Fault::LedgerStranded(instance),
        Fault::RedisCut(instance, mode),
        Fault::RedisStranded(instance),
        Fault::InstanceDies(instance),
        Fault::InstanceAborts(instance, POINTS[dice.below(POINTS.len())]),
        Fault::InstanceStops(instance),
        Fault::InstanceEnds(instance),
        Fault::PolicyChanges,
    ];
    faults[dice.below(faults.len())]
}

/// The number of bundles that were granted, and of what the admin entered, by its kind. There is some of each.
fn drawn(history: &History) -> BTreeMap<String, usize> {
    let granted = history.attempts.iter().filter(|attempt| {
        let is_first = history.wishes[attempt.wish].bundle == Some(attempt.wish);
        is_first && matches!(attempt.outcome, Outcome::Granted(_))
    });
    let mut drawn = BTreeMap::from([("Bundle".to_owned(), granted.count())]);
    for kind in [
        Kind::AdjustmentUp,
        Kind::AdjustmentDown,
        Kind::Reset,
        Kind::Calendar,
        Kind::TopUp,
        Kind::TopUpReversal,
    ] {
        let entered = history.corrections.iter().filter(|one| one.kind == kind);
        drawn.insert(format!("{kind:?}"), entered.count());
    }
    drawn
}

/// Runs random faults for some time, and then checks the stores. Returns the number of faults and
/// the number of attempts. In every other round, each instance has its own subjects. Then it knows
/// the last lines of the subjects that have room.
async fn round(world: &mut World, seed: u64, end: Instant) -> (usize, usize) {
    // 1. Start the instances and the load.
    let mut setup = world.setup();
    setup.policies.push(("visits", from_the_first()));
    setup.policies.push(("points", roomy()));
    setup.policies.push(("members", of_members()));
    setup.policies.push(("crowd", of_the_crowd()));
    setup.habits = Habits {
        apart: seed.is_multiple_of(2),
        slots: 2 * setup.policies.len(),
        holds: 10,
        bundles: 12,
        ..setup.habits
    };
    setup.has_admin = true;
    let seed = Seed {
        name: "torture",
        number: seed,
        again: format!("scripts/torture --minutes 1 --seed {seed}"),
    };
    let mut trial = Trial::begin_seeded(seed, setup).await;
    let mut count = 0;
    while Instant::now() < end {
        // 2. Choose one to three faults.
        let mut faults: Vec<Fault> = Vec::new();
        for _ in 0..trial.dice.between(1, 3) {
            let fault = draw(&mut trial.dice, trial.instances.len());
            let mut others = faults.iter();
            // Two faults at the same time never affect the same part.
            if others.all(|other| other.part() != fault.part()) {
                faults.push(fault);
            }
        }
        // An instance that starts at a fail point needs its stores.
        faults.sort_by_key(|fault| std::cmp::Reverse(fault.part()));
        // 3. Begin the faults, wait, and end them.
        trial.mark(&format!("{faults:?}"));
        for fault in &faults {
            fault.begin(world, &mut trial).await;
            trial.pause(0, 500).await;
        }
        trial.pause(0, 2500).await;
        faults.sort_by_key(|fault| fault.part());
        for fault in &faults {
            fault.end(world, &mut trial).await;
        }
        count += faults.len();
        // 4. Every instance grants again.
        trial.mark("all is mended");
        trial.everybody_grants(5).await;
    }
    // 5. End the load, and let the judge check the stores.
    let judge = trial.judge().await;
    let attempts = judge.history.attempts.len();
    let drawn = drawn(&judge.history);
    let lacks = drawn.values().any(|count| *count == 0);
    assert!(!lacks || attempts < ATTEMPTS_FEW, "{drawn:?} of {attempts}");
    let _ = writeln!(std::io::stderr(), "torture: {drawn:?}");
    judge.finds_nothing().await;
    (count, attempts)
}

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable);
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// Runs for `PERDIEM_TORTURE_SECONDS`, from `PERDIEM_FAULTS_SEED`.
#[ignore = "it takes as long as it is told to: scripts/torture"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torture() {
    let seconds = number("PERDIEM_TORTURE_SECONDS", 60);
    let end = Instant::now() + Duration::from_secs(seconds);
    let seed = Seed::choose("torture").number;
    let mut world = World::of_three().await;
    let mut rounds = 0;
    let mut faults = 0;
    let mut attempts = 0;
    while rounds == 0 || Instant::now() < end {
        let round_ends = end.min(Instant::now() + ROUND);
        let (broken, asked) = round(&mut world, seed.wrapping_add(rounds), round_ends).await;
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
