//! The text of a line: its calendar and its totals. Entries and counters use the same form.

use std::sync::Arc;

use chrono::NaiveDate;

use super::grant::Line;
use super::limit::text::{TotalsError, decode_totals, encode_totals};
use super::limit::total::Total;
use super::own_calendar::OwnCalendar;
use super::zone::Zone;

/// Before the calendar of a line.
const OWN: char = '@';

/// Writes the totals of a line, as [`encode_totals`] does. The calendar of an account comes first:
///
/// ```text
/// @Asia/Tokyo,20484;d3,1,1763654400+86400   the zone, and the anchor in days after 1970-01-01
/// @,20484;…    @Asia/Tokyo,;…               one of them
/// ```
pub fn encode_state(line: &Line) -> String {
    let totals = encode_totals(&line.totals);
    match line.calendar.as_deref() {
        None => totals,
        Some(OwnCalendar { zone, anchor }) => {
            let zone = zone.as_ref().map_or("", Zone::name);
            let anchor = anchor.map(|day| day.to_epoch_days().to_string());
            format!("{OWN}{zone},{};{totals}", anchor.unwrap_or_default())
        }
    }
}

/// The calendar and the totals of a line.
pub type LineState = (Option<Arc<OwnCalendar>>, Arc<[Total]>);

/// Reads a text that [`encode_state`] wrote.
///
/// # Errors
/// [`TotalsError`] for any other text, and for a zone that this machine does not know.
pub fn decode_state(text: &str) -> Result<LineState, TotalsError> {
    Ok((decode_calendar(text)?, totals_of(text)?.into()))
}

/// The totals in a text that [`encode_state`] wrote, whatever calendar stands before them.
///
/// # Errors
/// [`TotalsError`] for totals that cannot be read.
pub fn totals_of(text: &str) -> Result<Vec<Total>, TotalsError> {
    let own = text.strip_prefix(OWN).and_then(|own| own.split_once(';'));
    decode_totals(own.map_or(text, |(_, totals)| totals))
}

/// The calendar in a text that [`encode_state`] wrote.
///
/// # Errors
/// [`TotalsError`] for one that cannot be read.
pub fn decode_calendar(text: &str) -> Result<Option<Arc<OwnCalendar>>, TotalsError> {
    let Some(own) = text.strip_prefix(OWN) else {
        return Ok(None);
    };
    let read = own.split_once(';').and_then(|(own, _)| decode_own(own));
    let own = read.ok_or_else(|| TotalsError(text.to_owned()))?;
    Ok(Some(Arc::new(own)))
}

fn decode_own(text: &str) -> Option<OwnCalendar> {
    let (zone, anchor) = text.split_once(',')?;
    let zone = match zone {
        "" => None,
        zone => Some(Zone::parse(zone).ok().filter(|it| it.name() == zone)?),
    };
    let anchor = match anchor {
        "" => None,
        days => Some(NaiveDate::from_epoch_days(days.parse().ok()?)?),
    };
    let is_some = zone.is_some() || anchor.is_some();
    is_some.then_some(OwnCalendar { zone, anchor })
}
