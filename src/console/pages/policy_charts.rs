//! The charts of a policy: its last days, its day, and its hours.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, TimeDelta, Timelike, Utc};
use maud::{Markup, html};

use super::known::Known;
use crate::asking::{PageFailure, with};
use crate::chart::{
    DayBar, DayCurve, HeatDay, Hour, Point, as_table, day_bars, day_curve, heat_map,
};
use crate::local::Local;
use crate::parts::{Heading, cell, empty, figure, here_with, table, unknown};
use crate::visit::Visit;
use crate::words::{count, number};
use api::statistics::{DayStatistics, QuarterList, QuarterStatistics, StatisticsList};

const DAYS: u64 = 30;
const HOUR_DAYS: u64 = 14;

/// The figures of the last days of a policy, or why they are not known.
pub struct LastDays(Result<Vec<DayStatistics>, PageFailure>);

impl LastDays {
    pub async fn ask(visit: &Visit<'_>, known: &Known) -> Self {
        let from = known.local.last_days(DAYS)[0].to_string();
        let name = &*known.in_force.name;
        let parameters = [("policy", name), ("from", &from), ("limit", "100")];
        let list = visit
            .asker
            .get::<StatisticsList>(with("/v1/stats", &parameters));
        Self(list.await.map(|list| list.items))
    }

    /// What was given today, as a sentence; nothing if it is not known.
    pub fn today(&self, local: &Local) -> Markup {
        let Ok(days) = &self.0 else {
            return Markup::default();
        };
        let day = days.iter().find(|day| day.date == local.today());
        html! {
            @if let Some(day) = day {
                "Today: " (count(day.units, "unit")) " granted to " (count(day.subjects, "subject")) ", "
                (count(day.denied_claims, "claim")) " refused. "
            } @else {
                "Nothing was granted today. "
            }
        }
    }
}

pub async fn charts(visit: &Visit<'_>, known: &Known, days: &LastDays) -> Markup {
    let name = &known.in_force.name;
    let local = &known.local;
    let hours = quarters(visit, name, local).await;
    let shows_refusals = visit.query.get("hours") == "refused";
    html! {
        div.columns {
            @match &days.0 {
                Ok(days) => section { (bars(&day_bars_of(days, name, local))) },
                Err(refusal) => (unknown(refusal)),
            }
            @match &hours {
                Ok(quarters) if quarters.is_empty() => section { (empty("No claim in the last 14 days.")) },
                Ok(quarters) => {
                    section { (curve(quarters, local)) }
                    section {
                        (heat(quarters, local, shows_refusals))
                        @if shows_refusals {
                            p { a href=(here_with(visit, "hours", "granted")) { "Show granted units" } }
                        } @else {
                            p { a href=(here_with(visit, "hours", "refused")) { "Show refused claims" } }
                        }
                    }
                }
                Err(refusal) => (unknown(refusal)),
            }
        }
    }
}

fn day_bars_of(days: &[DayStatistics], name: &str, local: &Local) -> Vec<DayBar> {
    let bar = |date: NaiveDate| {
        let day = days.iter().find(|day| day.date == date);
        let window = local.day_on(date);
        let minutes = (window.end - window.start).num_minutes();
        let note = (minutes != 24 * 60).then(|| match minutes % 60 {
            0 => format!("{} h", minutes / 60),
            rest => format!("{} h {rest}", minutes / 60),
        });
        let on = date.to_string();
        DayBar {
            label: date.format("%-d").to_string(),
            granted: day.map_or(0, |day| day.units),
            refused: day.map_or(0, |day| day.denied_claims),
            target: with("/console/entries", &[("policy", name), ("on", &on)]),
            date: date.format("%A %Y-%m-%d").to_string(),
            note,
            is_over: window.end <= local.now(),
        }
    };
    local.last_days(DAYS).into_iter().map(bar).collect()
}

fn bars(days: &[DayBar]) -> Markup {
    let columns = [
        Heading::Text("Day"),
        Heading::Figure("Units granted"),
        Heading::Figure("Claims refused"),
    ];
    let row = |day: &DayBar| {
        html! {
            tr {
                (cell("Day", html! { a href=(day.target) { (day.date) } }))
                (figure("Units granted", number(day.granted)))
                (figure("Claims refused", number(day.refused)))
            }
        }
    };
    html! {
        (day_bars("days", "Units granted and claims refused on each local day", days))
        (as_table(table(&columns, days.iter().rev().map(row))))
    }
}

/// The quarter hours of the last days, oldest first.
async fn quarters(
    visit: &Visit<'_>,
    name: &str,
    local: &Local,
) -> Result<Vec<QuarterStatistics>, PageFailure> {
    let from = local.last_days(HOUR_DAYS)[0].to_string();
    let mut quarters = Vec::new();
    let mut cursor = String::new();
    // 14 days of 96 quarters are two pages.
    for _ in 0..2 {
        let parameters = [
            ("policy", name),
            ("from", &from),
            ("limit", "1000"),
            ("cursor", &cursor),
        ];
        let list: QuarterList = visit
            .asker
            .get(with("/v1/stats/quarters", &parameters))
            .await?;
        quarters.extend(list.items);
        match list.next_cursor {
            Some(next) => cursor = next,
            None => break,
        }
    }
    Ok(quarters)
}

/// The part of a day at which an instant is, from 0 to 1000.
pub fn place_in(local: &Local, day: NaiveDate, at: DateTime<Utc>) -> u64 {
    let window = local.day_on(day);
    let whole = (window.end - window.start).num_seconds().max(1);
    let part = (at - window.start).num_seconds() * 1000 / whole;
    u64::try_from(part).unwrap_or(0).min(1000)
}

/// The hours below the axis of a day.
pub fn hours_of(local: &Local, day: NaiveDate) -> Vec<(u64, String)> {
    let window = local.day_on(day);
    let mut hours = Vec::new();
    let mut at = window.start;
    while at < window.end {
        let hour = local.hour(at);
        if hour.is_multiple_of(6)
            && hours
                .last()
                .is_none_or(|(_, last)| *last != format!("{hour:02}"))
        {
            hours.push((place_in(local, day, at), format!("{hour:02}")));
        }
        at += TimeDelta::hours(1);
    }
    hours
}

fn curve(quarters: &[QuarterStatistics], local: &Local) -> Markup {
    let today = local.today();
    let of_today = quarters
        .iter()
        .filter(|quarter| local.date_of(quarter.starts_at) == today);
    let of_today: Vec<&QuarterStatistics> = of_today.collect();
    let mut used = 0_u64;
    let points: Vec<Point> = of_today
        .iter()
        .map(|quarter| {
            used = used
                .saturating_add(quarter.units)
                .saturating_sub(quarter.given_back_units);
            let ends = quarter.starts_at + TimeDelta::minutes(15);
            let place = place_in(local, today, ends.min(local.now()));
            Point { place, used }
        })
        .collect();
    let is_refused = |quarter: &&&QuarterStatistics| quarter.denied_claims > 0;
    let refusals = of_today.iter().filter(is_refused);
    let refusals: Vec<u64> = refusals
        .map(|quarter| place_in(local, today, quarter.starts_at))
        .collect();
    let columns = [
        Heading::Text("From"),
        Heading::Figure("Units granted"),
        Heading::Figure("Units given back"),
        Heading::Figure("Claims refused"),
    ];
    let row = |quarter: &&QuarterStatistics| {
        html! {
            tr {
                (cell("From", local.show_time(quarter.starts_at)))
                (figure("Units granted", number(quarter.units)))
                (figure("Units given back", number(quarter.given_back_units)))
                (figure("Claims refused", number(quarter.denied_claims)))
            }
        }
    };
    html! {
        (day_curve(&DayCurve {
            id: "day",
            title: "Units used by all subjects today; ticks are quarter hours with refused claims",
            points: &points,
            max: None,
            refusals: &refusals,
            now: Some(place_in(local, today, local.now())),
            hours: &hours_of(local, today),
        }))
        (as_table(table(&columns, of_today.iter().rev().map(row))))
    }
}

fn heat(quarters: &[QuarterStatistics], local: &Local, shows_refusals: bool) -> Markup {
    let mut sums: BTreeMap<(NaiveDate, u32), u64> = BTreeMap::new();
    for quarter in quarters {
        let value = if shows_refusals {
            quarter.denied_claims
        } else {
            quarter.units
        };
        let place = (
            local.date_of(quarter.starts_at),
            local.hour(quarter.starts_at),
        );
        *sums.entry(place).or_default() += value;
    }
    let day = |date: NaiveDate| HeatDay {
        date: date.format("%a %m-%d").to_string(),
        hours: hours(local, date, &sums),
    };
    let days: Vec<HeatDay> = local
        .last_days(HOUR_DAYS)
        .into_iter()
        .rev()
        .map(day)
        .collect();
    let title = if shows_refusals {
        "Claims refused in each hour of the local day"
    } else {
        "Units granted in each hour of the local day"
    };
    let columns = [Heading::Text("Hour"), Heading::Figure("Sum of 14 days")];
    let of_hour = |hour: u32| {
        let of_hour = sums.iter().filter(|((_, known), _)| *known == hour);
        of_hour.map(|(_, value)| value).sum::<u64>()
    };
    let row = |hour: u32| {
        html! {
            tr { (cell("Hour", format!("{hour:02}:00"))) (figure("Sum of 14 days", number(of_hour(hour)))) }
        }
    };
    html! {
        (heat_map("hours", title, &days))
        (as_table(table(&columns, (0..24).map(row))))
    }
}

fn hours(local: &Local, date: NaiveDate, sums: &BTreeMap<(NaiveDate, u32), u64>) -> Vec<Hour> {
    let window = local.day_on(date);
    let mut exists = [false; 24];
    let mut has_begun = [false; 24];
    let mut at = window.start;
    while at < window.end {
        let hour = local.hour(at) as usize;
        exists[hour] = true;
        has_begun[hour] |= at.with_minute(0).unwrap_or(at) <= local.now();
        at += TimeDelta::minutes(15);
    }
    let hour = |hour: u32| match (exists[hour as usize], has_begun[hour as usize]) {
        (false, _) => Hour::Missing,
        (true, false) => Hour::Ahead,
        (true, true) => Hour::Of(sums.get(&(date, hour)).copied().unwrap_or(0)),
    };
    (0..24).map(hour).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(now: &str) -> Local {
        Local::of("Europe/Berlin", now.parse().unwrap())
    }

    #[test]
    fn a_skipped_hour_is_missing_and_a_later_one_is_ahead() {
        let local = local("2026-03-29T12:00:00Z");
        let shown = hours(&local, local.today(), &BTreeMap::new());
        assert!(matches!(shown[2], Hour::Missing));
        assert!(matches!(shown[1], Hour::Of(0)));
        assert!(matches!(shown[14], Hour::Of(0)));
        assert!(matches!(shown[16], Hour::Ahead));
    }

    #[test]
    fn places_are_parts_of_the_whole_day() {
        let local = local("2026-10-25T12:00:00Z");
        let day = local.today();
        let window = local.day_on(day);
        assert_eq!((window.end - window.start).num_hours(), 25);
        assert_eq!(place_in(&local, day, window.start), 0);
        assert_eq!(place_in(&local, day, window.end), 1000);
        assert_eq!(
            place_in(&local, day, window.start + TimeDelta::minutes(750)),
            500
        );
        let hours: Vec<String> = hours_of(&local, day)
            .into_iter()
            .map(|(_, hour)| hour)
            .collect();
        assert_eq!(hours, ["00", "06", "12", "18"]);
    }
}
