//! Traces of an erased name in the stores' files, in Redis and in logs.

use std::fs::{self, File};
use std::path::Path;

use reqwest::Method;
use serde_json::json;

use super::shown;
use crate::support::app::{Answer, Ground, Stack, eventually, on_every_stack};
use crate::support::process::Process;
use crate::support::servers::{self, Redis, redis_at};

on_every_stack!(a_search_for_the_name_finds_nothing);

/// No other text contains this name.
const NAME: &str = "Xantippe-Quux";

async fn send(process: &Process, method: Method, path: &str, body: serde_json::Value) -> Answer {
    Answer::of(process.request(method, path).json(&body)).await
}

/// Everything that the stores keep, as bytes, with its place.
async fn kept(ground: &Ground) -> Vec<(String, Vec<u8>)> {
    let mut kept = Vec::new();
    match ground.database_url.strip_prefix("sqlite:") {
        Some(file) => {
            for file in [file.to_owned(), format!("{file}-wal")] {
                let bytes = fs::read(&file).unwrap_or_default();
                kept.push((file, bytes));
            }
        }
        None => {
            let dump = servers::postgres().dump(&ground.database_url);
            kept.push(("dump".to_owned(), dump));
        }
    }
    if let Some(url) = &ground.redis_url {
        let mut redis = redis_at(url.as_str()).await;
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query_async(&mut redis)
            .await
            .expect("keys");
        for key in keys {
            let dump = redis::cmd("DUMP").arg(&key).query_async(&mut redis).await;
            let dump: Option<Vec<u8>> = dump.expect("a dump");
            kept.push((key, dump.unwrap_or_default()));
        }
    }
    kept
}

fn holding(kept: &[(String, Vec<u8>)]) -> Vec<&str> {
    let holds = |bytes: &[u8]| {
        bytes
            .windows(NAME.len())
            .any(|part| part == NAME.as_bytes())
    };
    let holding = kept.iter().filter(|(_, bytes)| holds(bytes));
    holding.map(|(place, _)| place.as_str()).collect()
}

async fn a_search_for_the_name_finds_nothing(stack: Stack) {
    let mut ground = Ground::new(stack);
    // The shared Redis would also have other tests' names.
    let redis = ground.redis_url.as_ref().map(|_| Redis::start());
    ground.redis_url = redis.as_ref().map(|redis| redis.url());
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let file = File::create(&log).expect("a file");
    let redis = ground
        .redis_url
        .as_ref()
        .map(|url| ("REDIS_URL", url.as_str()));
    let settings: Vec<_> = redis.into_iter().collect();
    let process = Process::try_start_logging(&ground.database_url, &settings, file);
    let process = process.expect("a port");
    for (name, durability) in [("benefit", "recorded"), ("sms", "counted")] {
        let mut rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
        if settings.is_empty() {
            rule["description"] = json!("no Redis");
        } else {
            rule["durability"] = json!(durability);
        }
        let put = send(&process, Method::PUT, &format!("/v1/policies/{name}"), rule).await;
        put.is(201);
        for text in ["a", "b"] {
            let body = json!({ "subject": NAME, "metadata": { "of": format!("{text} {NAME}") } });
            let path = format!("/v1/policies/{name}/claims");
            let claimed = send(&process, Method::POST, &path, body).await;
            let grant = claimed.is(201)["grant"]["id"]
                .as_str()
                .expect("an id")
                .to_owned();
            if text == "b" {
                let path = format!("/v1/grants/{grant}/reversal");
                let body = json!({ "reason": format!("{NAME} did not come") });
                send(&process, Method::POST, &path, body).await.is(201);
            }
        }
        let body =
            json!({ "limits": [{ "max": 2, "per": "day" }], "reason": format!("{NAME} asked") });
        let path = format!("/v1/policies/{name}/overrides/{NAME}");
        send(&process, Method::PUT, &path, body).await.is(201);
        let path = format!("/v1/policies/{name}/claims");
        send(
            &process,
            Method::POST,
            &path,
            json!({ "subject": NAME, "units": 2 }),
        )
        .await;
    }
    let exported = process.request(
        Method::GET,
        &format!("/v1/entries/export?format=csv&subject={NAME}"),
    );
    assert_eq!(Answer::of(exported).await.status, 200);
    assert!(!holding(&kept(&ground).await).is_empty());

    let path = format!("/v1/subjects/{NAME}/erasure");
    let erased = send(
        &process,
        Method::POST,
        &path,
        json!({ "reason": "request 118" }),
    )
    .await;
    assert_eq!(erased.is(200)["accounts"], 2);
    let nothing_is_left = || async { holding(&kept(&ground).await).is_empty() };
    eventually("nothing is left of the name", nothing_is_left).await;
    let entries = Answer::of(process.request(Method::GET, "/v1/entries")).await;
    assert!(
        shown(&entries)
            .iter()
            .all(|entry| entry["subject"].is_null())
    );
    let logged = fs::read(Path::new(&log)).expect("the log");
    assert!(!logged.is_empty());
    assert_eq!(holding(&[("log".to_owned(), logged)]), [""; 0]);
}
