//! The text of a line: its top-ups, its calendar and its totals. Entries and counters use the same form.

use std::fmt::Write;
use std::sync::Arc;

use chrono::{DateTime, NaiveDate};
use uuid::Uuid;

use super::grant::Line;
use super::identity::EntryId;
use super::limit::text::{TotalsError, decode_totals, encode_totals};
use super::limit::total::Total;
use super::own_calendar::OwnCalendar;
use super::top_up::{TopUp, TopUps};
use super::zone::Zone;

/// Before the top-ups of a line.
const TOP_UPS: char = '+';
/// Before the calendar of a line.
const OWN: char = '@';

/// Writes the totals of a line, as [`encode_totals`] does. The top-ups and the calendar of an account come first:
///
/// ```text
/// +2:019ab…,9,3,1763654400000000,2;…        2 units of the entry count in no window; the top-up of the entry
///                                           with this id has 3 of 9 left until this microsecond, and the entry
///                                           took 2 from it or gave them back
/// +0:019ab…,9,9,1763654400000000,0/019ac…;… two top-ups
/// @Asia/Tokyo,20484;d3,1,1763654400+86400   the zone, and the anchor in days after 1970-01-01
/// @,20484;…    @Asia/Tokyo,;…               one of them
/// ```
///
/// SQL reads the number after the plus sign (`ledger/tables/past.rs`).
pub fn encode_state(line: &Line) -> String {
    let totals = encode_totals(&line.totals);
    if line.top_ups.is_none() && line.calendar.is_none() {
        return totals;
    }
    let top_ups = line.top_ups.as_deref();
    let top_ups = top_ups.map(|top_ups| format!("{TOP_UPS}{};", encode_top_ups(top_ups)));
    let own = line.calendar.as_deref();
    let own = own.map(|own| format!("{OWN}{};", encode_own(own)));
    [top_ups, own, Some(totals)].into_iter().flatten().collect()
}

fn encode_top_ups(top_ups: &TopUps) -> String {
    let mut text = format!("{}:", top_ups.aside);
    for (place, top_up) in top_ups.each.iter().enumerate() {
        let TopUp {
            id,
            units,
            left,
            ends_at,
            moved,
        } = top_up;
        let between = if place > 0 { "/" } else { "" };
        let id = id.0.as_simple();
        let ends_at = ends_at.timestamp_micros();
        // Writing to a text does not fail.
        let _ = write!(text, "{between}{id},{units},{left},{ends_at},{moved}");
    }
    text
}

fn decode_top_ups(text: &str) -> Option<TopUps> {
    let (aside, each) = text.split_once(':')?;
    let each = each.split('/').filter(|_| !each.is_empty());
    let top_ups = TopUps {
        aside: aside.parse().ok()?,
        each: each.map(decode_top_up).collect::<Option<_>>()?,
    };
    (top_ups != TopUps::default() && encode_top_ups(&top_ups) == text).then_some(top_ups)
}

fn decode_top_up(text: &str) -> Option<TopUp> {
    let mut parts = text.split(',');
    let top_up = TopUp {
        id: EntryId(Uuid::try_parse(parts.next()?).ok()?),
        units: parts.next()?.parse().ok()?,
        left: parts.next()?.parse().ok()?,
        ends_at: DateTime::from_timestamp_micros(parts.next()?.parse().ok()?)?,
        moved: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(top_up)
}

fn encode_own(OwnCalendar { zone, anchor }: &OwnCalendar) -> String {
    let zone = zone.as_ref().map_or("", Zone::name);
    let anchor = anchor.map(|day| day.to_epoch_days().to_string());
    format!("{zone},{}", anchor.unwrap_or_default())
}

/// The parts of a text, as they are written.
struct TextParts<'a> {
    top_ups: Option<&'a str>,
    calendar: Option<&'a str>,
    totals: &'a str,
}

impl TextParts<'_> {
    fn top_ups(&self) -> Result<Option<Arc<TopUps>>, TotalsError> {
        let read = |text| decode_top_ups(text).ok_or_else(|| unreadable(text));
        Ok(self.top_ups.map(read).transpose()?.map(Arc::new))
    }

    fn calendar(&self) -> Result<Option<Arc<OwnCalendar>>, TotalsError> {
        let read = |text| decode_own(text).ok_or_else(|| unreadable(text));
        Ok(self.calendar.map(read).transpose()?.map(Arc::new))
    }
}

fn parts(text: &str) -> Result<TextParts<'_>, TotalsError> {
    let (top_ups, rest) = part(TOP_UPS, text)?;
    let (calendar, totals) = part(OWN, rest)?;
    Ok(TextParts {
        top_ups,
        calendar,
        totals,
    })
}

/// The part that begins with a sign, if it is there, and the rest.
fn part(sign: char, text: &str) -> Result<(Option<&str>, &str), TotalsError> {
    let Some(part) = text.strip_prefix(sign) else {
        return Ok((None, text));
    };
    let (part, rest) = part.split_once(';').ok_or_else(|| unreadable(text))?;
    Ok((Some(part), rest))
}

fn unreadable(text: &str) -> TotalsError {
    TotalsError(text.to_owned())
}

/// What the text of a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineState {
    pub top_ups: Option<Arc<TopUps>>,
    pub calendar: Option<Arc<OwnCalendar>>,
    pub totals: Arc<[Total]>,
}

/// Reads a text that [`encode_state`] wrote.
///
/// # Errors
/// [`TotalsError`] for any other text, and for a zone that this machine does not know.
pub fn decode_state(text: &str) -> Result<LineState, TotalsError> {
    let parts = parts(text)?;
    Ok(LineState {
        top_ups: parts.top_ups()?,
        calendar: parts.calendar()?,
        totals: decode_totals(parts.totals)?.into(),
    })
}

/// The totals in a text that [`encode_state`] wrote, whatever stands before them.
///
/// # Errors
/// [`TotalsError`] for totals that cannot be read.
pub fn totals_of(text: &str) -> Result<Vec<Total>, TotalsError> {
    decode_totals(parts(text)?.totals)
}

/// The calendar in a text that [`encode_state`] wrote.
///
/// # Errors
/// [`TotalsError`] for one that cannot be read.
pub fn decode_calendar(text: &str) -> Result<Option<Arc<OwnCalendar>>, TotalsError> {
    parts(text)?.calendar()
}

/// The top-ups in a text that [`encode_state`] wrote.
///
/// # Errors
/// [`TotalsError`] for some that cannot be read.
pub fn top_ups_of(text: &str) -> Result<Option<Arc<TopUps>>, TotalsError> {
    parts(text)?.top_ups()
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

    fn line(calendar: Option<OwnCalendar>, top_ups: Option<TopUps>) -> Line {
        let at = DateTime::UNIX_EPOCH;
        let policy = policy(1, "UTC", &[(5, "day"), (9, "month")]);
        let totals = totals_at(&policy, None, &Past::default(), at).unwrap();
        Line {
            calendar: calendar.map(Arc::new),
            top_ups: top_ups.map(Arc::new),
            ..line_of(1, &totals, at)
        }
    }

    fn any_top_ups() -> impl Strategy<Value = TopUps> {
        let top_up = (any::<u128>(), 0u64..9, 0u64..9, 0i64..1 << 52, 0u64..9);
        let top_up = top_up.prop_map(|(id, units, left, ends_at, moved)| TopUp {
            id: EntryId(Uuid::from_u128(id)),
            units,
            left,
            ends_at: DateTime::from_timestamp_micros(ends_at).unwrap(),
            moved,
        });
        let each = proptest::collection::vec(top_up, 0..4);
        (0u64..9, each).prop_map(|(aside, each)| TopUps { aside, each })
    }

    proptest! {
        #[test]
        fn every_line_reads_as_it_was_written(own in any_calendar(), top_ups in any_top_ups()) {
            let own = Some(own).filter(|own| *own != OwnCalendar::default());
            let top_ups = Some(top_ups).filter(|top_ups| *top_ups != TopUps::default());
            let line = line(own, top_ups);
            let text = encode_state(&line);
            let read = decode_state(&text).unwrap();
            prop_assert_eq!(&read.top_ups, &line.top_ups);
            prop_assert_eq!(&read.calendar, &line.calendar);
            prop_assert_eq!(&read.totals, &line.totals);
            prop_assert_eq!(decode_calendar(&text).unwrap(), read.calendar);
            prop_assert_eq!(top_ups_of(&text).unwrap(), read.top_ups);
            prop_assert_eq!(&*totals_of(&text).unwrap(), &*read.totals);
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
        let id = Uuid::from_u128(7).as_simple().to_string();
        for top_ups in [
            "+".to_owned(),
            "+0:".to_owned(),
            "+1".to_owned(),
            format!("+01:{id},2,1,5,1"),
            format!("+1:{id},2,1,5"),
            format!("+1:{id},2,1,5,1,"),
            format!("+1:{id},2,1,5,1/"),
            format!("+1:{id},2,-1,5,1"),
            format!("+1:{},2,1,5,1", id.to_uppercase().replace('0', "A")),
            format!("+1:{},2,1,5,1", Uuid::from_u128(7)),
            format!("@,5;+1:{id},2,1,5,1"),
        ] {
            let text = format!("{top_ups};{TOTALS}");
            assert!(decode_state(&text).is_err(), "{text}");
        }
        for text in ["@Asia/Tokyo,5", "@Asia/Tokyo,5;", "@Asia/Tokyo,5;d3", ""] {
            assert!(totals_of(text).is_err(), "{text}");
            assert!(decode_state(text).is_err(), "{text}");
        }
        let read = decode_state(&format!("@Asia/Tokyo,5;{TOTALS}"));
        assert_eq!(read.unwrap().totals.len(), 1);
    }
}
