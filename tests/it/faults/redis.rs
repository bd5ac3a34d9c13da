//! Redis' data are changed, and its disk is full. The ledger decides during that time.

use chrono::{DateTime, Utc};
use perdiem::domain::limit::text::encode_totals;
use perdiem::domain::limit::total::{LimitState, Total};
use perdiem::domain::line_text::totals_of;
use uuid::Uuid;

use super::setup::Setup;
use super::trial::Trial;
use crate::support::dice::Dice;
use crate::support::disk::Disk;
use crate::support::servers::{Redis, postgres};

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
            // The counter can be of another type by now.
            5 => drop(redis.try_command::<()>(&["HDEL", &name, "line"])),
            6 => drop(redis.try_command::<()>(&["HSET", &name, "number", "many"])),
            7 => redis.command::<()>(&["SET", &name, "7"]),
            8 => redis.command::<()>(&["PERSIST", &name]),
            _ => {}
        }
    }
}

/// Writes another number, and another usage of one limit, into a counter.
fn plant(redis: &Redis, name: &str, other: impl Fn(u64, u64) -> (u64, u64)) {
    let fields = redis.try_command::<Vec<Option<String>>>(&["HMGET", name, "number", "line"]);
    let Ok([Some(number), Some(line)]) = fields.as_deref() else {
        return;
    };
    let Some((head, totals)) = line.rsplit_once(' ') else {
        return;
    };
    let (Ok(number), Ok(mut totals)) = (number.parse::<u64>(), totals_of(totals)) else {
        return;
    };
    let place = number as usize % totals.len();
    let total = &mut totals[place];
    if total.used() == 0 {
        return;
    }
    let (number, used) = other(number, total.used());
    set_used(total, used);
    let line = format!("{head} {}", encode_totals(&totals));
    let number = number.to_string();
    redis.command::<()>(&["HSET", name, "number", &number, "line", &line]);
}

fn set_used(total: &mut Total, used: u64) {
    match &mut total.state {
        LimitState::Calendar(calendar) => calendar.used = used,
        LimitState::FromFirstClaim(opened) => opened.used = used,
        LimitState::Sliding(log) => {
            let before = log.used();
            log.take_off(before.saturating_sub(used), DateTime::<Utc>::MAX_UTC);
            let last = log.pairs.last_mut();
            last.into_iter()
                .for_each(|pair| pair.units += used.saturating_sub(before));
        }
        LimitState::Rate(bucket) => bucket.owed = bucket.parts(used),
    }
}

/// Redis writes a log, and its disk has no space: MISCONF.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_of_redis_is_full() {
    let Some(disk) = Disk::mount(16) else { return };
    let redis = Redis::start_in(disk.folder(), &["--appendonly", "yes"]);
    let setup = Setup::plain(postgres().create_database(), redis.url());
    let mut trial = Trial::begin("the_disk_of_redis_is_full", setup).await;
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
