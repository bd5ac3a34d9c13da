//! Redis: whether perdiem may use it, and whether it keeps grants that the ledger does not have yet.

use super::findings::Diagnosis;
use counter::{CheckupError, CounterError, RedisFacts};
use engine::EngineOptions;
use ledger::ClockReading;

/// The first version that knows a command of perdiem (`SET … PXAT`).
const OLDEST: (u32, u32) = (6, 2);
/// Redis is nearly full when it uses this many of ten parts of its memory.
const FULL_TENTHS: u64 = 9;

/// Looks at Redis. `counts` is whether a policy lets Redis decide; `None` if that is not known.
pub async fn look_at_redis(
    found: &mut Diagnosis,
    url: &str,
    options: &EngineOptions,
    counts: Option<bool>,
) {
    const ABOUT: &str = "Redis";
    match RedisFacts::read(url, &options.redis_access, || options.clock.now()).await {
        Ok(primaries) => {
            for facts in &primaries {
                look_at_primary(found, facts, options, counts);
            }
        }
        Err(error @ CheckupError::Setting(_)) => found.wrong(ABOUT, error),
        Err(error) => found.look(
            ABOUT,
            format!(
                "it cannot be asked: {error}; see that Redis runs there and that REDIS_URL names it; \
                 until then the ledger decides all claims, slower but equally exact"
            ),
        ),
    }
}

fn look_at_primary(
    found: &mut Diagnosis,
    facts: &RedisFacts,
    options: &EngineOptions,
    counts: Option<bool>,
) {
    const ABOUT: &str = "Redis";
    let RedisFacts {
        place,
        version,
        policy,
        ..
    } = facts;
    // 1. Whether it can be used at all.
    if is_older(version) {
        let (major, minor) = OLDEST;
        found.look(
            ABOUT,
            format!("{version} at {place}: perdiem needs {major}.{minor} or newer; install one"),
        );
    } else if facts.is_replica {
        let text = format!(
            "{version} at {place} is a replica, which takes no writes: name the primary in REDIS_URL"
        );
        found.look(ABOUT, text);
    } else {
        found.ok(ABOUT, format!("{version} at {place}"));
    }
    if policy == "noeviction" {
        found.ok("Redis' eviction", "none (noeviction)");
    } else {
        let place = place.clone();
        let policy = policy.clone();
        found.wrong("Redis' eviction", CounterError::Evicts { place, policy });
    }
    look_at_memory(found, facts);
    look_at_persistence(found, facts, counts);
    look_at_clock(found, facts, options);
}

fn is_older(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let major = parts.next().unwrap_or(0);
    let minor = parts.next().unwrap_or(0);
    (major, minor) < OLDEST
}

fn look_at_memory(found: &mut Diagnosis, facts: &RedisFacts) {
    const ABOUT: &str = "Redis' memory";
    let used = facts.used_bytes >> 20;
    let most = facts.bytes_most;
    if most == 0 {
        found.ok(
            ABOUT,
            format!("{used} MB used, without a limit (maxmemory)"),
        );
    } else if facts.used_bytes > most / 10 * FULL_TENTHS {
        let text = format!(
            "{used} of {} MB used: it soon refuses writes, and the ledger decides alone; raise maxmemory",
            most >> 20
        );
        found.look(ABOUT, text);
    } else {
        found.ok(ABOUT, format!("{used} of {} MB used", most >> 20));
    }
}

fn look_at_persistence(found: &mut Diagnosis, facts: &RedisFacts, counts: Option<bool>) {
    const ABOUT: &str = "Redis' persistence";
    let saves = match facts.saves.as_deref() {
        None => "save is not known".to_owned(),
        Some("") => "save is off".to_owned(),
        Some(points) => format!("save is {points}"),
    };
    let appends = if facts.is_append_only { "yes" } else { "no" };
    let text = format!(
        "appendonly is {appends}, {saves}, replicas: {}",
        facts.replicas
    );
    if facts.disk_fails {
        let text = format!("{text}: its last write to disk failed; look at its log and its disk");
        found.look(ABOUT, text);
        return;
    }
    match counts {
        Some(false) => found.ok(
            ABOUT,
            format!("{text}: enough, because no policy lets Redis decide"),
        ),
        _ if !facts.is_append_only => {
            let why = if counts.is_some() {
                "a policy lets Redis decide, so"
            } else {
                "if a policy lets Redis decide,"
            };
            let text = format!(
                "{text}: {why} grants that the ledger does not have yet are lost when Redis ends; set \
                 appendonly yes"
            );
            found.look(ABOUT, text);
        }
        _ if facts.replicas > 0 && !facts.needs_replicas => {
            let text = format!(
                "{text}: a fail-over loses grants that no replica got; set min-replicas-to-write 1"
            );
            found.look(ABOUT, text);
        }
        _ => found.ok(ABOUT, text),
    }
}

fn look_at_clock(found: &mut Diagnosis, facts: &RedisFacts, options: &EngineOptions) {
    const ABOUT: &str = "clock of Redis";
    let Some(offset) = facts.clock_offset else {
        found.ok(ABOUT, "it does not tell the time");
        return;
    };
    let reading = ClockReading {
        offset,
        outlier: None,
    };
    let offset = reading.offset_least(facts.took);
    let text = format!("this machine's is off by {:.1} s", offset.as_seconds_f64());
    match options.clock_tolerance {
        Some(tolerance) if offset.abs() > tolerance => {
            let text = format!(
                "{text}, so counters live too long or too short: correct the clock that is wrong (NTP)"
            );
            found.look(ABOUT, text);
        }
        _ => found.ok(ABOUT, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_numbers() {
        for (version, expected) in [
            ("6.0.16", true),
            ("6.2.0", false),
            ("7.0.15", false),
            ("10.1.0", false),
            ("", true),
        ] {
            assert_eq!(is_older(version), expected, "{version}");
        }
    }
}
