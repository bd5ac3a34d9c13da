//! `perdiem reconcile` at a terminal.

use super::Scene;
use crate::support::app::{App, Ground, Stack, eventually};
use crate::support::command_line::command;
use crate::support::process::Process;
use crate::support::servers::Redis;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_can_be_read() {
    let redis = Redis::start();
    let mut ground = Ground::new(Stack::RedisAndSqlite);
    ground.redis_url = Some(redis.url());
    let scene = Scene::on(ground).await;
    scene.grants("member-42", 2).await;
    let reconcile = async |options: &str, code: i32| {
        let line = format!("reconcile {options}");
        command(&scene.app, &line).await.well(code)
    };
    let sound = "counters compared: 1\naccounts checked: 1, entries: 2\n\
                 differences: 0, healed: 0, alarms: 0\n";
    assert_eq!(reconcile("", 0).await, sound);
    let name = scene.counter_of("member-42");
    let _: i64 = scene.run(&["HSET", &name, "number", "9"]).await;
    let found = reconcile("", 4).await;
    let first = "found   counter_too_high   benefit member-42: number 9, expected 2";
    assert_eq!(found.lines().next(), Some(first));
    assert!(found.ends_with("differences: 1, healed: 0, alarms: 0\n"));
    let healed = reconcile("--apply", 0).await;
    assert!(healed.starts_with("healed  counter_too_high"), "{healed}");

    // An alarm is not healed.
    scene.ground.open_the_ledger().await;
    let lower = "UPDATE entries SET totals = replace(totals, 'd5,1,', 'd5,0,') WHERE number = 1";
    scene.ground.sql(lower).await;
    for options in ["--apply", ""] {
        let said = reconcile(options, 4).await;
        let lines: Vec<&str> = said.lines().collect();
        let alarm = "ALARM   wrong_total        benefit member-42: number 1, expected 1";
        assert_eq!(lines[0], alarm);
        assert!(lines[1].trim().starts_with("day     from "), "{said}");
        assert!(lines[1].ends_with(": 0 used, expected 1"), "{said}");
        assert_eq!(lines.last(), Some(&"differences: 2, healed: 0, alarms: 2"));
    }
    let report = command(&scene.app, "reconcile --json").await.json(4);
    assert_eq!(report["alarm_count"], 2);
    assert_eq!(report["differences"].as_array().map(Vec::len), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_says_when_counters_were_not_compared() {
    let app = App::on(Stack::Sqlite).await;
    let said = command(&app, "reconcile --apply").await.well(0);
    let expected = "counters compared: 0 (there are none)\n";
    assert!(said.starts_with(expected), "{said}");
}

/// The process runs as under a supervisor: with settings, and a log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_is_logged_without_the_subject() {
    let scene = Scene::new(Stack::Sqlite).await;
    scene.grants("member-42", 2).await;
    scene.ground.open_the_ledger().await;
    let fault = "DELETE FROM entries WHERE number = 1";
    scene.ground.sql(fault).await;
    let account = scene.account("member-42").0.to_string();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log");
    let log = std::fs::File::create(&path).expect("a file");
    let Scene { ground, app, .. } = scene;
    drop(app);
    let settings = [("PERDIEM_RECONCILE_EVERY_SECONDS", "1")];
    let server = Process::try_start_logging(&ground.database_url, &settings, log);
    let server = server.expect("the instance starts");
    let read = || std::fs::read_to_string(&path).expect("a text");
    eventually("two rounds were logged", || async {
        read().matches("reconciled").count() >= 2
    })
    .await;
    drop(server);
    let log = read();
    let alarm = log.lines().find(|line| line.contains("ALARM"));
    let alarm = alarm.unwrap_or_else(|| panic!("no alarm: {log}"));
    assert!(
        alarm.contains("ERROR") && alarm.contains(&account),
        "{alarm}"
    );
    assert!(!log.contains("member-42"), "{log}");
}
