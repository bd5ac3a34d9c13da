//! `sliding`: each unit returns `per` after it was taken.

use std::collections::BTreeMap;

use super::{Effect, PlainAccount, PlainEntry, PlainLimit, PlainState};

/// A log with more instants merges the two oldest instants into the later one.
const INSTANTS_MOST: usize = 101;

impl PlainAccount {
    pub(super) fn log(&self, limit: &PlainLimit, step: i64, at: i64) -> PlainState {
        // 1. Find the line since which every line has the limit, and the oldest instant that can
        //    count.
        let place = self.kept_from(limit);
        let per = limit.per;
        let begins = self.line_before(place).unwrap_or_default() - per;
        let back = per + begins.rem_euclid(step);
        let mut taken: BTreeMap<i64, u64> = BTreeMap::new();
        for entry in self.counting_log(limit, place, back) {
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
                    if let Some(units) = taken.get_mut(&own) {
                        *units = units.saturating_sub(entry.units);
                    }
                }
                Effect::TakeOff => {
                    let mut rest = entry.units;
                    for (_, units) in taken.range_mut(..=own) {
                        let off = rest.min(*units);
                        *units -= off;
                        rest -= off;
                    }
                }
                Effect::Reset(_) | Effect::Nothing => {}
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

    /// The entries that count for a log. An adjustment down before the limit's first line took older
    /// units first: then these are needed too, with all that was taken up to the oldest instant that can
    /// count.
    fn counting_log(&self, limit: &PlainLimit, place: usize, back: i64) -> Vec<&PlainEntry> {
        let begins = self.line_before(place).unwrap_or_default() - back;
        let is_early =
            |own: usize, entry: &PlainEntry| own < place && entry.effect == Effect::TakeOff;
        let counting = self.counting(limit, place, back);
        let mut counting = counting.into_iter();
        if !counting.clone().any(|(own, entry)| is_early(own, entry)) {
            return counting.map(|(_, entry)| entry).collect();
        }
        counting = self.counting(limit, place, back + limit.per).into_iter();
        let counting = counting.filter(|(own, entry)| !is_early(*own, entry) || begins < entry.at);
        counting.map(|(_, entry)| entry).collect()
    }
}

pub(super) fn round_up(instant: i64, step: i64) -> i64 {
    (instant + step - 1).div_euclid(step) * step
}
