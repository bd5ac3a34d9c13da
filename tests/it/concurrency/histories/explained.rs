//! Checks that the service later explains each answer to a claim as it was given.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::checks::Checked;
use super::steps::Claim;
use super::subject_text;
use crate::support::app::{Answer, App, Ground, eventually};
use crate::support::direct::Direct;

/// An answer, and the number of entries and changes that were committed at that time. The history
/// has one step at a time, and no other transaction is open. Therefore these numbers are the position
/// up to which the record was known.
struct Answered {
    claim: Claim,
    at: DateTime<Utc>,
    committed: u64,
    status: u16,
    told: Value,
}

pub struct Answers {
    database: Direct,
    taken: Vec<Answered>,
}

impl Answers {
    pub async fn of(ground: &Ground) -> Self {
        Self {
            database: Direct::to(ground).await,
            taken: Vec::new(),
        }
    }

    async fn committed(&mut self) -> u64 {
        self.nobody_writes().await;
        let tables = [
            "entries",
            "policy_versions",
            "override_versions",
            "key_versions",
            "acts",
        ];
        let counts = tables.map(|table| format!("(SELECT count(*) FROM {table})"));
        let sum = format!("SELECT CAST({} AS text)", counts.join(" + "));
        self.database.texts(&sum).await[0]
            .parse()
            .expect("a number")
    }

    /// Waits until PostgreSQL has no open transaction that writes. One that began before the claim
    /// and ends after it, such as a lapse, gets a position before the claim's.
    async fn nobody_writes(&mut self) {
        let writers = "SELECT CAST(count(*) AS text) FROM pg_stat_activity
             WHERE datname = current_database() AND backend_xid IS NOT NULL";
        let deadline = Instant::now() + Duration::from_secs(30);
        while matches!(self.database, Direct::Postgres(_))
            && self.database.texts(writers).await != ["0"]
        {
            assert!(Instant::now() < deadline, "a transaction does not end");
        }
    }

    /// Records the answer to a claim.
    pub async fn take(&mut self, claim: Claim, at: DateTime<Utc>, answer: &Answer) {
        let committed = self.committed().await;
        self.taken.push(Answered {
            claim,
            at,
            committed,
            status: answer.status.as_u16(),
            told: answer.json(),
        });
    }

    /// Checks that the service explains every answer as it was given, whatever happened later.
    pub async fn are_explained(&mut self, app: &App) -> Checked {
        let committed = self.committed().await;
        eventually("every row has a position", || async {
            // More can come: a lapse, or the act of a closed day.
            let as_of = app.get("/v1/entries?limit=1").await.json()["as_of"].as_u64();
            as_of >= Some(committed)
        })
        .await;
        for answered in &self.taken {
            answered.is_explained(app).await?;
        }
        Ok(())
    }
}

impl Answered {
    async fn is_explained(&self, app: &App) -> Checked {
        let type_of = self.told["type"].as_str().unwrap_or_default();
        let reason = match (self.status, type_of.rsplit(['#', '/']).next()) {
            (201, _) => return self.is_explained_as_a_grant(app).await,
            // The question of an explanation tells no calendar.
            _ if self.claim.calendar.is_some() => return Ok(()),
            (404, _) => "archived",
            (409, Some("policy-inactive")) => "paused",
            (422, Some("invalid")) => "never_fits",
            (429, _) => "no_room",
            // What became of the first claim with this key.
            _ => return Ok(()),
        };
        let Claim { subject, units, .. } = self.claim;
        let at = self.at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        let path = format!(
            "/v1/policies/benefit/subjects/{}?at={at}&known_at={}&units={units}",
            subject_text(subject),
            self.committed,
        );
        let explanation = app.get(&path).await.json();
        prop_assert_eq!(&explanation["reason"], reason, "{}: {}", path, explanation);
        prop_assert_eq!(&explanation["outcome"], "denied");
        if self.status == 429 {
            // A subject without room is not told of the total.
            let lacking = explanation["lacking"].as_array().expect("limits");
            let told = self.told["violated-policies"].as_array().expect("limits");
            let all = told
                .iter()
                .chain(lacking.iter().filter(|it| **it == "total day"));
            let mut all: Vec<&Value> = all.collect();
            all.dedup();
            prop_assert_eq!(lacking.iter().collect::<Vec<_>>(), all);
            prop_assert_eq!(&usage(&explanation), &self.told["limits"], "{}", path);
        }
        entries_make_the_totals(&explanation)
    }

    async fn is_explained_as_a_grant(&self, app: &App) -> Checked {
        let id = self.told["grant"]["id"].as_str().expect("an id");
        let path = format!("/v1/grants/{id}/explanation?known_at={}", self.committed);
        let explanation = app.get(&path).await.json();
        prop_assert_eq!(&explanation["entry"]["id"], id);
        prop_assert_eq!(&explanation["since"], &json!([]), "{}", explanation);
        let topped_up = self.told["grant"]["topped_up_units"].as_u64();
        let own = self.claim.units - topped_up.unwrap_or(0);
        let mut after = usage(&explanation);
        for (limit, took) in after
            .as_array_mut()
            .expect("limits")
            .iter_mut()
            .zip(explanation["took"].as_array().expect("units"))
        {
            let [used, left] = ["used", "remaining"].map(|name| limit[name].as_u64());
            prop_assert_eq!(&took["first"], used.expect("units") + 1);
            limit["used"] = took["last"].clone();
            limit["remaining"] = json!(left.expect("units") - own);
        }
        let mut told = self.told["limits"].clone();
        for limits in [&mut after, &mut told] {
            forget_returns(limits);
        }
        prop_assert_eq!(after, told, "{}", path);
        entries_make_the_totals(&explanation)
    }
}

/// The limits in the form that answers to claims have.
fn usage(explanation: &Value) -> Value {
    let limits = explanation["limits"].as_array().expect("limits").iter();
    let names = [
        "per",
        "kind",
        "max",
        "used",
        "remaining",
        "window_start",
        "more_at",
        "resets_at",
    ];
    let limit = |limit: &Value| names.map(|name| (name.to_owned(), limit[name].clone()));
    limits
        .map(|told| Value::Object(limit(told).into_iter().collect()))
        .collect()
}

/// Removes the instants of return, which a grant moves: it opens a window, or it is a hold. The
/// window of a calendar does not change.
fn forget_returns(limits: &mut Value) {
    let limits = limits.as_array_mut().expect("limits").iter_mut();
    for limit in limits {
        for name in ["more_at", "resets_at"] {
            limit[name].take();
        }
        if limit["kind"] != "calendar" {
            limit["window_start"].take();
        }
    }
}

/// Checks the sums of calendar windows. The units of other limits return one by one, or do not all
/// count.
fn entries_make_the_totals(explanation: &Value) -> Checked {
    let limits = explanation["limits"].as_array().expect("limits").iter();
    for limit in limits.filter(|limit| limit["kind"] == "calendar") {
        let entries = limit["entries"].as_array().expect("entries");
        let oldest_first = entries.iter().rev().map(|entry| entry["units"].as_i64());
        let used = oldest_first.fold(0, |used, units| (used + units.expect("units")).max(0));
        prop_assert_eq!(&limit["used"], used, "{}", limit);
        prop_assert_eq!(&limit["entry_count"], entries.len());
    }
    Ok(())
}
