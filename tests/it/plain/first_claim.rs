//! `from_first_claim`: the first grant at or after the end of a window opens the next window.

use super::{Effect, PlainAccount, PlainEntry, PlainLimit, PlainState};

impl PlainAccount {
    pub(super) fn opened(&self, limit: &PlainLimit, at: i64) -> PlainState {
        // 1. Find the line since which every line has the limit, and the oldest instant that can
        //    count.
        let place = self.kept_from(limit);
        let per = limit.per;
        // The start of the last window, and the usage in it. The start before the limit's first line
        // is unknown. The model assumes that the window ends as late as it can, and has as much as it
        // can.
        let counting = self.counting(limit, place, per);
        let (earlier, later): (Vec<(usize, &PlainEntry)>, Vec<_>) =
            counting.into_iter().partition(|(own, _)| *own < place);
        let takes = earlier.iter().filter(|(_, entry)| entry.effect.takes());
        let start = takes.map(|(_, entry)| entry.counted_at).max();
        let mut last: Option<(i64, u64)> = start.map(|start| (start, most_in_one(&earlier)));
        for (_, entry) in later {
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
            *used = entry.used_after(*used);
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

/// The most units that one window of some entries has. What these entries give back of a grant was
/// never taken. An adjustment that counts before the window took nothing off.
fn most_in_one(entries: &[(usize, &PlainEntry)]) -> u64 {
    let given_back = |place: usize| -> u64 {
        let gives = |entry: &PlainEntry| entry.effect == Effect::GiveBack(place);
        let giving = entries.iter().filter(|(_, entry)| gives(entry));
        giving.map(|(_, entry)| entry.units).sum()
    };
    let off = |entry: &PlainEntry| entry.effect == Effect::TakeOff;
    let off = entries.iter().filter(|(_, entry)| off(entry));
    let mut most = 0;
    for start in off.map(|(_, entry)| entry.counted_at).chain([i64::MIN]) {
        let inside = entries.iter().filter(|(_, entry)| start < entry.counted_at);
        let used = inside.fold(0, |used: u64, (place, entry)| match entry.effect {
            Effect::Grant | Effect::Take => used + entry.units.saturating_sub(given_back(*place)),
            Effect::TakeOff => used.saturating_sub(entry.units),
            Effect::GiveBack(_) | Effect::Reset(_) | Effect::Nothing => used,
        });
        most = most.max(used);
    }
    most
}
