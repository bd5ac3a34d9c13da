//! A calendar that remembers windows, so that most instants need no rules of a zone.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use chrono::{DateTime, Utc};

use super::window::{Calendar, Length, Window};

/// A [`Calendar`], with the last window of each length.
///
/// Invariant: windows of one length do not overlap and never change, since a process reads the
/// rules of a zone once. So a remembered window is right for every instant that it contains. Clones
/// share the remembered windows.
#[derive(Debug, Clone)]
pub struct Almanac {
    calendar: Calendar,
    found: Arc<[RwLock<Option<Window>>; Length::ALL.len()]>,
}

impl Almanac {
    /// The window that contains `at`; see [`Calendar::window`].
    pub fn window(&self, per: Length, at: DateTime<Utc>) -> Window {
        let place = &self.found[per as usize];
        let found = *place.read().unwrap_or_else(PoisonError::into_inner);
        match found.filter(|window| window.contains(at)) {
            Some(window) => window,
            None => {
                let window = self.calendar.window(per, at);
                *place.write().unwrap_or_else(PoisonError::into_inner) = Some(window);
                window
            }
        }
    }
}

impl From<Calendar> for Almanac {
    fn from(calendar: Calendar) -> Self {
        Self {
            calendar,
            found: Arc::default(),
        }
    }
}

/// There is no `DerefMut`: nobody can change the calendar of the remembered windows.
impl Deref for Almanac {
    type Target = Calendar;

    fn deref(&self) -> &Calendar {
        &self.calendar
    }
}

impl PartialEq for Almanac {
    fn eq(&self, other: &Self) -> bool {
        self.calendar == other.calendar
    }
}

impl Eq for Almanac {}

#[cfg(test)]
mod tests {
    use chrono::{NaiveTime, TimeDelta, Weekday};
    use proptest::prelude::*;

    use super::*;
    use crate::zones::Zones;

    const ZONES: [&str; 4] = ["+08:00", "Europe/Paris", "Pacific/Apia", "America/New_York"];

    proptest! {
        /// The clock changes of Paris and New York are included.
        #[test]
        fn what_is_remembered_is_what_the_calendar_says(
            zone in 0..ZONES.len(),
            hour in 0..24_u32,
            asked in proptest::collection::vec((0..6_usize, 0i64..200 * 3600), 1..40),
        ) {
            let begin: DateTime<Utc> = "2026-10-25T00:00:00Z".parse().unwrap();
            let calendar = Calendar {
                zone: Zones::bundled().get(ZONES[zone]).unwrap(),
                day_starts_at: NaiveTime::from_hms_opt(hour, 0, 0).unwrap(),
                week_starts_on: Weekday::Mon,
            };
            let almanac = Almanac::from(calendar.clone());
            let other = almanac.clone();
            for (index, (per, seconds)) in asked.into_iter().enumerate() {
                let per = Length::ALL[per];
                let at = begin + TimeDelta::seconds(seconds);
                let asked = if index % 2 == 0 { &almanac } else { &other };
                prop_assert_eq!(asked.window(per, at), calendar.window(per, at));
            }
        }
    }
}
