//! `from_first_claim`: the first grant at or after the end of a window opens the next window.

use super::{Effect, PlainAccount, PlainLimit, PlainState};

impl PlainAccount {
    pub(super) fn opened(&self, limit: &PlainLimit, at: i64) -> PlainState {
        // 1. Find the line since which every line has the limit, and the oldest instant that can
        //    count.
        let (place, per) = (self.kept_from(limit), limit.per);
        let after = self.begins_after(place, at, per);
        // The start of the last window, and the usage in it.
        let mut last: Option<(i64, u64)> = None;
        for (_, entry) in self.counting(place, after) {
            // 2. Close the window if it ended before this entry. A grant opens the next one.
            last.take_if(|(start, _)| *start + per <= entry.at);
            if entry.effect.takes() && entry.at < entry.counted_at + per {
                last.get_or_insert((entry.counted_at, 0));
            }
            // 3. Add or remove this entry's units, if they count in the open window.
            let Some((_, used)) = last
                .as_mut()
                .filter(|(start, _)| *start <= entry.counted_at)
            else {
                continue;
            };
            match entry.effect {
                Effect::Grant | Effect::Take => *used += entry.units,
                Effect::GiveBack(_) | Effect::TakeOff => *used = used.saturating_sub(entry.units),
                Effect::Nothing => {}
            }
        }
        // 4. Return the window, if it is still open now.
        match last.filter(|(start, _)| at < start + per) {
            Some((start, used)) => PlainState::Opened {
                at: Some(start),
                used,
            },
            None => PlainState::Opened { at: None, used: 0 },
        }
    }
}
