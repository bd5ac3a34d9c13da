//! Secrets that stand in files, so that neither the arguments nor the environment have them.

use std::fs;
use std::path::Path;

use reqwest::StatusCode;

use crate::cli::{Process, folder, run, sqlite_url};
use crate::support::app::{Answer, App, KEY, Stack, client};
use crate::support::servers;

/// Each setting that holds a secret, and the command that takes it.
const SECRETS: [(&str, &[&str]); 4] = [
    ("PERDIEM_ADMIN_KEY", &["serve"]),
    ("DATABASE_URL", &["migrate"]),
    ("REDIS_URL", &["serve"]),
    ("PERDIEM_KEY", &["policy", "list"]),
];

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_takes_its_secrets_from_files() {
    let folder = folder();
    let ledger = folder.path().join("elsewhere.db");
    // With a newline at its end, as editors write, and without.
    let key = write(folder.path(), "key", &format!("{KEY}\n"));
    let database = write(folder.path(), "database", &sqlite_url(&ledger));
    let redis = write(folder.path(), "redis", &servers::redis().url());
    let settings = [
        ("PERDIEM_ADMIN_KEY_FILE", key.as_str()),
        ("DATABASE_URL_FILE", &database),
        ("REDIS_URL_FILE", &redis),
    ];
    let (_server, url) = Process::serve(folder.path(), &settings);
    let list = client().get(format!("{url}/v1/policies")).bearer_auth(KEY);
    assert_eq!(Answer::of(list).await.status, StatusCode::OK);
    let ready = Answer::of(client().get(format!("{url}/readyz"))).await;
    assert_eq!(ready.json()["counters"], true, "{ready:?}");
    assert!(ledger.is_file());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_takes_its_key_from_a_file() {
    let app = App::on(Stack::Sqlite).await;
    let folder = folder();
    let key = write(folder.path(), "key", &format!("{KEY}\n"));
    let settings = [
        ("PERDIEM_URL", app.url.as_str()),
        ("PERDIEM_KEY_FILE", &key),
    ];
    let ended = run(&["policy", "list"], &settings);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let flag = ["policy", "list", "--key-file", &key];
    let ended = run(&flag, &settings[..1]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn a_file_that_tells_no_secret_is_told() {
    let folder = folder();
    let missing = folder.path().join("missing");
    let missing = missing.to_str().expect("UTF-8");
    let empty = write(folder.path(), "empty", "\n");
    let is_folder = folder.path().to_str().expect("UTF-8");
    for (name, command) in SECRETS {
        let file = format!("{name}_FILE");
        for (path, words) in [
            (missing, "No such file"),
            (is_folder, "directory"),
            (&empty, "it is empty"),
            ("", "--"),
        ] {
            let ended = run(command, &[(&file, path)]);
            assert_eq!(ended.status.code(), Some(2), "{ended:?}");
            for word in [words, path] {
                assert!(ended.stderr.contains(word), "{word}: {ended:?}");
            }
        }
    }
}

#[test]
fn a_secret_that_is_given_twice_is_told() {
    const SECRET: &str = "hunter2-is-secret";
    let folder = folder();
    let path = write(folder.path(), "secret", SECRET);
    for (name, command) in SECRETS {
        let file = format!("{name}_FILE");
        let ended = run(command, &[(&file, &path), (name, SECRET)]);
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        let flag = name.strip_prefix("PERDIEM_").unwrap_or(name);
        let flag = format!("--{}", flag.to_lowercase().replace('_', "-"));
        for word in [format!("{flag}-file"), "cannot be used with".to_owned()] {
            assert!(ended.stderr.contains(&word), "{word}: {ended:?}");
        }
        assert!(!ended.stderr.contains(SECRET), "{ended:?}");
    }
}
