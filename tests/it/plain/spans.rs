//! Checks that no span of time has more granted units than a limit allows. Reversed units do not
//! count.

use super::{Effect, PlainAccount, PlainEntry, PlainLimit, Return};

impl PlainAccount {
    /// Call it after a grant. Returns whether a span of time that ends with the grant exceeds the
    /// limit. When an adjustment took units off, the answer is unknown and the result is `false`.
    pub fn has_span_over(&self, limit: &PlainLimit) -> bool {
        let is_by_hand = |entry: &PlainEntry| entry.effect == Effect::TakeOff;
        let Some(last) = self
            .entries
            .last()
            .filter(|last| last.effect == Effect::Grant)
        else {
            return false;
        };
        if self.entries.iter().any(is_by_hand) {
            return false;
        }
        let granted_since = |from: i64| -> u64 {
            let standing = self
                .standing()
                .filter(|(_, entry)| entry.counted_at >= from);
            standing.map(|(_, entry)| entry.units).sum()
        };
        match limit.returns {
            Return::FromFirstClaim => false,
            Return::Sliding { .. } => granted_since(last.at - limit.per + 1) > limit.max,
            Return::Rate { burst } => {
                let is_same = |limits: &&Vec<PlainLimit>| limits.contains(limit);
                let same = self.limits.iter().rev().take_while(is_same).count();
                let first = self.limits.len() - same;
                let per = i128::from(limit.per);
                let mut starts = self.standing().filter(|(place, _)| *place >= first);
                starts.any(|(_, entry)| {
                    let refilled = i128::from(limit.max) * i128::from(last.at - entry.counted_at);
                    let most = i128::from(burst) * per + refilled;
                    i128::from(granted_since(entry.counted_at)) * per > most
                })
            }
        }
    }

    /// The grants that were not reversed, with their places.
    fn standing(&self) -> impl Iterator<Item = (usize, &PlainEntry)> {
        let is_given_back = |place: usize| {
            let mut entries = self.entries.iter();
            entries.any(|entry| entry.effect == Effect::GiveBack(place))
        };
        let entries = self.entries.iter().enumerate();
        entries
            .filter(move |(place, entry)| entry.effect == Effect::Grant && !is_given_back(*place))
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
}
