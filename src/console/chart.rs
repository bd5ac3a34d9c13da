//! Charts, drawn as SVG by the server. Each chart answers one question, its marks are links, and a table beneath it
//! says the same: a chart is never the only place of a fact.

use maud::{Markup, html};

use super::words::number;

/// A day of [`day_bars`].
pub struct DayBar {
    /// The local date, such as `2026-11-25`.
    pub date: String,
    /// What stands below the bar, such as `25`.
    pub label: String,
    pub granted: u64,
    pub refused: u64,
    /// The list behind the bar.
    pub target: String,
    /// What is special, such as `23 h`.
    pub note: Option<String>,
    /// The present day is outlined: it is not over.
    pub is_over: bool,
}

const WIDTH: u64 = 720;
const HEIGHT: u64 = 180;
const LEFT: u64 = 56;
const BOTTOM: u64 = 24;
const TOP: u64 = 14;

/// The height of a value on a scale, in units of the picture.
fn height(value: u64, most: u64, of: u64) -> u64 {
    match most {
        0 => 0,
        most => (u128::from(value) * u128::from(of)).div_ceil(u128::from(most)) as u64,
    }
}

/// The smallest round number that is at least this: 1, 2 or 5 times a power of ten.
fn round_up(value: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        for step in [1, 2, 5] {
            match power.checked_mul(step) {
                Some(round) if round >= value => return round,
                Some(_) => {}
                None => return value,
            }
        }
        power = match power.checked_mul(10) {
            Some(next) => next,
            None => return value,
        };
    }
}

/// The pattern of what was refused. A page that draws refers to it by `url(#refused)`.
fn hatch(id: &str) -> Markup {
    html! {
        defs {
            pattern id=(id) width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                rect.ground width="6" height="6" {}
                line.refused x1="0" y1="0" x2="0" y2="6" {}
            }
        }
    }
}

/// Units that were granted and claims that were refused on each of some local days.
pub fn day_bars(id: &str, title: &str, days: &[DayBar]) -> Markup {
    let most = days
        .iter()
        .map(|day| day.granted.saturating_add(day.refused))
        .max();
    let scale = round_up(most.unwrap_or(0).max(1));
    let room = HEIGHT - TOP - BOTTOM;
    let step = (WIDTH - LEFT) / (days.len() as u64).max(1);
    let width = step.saturating_sub(4).max(2);
    let ground = HEIGHT - BOTTOM;
    let pattern = format!("{id}-hatch");
    html! {
        figure.chart {
            figcaption { (title) }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="group" aria-labelledby={ (id) "-title" } {
                title id={ (id) "-title" } { (title) }
                (hatch(&pattern))
                @for part in [0, 1, 2] {
                    @let y = ground - room * part / 2;
                    line.axis x1=(LEFT) x2=(WIDTH) y1=(y) y2=(y) {}
                    text.tick x=(LEFT - 6) y=(y + 4) text-anchor="end" { (number(scale * part / 2)) }
                }
                @for (index, day) in days.iter().enumerate() {
                    @let x = LEFT + step * index as u64 + 2;
                    @let granted = height(day.granted, scale, room);
                    @let refused = height(day.refused, scale, room);
                    a href=(day.target) {
                        title {
                            (day.date) ": " (number(day.granted)) " granted, " (number(day.refused)) " refused"
                            @if let Some(note) = &day.note { ", a day of " (note) }
                            @if !day.is_over { ", not over" }
                        }
                        rect.hit x=(x) y=(TOP) width=(width) height=(room) {}
                        rect class=(if day.is_over { "granted" } else { "granted open" })
                            x=(x) y=(ground - granted) width=(width) height=(granted) {}
                        rect fill={ "url(#" (pattern) ")" } x=(x) y=(ground.saturating_sub(granted + refused).max(TOP))
                            width=(width) height=(refused) {}
                    }
                    text.tick x=(x + width / 2) y=(HEIGHT - 8) text-anchor="middle" { (day.label) }
                    @if let Some(note) = &day.note {
                        text.tick x=(x + width / 2) y=(TOP - 3) text-anchor="middle" { (note) }
                    }
                }
            }
        }
    }
}

/// The last days of a policy in a line of text.
pub fn spark(title: &str, values: &[u64]) -> Markup {
    let most = values.iter().copied().max().unwrap_or(0);
    let width = values.len() as u64 * 7;
    let mut bars = String::new();
    for (index, value) in values.iter().enumerate() {
        let tall = height(*value, most, 18).max(1);
        bars.push_str(&format!("M{} 20v-{tall}h5v{tall}z", index * 7));
    }
    html! {
        svg.spark viewBox={ "0 0 " (width) " 20" } width=(width) height="20" role="img" aria-label=(title) {
            path.granted d=(bars) {}
        }
    }
}

/// A point of [`day_curve`]: what is used from an instant on, in parts of the day from 0 to 1000.
pub struct Point {
    pub place: u64,
    pub used: u64,
}

/// The course of a day: how the used units grew and fell.
pub struct DayCurve<'c> {
    pub id: &'c str,
    pub title: &'c str,
    pub points: &'c [Point],
    /// The limit, where there is one.
    pub max: Option<u64>,
    /// Where claims were refused.
    pub refusals: &'c [u64],
    /// The present instant, if the day is today's.
    pub now: Option<u64>,
    /// The hours below the axis, each with its place.
    pub hours: &'c [(u64, String)],
}

pub fn day_curve(curve: &DayCurve<'_>) -> Markup {
    let highest = curve
        .points
        .iter()
        .map(|point| point.used)
        .max()
        .unwrap_or(0);
    let scale = round_up(highest.max(curve.max.unwrap_or(0)).max(1));
    let room = HEIGHT - TOP - BOTTOM;
    let ground = HEIGHT - BOTTOM;
    let x = |place: u64| LEFT + (WIDTH - LEFT - 8) * place.min(1000) / 1000;
    let y = |used: u64| ground - height(used, scale, room);
    let mut line = format!("M{} {}", x(0), y(0));
    for point in curve.points {
        line.push_str(&format!("H{}V{}", x(point.place), y(point.used)));
    }
    line.push_str(&format!("H{}", x(curve.now.unwrap_or(1000))));
    html! {
        figure.chart {
            figcaption { (curve.title) }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-labelledby={ (curve.id) "-title" } {
                title id={ (curve.id) "-title" } { (curve.title) }
                @for part in [0, 1, 2] {
                    @let level = ground - room * part / 2;
                    line.axis x1=(LEFT) x2=(WIDTH) y1=(level) y2=(level) {}
                    text.tick x=(LEFT - 6) y=(level + 4) text-anchor="end" { (number(scale * part / 2)) }
                }
                @for (place, hour) in curve.hours {
                    text.tick x=(x(*place)) y=(HEIGHT - 8) text-anchor="middle" { (hour) }
                }
                @if let Some(max) = curve.max {
                    line.cap x1=(LEFT) x2=(WIDTH) y1=(y(max)) y2=(y(max)) {}
                    text.tick x=(WIDTH) y=(y(max).saturating_sub(4)) text-anchor="end" { "limit " (number(max)) }
                }
                path.curve d=(line) {}
                @for place in curve.refusals {
                    line.refused x1=(x(*place)) x2=(x(*place)) y1=(ground - 12) y2=(ground) {}
                }
                @if let Some(now) = curve.now {
                    line.now x1=(x(now)) x2=(x(now)) y1=(TOP) y2=(ground) {}
                }
            }
        }
    }
}

/// An hour of a day in [`heat_map`].
pub enum Hour {
    /// What happened in it. An hour that comes twice has both parts in one number.
    Of(u64),
    /// Clocks skip this hour on this day.
    Missing,
    /// The hour has not begun.
    Ahead,
}

/// A day of [`heat_map`], with its 24 hours.
pub struct HeatDay {
    pub date: String,
    pub hours: Vec<Hour>,
}

/// The levels by which the hours that are not zero are told apart: four, by quantiles.
fn levels(days: &[HeatDay]) -> [u64; 4] {
    let hours = days.iter().flat_map(|day| &day.hours);
    let mut values: Vec<u64> = hours
        .filter_map(|hour| match hour {
            Hour::Of(value) if *value > 0 => Some(*value),
            _ => None,
        })
        .collect();
    values.sort_unstable();
    let at = |part: usize| {
        values
            .get(values.len() * part / 4)
            .copied()
            .unwrap_or(u64::MAX)
    };
    [at(0), at(1), at(2), at(3)]
}

/// When in the day something happens: each row is a local day, each column an hour of the local clock.
pub fn heat_map(id: &str, title: &str, days: &[HeatDay]) -> Markup {
    let levels = levels(days);
    let level = |value: u64| levels.iter().filter(|level| value >= **level).count();
    let tall = 18 * days.len() as u64 + 20;
    let pattern = format!("{id}-hatch");
    html! {
        figure.chart {
            figcaption { (title) }
            svg viewBox={ "0 0 " (WIDTH) " " (tall) } role="img" aria-labelledby={ (id) "-title" } {
                title id={ (id) "-title" } { (title) }
                (hatch(&pattern))
                @for hour in [0_u64, 6, 12, 18] {
                    text.tick x=(84 + hour * 26) y="12" { (format!("{hour:02}")) }
                }
                @for (row, day) in days.iter().enumerate() {
                    @let y = 18 + 18 * row as u64;
                    text.tick x="0" y=(y + 13) { (day.date) }
                    @for (hour, what) in day.hours.iter().enumerate() {
                        @let x = 84 + 26 * hour as u64;
                        @match what {
                            Hour::Of(value) => {
                                rect class={ "heat heat-" (level(*value)) } x=(x) y=(y) width="24" height="16" {
                                    title { (day.date) " " (format!("{hour:02}")) ":00: " (number(*value)) }
                                }
                            }
                            Hour::Missing => {
                                rect fill={ "url(#" (pattern) ")" } x=(x) y=(y) width="24" height="16" {
                                    title { (day.date) " " (format!("{hour:02}")) ":00: no such hour" }
                                }
                            }
                            Hour::Ahead => {}
                        }
                    }
                }
            }
        }
    }
}

/// The table beneath a chart.
pub fn as_table(content: Markup) -> Markup {
    html! { details.as-table { summary { "As a table" } (content) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_round() {
        let told = [1, 2, 3, 6, 10, 11, 41_208].map(round_up);
        assert_eq!(told, [1, 2, 5, 10, 10, 20, 50_000]);
        assert_eq!(round_up(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_small_value_is_seen() {
        assert_eq!(height(0, 100, 50), 0);
        assert_eq!(height(1, 1_000_000, 50), 1);
        assert_eq!(height(u64::MAX, u64::MAX, 50), 50);
        assert_eq!(height(5, 0, 50), 0);
    }

    #[test]
    fn hours_are_told_apart_by_quantiles() {
        let hours = (0..=8).map(Hour::Of).collect();
        let day = HeatDay {
            date: "2026-11-25".to_owned(),
            hours,
        };
        assert_eq!(levels(&[day]), [1, 3, 5, 7]);
    }

    #[test]
    fn a_chart_says_each_day_in_words() {
        let day = DayBar {
            date: "2026-03-29".to_owned(),
            label: "29".to_owned(),
            granted: 1200,
            refused: 3,
            target: "/console/entries?on=2026-03-29".to_owned(),
            note: Some("23 h".to_owned()),
            is_over: true,
        };
        let drawn = day_bars("bars", "Units", &[day]).into_string();
        assert!(
            drawn.contains("2026-03-29: 1\u{2009}200 granted, 3 refused, a day of 23 h"),
            "{drawn}"
        );
        assert!(!drawn.contains("style="));
    }
}
