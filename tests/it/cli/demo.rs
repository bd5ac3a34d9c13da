//! `perdiem demo`: a sandbox that tells two weeks of claims.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;

use chrono::{DateTime, Days, NaiveDate, Utc};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Process, fault_of, folder, get};
use crate::support::app::{Answer, client, client_builder, instant};

const UNTIL: &str = "2026-11-25T09:24:00Z";
/// The last day of the story, where each policy is.
const LAST_DAY: &str = "2026-11-25";
const POLICIES: [&str; 4] = ["benefit", "coupon", "otp", "partner-api"];

/// A running demo, in a temporary folder of its own.
struct Demo {
    process: Process,
    place: TempDir,
    url: String,
    keys: BTreeMap<String, String>,
    /// What it says that it told, without the time that it took.
    told: String,
}

impl Demo {
    fn start(seed: &str) -> (Process, TempDir) {
        let place = folder();
        let temporary = place.path().to_str().expect("a text");
        let words = [
            "demo",
            "--bind",
            "127.0.0.1:0",
            "--until",
            UNTIL,
            "--seed",
            seed,
        ];
        let process = Process::start(place.path(), &words, &[("TMPDIR", temporary)]);
        (process, place)
    }

    /// Waits until a story has been told.
    fn told((process, place): (Process, TempDir)) -> Self {
        process.wait_for("stdout", |line| line.starts_with("a demo: "));
        let output = process.output("stdout");
        let line = |start: &str| {
            let found = output.lines().find_map(|line| line.strip_prefix(start));
            found
                .unwrap_or_else(|| panic!("{start}: {output}"))
                .to_owned()
        };
        let url = line("perdiem listens on ");
        let url = url.split(' ').next().expect("a URL").to_owned();
        assert!(
            output.contains(&format!("console: {url}/console")),
            "{output}"
        );
        let key = |role: &str| {
            let secret = line(&format!("  {role:<8} "));
            (role.to_owned(), secret)
        };
        let told = line("told in ");
        let told = told.split_once(": ").expect("figures").1.to_owned();
        let keys = ["admin", "support", "audit", "claim"].map(key);
        Self {
            process,
            place,
            url,
            keys: BTreeMap::from(keys),
            told,
        }
    }

    async fn get(&self, path: &str) -> Value {
        let answer = get(&self.url, path, &self.keys["audit"]).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_eq!(answer.header("perdiem-sandbox"), Some("true"));
        answer.json()
    }

    /// The figures of all days of all policies.
    async fn days(&self) -> Vec<Value> {
        let list = self.get("/v1/stats?limit=1000").await;
        list["items"].as_array().expect("a list").clone()
    }

    /// Who was granted what, and when, in whole seconds.
    async fn grants(&self) -> BTreeSet<String> {
        let export = get(
            &self.url,
            "/v1/grants/export?format=ndjson",
            &self.keys["audit"],
        )
        .await;
        let line = |line: &str| {
            let grant: Value = serde_json::from_str(line).expect("JSON");
            let at: DateTime<Utc> = instant(grant["granted_at"].as_str().expect("an instant"));
            format!(
                "{} {} {} {}",
                grant["policy"],
                grant["subject"],
                grant["units"],
                at.timestamp()
            )
        };
        export.text.lines().map(line).collect()
    }

    /// Ends the demo, which leaves nothing.
    fn end(self) {
        self.process.end();
        let left = fs::read_dir(self.place.path()).expect("a folder").count();
        assert_eq!(left, 0);
    }
}

fn sum(days: &[Value], figure: &str) -> u64 {
    days.iter()
        .map(|day| day[figure].as_u64().expect("a number"))
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_seed_tells_the_same_story() {
    let started = ["7", "7", "8"].map(Demo::start);
    let [one, again, other] = started.map(Demo::told);
    // 1. The same figures, and the same grants. Another seed has others.
    let days = one.days().await;
    assert_eq!(days, again.days().await);
    assert_eq!(one.told, again.told);
    assert_eq!(one.grants().await, again.grants().await);
    assert_ne!(one.told, other.told);
    assert_ne!(days, other.days().await);
    // 2. Every policy has grants on each of its last 14 days, today too.
    let last: NaiveDate = LAST_DAY.parse().expect("a date");
    for demo in [&one, &other] {
        let days = demo.days().await;
        for policy in POLICIES {
            for before in 0..14 {
                let date = (last - Days::new(before)).to_string();
                let is_of_day = |day: &&Value| day["policy"] == policy && day["date"] == *date;
                let day = days.iter().find(is_of_day);
                let day = day.unwrap_or_else(|| panic!("{policy} {date}"));
                assert!(day["grants"].as_u64() > Some(0), "{day}");
            }
        }
        // 3. The figures are what it says that it told.
        let told = format!(
            "{} claims granted, {} denied, {} given back",
            sum(&days, "grants"),
            sum(&days, "denied_claims"),
            sum(&days, "reversed_grants"),
        );
        assert_eq!(told, demo.told);
        assert!(
            sum(&days, "grants") > 1000 && sum(&days, "denied_claims") > 100,
            "{told}"
        );
    }
    the_ledger_is_whole(&one).await;
    the_record_has_a_life(&one).await;
    the_keys_open_the_console(&one).await;
    for demo in [one, again, other] {
        demo.end();
    }
}

async fn the_ledger_is_whole(demo: &Demo) {
    let asked = client().post(format!("{}/v1/reconciliations", demo.url));
    let asked = asked.bearer_auth(&demo.keys["audit"]).json(&json!({}));
    let report = Answer::of(asked).await;
    assert_eq!(report.status, 201, "{report:?}");
    let report = report.json();
    assert_eq!(
        (&report["ledger"], &report["difference_count"]),
        (&json!("whole"), &json!(0))
    );
    let before = demo.get("/v1/reconciliations?limit=100").await;
    assert_eq!(before["items"].as_array().map(Vec::len), Some(15));
    let seal = demo.get("/v1/seals/latest").await;
    assert!(seal["size"].as_u64() > Some(1000), "{seal}");
    let now = instant(
        demo.get("/v1/sandbox/clock").await["now"]
            .as_str()
            .expect("an instant"),
    );
    assert!(
        now >= instant(UNTIL) && now - instant(UNTIL) < chrono::TimeDelta::minutes(5),
        "{now}"
    );
}

/// Changes by several keys with reasons, exceptions, holds in every state, a pause and a scheduled change.
async fn the_record_has_a_life(demo: &Demo) {
    let changes = demo.get("/v1/changes?limit=1000").await;
    let changes = changes["items"].as_array().expect("a list");
    let has = |kind: &str| changes.iter().any(|change| change["kind"] == kind);
    for kind in ["policy", "override", "block", "key", "erasure"] {
        assert!(has(kind), "{kind}");
    }
    let makers: BTreeSet<&str> = changes.iter().filter_map(|it| it["by"].as_str()).collect();
    assert!(makers.len() >= 4, "{makers:?}");
    let days = demo.days().await;
    for figure in ["reversed_grants", "lapsed_grants", "adjustments", "resets"] {
        assert!(sum(&days, figure) > 0, "{figure}");
    }
    for state in ["held", "granted", "reversed", "lapsed"] {
        let grants = demo.get(&format!("/v1/grants?limit=1&state={state}")).await;
        assert_eq!(grants["items"].as_array().map(Vec::len), Some(1), "{state}");
    }
    let paused = demo.get("/v1/policies/partner-api").await;
    assert_eq!(paused["paused"], true);
    let versions = demo.get("/v1/policies/coupon/versions").await;
    let newest = &versions["items"][0]["effective_at"];
    assert!(instant(newest.as_str().expect("an instant")) > instant(UNTIL));
}

async fn the_keys_open_the_console(demo: &Demo) {
    for (role, key) in &demo.keys {
        let own = get(&demo.url, "/v1/keys/me", key).await.json();
        assert_eq!(own["role"], **role);
        let form = [("key", key.as_str()), ("to", "")];
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(form);
        let browser = client_builder().redirect(reqwest::redirect::Policy::none());
        let browser = browser.build().expect("a client");
        let asked = browser.post(format!("{}/console/sign-in", demo.url));
        let asked = asked
            .header("Content-Type", "application/x-www-form-urlencoded")
            .header("Sec-Fetch-Site", "same-origin")
            .body(body.finish());
        let answer = asked.send().await.expect("an answer");
        let lets_in = answer.headers().contains_key("set-cookie");
        assert_eq!(lets_in, role != "claim", "{role}: {answer:?}");
    }
    // Every page says that it is a demo, the one before the sign-in too.
    let page = client().get(format!("{}/console/sign-in", demo.url)).send();
    let page = page.await.expect("an answer").text().await.expect("a text");
    assert!(page.contains("· demo"), "{page}");
}

#[test]
fn a_demo_says_what_is_wrong() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let line = fault_of(1, &["demo", "--bind", &address, "--until", UNTIL], &[]);
    for word in [address.as_str(), "PERDIEM_BIND"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    for until in ["1970-01-01", "2500-01-01T00:00:00Z"] {
        let line = fault_of(2, &["demo", "--bind", "127.0.0.1:0", "--until", until], &[]);
        for word in ["--until", "2000 to 2099"] {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
}
