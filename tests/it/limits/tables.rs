//! Tables that other limiters promise to keep. Their numbers are derived anew from what those projects
//! document.

use chrono::{DateTime, Utc};
use perdiem::domain::claim::Units;
use perdiem::domain::limit::draft::LimitDraft;

use super::{Counting, Outcome, at, limit};

const SECOND: i64 = 1_000_000;

/// go-zero, core/limit, `PeriodLimit`: of a hundred takes under a quota of five, four are allowed, one
/// hits the quota, and the others are over it; in a window that the first take opens, and in one that
/// is aligned to the clock.
#[test]
fn go_zeros_period_limit_allows_its_quota() {
    for limit in [
        limit(5, "1s", Some("from_first_claim")),
        limit(5, "minute", None),
    ] {
        let mut counting = Counting::of(limit);
        let (mut allowed, mut last, mut over) = (0, 0, 0);
        for take in 0..100 {
            // All of them within the window.
            match counting.claim(1, at(take)) {
                Outcome::Granted(total) if total.remaining() > 0 => allowed += 1,
                Outcome::Granted(_) => last += 1,
                Outcome::Denied(_) => over += 1,
                Outcome::NeverFits => panic!("one unit fits"),
            }
        }
        assert_eq!((allowed, last, over), (4, 1, 95));
    }
}

/// A window from the first claim is not aligned: its end moves with the claim that opens it.
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

/// A row: milliseconds, units, what is left after it, the milliseconds until all is back, and those
/// until a denied claim would be granted.
type Row = (i64, u64, u64, i64, Option<i64>);

/// Whether a row was granted follows from it: a denied one tells when it would be.
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

/// throttled for Go, `GCRARateLimiter`: one a second, five at once (its burst counts what comes on top
/// of the one). Its first row, of six units, never fits; its row of no units only looks, and perdiem
/// has no such claim.
#[test]
fn throttleds_rate_limiter_keeps_its_table() {
    let mut counting = Counting::of(LimitDraft {
        burst: Some(5),
        ..limit(1, "1s", Some("rate"))
    });
    assert_eq!(counting.claim(6, at(0)), Outcome::NeverFits);
    let rows = [
        // Five at once, and no sixth one for a second.
        (0, 1, 4, 1000, None),
        (0, 1, 3, 2000, None),
        (0, 1, 2, 3000, None),
        (0, 1, 1, 4000, None),
        (0, 1, 0, 5000, None),
        (0, 1, 0, 5000, Some(1000)),
        // Three are back after three seconds; a tenth of a second brings none.
        (3000, 1, 2, 3000, None),
        (3100, 1, 1, 3900, None),
        (4000, 1, 1, 4000, None),
        // All are back; more than all never are.
        (8000, 1, 4, 1000, None),
        (9500, 1, 4, 1000, None),
        // More at once, and too many at once: what is denied takes nothing.
        (9500, 2, 2, 3000, None),
        (9500, 5, 2, 3000, Some(3000)),
    ];
    keeps(&mut counting, &rows);
}

/// redis_rate for Go, `PerSecond(10)`: ten a second, ten at once. A claim of a thousand is more than
/// the bucket ever holds: it has a wait there, and never fits here.
#[test]
fn redis_rates_ten_per_second_keep_their_table() {
    let mut counting = Counting::of(limit(10, "1s", Some("rate")));
    let rows = [
        (0, 1, 9, 100, None),
        (0, 2, 7, 300, None),
        (0, 7, 0, 1000, None),
        (0, 1, 0, 1000, Some(100)),
        (0, 10, 0, 1000, Some(1000)),
        // One is back after a tenth of a second.
        (99, 1, 0, 901, Some(1)),
        (100, 1, 0, 1000, None),
    ];
    keeps(&mut counting, &rows);
    assert_eq!(counting.claim(1000, at(100_000)), Outcome::NeverFits);
}
