//! The claims of the story: members, partners, their days and their habits.

use anyhow::Context;
use chrono::{DateTime, Datelike, DurationRound, NaiveTime, TimeDelta, Timelike, Utc, Weekday};
use serde_json::json;

use super::cast::Actor;
use super::dice::Dice;
use super::scene::{Deed, Scene, Sequel, StoryClaim};
use domain::zone::Zone;

/// Odd, while claims come at even seconds: none comes at the instant of a lapse, where the milliseconds of
/// this run would decide.
const HOLD_SECONDS: i64 = 1799;
/// The crowd has the members from 10 to 99.
const MEMBERS: i64 = 90;
/// Claims on every day, once, and is never in the crowd: no day is without a grant.
const EARLY_BIRD: &str = "member-8";
/// No claim comes later than this before the end of the story.
const QUIET_AT_END: TimeDelta = TimeDelta::minutes(4);

/// No claim comes earlier than this: there are no policies and no keys yet.
const OPENING: TimeDelta = TimeDelta::minutes(5);

/// How a policy is used in a local day.
struct Habit {
    policy: &'static str,
    time_zone: &'static str,
    by: Actor,
    /// Visits on a usual weekday. A visit is one claim or several.
    visits: i64,
    /// The visits of a weekend day, in percent.
    weekend: i64,
    /// How the visits spread over the hours of a day.
    hours: [i64; 24],
    visit: fn(&mut Dice) -> Vec<VisitClaim>,
}

/// One claim of a visit.
struct VisitClaim {
    /// The seconds since the claim before it.
    pause: i64,
    claim: StoryClaim,
}

const HABITS: [Habit; 4] = [
    Habit {
        policy: "benefit",
        time_zone: "GMT+8",
        by: Actor::Shop,
        visits: 40,
        weekend: 140,
        hours: [
            1, 0, 0, 0, 0, 1, 3, 6, 8, 8, 9, 12, 16, 12, 8, 7, 8, 10, 13, 16, 18, 14, 8, 3,
        ],
        visit: benefit,
    },
    Habit {
        policy: "otp",
        time_zone: "Asia/Shanghai",
        by: Actor::Login,
        visits: 34,
        weekend: 70,
        hours: [
            2, 1, 0, 0, 0, 1, 4, 10, 18, 16, 10, 8, 9, 10, 9, 8, 8, 9, 10, 12, 13, 11, 7, 4,
        ],
        visit: otp,
    },
    Habit {
        policy: "coupon",
        time_zone: "Europe/Berlin",
        by: Actor::Shop,
        visits: 22,
        weekend: 160,
        hours: [
            1, 0, 0, 0, 0, 0, 1, 2, 4, 6, 8, 8, 10, 8, 7, 7, 8, 11, 14, 18, 20, 16, 9, 3,
        ],
        visit: coupon,
    },
    Habit {
        policy: "partner-api",
        time_zone: "UTC",
        by: Actor::Gateway,
        visits: 22,
        weekend: 25,
        hours: [
            2, 2, 3, 2, 2, 3, 5, 10, 16, 18, 17, 14, 10, 15, 17, 16, 13, 9, 5, 4, 3, 3, 2, 2,
        ],
        visit: partner_api,
    },
];

/// The claims of all policies between two instants, in no order.
pub fn claims(
    seed: u64,
    begins_at: DateTime<Utc>,
    until: DateTime<Utc>,
) -> anyhow::Result<Vec<Scene>> {
    let mut scenes = Vec::new();
    for (part, habit) in (0..).zip(&HABITS) {
        let zone = Zone::parse(habit.time_zone).context("this machine lacks a zone of the demo")?;
        let mut dice = Dice::of(seed, part);
        habit.hours(&zone, &mut dice, begins_at, until, &mut scenes);
        habit.early_bird(&zone, begins_at, until, &mut scenes);
    }
    scenes.extend(member_42(until));
    scenes.retain(|scene| scene.at > begins_at + OPENING && scene.at < until - QUIET_AT_END);
    Ok(scenes)
}

impl Habit {
    /// The visits of each hour.
    fn hours(
        &self,
        zone: &Zone,
        dice: &mut Dice,
        begins_at: DateTime<Utc>,
        until: DateTime<Utc>,
        scenes: &mut Vec<Scene>,
    ) {
        let whole: i64 = self.hours.iter().sum();
        let mut hour = begins_at;
        while hour < until {
            let local = zone.local(hour);
            let of_day = if matches!(local.weekday(), Weekday::Sat | Weekday::Sun) {
                self.weekend
            } else {
                100
            };
            // In hundredths of a visit, with a day's moods of a fifth.
            let share = self.visits * of_day * self.hours[local.hour() as usize] / whole;
            let share = share * dice.between(80, 120) / 100;
            let visits = share / 100 + i64::from(dice.percent(share % 100));
            for _ in 0..visits {
                let mut at = hour + TimeDelta::seconds(dice.between(0, 3599));
                for part in (self.visit)(dice) {
                    at = even(at + TimeDelta::seconds(part.pause));
                    scenes.push(self.scene(at, part.claim));
                }
            }
            hour += TimeDelta::hours(1);
        }
    }

    /// One claim early in each local day, also in a day that has only begun.
    fn early_bird(
        &self,
        zone: &Zone,
        begins_at: DateTime<Utc>,
        until: DateTime<Utc>,
        scenes: &mut Vec<Scene>,
    ) {
        let last = zone.local(until).date();
        for date in zone.local(begins_at).date().iter_days() {
            if date > last {
                break;
            }
            let start = zone.first_instant(date.and_time(NaiveTime::MIN));
            let start = start.max(begins_at + OPENING);
            let lived = (until - QUIET_AT_END - start).min(TimeDelta::hours(8));
            if lived <= TimeDelta::zero() {
                continue;
            }
            let claim = claim(self.policy, EARLY_BIRD.to_owned(), 1);
            scenes.push(self.scene(start + lived / 10, claim));
        }
    }

    fn scene(&self, at: DateTime<Utc>, claim: StoryClaim) -> Scene {
        Scene {
            at,
            by: self.by,
            deed: Deed::Claim(claim),
        }
    }
}

/// The same instant at an even second of its minute, and not at the first one, where windows begin.
fn even(at: DateTime<Utc>) -> DateTime<Utc> {
    let minute = at.duration_trunc(TimeDelta::minutes(1)).unwrap_or(at);
    let second = (at - minute).num_seconds() / 2 * 2;
    minute + TimeDelta::seconds(second.max(2))
}

fn claim(policy: &'static str, subject: String, units: i64) -> StoryClaim {
    StoryClaim {
        policy,
        subject,
        units,
        hold_seconds: None,
        metadata: json!({}),
        then: None,
    }
}

/// A member: some come often, and most seldom.
fn member(dice: &mut Dice) -> String {
    let rank = dice.between(0, MEMBERS - 1) * dice.between(0, MEMBERS - 1) / MEMBERS;
    format!("member-{}", rank * 37 % MEMBERS + 10)
}

/// A visit of so many claims of one subject, with pauses between them.
fn visit(
    dice: &mut Dice,
    claims: i64,
    pauses: (i64, i64),
    mut claim: impl FnMut(&mut Dice) -> StoryClaim,
) -> Vec<VisitClaim> {
    let part = |number| VisitClaim {
        pause: if number == 0 {
            0
        } else {
            dice.between(pauses.0, pauses.1)
        },
        claim: claim(dice),
    };
    (0..claims).map(part).collect()
}

fn benefit(dice: &mut Dice) -> Vec<VisitClaim> {
    let subject = member(dice);
    let claims = if dice.percent(18) {
        dice.between(2, 5)
    } else {
        1
    };
    visit(dice, claims, (20, 400), |dice| {
        let by = dice.pick(&[Actor::Helpdesk, Actor::Shop]);
        let reason = dice.pick(&[
            "the parcel came back",
            "ordered twice",
            "the payment failed",
            "the wrong size",
        ]);
        let sequel = Sequel {
            after: TimeDelta::minutes(dice.between(30, 500)),
            by,
            reason: Some(reason),
        };
        StoryClaim {
            metadata: json!({ "basket": dice.between(8, 240) }),
            then: dice.percent(5).then_some(sequel),
            ..claim("benefit", subject.clone(), 1)
        }
    })
}

fn otp(dice: &mut Dice) -> Vec<VisitClaim> {
    let subject = member(dice);
    let claims = match dice.between(0, 99) {
        0..=8 => dice.between(5, 8),
        9..=30 => 2,
        _ => 1,
    };
    visit(dice, claims, (30, 150), |dice| {
        let sequel = Sequel {
            after: TimeDelta::seconds(dice.between(4, 20)),
            by: Actor::Login,
            reason: Some("the SMS gateway refused"),
        };
        StoryClaim {
            metadata: json!({ "channel": dice.pick(&["sms", "sms", "sms", "voice"]) }),
            then: dice.percent(4).then_some(sequel),
            ..claim("otp", subject.clone(), 1)
        }
    })
}

fn coupon(dice: &mut Dice) -> Vec<VisitClaim> {
    let subject = member(dice);
    let claims = if dice.percent(20) { 2 } else { 1 };
    visit(dice, claims, (600, 2700), |dice| {
        let metadata = json!({ "campaign": dice.pick(&["autumn", "newsletter"]) });
        let claim = claim("coupon", subject.clone(), 1);
        if dice.percent(30) {
            return StoryClaim { metadata, ..claim };
        }
        let reason = match dice.between(0, 99) {
            0..=74 => Some(None),
            75..=84 => Some(Some("the basket was emptied")),
            // Nobody comes back: the hold lapses.
            _ => None,
        };
        let after = TimeDelta::seconds(dice.between(60, 1200));
        StoryClaim {
            metadata,
            hold_seconds: Some(HOLD_SECONDS),
            then: reason.map(|reason| Sequel {
                after,
                by: Actor::Shop,
                reason,
            }),
            ..claim
        }
    })
}

fn partner_api(dice: &mut Dice) -> Vec<VisitClaim> {
    let partner = dice.pick(&[
        "nord", "nord", "nord", "sued", "sued", "ost", "west", "mitte",
    ]);
    let route = dice.pick(&["/search", "/search", "/orders", "/stock"]);
    let is_import = dice.percent(12);
    let claims = if is_import { dice.between(3, 7) } else { 1 };
    visit(dice, claims, (40, 200), |dice| {
        let units = if is_import {
            dice.between(12, 20) * 10
        } else {
            dice.between(1, 12) * 5
        };
        StoryClaim {
            metadata: json!({ "route": route }),
            ..claim("partner-api", format!("partner-{partner}"), units)
        }
    })
}

/// The member that the documents are about has a busy last hour, and needed many codes on the day before: a reset
/// let the last one through.
fn member_42(until: DateTime<Utc>) -> Vec<Scene> {
    let scene = |by, minutes, claim| Scene {
        at: even(until - TimeDelta::minutes(minutes)),
        by,
        deed: Deed::Claim(claim),
    };
    let subject = || "member-42".to_owned();
    let mut scenes: Vec<Scene> = [96, 71, 58, 41, 33, 27, 12]
        .into_iter()
        .map(|minutes| {
            let metadata = json!({ "basket": 18 + minutes });
            let claim = claim("benefit", subject(), 1);
            scene(Actor::Shop, minutes, StoryClaim { metadata, ..claim })
        })
        .collect();
    let yesterday = until.date_naive().and_time(NaiveTime::MIN).and_utc() - TimeDelta::days(1);
    scenes.extend([242, 243, 245, 246, 248, 250, 253].map(|minute| Scene {
        at: even(yesterday + TimeDelta::minutes(minute)),
        by: Actor::Login,
        deed: Deed::Claim(claim("otp", subject(), 1)),
    }));
    scenes.push(scene(Actor::Login, 97, claim("otp", subject(), 1)));
    let held = StoryClaim {
        hold_seconds: Some(HOLD_SECONDS),
        metadata: json!({ "campaign": "newsletter" }),
        ..claim("coupon", subject(), 1)
    };
    scenes.push(scene(Actor::Shop, 19, held));
    scenes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn instant(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn every_policy_has_an_early_claim_on_every_day() {
        // Shortly after midnight in Berlin, in the night in which its clocks are set back.
        for until in ["2026-10-24T22:20:00Z", "2026-11-25T09:24:00Z"] {
            let until = instant(until);
            let begins_at = until - TimeDelta::days(14);
            let scenes = claims(1, begins_at, until).unwrap();
            for habit in &HABITS {
                let zone = Zone::parse(habit.time_zone).unwrap();
                let date = |at| zone.local(at).date();
                let is_early = |scene: &&Scene| {
                    matches!(&scene.deed, Deed::Claim(claim)
                        if claim.policy == habit.policy && claim.subject == EARLY_BIRD)
                };
                let days: BTreeSet<_> = scenes
                    .iter()
                    .filter(is_early)
                    .map(|it| date(it.at))
                    .collect();
                let all = date(begins_at)
                    .iter_days()
                    .take_while(|day| *day <= date(until));
                assert_eq!(days, all.collect(), "{}", habit.policy);
            }
        }
    }

    #[test]
    fn claims_come_at_even_seconds_after_the_beginning_of_their_minute() {
        assert_eq!(
            even(instant("2026-11-25T09:24:00Z")),
            instant("2026-11-25T09:24:02Z")
        );
        assert_eq!(
            even(instant("2026-11-25T09:24:59Z")),
            instant("2026-11-25T09:24:58Z")
        );
        assert_eq!(HOLD_SECONDS % 2, 1);
    }
}
