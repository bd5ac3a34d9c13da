//! `perdiem reconcile`, as somebody at a terminal meets it.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::Scene;
use crate::support::app::{App, Ground, KEY, Stack, eventually};
use crate::support::servers::Redis;
use crate::support::terminal::Said;

/// Runs the command against a server.
async fn perdiem(app: &App, args: &[&str]) -> (i32, String, String) {
    let said = Said::by(app, &[&["reconcile"], args].concat()).await;
    (said.code, said.stdout, said.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_can_be_read() {
    let redis = Redis::start();
    let mut ground = Ground::new(Stack::RedisAndSqlite);
    ground.redis_url = Some(redis.url());
    let scene = Scene::on(ground).await;
    scene.grants("member-42", 2).await;
    let (code, stdout, stderr) = perdiem(&scene.app, &[]).await;
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert_eq!(
        stdout,
        "counters compared: 1\naccounts checked: 1, entries: 2\n\
         differences: 0, healed: 0, alarms: 0\n"
    );
    let name = scene.counter_of("member-42");
    let _: i64 = scene.run(&["HSET", &name, "number", "9"]).await;
    let (code, stdout, _) = perdiem(&scene.app, &[]).await;
    assert_eq!(code, 4, "{stdout}");
    let first = stdout.lines().next();
    assert_eq!(
        first,
        Some("found   counter_too_high   benefit member-42: number 9, expected 2")
    );
    assert!(stdout.ends_with("differences: 1, healed: 0, alarms: 0\n"));
    let (code, stdout, _) = perdiem(&scene.app, &["--apply"]).await;
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.starts_with("healed  counter_too_high"), "{stdout}");

    // An alarm is not healed.
    scene.ground.open_the_ledger().await;
    let lower = "UPDATE entries SET totals = replace(totals, 'd5,1,', 'd5,0,') WHERE number = 1";
    scene.ground.sql(lower).await;
    for args in [&["--apply"][..], &[]] {
        let (code, stdout, _) = perdiem(&scene.app, args).await;
        assert_eq!(code, 4, "{stdout}");
        let lines: Vec<&str> = stdout.lines().collect();
        assert_eq!(
            lines[0],
            "ALARM   wrong_total        benefit member-42: number 1, expected 1"
        );
        assert!(lines[1].trim().starts_with("day     from "), "{stdout}");
        assert!(lines[1].ends_with(": 0 used, expected 1"), "{stdout}");
        assert_eq!(lines.last(), Some(&"differences: 2, healed: 0, alarms: 2"));
    }
    let (code, stdout, _) = perdiem(&scene.app, &["--json"]).await;
    assert_eq!(code, 4);
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(report["alarm_count"], 2);
    assert_eq!(report["differences"].as_array().map(Vec::len), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_says_when_counters_were_not_compared() {
    let app = App::on(Stack::Sqlite).await;
    let (code, stdout, stderr) = perdiem(&app, &["--apply"]).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(
        stdout.starts_with("counters compared: 0 (there are none)\n"),
        "{stdout}"
    );
}

/// A process that is ended when this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As a supervisor sees it: the settings, and the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_is_logged_without_the_subject() {
    let scene = Scene::new(Stack::Sqlite).await;
    scene.grants("member-42", 2).await;
    scene.ground.open_the_ledger().await;
    scene
        .ground
        .sql("DELETE FROM entries WHERE number = 1")
        .await;
    let account = scene.account("member-42").0.to_string();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log");
    let log = std::fs::File::create(&path).expect("a file");
    let Scene { ground, app, .. } = scene;
    drop(app);
    let server = Command::new(env!("CARGO_BIN_EXE_perdiem"))
        .arg("serve")
        .env("DATABASE_URL", &ground.database_url)
        .env_remove("REDIS_URL")
        .env("PERDIEM_BIND", "127.0.0.1:0")
        .env("PERDIEM_ADMIN_KEY", KEY)
        .env("PERDIEM_RECONCILE_EVERY_SECONDS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let server = Server(server.expect("the binary starts"));
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
