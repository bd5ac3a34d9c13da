//! Trials that are rounds of faults. A trial has a number of repetitions, a list of rounds, and the
//! least and most milliseconds of a fault. A round has one fault, or several faults at the same
//! time.

use super::fault::Fault::{self, *};
use super::setup::Setup;
use super::trial::Trial;
use super::world::World;
use crate::support::proxy::Mode::{HangUp, Hold, Refuse, Swallow};

/// The least number of grants that each able instance must answer, during a fault and after it.
const GRANTS: usize = 10;

/// Begins several faults in the order of their parts, and ends them in that order. Spared instances
/// grant during the faults, and all instances grant afterwards. `millis` are the least and the most
/// milliseconds of the faults.
async fn suffer(world: &mut World, trial: &mut Trial, faults: &[Fault], millis: (u64, u64)) {
    trial.mark(&format!("{faults:?}"));
    for (place, fault) in faults.iter().enumerate() {
        fault.begin(world, trial).await;
        let is_spared = |instance| {
            let mut broken = faults[..=place].iter();
            broken.all(|fault| fault.spares(instance, world.counts))
        };
        trial.those_grant(GRANTS, is_spared).await;
    }
    trial.pause(millis.0, millis.1).await;
    for fault in faults {
        fault.end(world, trial).await;
    }
    trial.mark("all is mended");
    trial.everybody_grants(GRANTS).await;
}

/// Runs a whole trial: each round in turn, so many times.
pub async fn go_through(
    mut world: World,
    name: &'static str,
    setup: Setup,
    times: usize,
    rounds: &[&[Fault]],
    millis: (u64, u64),
) {
    let mut trial = Trial::begin(name, setup).await;
    for _ in 0..times {
        for faults in rounds {
            suffer(&mut world, &mut trial, faults, millis).await;
        }
    }
    assert_eq!(world.counts, trial.load.provisional_grants() > 0);
    trial.end().await;
}

macro_rules! trials {
    ($($name:ident: $world:ident, $times:literal of [$([$($fault:expr),+]),+], $millis:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let world = World::$world().await;
            let setup = world.setup();
            let rounds: &[&[Fault]] = &[$(&[$($fault),+]),+];
            let name = stringify!($name);
            go_through(world, name, setup, $times, rounds, $millis).await;
        }
    )*};
}

// Redis dies, pauses, forgets, returns errors, or has a full disk. The ledger decides during that
// time.
trials! {
    redis_dies_and_comes_back_empty: plain, 1 of [[RedisDies]], (0, 500);
    redis_dies_and_comes_back_with_its_log: with_log, 1 of [[RedisDies]], (0, 500);
    redis_dies_and_comes_back_as_it_was_before: plain, 1 of [[RedisGoesBack]], (500, 1000);
    redis_forgets_everything: plain, 3 of [[RedisForgets], [ScriptsForgotten]], (0, 300);
    counters_are_tampered_with: plain, 12 of [[CountersTampered]], (0, 200);
    redis_stops_for_two_seconds: plain, 2 of [[RedisStops]], (1900, 2100);
    the_memory_of_redis_is_full: plain, 1 of [[MemoryFull]], (500, 1500);
}

// PostgreSQL dies or is locked. Nothing is decided during that time.
trials! {
    the_ledger_dies_and_comes_back:
        own_ledger, 1 of [[LedgerDies], [LedgerDies, InstanceDies(0)], [LedgerDies]], (100, 3000);
    the_table_is_locked_for_five_seconds: plain, 1 of [[TableLocked]], (5000, 5000);
    both_stores_die_and_come_back_in_either_order:
        own_ledger, 1 of [[LedgerDies, RedisDies], [RedisDies, LedgerDies]], (200, 1500);
}

// The network between one instance and its stores breaks. The other instance has its own
// connections. A machine that loses power leaves its connections open and silent.
trials! {
    redis_is_cut_from_one_instance:
        plain, 1 of [[RedisCut(0, Refuse)], [RedisCut(0, Hold)], [RedisCut(0, Swallow)],
            [RedisCut(0, HangUp { every: 4 })]], (300, 1000);
    replies_of_the_ledger_are_lost:
        plain, 1 of [[LedgerCut(0, HangUp { every: 20 })], [LedgerCut(0, HangUp { every: 10 })],
            [LedgerCut(0, HangUp { every: 6 })]], (300, 1000);
    the_ledger_is_cut_from_one_instance:
        plain, 1 of [[LedgerCut(0, Refuse)], [LedgerCut(0, Hold)], [LedgerCut(0, Swallow)]],
        (2500, 3000);
    old_connections_are_stranded:
        plain, 1 of [[RedisStranded(0)], [LedgerStranded(0)]], (0, 500);
}

// A policy changes between limits of every kind.
trials! {
    a_policy_changes_between_kinds: plain, 8 of [[PolicyChanges]], (200, 1200);
    a_policy_changes_while_redis_is_tampered_with:
        plain, 6 of [[PolicyChanges, CountersTampered]], (200, 1200);
}

// Redis decides some claims alone, always or while the ledger does not answer. A Redis with a log
// loses no grant that it counted. A Redis that forgets loses only the grants that it counted while
// the ledger was down.
trials! {
    redis_decides_while_the_ledger_is_down: counting, 2 of [[LedgerDies]], (0, 1000);
    instances_and_redis_die_while_it_counts:
        counting_with_log, 2 of [[InstanceDies(0)], [InstanceDies(1), RedisDies]], (0, 500);
    counters_are_tampered_with_while_redis_counts:
        counting, 6 of [[CountersTampered]], (0, 200);
    replies_of_the_ledger_are_lost_while_redis_counts:
        counting, 1 of [
            [LedgerCut(0, HangUp { every: 12 }), LedgerCut(1, HangUp { every: 12 })],
            [LedgerCut(0, Swallow), LedgerCut(1, Swallow)],
            [LedgerCut(0, HangUp { every: 8 }), LedgerCut(1, HangUp { every: 8 })],
            [LedgerCut(0, Hold), LedgerCut(1, Hold)]
        ], (0, 800);
    both_die_while_redis_counts: counting, 1 of [[LedgerDies, RedisForgets]], (0, 500);
}
