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
        Some(own) => format!("{OWN}{};{totals}", encode_own(own)),
    }
}

fn encode_own(OwnCalendar { zone, anchor }: &OwnCalendar) -> String {
    let zone = zone.as_ref().map_or("", Zone::name);
    let anchor = anchor.map(|day| day.to_epoch_days().to_string());
    format!("{zone},{}", anchor.unwrap_or_default())
}

/// The calendar and the totals, as they are written.
fn parts(text: &str) -> Result<(Option<&str>, &str), TotalsError> {
    let Some(own) = text.strip_prefix(OWN) else {
        return Ok((None, text));
    };
    let parts = own.split_once(';').ok_or_else(|| unreadable(text))?;
    Ok((Some(parts.0), parts.1))
}

fn unreadable(text: &str) -> TotalsError {
    TotalsError(text.to_owned())
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
    decode_totals(parts(text)?.1)
}

/// The calendar in a text that [`encode_state`] wrote.
///
/// # Errors
/// [`TotalsError`] for one that cannot be read.
pub fn decode_calendar(text: &str) -> Result<Option<Arc<OwnCalendar>>, TotalsError> {
    let own = parts(text)?.0.map(|own| decode_own(own).map(Arc::new));
    own.map(|own| own.ok_or_else(|| unreadable(text)))
        .transpose()
}

fn decode_own(text: &str) -> Option<OwnCalendar> {
    let (zone, anchor) = text.split_once(',')?;
    let zone = match zone {
        "" => None,
        zone => Some(Zone::parse(zone).ok()?),
    };
    let anchor = match anchor {
        "" => None,
        days => Some(NaiveDate::from_epoch_days(days.parse().ok()?)?),
    };
    let own = OwnCalendar { zone, anchor };
    // Another text of the same calendar, and that of an empty one, is not ours.
    (own != OwnCalendar::default() && encode_own(&own) == text).then_some(own)
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use proptest::prelude::*;

    use super::*;
    use crate::account::{line_of, totals_at};
    use crate::histories::any_calendar;
    use crate::past::Past;
    use crate::samples::policy;

    const TOTALS: &str = "d3,1,1763654400+86400";

    fn line(calendar: Option<OwnCalendar>) -> Line {
        let at = DateTime::UNIX_EPOCH;
        let policy = policy(1, "UTC", &[(5, "day"), (9, "month")]);
        let totals = totals_at(&policy, None, &Past::default(), at).unwrap();
        Line {
            calendar: calendar.map(Arc::new),
            ..line_of(1, &totals, at)
        }
    }

    proptest! {
        #[test]
        fn every_line_reads_as_it_was_written(own in any_calendar()) {
            let own = Some(own).filter(|own| *own != OwnCalendar::default());
            let line = line(own);
            let text = encode_state(&line);
            let (calendar, totals) = decode_state(&text).unwrap();
            prop_assert_eq!(&calendar, &line.calendar);
            prop_assert_eq!(&totals, &line.totals);
            prop_assert_eq!(decode_calendar(&text).unwrap(), calendar);
            prop_assert_eq!(&*totals_of(&text).unwrap(), &*totals);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for own in [
            "@",
            "@,",
            "@5",
            "@Asia/Tokyo",
            "@Nowhere/City,5",
            "@asia/tokyo,5",
            "@GMT+9,",
            "@,+5",
            "@,05",
            "@,5,",
            "@,x",
            "@,99999999999",
        ] {
            for text in [own.to_owned(), format!("{own};{TOTALS}")] {
                assert!(decode_state(&text).is_err(), "{text}");
                assert!(decode_calendar(&text).is_err(), "{text}");
            }
        }
        for text in ["@Asia/Tokyo,5", "@Asia/Tokyo,5;", "@Asia/Tokyo,5;d3", ""] {
            assert!(totals_of(text).is_err(), "{text}");
            assert!(decode_state(text).is_err(), "{text}");
        }
        let read = decode_state(&format!("@Asia/Tokyo,5;{TOTALS}"));
        assert_eq!(read.unwrap().1.len(), 1);
    }
}
