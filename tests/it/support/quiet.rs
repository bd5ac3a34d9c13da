//! Rest: no request is open, each lapse that is due is recorded, and the statistics have every entry.
//! Then everything that perdiem tells is one story.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use perdiem::host::clock::Clock;
use reqwest::StatusCode;
use serde_json::Value;
use tokio::time::sleep;

use super::app::{Answer, KEY, client};
use crate::judge::{Progress, Stores, Story, ToldUsage, judge_at_rest};

/// The longest way to rest. An instance that saw another one make the statistics waits for 30 s
/// after the other one died.
const REST_WITHIN: Duration = Duration::from_secs(90);
/// Of how many subjects the usage is asked.
const SUBJECTS_MOST: usize = 50;

/// Waits for rest, and asserts that the judge finds no breach in the statistics and in the usage, in
/// the tables and in the answers of the instances at these URLs. The usage is asked if the clock
/// stands.
pub async fn one_story(database_url: &str, urls: &[&str], clock: &Clock) {
    let progress = async || {
        let progress = Progress::read(database_url, clock.now()).await;
        progress.expect("the ledger can be read")
    };
    let deadline = Instant::now() + REST_WITHIN;
    loop {
        let before = progress().await;
        if before.is_at_rest() {
            let (stores, story) = collect(database_url, urls, clock).await;
            // An instance can have added something meanwhile: a lapse, the act of a closed day, or
            // denials.
            if progress().await == before {
                assert_eq!(judge_at_rest(&stores, &story), []);
                return;
            }
        }
        assert!(Instant::now() < deadline, "no rest: {before:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The stores, and what the tables and each instance tell.
async fn collect(database_url: &str, urls: &[&str], clock: &Clock) -> (Stores, Story) {
    let stores = Stores::read(database_url, &[]).await;
    let stores = stores.expect("the ledger can be read");
    let story = Story::read(database_url).await;
    let mut story = story.expect("the figures can be read");
    let entries = stores.entries.iter();
    let subjects: BTreeSet<_> = entries
        .map(|entry| (&entry.policy, &entry.subject))
        .collect();
    let asked = match clock {
        Clock::Manual(_) => SUBJECTS_MOST,
        _ => 0,
    };
    for url in urls {
        story.tell(&days(url).await);
        for (policy, subject) in subjects.iter().take(asked) {
            let at = clock.now();
            let usage = get(url, &format!("policies/{policy}/subjects/{subject}")).await;
            let version = usage["policy_version"].as_i64().expect("a version");
            let limits = usage["limits"].as_array().expect("limits").iter();
            let units = |limit: &Value, name| limit[name].as_u64().expect("units");
            story.usages.push(ToldUsage {
                policy: (*policy).clone(),
                subject: (*subject).clone(),
                policy_version: i32::try_from(version).expect("a version"),
                at,
                limits: limits
                    .map(|limit| (units(limit, "max"), units(limit, "used")))
                    .collect(),
            });
        }
    }
    (stores, story)
}

/// All days of an instance's statistics.
async fn days(url: &str) -> Vec<Value> {
    let mut days = Vec::new();
    let mut path = "stats?limit=100".to_owned();
    loop {
        let page = get(url, &path).await;
        days.extend(page["items"].as_array().expect("items").iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else {
            return days;
        };
        path = format!("stats?limit=100&cursor={next}");
    }
}

async fn get(url: &str, path: &str) -> Value {
    let request = client().get(format!("{url}/v1/{path}")).bearer_auth(KEY);
    let answer = Answer::of(request).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {answer:?}");
    answer.json()
}
