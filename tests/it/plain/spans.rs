//! Checks that no span of time has more granted units than a limit allows. Reversed units do not
//! count. Units that an adjustment took off do not count if the adjustment's instant is inside the
//! span: they were taken at or before this instant. What counts before the last reset does not count.

use super::sliding::round_up;
use super::{Effect, PlainAccount, PlainEntry, PlainLimit, Return};

impl PlainAccount {
    /// Call it after a grant. Returns whether a span of time that ends with the grant exceeds the
    /// limit.
    pub fn has_span_over(&self, limit: &PlainLimit) -> bool {
        let Some(last) = self
            .entries
            .last()
            .filter(|last| last.effect == Effect::Grant)
        else {
            return false;
        };
        let step = match limit.returns {
            Return::Sliding { step } => step.unwrap_or(1),
            Return::FromFirstClaim | Return::Rate { .. } => 1,
        };
        let instant = |entry: &PlainEntry| round_up(entry.counted_at, step);
        let resets = self.entries.iter().rev();
        let mut resets = resets.filter(|entry| entry.effect.resets(limit));
        let reset_at = resets.next().map_or(i64::MIN, |entry| entry.at);
        let standing = || {
            let standing = self.standing();
            standing.filter(|(_, entry)| entry.counted_at >= reset_at)
        };
        let granted_since = |from: i64| -> u64 {
            let standing = standing().filter(|(_, entry)| instant(entry) >= from);
            let granted: u64 = standing.map(|(_, entry)| entry.units).sum();
            let off = |entry: &&PlainEntry| {
                let counts = entry.counted_at >= reset_at && instant(entry) >= from;
                entry.effect == Effect::TakeOff && counts
            };
            let off = self.entries.iter().filter(off);
            granted.saturating_sub(off.map(|entry| entry.units).sum())
        };
        match limit.returns {
            Return::FromFirstClaim => false,
            Return::Sliding { .. } => {
                let starts = standing().map(|(_, entry)| instant(&entry));
                let mut starts = starts.filter(|from| last.at < from + limit.per);
                starts.any(|from| granted_since(from) > limit.max)
            }
            Return::Rate { burst } => {
                let is_same = |limits: &&Vec<PlainLimit>| limits.contains(limit);
                let same = self.limits.iter().rev().take_while(is_same).count();
                let first = self.limits.len() - same;
                let per = i128::from(limit.per);
                let mut starts = standing().filter(|(place, _)| *place >= first);
                starts.any(|(_, entry)| {
                    let refilled = i128::from(limit.max) * i128::from(last.at - entry.counted_at);
                    let most = i128::from(burst) * per + refilled;
                    i128::from(granted_since(entry.counted_at)) * per > most
                })
            }
        }
    }

    /// The grants, with their places, without the units that were given back.
    fn standing(&self) -> impl Iterator<Item = (usize, PlainEntry)> {
        let entries = self.entries.iter().enumerate();
        let grants = entries.filter(|(_, entry)| entry.effect == Effect::Grant);
        grants.map(|(place, entry)| {
            let units = entry.units.saturating_sub(self.given_back(place));
            (place, PlainEntry { units, ..*entry })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn unit(effect: Effect, second: i64, counted: i64) -> PlainEntry {
        PlainEntry {
            effect,
            units: 1,
            at: second * SECOND,
            counted_at: counted * SECOND,
        }
    }

    /// That many grants of one unit, one in each second.
    fn granted(grants: i64, limit: PlainLimit) -> PlainAccount {
        let mut account = PlainAccount::default();
        for second in 1..=grants {
            account.push(unit(Effect::Grant, second, second), vec![limit]);
        }
        account
    }

    #[test]
    fn a_span_that_has_too_much_is_found() {
        let limit = |max, seconds, returns| PlainLimit {
            max,
            per: seconds * SECOND,
            returns,
        };
        let sliding = Return::Sliding { step: None };
        let rate = |burst| Return::Rate { burst };
        for (limit, grants, is_over) in [
            (limit(3, 4, sliding), 3, false),
            (limit(3, 4, sliding), 4, true),
            (limit(3, 3, sliding), 9, false),
            (limit(1, 2, rate(2)), 3, false),
            (limit(1, 2, rate(2)), 4, true),
            (limit(1, 1, rate(1)), 9, false),
            (limit(1, 2, rate(1)), 2, true),
        ] {
            let account = granted(grants, limit);
            assert_eq!(account.has_span_over(&limit), is_over, "{limit:?} {grants}");
        }
        // Nobody used the units that were given back.
        for limit in [limit(3, 4, sliding), limit(1, 2, rate(2))] {
            let mut account = granted(3, limit);
            for effect in [Effect::GiveBack(0), Effect::Grant] {
                account.push(
                    unit(effect, 4, 1 + 3 * i64::from(effect == Effect::Grant)),
                    vec![limit],
                );
            }
            assert!(!account.has_span_over(&limit), "{limit:?}");
        }
    }

    #[test]
    fn an_adjustment_takes_nothing_off_that_was_taken_later() {
        let sliding = |step: Option<i64>| Return::Sliding {
            step: step.map(|seconds| seconds * SECOND),
        };
        for (returns, counted, is_over) in [
            (sliding(None), 4, true),
            (sliding(None), 5, false),
            (sliding(None), 6, false),
            (sliding(Some(5)), 4, false),
            (sliding(Some(2)), 4, true),
            (Return::Rate { burst: 4 }, 4, true),
            (Return::Rate { burst: 4 }, 5, false),
        ] {
            let limit = PlainLimit {
                max: 3,
                per: 10 * SECOND,
                returns,
            };
            let mut account = PlainAccount::default();
            let [first, off, second] = [
                unit(Effect::Grant, 5, 5),
                unit(Effect::TakeOff, 6, counted),
                unit(Effect::Grant, 6, 6),
            ]
            .map(|entry| PlainEntry { units: 3, ..entry });
            for entry in [first, off, second] {
                account.push(entry, vec![limit]);
            }
            assert_eq!(
                account.has_span_over(&limit),
                is_over,
                "{limit:?} {counted}"
            );
        }
    }
}
