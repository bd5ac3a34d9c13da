//! An instance dies, aborts at a step, pauses, loses its clients, or is asked to stop.

use std::thread;

use tokio::runtime;

use super::fault::Fault;
use super::load::Habits;
use super::setup::Setup;
use super::table::go_through;
use super::trial::Trial;
use super::world::World;
use crate::support::app::{Ground, Stack};
use crate::support::servers::{Redis, postgres};

fn setup(redis: &Redis) -> Setup {
    Setup::plain(postgres().create_database(), redis.url())
}

/// Kills instances at random (`kill -9`), so many times.
async fn are_killed(name: &'static str, setup: Setup, times: usize) {
    let mut trial = Trial::begin(name, setup).await;
    trial.mark("the first dies");
    for _ in 0..times {
        trial.pause(0, 400).await;
        let victim = trial.dice.below(trial.instances.len());
        trial.instances[victim].process.kill();
        trial.pause(0, 200).await;
        trial.instances[victim].start_again(&[]);
    }
    trial.mark("the last is back");
    trial.everybody_grants(20).await;
    trial.judge().await.tells_one_story().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_is_killed_twenty_times() {
    let redis = Redis::start();
    are_killed("an_instance_is_killed_twenty_times", setup(&redis), 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_on_sqlite_is_killed() {
    let ground = Ground::new(Stack::Sqlite);
    let setup = Setup::of(1, ground.database_url.clone(), None);
    are_killed("an_instance_on_sqlite_is_killed", setup, 6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_without_redis_are_killed() {
    let setup = Setup::of(2, postgres().create_database(), None);
    are_killed("instances_without_redis_are_killed", setup, 6).await;
}

/// The fail points of a claim, and how often an instance passes each one before it aborts.
const STEPS: [(&str, u32); 11] = [
    ("claim.received", 200),
    ("ask.begun", 100),
    ("ask.answered", 100),
    ("append.begun", 40),
    ("append.turn", 0),
    ("append.looked", 10),
    ("append.decided", 20),
    ("append.committed", 20),
    ("append.answered", 20),
    ("settle.begun", 20),
    ("settle.ended", 20),
];
/// The fail points of counting, and of the appends of counted grants.
const STEPS_OF_COUNTING: [(&str, u32); 4] = [
    ("count.begun", 10),
    ("count.ended", 10),
    ("drain.begun", 10),
    ("drain.appended", 10),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_aborts_at_each_step() {
    let world = World::plain().await;
    aborts_at_each(world, "an_instance_aborts_at_each_step", &STEPS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_aborts_at_each_step_of_counting() {
    let name = "an_instance_aborts_at_each_step_of_counting";
    aborts_at_each(World::counting().await, name, &STEPS_OF_COUNTING).await;
}

/// An instance aborts at each step, one after the other. The other instance continues.
async fn aborts_at_each(world: World, name: &'static str, steps: &[(&str, u32)]) {
    let mut trial = Trial::begin(name, world.setup()).await;
    trial.instances[0].process.kill();
    for (step, most) in steps {
        trial.aborts_at(0, step, *most).await;
    }
    trial.instances[0].start_again(&[]);
    trial.mark("it is back");
    trial.everybody_grants(20).await;
    trial.end().await;
}

/// An instance pauses during a commit, at each step of it, and wakes up after the timeouts of its
/// statements. The other instance continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_pauses_in_mid_commit() {
    let redis = Redis::start();
    let mut trial = Trial::begin("an_instance_pauses_in_mid_commit", setup(&redis)).await;
    for step in [
        "append.turn",
        "append.decided",
        "append.committed",
        "settle.begun",
    ] {
        let passes = trial.dice.between(0, 5);
        let points = format!("{step}={passes}*off->1*return(stop)->off");
        trial.instances[0].process.kill();
        trial.instances[0].start_again(&[("FAILPOINTS", &points)]);
        let is_stopped = || trial.instances[0].process.is_stopped();
        trial.until(step, is_stopped).await;
        trial.mark(step);
        trial.instance_grants(1, 20).await;
        trial.pause(2000, 2500).await;
        trial.instances[0].process.resume();
        trial.mark("it wakes up");
        trial.instance_grants(0, 10).await;
    }
    trial.end().await;
}

/// Connections are reset during requests, and the claims are sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_reset_in_mid_request() {
    let redis = Redis::start();
    let mut setup = setup(&redis);
    setup.habits.resets = 40;
    let trial = Trial::begin("clients_reset_in_mid_request", setup).await;
    trial.mark("four of ten requests are reset");
    trial.everybody_grants(150).await;
    trial.end().await;
}

/// Each instance gets SIGTERM under load, one after the other. It finishes its open requests and
/// exits successfully. A client that retries once sees no failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_restart_in_turn() {
    let redis = Redis::start();
    let mut setup = setup(&redis);
    setup.habits = Habits {
        hasty: 0,
        repeats: 0,
        keyless: 0,
        ..setup.habits
    };
    let mut trial = Trial::begin("instances_restart_in_turn", setup).await;
    for round in 0..4 {
        let turn = round % 2;
        trial.everybody_grants(20).await;
        // A second attempt that meets the next stop would be the second failure of its claim.
        trial.everybody_knows().await;
        trial.mark(if turn == 0 {
            "one ends"
        } else {
            "the other ends"
        });
        trial.instances[turn].process.terminate();
        let status = trial.instances[turn].process.wait();
        assert!(status.success(), "{status}");
        trial.instances[turn].start_again(&[]);
    }
    trial.mark("both are new");
    trial.everybody_grants(20).await;
    let judge = trial.judge().await;
    judge.nobody_failed_twice();
    judge.logs_lack("still under way");
    judge.finds_nothing().await;
}

/// An instance pauses for half a minute, at random or during a commit; Redis pauses too. The three
/// trials run at the same time, because they mostly wait. Each trial has its own thread: a trial
/// that waits for its instance blocks its thread, and on a shared thread the other trials' requests
/// would time out.
#[test]
fn pauses_of_half_a_minute() {
    thread::scope(|scope| {
        let instance = "pauses_of_half_a_minute (an instance)";
        scope.spawn(|| run(pauses(instance, Fault::InstanceStops(0))));
        scope.spawn(|| run(a_commit_pauses()));
        let redis = "pauses_of_half_a_minute (Redis)";
        scope.spawn(|| run(pauses(redis, Fault::RedisStops)));
    });
}

fn run(trial: impl Future<Output = ()>) {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(trial);
}

fn unhurried(world: &World) -> Setup {
    let mut setup = world.setup();
    setup.habits.pause = (50, 200);
    setup
}

async fn pauses(name: &'static str, fault: Fault) {
    let world = World::plain().await;
    let setup = unhurried(&world);
    let half_a_minute = (30_000, 30_500);
    go_through(world, name, setup, 1, &[&[fault]], half_a_minute).await;
}

async fn a_commit_pauses() {
    let world = World::plain().await;
    let name = "pauses_of_half_a_minute (a commit)";
    let mut trial = Trial::begin(name, unhurried(&world)).await;
    trial.instances[0].process.kill();
    let points = "append.decided=7*off->1*return(stop)->off";
    trial.instances[0].start_again(&[("FAILPOINTS", points)]);
    if cfg!(not(feature = "faults")) {
        trial.instances[0].process.pause();
    }
    trial
        .until("the instance pauses", || {
            trial.instances[0].process.is_stopped()
        })
        .await;
    trial.mark("the instance pauses");
    trial.pause(30_000, 30_500).await;
    trial.instances[0].process.resume();
    trial.mark("it wakes up");
    trial.everybody_grants(20).await;
    trial.end().await;
}
