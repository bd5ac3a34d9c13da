//! What is searched: small worlds in which all that can happen is tried, and a large one.

use super::rule::Version;
use super::world::{Most, Request, Scene, Wants};

const NOTHING: Most = Most {
    crashes: 0,
    timeouts: 0,
    losses: 0,
    repeats: 0,
    redis_faults: 0,
    silences: 0,
    tamperings: 0,
};

const ONE: &[Version] = &[("UTC", &[(1, "day")])];
const TWO: &[Version] = &[("UTC", &[(2, "day")])];
const FIVE: &[Version] = &[("UTC", &[(5, "day")])];
const FALLING: &[Version] = &[("UTC", &[(5, "day")]), ("UTC", &[(1, "day")])];

/// One unit of an account, sent so often at most.
const fn claim(account: u8, key: Option<u8>, sends: u8) -> Request {
    Request {
        account,
        units: 1,
        key,
        wants: Wants::Grant,
        sends,
    }
}

const fn wanting(wants: Wants, request: Request) -> Request {
    Request { wants, ..request }
}

/// Two instances, one unit a day, a claim that is retried and one that has no key.
fn small() -> Scene {
    Scene {
        clocks: &[0, 0],
        instants: &[0],
        versions: ONE,
        requests: vec![claim(0, Some(0), 2), claim(0, None, 1)],
        has_redis: false,
        hold_seconds: 1,
        at_once: 2,
        most: NOTHING,
    }
}

fn small_with_redis() -> Scene {
    Scene {
        has_redis: true,
        ..small()
    }
}

/// The ledger alone: crashes, and commits whose outcome is unknown.
pub fn ledger_alone() -> Scene {
    Scene {
        most: Most {
            crashes: 1,
            timeouts: 2,
            ..NOTHING
        },
        ..small()
    }
}

/// The ledger alone, with room for more than there should be.
pub fn ledger_with_room() -> Scene {
    Scene {
        versions: FIVE,
        most: Most {
            crashes: 1,
            timeouts: 1,
            ..NOTHING
        },
        ..small()
    }
}

/// The ledger alone: commits whose outcome is unknown, while time passes and a limit falls.
pub fn ledger_in_time() -> Scene {
    Scene {
        instants: &[0, 1],
        versions: FALLING,
        requests: vec![claim(0, None, 1), claim(0, None, 1)],
        most: Most {
            timeouts: 1,
            ..NOTHING
        },
        ..small()
    }
}

/// Two accounts, and one key used for both.
pub fn one_key_for_two_accounts() -> Scene {
    Scene {
        requests: vec![
            claim(0, Some(0), 2),
            claim(1, Some(0), 1),
            claim(0, None, 1),
        ],
        most: Most {
            timeouts: 1,
            ..NOTHING
        },
        ..small()
    }
}

/// Counters that are lost, rolled back and split, more than once.
pub fn counters() -> Scene {
    Scene {
        versions: TWO,
        requests: vec![claim(0, Some(0), 2), claim(0, Some(1), 1)],
        most: Most {
            redis_faults: 2,
            ..NOTHING
        },
        ..small_with_redis()
    }
}

/// Settlements that are lost or come twice, and a Redis that fails.
pub fn settlements() -> Scene {
    Scene {
        most: Most {
            losses: 1,
            repeats: 1,
            redis_faults: 1,
            ..NOTHING
        },
        ..small_with_redis()
    }
}

/// Claims that go past Redis, and instances that crash or wait in vain.
pub fn crashes_with_counters() -> Scene {
    Scene {
        most: Most {
            crashes: 1,
            timeouts: 1,
            silences: 1,
            ..NOTHING
        },
        ..small_with_redis()
    }
}

/// Counters that say that nothing is used.
pub fn planted_counters() -> Scene {
    Scene {
        most: Most {
            tamperings: 1,
            silences: 1,
            ..NOTHING
        },
        ..small_with_redis()
    }
}

/// Midnight comes, and counters are no longer confirmed.
pub fn midnight() -> Scene {
    Scene {
        instants: &[-1, 4],
        ..small_with_redis()
    }
}

/// Midnight on instances whose clocks differ.
pub fn midnight_on_two_clocks() -> Scene {
    Scene {
        clocks: &[0, -1],
        instants: &[-1, 0],
        ..small_with_redis()
    }
}

/// The `max` is raised.
pub fn raise() -> Scene {
    Scene {
        versions: &[("UTC", &[(1, "day")]), ("UTC", &[(2, "day")])],
        ..small_with_redis()
    }
}

/// The `max` is lowered.
pub fn lower() -> Scene {
    Scene {
        versions: &[("UTC", &[(2, "day")]), ("UTC", &[(1, "day")])],
        ..small_with_redis()
    }
}

/// The `max` is raised, and a while later some instance still may not know.
pub fn raise_and_wait() -> Scene {
    Scene {
        instants: &[0, 2],
        requests: vec![claim(0, Some(0), 1), claim(0, None, 1)],
        ..raise()
    }
}

/// The `max` is raised to what a claim wants, which until then could never fit.
pub fn raise_to_fit() -> Scene {
    let two_units = Request {
        units: 2,
        ..claim(0, None, 1)
    };
    Scene {
        requests: vec![two_units, claim(0, None, 1)],
        ..raise_and_wait()
    }
}

/// Another zone, other windows, and less of everything.
pub fn another_zone() -> Scene {
    Scene {
        versions: &[
            ("UTC", &[(2, "day")]),
            ("+08:00", &[(1, "day"), (2, "month")]),
        ],
        ..small_with_redis()
    }
}

/// A grant is reversed, and its unit is granted again.
pub fn reversals() -> Scene {
    Scene {
        requests: vec![
            claim(0, Some(0), 1),
            wanting(Wants::Reversal(0), claim(0, None, 2)),
            claim(0, Some(1), 2),
        ],
        ..small_with_redis()
    }
}

/// A grant is reversed twice, and nobody asks Redis.
pub fn reversals_alone() -> Scene {
    Scene {
        requests: vec![
            claim(0, Some(0), 1),
            wanting(Wants::Reversal(0), claim(0, None, 2)),
            claim(0, None, 1),
        ],
        most: Most {
            timeouts: 1,
            crashes: 1,
            ..NOTHING
        },
        ..small()
    }
}

/// Two grants are reversed, one after the other: lines that differ by their numbers alone.
pub fn reversals_of_two() -> Scene {
    Scene {
        clocks: &[0],
        requests: vec![
            claim(0, Some(0), 1),
            wanting(Wants::Reversal(0), claim(0, None, 1)),
            claim(0, Some(1), 1),
            wanting(Wants::Reversal(2), claim(0, None, 1)),
        ],
        ..small_with_redis()
    }
}

/// A hold is confirmed and reversed, and its end comes.
pub fn confirmations() -> Scene {
    Scene {
        instants: &[0, 1],
        requests: vec![
            wanting(Wants::Hold, claim(0, Some(0), 1)),
            wanting(Wants::Confirmation(0), claim(0, None, 2)),
            wanting(Wants::Reversal(0), claim(0, None, 1)),
        ],
        most: Most {
            timeouts: 1,
            ..NOTHING
        },
        ..small()
    }
}

/// A hold is confirmed where its end has not come yet, while elsewhere it lapses.
pub fn confirmations_on_two_clocks() -> Scene {
    Scene {
        clocks: &[0, -1],
        instants: &[0, 1],
        requests: vec![
            wanting(Wants::Hold, claim(0, Some(0), 1)),
            wanting(Wants::Confirmation(0), claim(0, None, 1)),
            claim(0, None, 1),
        ],
        ..small()
    }
}

/// A hold lapses, and its unit is granted again.
pub fn lapses() -> Scene {
    Scene {
        instants: &[0, 2],
        requests: vec![
            wanting(Wants::Hold, claim(0, Some(0), 1)),
            wanting(Wants::Reversal(0), claim(0, None, 1)),
            claim(0, Some(1), 1),
        ],
        ..small_with_redis()
    }
}

/// A hold lapses while commits have an unknown outcome.
pub fn lapses_and_timeouts() -> Scene {
    Scene {
        instants: &[0, 2],
        versions: TWO,
        requests: vec![
            wanting(Wants::Hold, claim(0, Some(0), 1)),
            claim(0, None, 2),
        ],
        most: Most {
            timeouts: 1,
            ..NOTHING
        },
        ..small()
    }
}

/// Counters that say that there are no holds, or that nothing is used.
pub fn hidden_holds() -> Scene {
    Scene {
        instants: &[0, 1],
        versions: TWO,
        requests: vec![
            wanting(Wants::Hold, claim(0, Some(0), 1)),
            claim(0, None, 2),
        ],
        most: Most {
            tamperings: 1,
            ..NOTHING
        },
        ..small_with_redis()
    }
}

/// All of it at once: too large to be searched whole.
pub fn everything() -> Scene {
    Scene {
        clocks: &[0, 0, -1],
        instants: &[-3, -1, 0, 4, 8],
        versions: &[
            ("UTC", &[(2, "day"), (4, "month")]),
            ("+08:00", &[(3, "day")]),
            ("UTC", &[(1, "day"), (3, "month")]),
            ("-03:00", &[(2, "hour"), (3, "day")]),
        ],
        requests: vec![
            claim(0, Some(0), 3),
            claim(0, Some(1), 3),
            claim(1, Some(0), 2),
            claim(1, Some(2), 2),
            claim(0, None, 2),
            claim(1, None, 2),
            wanting(Wants::Hold, claim(0, Some(3), 2)),
            wanting(Wants::Reversal(0), claim(0, None, 2)),
            wanting(Wants::Reversal(6), claim(0, None, 1)),
            wanting(Wants::Confirmation(6), claim(0, None, 2)),
            wanting(Wants::Hold, claim(1, Some(4), 2)),
            wanting(Wants::Confirmation(10), claim(1, None, 2)),
        ],
        has_redis: true,
        hold_seconds: 3,
        at_once: 4,
        most: Most {
            crashes: 2,
            timeouts: 4,
            losses: 2,
            repeats: 2,
            redis_faults: 4,
            silences: 3,
            tamperings: 0,
        },
    }
}

/// As [`everything`], with nothing given back.
pub fn everything_but_give_backs() -> Scene {
    let all = everything();
    let requests = all.requests.iter().copied();
    Scene {
        requests: requests
            .filter(|request| request.wants == Wants::Grant)
            .collect(),
        ..all
    }
}

/// More of all that a scene has.
pub fn deeper(scene: Scene, by: u8) -> Scene {
    let more = |count: u8| if count == 0 { 0 } else { count + by };
    Scene {
        at_once: scene.at_once + usize::from(by),
        most: Most {
            crashes: more(scene.most.crashes),
            timeouts: more(scene.most.timeouts),
            losses: more(scene.most.losses),
            repeats: more(scene.most.repeats),
            redis_faults: more(scene.most.redis_faults),
            silences: more(scene.most.silences),
            tamperings: more(scene.most.tamperings),
        },
        ..scene
    }
}
