//! Tables that other limiters document. Their numbers are computed here from those projects'
//! documents.

use chrono::{DateTime, Utc};
use perdiem::domain::claim::Units;
use perdiem::domain::limit::draft::LimitDraft;

use super::{Counting, Outcome, at, limit};

const SECOND: i64 = 1_000_000;

/// go-zero, core/limit, `PeriodLimit`. Of a hundred takes under a quota of five, four are allowed,
/// one hits the quota, and the others are over it. The test uses a window that the first take
/// opens, and a window that is aligned to the clock.
#[test]
fn go_zeros_period_limit_allows_its_quota() {
    for limit in [
        limit(5, "1s", Some("from_first_claim")),
        limit(5, "minute", None),
    ] {
        let mut counting = Counting::of(limit);
        let mut allowed = 0;
        let mut last = 0;
        let mut over = 0;
        for take in 0..100 {
            // All takes are within the window.
            match counting.claim(1, at(take)) {
                Outcome::Granted(total) if total.remaining() > 0 => allowed += 1,
                Outcome::Granted(_) => last += 1,
                Outcome::Denied(_) => over += 1,
                Outcome::NeverFits => panic!("one unit always fits"),
            }
        }
        assert_eq!((allowed, last, over), (4, 1, 95));
    }
}

/// A window from the first claim is not aligned: its end depends on the claim that opens it.
#[test]
fn a_window_ends_where_go_zeros_alignment_says() {
    let half_past = 30 * SECOND;
    for (limit, ends_at) in [
        (limit(5, "60s", Some("from_first_claim")), 90 * SECOND),
        (limit(5, "minute", None), 60 * SECOND),
    ] {
        let mut counting = Counting::of(limit);
        for _ in 0..5 {
            assert!(matches!(
                counting.claim(1, at(half_past)),
                Outcome::Granted(_)
            ));
        }
        let just_before = counting.claim(1, at(ends_at - 1));
        assert!(matches!(just_before, Outcome::Denied(_)), "{just_before:?}");
        assert!(matches!(
            counting.claim(1, at(ends_at)),
            Outcome::Granted(_)
        ));
    }
}

/// A row: milliseconds, units, the units left after it, the milliseconds until all units are back,
/// and the milliseconds until a denied claim would be granted.
type Row = (i64, u64, u64, i64, Option<i64>);

/// A row is denied if it has the time until a grant, and granted otherwise.
#[track_caller]
fn keeps(counting: &mut Counting, rows: &[Row]) {
    for (number, (millis, units, remaining, reset, retry)) in rows.iter().enumerate() {
        let now = at(millis * 1000);
        let outcome = counting.claim(*units, now);
        let (total, fits_at) = match outcome {
            Outcome::Granted(total) => (total, None),
            Outcome::Denied(total) => {
                let fits_at = total.fits_at(Units::new((*units).into()).expect("units"));
                (total, fits_at)
            }
            Outcome::NeverFits => panic!("row {number} never fits"),
        };
        let until = |instant: Option<DateTime<Utc>>| {
            instant.map(|instant| (instant - now).num_microseconds())
        };
        let found = (
            total.remaining(),
            until(total.resets_at()).flatten().unwrap_or_default(),
            until(fits_at).flatten(),
        );
        let expected = (*remaining, reset * 1000, retry.map(|retry| retry * 1000));
        assert_eq!(found, expected, "row {number}");
    }
}

/// throttled for Go, `GCRARateLimiter`: one a second, five at once (its burst is in addition to the
/// one). Its first row has six units, which never fit. Its row without units only reads, and
/// perdiem has no such claim.
#[test]
fn throttleds_rate_limiter_keeps_its_table() {
    let mut counting = Counting::of(LimitDraft {
        burst: Some(5),
        ..limit(1, "1s", Some("rate"))
    });
    assert_eq!(counting.claim(6, at(0)), Outcome::NeverFits);
    let rows = [
        // Five at once, and no sixth unit for a second.
        (0, 1, 4, 1000, None),
        (0, 1, 3, 2000, None),
        (0, 1, 2, 3000, None),
        (0, 1, 1, 4000, None),
        (0, 1, 0, 5000, None),
        (0, 1, 0, 5000, Some(1000)),
        // Three units are back after three seconds. A tenth of a second returns none.
        (3000, 1, 2, 3000, None),
        (3100, 1, 1, 3900, None),
        (4000, 1, 1, 4000, None),
        // All units are back, and never more than all.
        (8000, 1, 4, 1000, None),
        (9500, 1, 4, 1000, None),
        // Several units at once, and too many at once. A denied claim takes nothing.
        (9500, 2, 2, 3000, None),
        (9500, 5, 2, 3000, Some(3000)),
    ];
    keeps(&mut counting, &rows);
}

/// redis_rate for Go, `PerSecond(10)`: ten a second, ten at once. A claim of a thousand is more
/// than the bucket's size: there it has a waiting time, and here it never fits.
#[test]
fn redis_rates_ten_per_second_keep_their_table() {
    let mut counting = Counting::of(limit(10, "1s", Some("rate")));
    let rows = [
        (0, 1, 9, 100, None),
        (0, 2, 7, 300, None),
        (0, 7, 0, 1000, None),
        (0, 1, 0, 1000, Some(100)),
        (0, 10, 0, 1000, Some(1000)),
        // One unit is back after a tenth of a second.
        (99, 1, 0, 901, Some(1)),
        (100, 1, 0, 1000, None),
    ];
    keeps(&mut counting, &rows);
    assert_eq!(counting.claim(1000, at(100_000)), Outcome::NeverFits);
}
