//! `from_first_claim`: the first grant at or after the end of a window opens the next window.

use super::{Effect, PlainAccount, PlainLimit, PlainState};

impl PlainAccount {
    pub(super) fn opened(&self, limit: &PlainLimit, at: i64) -> PlainState {
        let (place, per) = (self.kept_from(limit), limit.per);
        let after = self.begins_after(place, at, per);
        // The start of the last window, and the usage in it.
        let mut last: Option<(i64, u64)> = None;
        for (_, entry) in self.counting(place, after) {
            last.take_if(|(start, _)| *start + per <= entry.at);
            if entry.effect.takes() && entry.at < entry.counted_at + per {
                last.get_or_insert((entry.counted_at, 0));
            }
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
        match last.filter(|(start, _)| at < start + per) {
            Some((start, used)) => PlainState::Opened {
                at: Some(start),
                used,
            },
            None => PlainState::Opened { at: None, used: 0 },
        }
    }
}
