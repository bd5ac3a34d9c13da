//! From positions to places, and back.

use chrono::{DateTime, Utc};

use crate::domain::record::{Mark, RecordPlace};
use crate::ledger::{Horizon, Ledger, LedgerError};

/// The most marks that are read at once …
const MARKS_MOST: u32 = 64;
/// … and the most places of several marks. One mark alone may have more.
const PLACES_MOST: u64 = 1024;

/// The places of some consecutive marks.
struct Stretch {
    marks: Vec<Mark>,
    places: Vec<RecordPlace>,
}

impl Stretch {
    /// Reads the places of the first marks, as many as fit.
    async fn read(ledger: &Ledger, mut marks: Vec<Mark>) -> Result<Option<Self>, LedgerError> {
        let Some(first) = marks.first().copied() else {
            return Ok(None);
        };
        marks.retain(|mark| *mark == first || mark.position - first.after <= PLACES_MOST);
        let last = marks.last().copied().unwrap_or(first);
        let before = ledger.mark_to(first.after).await?;
        let count = last.position - first.after;
        let horizon = Horizon::above(last.place.xact);
        let limit = u32::try_from(count).unwrap_or(u32::MAX);
        let places = ledger.places(before.place, horizon, limit).await?;
        if places.last() > Some(&last.place) || places.len() as u64 != count {
            let (after, position) = (first.after, last.position);
            return Err(LedgerError::Corrupt(format!(
                "entries or changes at the positions above {after} and up to {position} are gone"
            )));
        }
        Ok(Some(Self { marks, places }))
    }

    fn after(&self) -> u64 {
        self.marks.first().map_or(0, |mark| mark.after)
    }

    /// The position of a place, and when it was given.
    fn position(&self, place: RecordPlace) -> Option<(u64, DateTime<Utc>)> {
        let index = self.places.binary_search(&place).ok()?;
        let position = self.after() + 1 + index as u64;
        let mark = self.marks.partition_point(|mark| mark.position < position);
        Some((position, self.marks.get(mark)?.recorded_at))
    }
}

/// The mark of a position, cut to end at the position; `None` if the position is not given yet.
pub async fn mark_at(ledger: &Ledger, position: u64) -> Result<Option<Mark>, LedgerError> {
    if position == 0 {
        return Ok(Some(Mark::FIRST));
    }
    let mark = ledger.mark_with_position(position).await?;
    let stretch = Stretch::read(ledger, mark.into_iter().collect()).await?;
    Ok(mark.zip(stretch).and_then(|(mark, stretch)| {
        let index = usize::try_from(position - mark.after - 1).ok()?;
        let place = *stretch.places.get(index)?;
        Some(Mark {
            position,
            place,
            ..mark
        })
    }))
}

/// The position of a place; `None` if it has none yet.
pub async fn position_of(ledger: &Ledger, place: RecordPlace) -> Result<Option<u64>, LedgerError> {
    if ledger.last_mark().await?.place < place {
        return Ok(None);
    }
    let found = positions(ledger, [place].into_iter()).await?;
    Ok(found.first().map(|(position, _)| *position))
}

/// The positions of places, which must be in order; each with the instant when it was given.
pub async fn positions(
    ledger: &Ledger,
    places: impl Iterator<Item = RecordPlace>,
) -> Result<Vec<(u64, DateTime<Utc>)>, LedgerError> {
    let missing = || LedgerError::Corrupt("an entry in the record has no position".to_owned());
    let mut found = Vec::new();
    let mut stretch: Option<Stretch> = None;
    for place in places {
        let is_beyond = |stretch: &Stretch| stretch.places.last() < Some(&place);
        if stretch.as_ref().is_none_or(is_beyond) {
            let marks = ledger.marks_from(place, MARKS_MOST).await?;
            stretch = Stretch::read(ledger, marks).await?;
        }
        let position = stretch.as_ref().and_then(|stretch| stretch.position(place));
        found.push(position.ok_or_else(missing)?);
    }
    Ok(found)
}
