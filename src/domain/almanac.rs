//! A calendar that remembers windows, so that most instants need no rules of a zone.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use chrono::{DateTime, Utc};

use super::window::{Calendar, Division, Length, Window};

/// A [`Calendar`], with the last window of each division.
///
/// Invariant: windows of one division do not overlap and never change, since a process reads the
/// rules of a zone once. So a remembered window is right for every instant that it contains. Clones
/// share the remembered windows.
#[derive(Debug, Clone)]
pub struct Almanac {
    calendar: Calendar,
    lengths: Arc<[RwLock<Option<Window>>; Length::ALL.len()]>,
    /// Those of parts of a day and of weeks. A policy has few.
    others: Arc<RwLock<Vec<(Division, Window)>>>,
}

impl Almanac {
    /// The window that contains `at`; see [`Calendar::window`].
    pub fn window(&self, division: impl Into<Division>, at: DateTime<Utc>) -> Window {
        let division = division.into();
        match self.found(division).filter(|window| window.contains(at)) {
            Some(window) => window,
            None => {
                let window = self.calendar.window(division, at);
                self.remember(division, window);
                window
            }
        }
    }

    fn found(&self, division: Division) -> Option<Window> {
        match division {
            Division::Length(length) => {
                let place = self.lengths[length as usize].read();
                *place.unwrap_or_else(PoisonError::into_inner)
            }
            Division::PartOfDay(_) | Division::Weeks(_) => {
                let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
                let found = others.iter().find(|(of, _)| *of == division);
                found.map(|(_, window)| *window)
            }
        }
    }

    fn remember(&self, division: Division, window: Window) {
        match division {
            Division::Length(length) => {
                let place = self.lengths[length as usize].write();
                *place.unwrap_or_else(PoisonError::into_inner) = Some(window);
            }
            Division::PartOfDay(_) | Division::Weeks(_) => {
                let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
                match others.iter_mut().find(|(of, _)| *of == division) {
                    Some((_, last)) => *last = window,
                    None => others.push((division, window)),
                }
            }
        }
    }
}

impl From<Calendar> for Almanac {
    fn from(calendar: Calendar) -> Self {
        Self {
            calendar,
            lengths: Arc::default(),
            others: Arc::default(),
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
    use crate::limit::shape::Shape;
    use crate::samples::policy_of;
    use crate::zones::Zones;

    const ZONES: [&str; 4] = ["+08:00", "Europe/Paris", "Pacific/Apia", "America/New_York"];

    const LIMITS: [&str; 10] = [
        "1 per minute",
        "1 per hour",
        "1 per day",
        "1 per week",
        "1 per month",
        "1 per quarter",
        "1 per year",
        "1 per 6h calendar",
        "1 per 15m calendar",
        "1 per 2 weeks from 2026-10-28",
    ];

    proptest! {
        /// The clock changes of Paris and New York are included.
        #[test]
        fn what_is_remembered_is_what_the_calendar_says(
            zone in 0..ZONES.len(),
            hour in 0..24_u32,
            asked in proptest::collection::vec((0..LIMITS.len(), 0i64..200 * 3600), 1..40),
        ) {
            let begin: DateTime<Utc> = "2026-10-25T00:00:00Z".parse().unwrap();
            let calendar = Calendar {
                zone: Zones::bundled().get(ZONES[zone]).unwrap(),
                day_starts_at: NaiveTime::from_hms_opt(hour, 0, 0).unwrap(),
                week_starts_on: Weekday::Mon,
                anchor: None,
            };
            let limits = policy_of(1, "UTC", &LIMITS).rule.limits;
            let almanac = Almanac::from(calendar.clone());
            let other = almanac.clone();
            for (index, (per, seconds)) in asked.into_iter().enumerate() {
                let Shape::Calendar(per) = limits[per].shape else { panic!("a window") };
                let at = begin + TimeDelta::seconds(seconds);
                let asked = if index % 2 == 0 { &almanac } else { &other };
                prop_assert_eq!(asked.window(per, at), calendar.window(per, at));
            }
        }
    }
}
