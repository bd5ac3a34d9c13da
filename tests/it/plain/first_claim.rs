//! `from_first_claim`: the first grant at or after the end of a window opens the next window.

use super::{PlainAccount, PlainLimit, PlainState};

impl PlainAccount {
    pub(super) fn opened(&self, limit: &PlainLimit, at: i64) -> PlainState {
        // 1. Find the line since which every line has the limit, and the oldest instant that can
        //    count.
        let (place, per) = (self.kept_from(limit), limit.per);
        // The start of the last window, and the usage in it. The start before the limit's first line
        // is unknown. The model assumes that the window ends as late as it can.
        let earlier = || {
            let counting = self.counting(place, per);
            counting.filter(|(own, _)| *own < place)
        };
        let takes = earlier().filter(|(_, entry)| entry.effect.takes());
        let start = takes.map(|(_, entry)| entry.counted_at).max();
        let used = earlier().fold(0, |used, (_, entry)| entry.used_after(used));
        let mut last: Option<(i64, u64)> = start.map(|start| (start, used));
        for entry in &self.entries[place..] {
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
