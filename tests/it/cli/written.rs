//! A wrong setting ends a command with exit code 2 and a line that names what the operator wrote: the
//! variable, the flag or the file.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use super::{Process, SECRET, folder, run, setting_fault};
use crate::support::app::KEY;

const UNIT: &str = include_str!("../../../deploy/perdiem.service");

/// What a command says on standard error before it ends with exit code 2.
#[track_caller]
fn refused(args: &[&str], settings: &[(&str, &str)]) -> String {
    let ended = run(args, settings);
    assert_eq!(ended.code, 2, "{settings:?}: {ended:?}");
    assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    ended.stderr
}

#[test]
fn a_value_that_cannot_be_read_is_told_with_its_variable() {
    #[rustfmt::skip]
    let rows = [
        ("PERDIEM_CLAIM_DEADLINE_MS", "soon", "invalid digit"),
        ("PERDIEM_CLAIM_DEADLINE_MS", "50", "100..=60000"),
        ("PERDIEM_REDIS_TIMEOUT_MS", "", "PERDIEM_REDIS_TIMEOUT_MS"),
        ("PERDIEM_DRAIN_SECONDS", "-1", "is not in"),
        ("PERDIEM_OPEN_METRICS", "perhaps", "true, false"),
        ("PERDIEM_FOUR_EYES", "benefit,", "1 to 63 of a-z"),
        ("PERDIEM_LOG_FORMAT", "xml", "human, json"),
        ("PERDIEM_LOG", "nonsense", "write error, warn"),
        ("PERDIEM_LOG", "info,perdiem", "write error, warn"),
        ("PERDIEM_LOG", "perdiem=loud", "write error, warn"),
        ("PERDIEM_LOG", "info,[request]=debug", "write error, warn"),
        ("PERDIEM_LOG", "", "PERDIEM_LOG"),
        ("PERDIEM_SEAL_TO", "nowhere", "file:FOLDER"),
        ("PERDIEM_SEAL_KEY_FILE", "/no/such/key", "No such file"),
        ("REDIS_CA_FILE", "/no/such/file", "No such file"),
    ];
    for (name, value, words) in rows {
        let told = refused(&["serve"], &[(name, value)]);
        assert!(
            told.contains(name) && told.contains(words),
            "{name}: {told}"
        );
        assert!(!told.contains("for '--"), "{name}: {told}");
    }
    // The flag wins, and is what was written.
    let flag = ["serve", "--claim-deadline-ms", "50"];
    let told = refused(&flag, &[("PERDIEM_CLAIM_DEADLINE_MS", "200")]);
    assert!(told.contains("'--claim-deadline-ms"), "{told}");
    let told = refused(&["policy", "list"], &[]);
    for way in ["PERDIEM_KEY ", "--key-file"] {
        assert!(told.contains(way), "{told}");
    }
}

#[test]
fn levels_of_modules_are_levels() {
    for levels in ["off", "debug", "WARN", "info,perdiem=debug,sqlx=off"] {
        let told = refused(
            &["serve"],
            &[("PERDIEM_LOG", levels), ("PERDIEM_BIND", "nowhere")],
        );
        assert!(told.contains("PERDIEM_BIND"), "{levels}: {told}");
    }
}

#[test]
fn a_value_that_is_not_utf8_is_told_with_its_variable() {
    let ended = Command::new(env!("CARGO_BIN_EXE_perdiem"))
        .arg("serve")
        .env("PERDIEM_BIND", OsStr::from_bytes(b"\xff"))
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("PERDIEM_BIND is not UTF-8"), "{stderr}");
}

#[test]
fn the_file_or_the_flag_of_a_wrong_value_is_told() {
    let folder = folder();
    let path = folder.path().join("secret");
    fs::write(&path, "hunter2").expect("a file");
    let path = path.to_str().expect("UTF-8");
    for name in ["DATABASE_URL", "REDIS_URL", "PERDIEM_ADMIN_KEY"] {
        let file = format!("{name}_FILE");
        let told = refused(
            &["serve"],
            &[("PERDIEM_BIND", "127.0.0.1:0"), (&file, path)],
        );
        assert!(
            told.contains(&format!("the file that {file} names")),
            "{told}"
        );
    }
    let flag = [
        "serve",
        "--bind",
        "127.0.0.1:0",
        "--database-url",
        "hunter2",
    ];
    let told = refused(&flag, &[]);
    assert!(
        told.contains("the value is that of --database-url"),
        "{told}"
    );
    let flag = ["serve", "--bind=nowhere"];
    let told = refused(&flag, &[("PERDIEM_BIND", "127.0.0.1:0")]);
    assert!(told.contains("the value is that of --bind"), "{told}");
}

#[test]
fn settings_that_need_each_other_are_told() {
    let seals = ("PERDIEM_SEAL_TO", "file:/tmp");
    // A ledger on SQLite has a key beside it.
    let ledger = ("DATABASE_URL", "postgres://127.0.0.1:1/perdiem");
    setting_fault(
        &[seals, ledger],
        &["PERDIEM_SEAL_TO", "PERDIEM_SEAL_KEY_FILE"],
    );
}

#[test]
fn a_url_or_a_key_of_no_server_is_told() {
    for (url, key, name) in [
        ("here", KEY, "PERDIEM_URL"),
        ("", KEY, "PERDIEM_URL"),
        ("ftp://127.0.0.1", KEY, "PERDIEM_URL"),
        ("http://127.0.0.1:1", "hunter2 is secret", "PERDIEM_KEY"),
        ("http://127.0.0.1:1", "hunter2\u{e9}", "PERDIEM_KEY"),
        ("http://127.0.0.1:1", "", "PERDIEM_KEY"),
    ] {
        let settings = [("PERDIEM_URL", url), ("PERDIEM_KEY", key)];
        let told = refused(&["policy", "list"], &settings);
        assert!(told.contains(name), "{name}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_variable_is_told_with_the_nearest_one() {
    let folder = folder();
    let settings = [
        ("PERDIEM_ADMIN_KEY", KEY),
        ("PERDIEM_CLAIM_DEADLINE", SECRET),
        // Those of Kubernetes, for a service that is called perdiem.
        ("PERDIEM_SERVICE_HOST", "10.0.0.1"),
        ("PERDIEM_SERVICE_PORT", "8080"),
        ("PERDIEM_PORT_8080_TCP_ADDR", "10.0.0.1"),
    ];
    let (server, _) = Process::serve(folder.path(), &settings);
    let stderr = server.end().stderr;
    let told: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("no setting"))
        .collect();
    let [line] = told[..] else { panic!("{stderr}") };
    for word in [
        "WARN",
        "PERDIEM_CLAIM_DEADLINE,",
        "PERDIEM_CLAIM_DEADLINE_MS",
    ] {
        assert!(line.contains(word), "{word}: {line}");
    }
    assert!(!stderr.contains(SECRET), "{stderr}");
    // Other commands have no log.
    let ended = run(&["openapi"], &[("PERDIEM_DATABASE_URL", SECRET)]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let told = "perdiem: no setting is called PERDIEM_DATABASE_URL, so it has no effect: the nearest \
                is DATABASE_URL\n";
    assert_eq!(ended.stderr, told);
}

/// systemd must not start a service again and again that can never start, and a core dump would
/// contain the secrets.
#[test]
fn the_unit_fits_the_exit_codes() {
    for line in [
        "Restart=on-failure",
        "RestartPreventExitStatus=2",
        "LimitCORE=0",
    ] {
        assert!(UNIT.lines().any(|text| text == line), "{line}");
    }
}
