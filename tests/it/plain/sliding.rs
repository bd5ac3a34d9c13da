//! `sliding`: each unit returns `per` after it was taken.

use std::collections::BTreeMap;

use super::{Effect, PlainAccount, PlainLimit, PlainState};

/// A log with more instants merges the two oldest instants into the later one.
const INSTANTS_MOST: usize = 101;

impl PlainAccount {
    pub(super) fn log(&self, limit: &PlainLimit, step: i64, at: i64) -> PlainState {
        // 1. Find the line since which every line has the limit, and the oldest instant that can
        //    count.
        let (place, per) = (self.kept_from(limit), limit.per);
        let begins = self.line_before(place).unwrap_or_default() - per;
        let back = per + begins.rem_euclid(step);
        let mut taken: BTreeMap<i64, u64> = BTreeMap::new();
        for (_, entry) in self.counting(place, back) {
            // 2. Return the units that were taken `per` before this entry.
            taken.retain(|instant, _| entry.at < instant + per);
            // 3. Add or remove this entry's units, at its instant rounded up to the step.
            let own = round_up(entry.counted_at, step);
            if own + per <= entry.at {
                continue;
            }
            match entry.effect {
                Effect::Grant | Effect::Take => *taken.entry(own).or_default() += entry.units,
                Effect::GiveBack(_) => {
                    if let Some((_, units)) = taken.range_mut(own..).next() {
                        *units = units.saturating_sub(entry.units);
                    }
                }
                Effect::TakeOff => {
                    let mut rest = entry.units;
                    for units in taken.values_mut() {
                        let off = rest.min(*units);
                        *units -= off;
                        rest -= off;
                    }
                }
                Effect::Nothing => {}
            }
            // 4. Remove empty instants, and merge the two oldest if there are too many.
            taken.retain(|_, units| *units > 0);
            if taken.len() > INSTANTS_MOST {
                let oldest = taken.pop_first().map_or(0, |(_, units)| units);
                taken
                    .values_mut()
                    .take(1)
                    .for_each(|units| *units += oldest);
            }
        }
        // 5. Return the units that were taken `per` before now.
        taken.retain(|instant, _| at < instant + per);
        PlainState::Log(taken.into_iter().collect())
    }
}

fn round_up(instant: i64, step: i64) -> i64 {
    (instant + step - 1).div_euclid(step) * step
}
