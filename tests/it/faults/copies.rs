//! The ledger goes back in time: a standby that lags is promoted, or a copy is restored. The
//! entries that the copy lacks are lost. Every other promise must hold.

use super::copy::Means;
use super::fault::Fault;
use super::setup::{by_the_minute, daily, one_by_one, roomy};
use super::trial::Trial;
use super::world::World;

/// Under load, a copy replaces the ledger three times. `are_stopped` says whether the instances end
/// before that and start again afterwards.
async fn copies_replace_the_ledger(
    name: &'static str,
    means: Means,
    are_stopped: bool,
    mut world: World,
) {
    let mut setup = world.setup();
    // When an account has room and one instance alone serves it, that instance knows the last line.
    // Some clients must not be waiting already when the copy replaces the ledger.
    setup.habits.apart = true;
    setup.habits.pause = (5, 250);
    setup.policies = vec![
        ("benefit", daily()),
        ("codes", one_by_one()),
        ("points", roomy()),
        ("miles", roomy()),
    ];
    let mut trial = Trial::begin(name, setup).await;
    for _ in 0..3 {
        trial.everybody_grants(10).await;
        let goes_back = Fault::LedgerGoesBack(means);
        goes_back.begin(&mut world, &mut trial).await;
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
        goes_back.end(&mut world, &mut trial).await;
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

macro_rules! copies {
    ($($(#[doc = $doc:literal])* $name:ident: $means:ident, $are_stopped:literal, $world:expr;)*) => {$(
        $(#[doc = $doc])*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let name = stringify!($name);
let means = Means::$means;
            copies_replace_the_ledger(name, means, $are_stopped, $world).await;
        }
    )*};
}

copies! {
    a_standby_that_lags_is_promoted: Standby, false, World::own_ledger().await;
    /// Each instance has only its own memory.
    a_standby_that_lags_is_promoted_without_redis: Standby, false, World {
        has_redis: false,
        ..World::own_ledger().await
    };
    a_copy_is_restored_while_instances_run: Database, false, World::own_ledger().await;
    a_copy_is_restored_while_instances_are_stopped: Database, true, World::own_ledger().await;
}
