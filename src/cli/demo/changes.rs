//! What admins, support and auditors do in the story.

use chrono::{DateTime, Days, NaiveTime, TimeDelta, Utc};
use reqwest::Method;
use serde_json::{Value, json};

use super::cast::Actor;
use super::scene::{Deed, Scene, StoryChange};
use crate::client::segment;
use api::instant::written;

/// The last reconciliation comes so long before the end of the story.
const LAST_RECONCILED: TimeDelta = TimeDelta::minutes(3);
/// How long a policy has been paused at the end of the story.
const PAUSED: TimeDelta = TimeDelta::minutes(25);
/// The reconciliations of the nights, before the story's last day.
const NIGHTS: std::ops::RangeInclusive<u64> = 1..=13;

/// Days and times of the story, by the day on which it ends, in UTC.
struct Days14 {
    until: DateTime<Utc>,
}

impl Days14 {
    /// A time on a day before the last one.
    fn at(&self, days_before: u64, time: &str) -> DateTime<Utc> {
        let date = self.until.date_naive() - Days::new(days_before);
        let time = NaiveTime::parse_from_str(time, "%H:%M:%S").unwrap_or_default();
        date.and_time(time).and_utc()
    }

    /// The instant so many days after the end of the story.
    fn in_days(&self, days: i64) -> String {
        written(self.until + TimeDelta::days(days))
    }

    /// The pause at the end: half of the last day at most, so that the day has grants.
    fn paused_at(&self) -> DateTime<Utc> {
        let midnight = self.at(0, "00:00:00");
        (self.until - PAUSED).max(midnight + (self.until - midnight) / 2)
    }
}

fn change(at: DateTime<Utc>, by: Actor, method: Method, path: String, body: Value) -> Scene {
    Scene {
        at,
        by,
        deed: Deed::Change(StoryChange { method, path, body }),
    }
}

fn put(at: DateTime<Utc>, by: Actor, path: &str, body: Value) -> Scene {
    change(at, by, Method::PUT, path.to_owned(), body)
}

fn patch(at: DateTime<Utc>, by: Actor, policy: &str, body: Value) -> Scene {
    change(
        at,
        by,
        Method::PATCH,
        format!("/v1/policies/{policy}"),
        body,
    )
}

fn post(at: DateTime<Utc>, by: Actor, path: &str, body: Value) -> Scene {
    change(at, by, Method::POST, path.to_owned(), body)
}

/// The four policies, at the beginning.
fn policies(begins_at: DateTime<Utc>) -> Vec<Scene> {
    let policies = [
        (
            "benefit",
            json!({
                "description": "benefits of the shop: so many per member and day",
                "time_zone": "GMT+8",
                "limits": [{ "max": 2, "per": "day" }],
            }),
        ),
        (
            "otp",
            json!({
                "description": "verification codes by SMS",
                "time_zone": "Asia/Shanghai",
                "limits": [{ "max": 3, "per": "hour" }, { "max": 20, "per": "day" }],
            }),
        ),
        (
            "coupon",
            json!({
                "description": "one coupon a day; a basket holds it for half an hour",
                "time_zone": "Europe/Berlin",
                "limits": [{ "max": 1, "per": "day" }],
            }),
        ),
        (
            "partner-api",
            json!({
                "description": "calls of partners",
                "time_zone": "UTC",
                "limits": [
                    { "max": 600, "per": "1h", "kind": "sliding", "step": "10m" },
                    { "max": 4000, "per": "day" },
                ],
            }),
        ),
    ];
    let put = |(number, (name, body)): (i64, (&str, Value))| {
        let at = begins_at + TimeDelta::seconds(60 + 10 * number);
        put(at, Actor::Admin, &format!("/v1/policies/{name}"), body)
    };
    (0..).zip(policies).map(put).collect()
}

/// Everybody gets a key.
fn introductions(begins_at: DateTime<Utc>) -> impl Iterator<Item = Scene> {
    (0..).zip(Actor::NEW).map(move |(number, actor)| Scene {
        at: begins_at + TimeDelta::seconds(120 + 10 * number),
        by: Actor::Admin,
        deed: Deed::Introduce(actor),
    })
}

/// All changes, corrections by hand and reconciliations, in no order.
pub fn changes(begins_at: DateTime<Utc>, until: DateTime<Utc>) -> Vec<Scene> {
    use Actor::{Auditor, Helpdesk, Jonas, Mei};
    let days = Days14 { until };
    let at = |days_before, time| days.at(days_before, time);
    let campaign = (until + TimeDelta::days(5)).date_naive().to_string();
    let resumed = format!(
        "/v1/policies/otp/pause?reason={}",
        segment("the gateway is back")
    );
    let mut scenes = policies(begins_at);
    scenes.extend(introductions(begins_at));
    scenes.extend([
        // The rules change, each time with a reason.
        patch(
            at(9, "02:30:00"),
            Mei,
            "otp",
            json!({
                "limits": [{ "max": 5, "per": "hour" }, { "max": 20, "per": "day" }],
                "reason": "codes get lost at one carrier: ticket 4702",
            }),
        ),
        patch(
            at(8, "06:10:00"),
            Jonas,
            "benefit",
            json!({
                "limits": [{ "max": 3, "per": "day" }],
                "effective": "next_window",
                "reason": "the members asked for more: decision 12",
            }),
        ),
        put(
            at(6, "13:05:00"),
            Mei,
            "/v1/policies/otp/pause",
            json!({
                "reason": "the SMS gateway is down",
            }),
        ),
        change(at(6, "14:15:00"), Mei, Method::DELETE, resumed, Value::Null),
        patch(
            at(1, "12:30:00"),
            Jonas,
            "coupon",
            json!({
                "limits": [{ "max": 2, "per": "day" }],
                "effective": campaign,
                "reason": "Advent campaign",
            }),
        ),
        put(
            days.paused_at(),
            Jonas,
            "/v1/policies/partner-api/pause",
            json!({
                "reason": "the key of a partner leaked: ticket 4752",
            }),
        ),
        // Exceptions for some subjects.
        put(
            at(7, "08:00:00"),
            Mei,
            "/v1/policies/benefit/overrides/member-42",
            json!({
                "limits": [{ "max": 5, "per": "day" }],
                "until": days.in_days(21),
                "reason": "a test account of the shop team",
            }),
        ),
        put(
            at(5, "09:40:00"),
            Mei,
            "/v1/policies/benefit/blocks/member-13",
            json!({
                "reason": "the account was sold: case 231",
            }),
        ),
        put(
            at(3, "09:05:00"),
            Helpdesk,
            "/v1/policies/coupon/blocks/member-47",
            json!({
                "until": days.in_days(3),
                "reason": "chargebacks: case 240",
            }),
        ),
        put(
            at(2, "03:40:00"),
            Helpdesk,
            "/v1/policies/otp/overrides/member-17",
            json!({
                "limits": [{ "max": 10, "per": "hour" }],
                "until": days.in_days(3),
                "reason": "a new phone: ticket 4731",
            }),
        ),
        put(
            at(2, "12:00:00"),
            Jonas,
            "/v1/policies/partner-api/overrides/partner-nord",
            json!({
                "limits": [{ "max": 1200, "per": "1h" }],
                "until": days.in_days(2),
                "reason": "a load test until Friday",
            }),
        ),
        // Corrections by hand, a key that leaked, and an erasure.
        post(
            at(12, "06:20:00"),
            Mei,
            "/v1/policies/benefit/subjects/member-21/adjustments",
            json!({ "units": 1, "reason": "given at the counter: ticket 4655" }),
        ),
        post(
            at(1, "04:12:00"),
            Mei,
            "/v1/policies/otp/subjects/member-42/resets",
            json!({ "per": "hour", "reason": "codes came late: ticket 4740" }),
        ),
        Scene {
            at: at(10, "15:45:00"),
            by: Jonas,
            deed: Deed::Revoke(Actor::Till, "found in a public repository"),
        },
        post(
            at(4, "10:15:00"),
            Mei,
            "/v1/subjects/member-31/erasure",
            json!({
                "reason": "request 118",
            }),
        ),
    ]);
    let reconcile = |at| Scene {
        at,
        by: Auditor,
        deed: Deed::Reconcile,
    };
    scenes.extend(NIGHTS.map(|night| reconcile(at(night, "03:10:00"))));
    scenes.push(reconcile(until - LAST_RECONCILED));
    scenes
}
