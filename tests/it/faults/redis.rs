//! Redis dies, stops, forgets, errs and fills up. The ledger decides meanwhile.

use perdiem::domain::totals::{decode_totals, encode_totals};
use uuid::Uuid;

use super::setup::Setup;
use super::trial::Trial;
use crate::support::dice::Dice;
use crate::support::disk::Disk;
use crate::support::servers::{Redis, postgres};

fn setup(redis: &Redis) -> Setup {
    Setup::plain(postgres().create_database(), redis.url())
}

/// Kills Redis under load, and starts it again.
async fn dies_and_comes_back(mut redis: Redis, mut trial: Trial, back: &str) {
    trial.mark("Redis dies");
    redis.kill();
    trial.everybody_grants(40).await;
    trial.pause(0, 500).await;
    redis.restart();
    trial.mark(back);
    trial.everybody_grants(40).await;
    trial.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_dies_and_comes_back_empty() {
    let redis = Redis::start();
    let trial = Trial::begin("redis_dies_and_comes_back_empty", setup(&redis)).await;
    dies_and_comes_back(redis, trial, "it is back, empty").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_dies_and_comes_back_with_its_log() {
    let redis = Redis::start_with(&["--appendonly", "yes"]);
    let trial = Trial::begin("redis_dies_and_comes_back_with_its_log", setup(&redis)).await;
    dies_and_comes_back(redis, trial, "it is back, with its log").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_dies_and_comes_back_as_it_was_before() {
    let redis = Redis::start();
    let trial = Trial::begin("redis_dies_and_comes_back_as_it_was_before", setup(&redis)).await;
    redis.command::<()>(&["SAVE"]);
    trial.everybody_grants(60).await;
    dies_and_comes_back(redis, trial, "it is back, as of an old snapshot").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_forgets_everything() {
    let redis = Redis::start();
    let mut trial = Trial::begin("redis_forgets_everything", setup(&redis)).await;
    for round in 0..6 {
        let (words, what) = match round % 2 {
            0 => (["FLUSHALL", "SYNC"], "FLUSHALL"),
            _ => (["SCRIPT", "FLUSH"], "SCRIPT FLUSH"),
        };
        redis.command::<()>(&words);
        trial.mark(what);
        trial.everybody_grants(15).await;
        trial.pause(0, 300).await;
    }
    trial.end().await;
}

/// Single counters are deleted, and others planted: too low, too high, torn, of another type.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_are_tampered_with() {
    let redis = Redis::start();
    let mut trial = Trial::begin("counters_are_tampered_with", setup(&redis)).await;
    trial.mark("tampering begins");
    for _ in 0..12 {
        tamper(&redis, &mut trial.dice);
        trial.everybody_grants(8).await;
        trial.pause(0, 200).await;
    }
    trial.mark("tampering ends");
    trial.everybody_grants(30).await;
    trial.end().await;
}

/// Deletes some counters, and writes into others.
pub fn tamper(redis: &Redis, dice: &mut Dice) {
    let mut names: Vec<String> = redis.command(&["KEYS", "perdiem:*"]);
    names.retain(|name| Uuid::try_parse(name.rsplit(':').next().unwrap_or_default()).is_ok());
    names.sort();
    for name in names {
        match dice.below(14) {
            0 => redis.command::<()>(&["DEL", &name]),
            1 => plant(redis, &name, |number, used| {
                (number.saturating_sub(1).max(1), used - 1)
            }),
            2 => plant(redis, &name, |number, used| (number, used - 1)),
            3 => plant(redis, &name, |number, used| (number, used + 1)),
            4 => plant(redis, &name, |number, used| (number + 5, used + 5)),
            // It may be of another type by now.
            5 => drop(redis.try_command::<()>(&["HDEL", &name, "line"])),
            6 => drop(redis.try_command::<()>(&["HSET", &name, "number", "many"])),
            7 => redis.command::<()>(&["SET", &name, "7"]),
            8 => redis.command::<()>(&["PERSIST", &name]),
            _ => {}
        }
    }
}

/// Writes another number, and other units used in the first window, into a counter.
fn plant(redis: &Redis, name: &str, other: impl Fn(u64, u64) -> (u64, u64)) {
    let fields = redis.try_command::<Vec<Option<String>>>(&["HMGET", name, "number", "line"]);
    let Ok([Some(number), Some(line)]) = fields.as_deref() else {
        return;
    };
    let Some((head, totals)) = line.rsplit_once(' ') else {
        return;
    };
    let (Ok(number), Ok(mut totals)) = (number.parse(), decode_totals(totals)) else {
        return;
    };
    if totals[0].used == 0 {
        return;
    }
    let (number, used) = other(number, totals[0].used);
    totals[0].used = used;
    let line = format!("{head} {}", encode_totals(&totals));
    let number = number.to_string();
    redis.command::<()>(&["HSET", name, "number", &number, "line", &line]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_stops_for_two_seconds() {
    let redis = Redis::start();
    let mut trial = Trial::begin("redis_stops_for_two_seconds", setup(&redis)).await;
    for _ in 0..2 {
        redis.pause();
        trial.mark("Redis stops");
        trial.pause(1900, 2100).await;
        redis.resume();
        trial.mark("it goes on");
        trial.everybody_grants(30).await;
    }
    trial.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_of_redis_is_full() {
    let redis = Redis::start();
    let mut trial = Trial::begin("the_memory_of_redis_is_full", setup(&redis)).await;
    redis.command::<()>(&["CONFIG", "SET", "maxmemory", "1mb"]);
    trial.mark("memory is full");
    trial.everybody_grants(40).await;
    trial.pause(500, 1500).await;
    redis.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    trial.mark("there is room");
    trial.everybody_grants(40).await;
    trial.end().await;
}

/// Redis writes a log that its disk has no room for: MISCONF.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_of_redis_is_full() {
    let Some(disk) = Disk::mount(16) else { return };
    let redis = Redis::start_in(disk.folder(), &["--appendonly", "yes"]);
    let mut trial = Trial::begin("the_disk_of_redis_is_full", setup(&redis)).await;
    trial.mark("the disk fills");
    disk.fill();
    let refuses = || {
        let answer = redis.try_command::<()>(&["SET", "probe", "1", "PX", "1"]);
        answer.is_err_and(|error| error.code() == Some("MISCONF"))
    };
    trial.until("Redis refuses to write", refuses).await;
    trial.mark("Redis refuses to write");
    trial.everybody_grants(40).await;
    trial.pause(500, 1500).await;
    disk.empty();
    trial.mark("there is room");
    trial.until("Redis writes", || !refuses()).await;
    trial.everybody_grants(40).await;
    trial.end().await;
}
