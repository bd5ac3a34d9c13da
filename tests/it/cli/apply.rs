//! `perdiem policy apply` and `perdiem policy backtest`, as a person at a terminal uses them.

use std::fs;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::support::app::{Answer, App, Stack};
use crate::support::command_line::{command, words};
use crate::support::desk::on_every_store;
use crate::support::terminal::Said;

/// A folder with a file of policies, and the application that gets the policies.
struct Scene {
    app: App,
    folder: TempDir,
}

impl Scene {
    async fn on(stack: Stack) -> Self {
        Self {
            app: App::with_clock(stack).await.0,
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    fn write(&self, text: &str) -> String {
        let path = self.folder.path().join("policies.yaml");
        fs::write(&path, text).expect("a file");
        path.to_str().expect("a text").to_owned()
    }

    async fn apply(&self, text: &str, options: &str) -> Said {
        let path = self.write(text);
        command(&self.app, &format!("policy apply -f {path} {options}")).await
    }

    /// The policy, which must exist.
    async fn policy(&self, name: &str) -> Value {
        self.app.get(&format!("/v1/policies/{name}")).await.is(200)
    }

    /// The number of recorded changes.
    async fn changes(&self) -> usize {
        let changes = self.app.get("/v1/changes").await.at("/items");
        changes.as_array().expect("items").len()
    }
}

const POLICIES: &str = "\
# What the shop gives away.
policies:
  benefit:
    description: 3 benefit claims per member per day
    time_zone: GMT+8
    limits:
      - { max: 3, per: day }
      - { max: 30, per: month }
  sms:
    time_zone: europe/berlin
    limits: [{ max: 5, per: hour }]
    day_starts_at: 06:00
    week_starts_on: sunday
    active_until: 2027-01-01T00:00:00+01:00
    reason: campaign 7
";

/// One wrong policy in the file: no policy changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_wrong_changes_nothing() {
    let scene = Scene::on(Stack::Sqlite).await;
    let with = |from: &str, to: &str| {
        assert!(POLICIES.contains(from), "{from}");
        POLICIES.replace(from, to)
    };
    let zone = "    time_zone: GMT+8\n";
    let both = with("max: 5", "max: 0").replace("max: 3,", "max: 0,");
    #[rustfmt::skip]
    let faults = [
        (both, &["benefit: ", "sms: ", "limits (the first one), max: "][..]),
        (with("europe/berlin", "Europe/Berlim"), &["Europe/Berlin"]),
        (with("day_starts_at", "day_start_at"), &["day_start_at"]),
        (with(zone, ""), &["time_zone"]),
        (with(zone, &zone[1..]), &["line 5"]),
        (with("  sms:", "  benefit:"), &["benefit"]),
        (with("  sms:", "  Sms:"), &["Sms"]),
        (with("policies:", "policy:"), &["policies:"]),
        (with("  sms:\n", "  sms: {}\n  mms:\n"), &["time_zone"]),
        (with(zone, &zone.repeat(2)), &["time_zone"]),
        (with("day_starts_at: 06:00", "durability: counted"), &["durability: "]),
        ("policies: {}".to_owned(), &["no policies"]),
        ("policies: []".to_owned(), &["no policies"]),
        ("policies: { benefit: }".to_owned(), &["benefit"]),
        (String::new(), &["policies:"]),
        ("- benefit".to_owned(), &["policies:"]),
        (format!("{POLICIES}---\n{POLICIES}"), &["document"]),
    ];
    let options = ["--dry-run", "--prune --reason 'a test'"];
    for ((text, words), options) in faults.into_iter().zip(options.into_iter().cycle()) {
        let said = scene.apply(&text, options).await;
        assert_eq!(said.stdout, "", "{text}");
        let fault = said.fault();
        let is_told = words.iter().all(|word| fault.contains(word));
        assert!(is_told, "{words:?}: {fault}");
    }
    let fault = command(&scene.app, "policy apply -f nowhere.yaml")
        .await
        .fault();
    assert!(fault.contains("nowhere.yaml"), "{fault}");
    assert_eq!(scene.changes().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_is_read_and_written() {
    let scene = Scene::on(Stack::Sqlite).await;
    let text = json!({ "policies": { "7": { "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] } } });
    let steps = scene.apply(&text.to_string(), "--json").await.json(0);
    assert_eq!(steps[0]["action"], "create");
    assert_eq!(steps[0]["before"], Value::Null);
    assert_eq!(steps[0]["after"], scene.policy("7").await);
    scene.app.benefit(3, "GMT+8").await;
    let yaml = "policies:\n  7: &seven\n    time_zone: UTC\n    limits: [{ max: 2, per: day }]\n  8: *seven\n";
    let steps = scene.apply(yaml, "--json --dry-run").await.json(5);
    let actions = steps.as_array().expect("steps").iter();
    let actions: Vec<String> = actions
        .map(|step| format!("{} {}", step["policy"], step["action"]))
        .collect();
    assert_eq!(
        actions.join(" "),
        r#""7" "replace" "8" "create" "benefit" "leave""#
    );
    assert_eq!(steps[0]["after"]["version"], 2);
    assert_eq!(steps[0]["before"], scene.policy("7").await);
}

/// A URL that leads to the server. Just before the first change of the policy `sms` passes, a rival
/// replaces the policy.
async fn with_a_rival(app: &App) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let server = app.url.trim_start_matches("http://").to_owned();
    let rival = app.request(Method::PUT, "/v1/policies/sms").json(&json!({
        "time_zone": "UTC", "limits": [{ "max": 99, "per": "day" }], "reason": "a rival",
    }));
    let mut rival = Some(rival);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut head = [0; 64];
            let length = client.peek(&mut head).await.unwrap_or_default();
            let is_change = head[..length].starts_with(b"PUT /v1/policies/sms ");
            if let Some(rival) = rival.take_if(|_| is_change) {
                assert!(Answer::of(rival).await.status.is_success());
            }
            let mut upstream = TcpStream::connect(&server).await.expect("the server");
            tokio::spawn(async move {
                // The copy ends when the connection ends.
                let _ = copy_bidirectional(&mut client, &mut upstream).await;
            });
        }
    });
    url
}

on_every_store!(what_somebody_else_changes_meanwhile_is_not_overwritten);

async fn what_somebody_else_changes_meanwhile_is_not_overwritten(stack: Stack) {
    let scene = Scene::on(stack).await;
    let text = format!("{POLICIES}  tea: {{ time_zone: UTC, limits: [{{ max: 1, per: day }}] }}\n");
    let path = scene.write(&text);
    let line = format!("policy apply -f {path} --reason mine");
    // The policy is new at first, and exists at the second time.
    for (max, version, changed, not_changed) in
        [(5, 1, "benefit", "sms, tea"), (7, 3, "nothing", "sms")]
    {
        scene.write(&text.replace("max: 5", &format!("max: {max}")));
        let url = with_a_rival(&scene.app).await;
        let fault = command(&scene.app, &format!("{line} --url {url}"))
            .await
            .fault();
        for words in [
            "stopped at sms; ",
            &format!("changed: {changed}; not changed: {not_changed}: "),
            "somebody changed the policy meanwhile",
        ] {
            assert!(fault.contains(words), "{words}: {fault}");
        }
        let sms = scene.policy("sms").await;
        assert_eq!(sms["version"], version);
        assert_eq!(sms["reason"], "a rival");
        // A second run shows the rival's change.
        let said = command(&scene.app, &line).await.well(0);
        let change = format!("~ sms: limits: 99 per day → {max} per hour\n");
        assert!(said.contains(&change), "{said}");
        let again = command(&scene.app, &line).await.well(0);
        assert_eq!(again.lines().last(), Some("3 unchanged"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backtest_is_a_table() {
    let scene = Scene::on(Stack::Sqlite).await;
    scene.app.benefit(9, "GMT+8").await;
    for subject in ["a", "a", "b", "a"] {
        assert_eq!(scene.app.claim(subject, None).await.status, 201);
    }
    let draft = scene.write("time_zone: GMT+8\nlimits: [{ max: 1, per: day }]\n");
    let line = format!("policy backtest benefit --from 2026-11-20 --until 2026-11-22 -f {draft}");
    let table = command(&scene.app, &line).await.well(0);
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        lines,
        [
            "day grants units denied their units",
            "2026-11-20 0 0 0 0",
            "2026-11-21 4 4 2 2",
            "total 4 4 2 2",
            "",
            "subjects denied: 1; the first:",
            "2026-11-21T11:04:05.678901+08:00 a 2 denied",
        ]
    );
    let told = command(&scene.app, &format!("{line} --json")).await.json(0);
    assert_eq!(told["total"]["denied_subjects"], 1);

    scene.write("time_zone: GMT+8\nlimits: [{ max: 0, per: day }]\n");
    let fault = command(&scene.app, &line).await.fault();
    assert!(
        fault.contains("--file, limits (the first one), max: "),
        "{fault}"
    );
}

/// Without days the last ones are tried, until today.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backtest_without_days_tries_the_last_seven() {
    let scene = Scene {
        app: App::on(Stack::Sqlite).await,
        folder: tempfile::tempdir().expect("a temporary folder"),
    };
    scene.app.benefit(9, "GMT+8").await;
    for subject in ["a", "a", "b"] {
        assert_eq!(scene.app.claim(subject, None).await.status, 201);
    }
    let draft = scene.write("time_zone: GMT+8\nlimits: [{ max: 1, per: day }]\n");
    let line = format!("policy backtest benefit -f {draft}");
    let table = command(&scene.app, &line).await.well(0);
    let lines: Vec<&str> = table.lines().collect();
    let days = lines[0].strip_suffix("; write other days with --from and --until");
    let first = lines[2].split(' ').next().expect("a day");
    let last = lines[8].split(' ').next().expect("a day");
    assert_eq!(days, Some(&*format!("{first} to {last}")), "{table}");
    assert!(lines[9].starts_with("total "), "{table}");
    for (days, count) in [
        ("", 7),
        ("--from yesterday", 2),
        ("--until tomorrow", 7),
        ("--from 2026-01-01 --until 2026-01-11", 10),
    ] {
        let told = command(&scene.app, &format!("{line} --json {days}")).await;
        let told = told.json(0);
        let tried = told["days"].as_array().expect("days");
        assert_eq!(tried.len(), count, "{days}");
        let grants = if days.ends_with("11") { 0 } else { 3 };
        assert_eq!(told["total"]["grants"], grants, "{days}");
    }
    let fault = command(&scene.app, &format!("{line} --until 0000-01-01")).await;
    assert!(fault.fault().contains("--until: "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backtest_takes_the_file_of_apply() {
    let scene = Scene::on(Stack::Sqlite).await;
    scene.app.benefit(9, "GMT+8").await;
    let file = scene.write(&POLICIES.replace("benefit:", "new:"));
    let line = format!("policy apply -f {file} --reason 'a test'");
    command(&scene.app, &line).await.well(0);
    for subject in ["a", "a", "b", "a"] {
        assert_eq!(scene.app.claim(subject, None).await.status, 201);
    }
    let path = scene.write(&format!(
        "{}  tea: {{ time_zone: UTC, limits: [{{ max: 1, per: day }}] }}\n",
        POLICIES.replace("max: 3,", "max: 2,")
    ));
    let line = format!("policy backtest -f {path} --from 2026-11-20 --until 2026-11-22");
    let run = async |names: &str| {
        command(&scene.app, &line.replace(" -f", &format!(" {names} -f"))).await
    };
    // Those that differ, and what the others are.
    let told = run("").await.well(0);
    let lines: Vec<String> = told
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        lines,
        [
            "~ benefit:",
            "day grants units denied their units",
            "2026-11-20 0 0 0 0",
            "2026-11-21 4 4 1 1",
            "total 4 4 1 1",
            "",
            "subjects denied: 1; the first:",
            "2026-11-21T11:04:05.678901+08:00 a 1 denied",
            "= sms: its limits, its tiers, its total and its calendar are those in force",
            "= tea: new, so it has no grants to try it on",
        ]
    );
    let told = command(&scene.app, &format!("{line} --json")).await.json(0);
    assert_eq!(told.as_array().map(Vec::len), Some(1));
    assert_eq!(told[0]["policy"], "benefit");
    assert_eq!(told[0]["total"]["denied_grants"], 1);
    // Those that are named, whatever they are.
    let told = run("sms").await.well(0);
    assert!(told.starts_with("~ sms:\nday "), "{told}");
    assert!(!told.contains("benefit"), "{told}");
    let told = run("tea").await.well(0);
    assert_eq!(told, "= tea: new, so it has no grants to try it on\n");
    let fault = run("coffee").await.fault();
    let told = "coffee is not in the file: write one of its policies: benefit, sms, tea";
    assert!(fault.contains(told), "{fault}");
    // An auditor may try what only an admin may change.
    let key = command(&scene.app, "key create books --role audit --json").await;
    let key = key.json(0)["secret"].as_str().expect("a secret").to_owned();
    let said = Said::with_key(&scene.app.url, &key, &words(&line)).await;
    assert!(said.well(0).starts_with("~ benefit:"));
    // What is only scheduled is not in force.
    let schedule = "policy set benefit --limit '2 per day' --limit '30 per month' \
                    --effective next_window --reason x";
    command(&scene.app, schedule).await.well(0);
    assert!(run("").await.well(0).starts_with("~ benefit:"));
    scene.write("policies:\n  benefit: { time_zone: UTC+8, limits: [{ max: 9, per: day }] }\n");
    let told = run("").await.well(0);
    assert_eq!(
        told,
        "= benefit: its limits, its tiers, its total and its calendar are those in force\n"
    );
    // Every policy that is wrong is told.
    scene.write(
        &POLICIES
            .replace("max: 3,", "max: 0,")
            .replace("berlin", "berlim"),
    );
    let fault = run("").await.fault();
    for told in [
        "benefit: --file, limits (the first one), max: ",
        "; sms: --file, time_zone: ",
    ] {
        assert!(fault.contains(told), "{told}: {fault}");
    }
    // A draft is of one policy.
    for (text, told) in [
        (
            "time_zone: GMT+8\nlimits: [{ max: 1, per: day }]\n",
            "write the name of this policy",
        ),
        ("policies: {}\n", "no policies"),
        ("policies: { Benefit: {} }\n", "Benefit"),
        ("", "write policies: in the file"),
    ] {
        scene.write(text);
        let fault = run("").await.fault();
        assert!(fault.contains(told), "{text}: {fault}");
    }
}
