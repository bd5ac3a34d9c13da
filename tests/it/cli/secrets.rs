//! Secrets in files: neither the arguments nor the environment show the secrets.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Process, SECRET, folder, get, run, sqlite_url};
use crate::support::app::{App, KEY, Stack};
use crate::support::servers;

/// Each setting that has a secret, and a command that uses the setting.
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
    // One file ends with a newline, as editors write. The others do not.
    let key = write(folder.path(), "key", &format!("{KEY}\n"));
    let database = write(folder.path(), "database", &sqlite_url(&ledger));
    let redis = write(folder.path(), "redis", &servers::redis().url());
    let settings = [
        ("PERDIEM_ADMIN_KEY_FILE", key.as_str()),
        ("DATABASE_URL_FILE", &database),
        ("REDIS_URL_FILE", &redis),
    ];
    let (_server, url) = Process::serve(folder.path(), &settings);
    assert_eq!(get(&url, "/v1/policies", KEY).await.status, 200);
    let ready = get(&url, "/readyz", KEY).await;
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
    run(&["policy", "list"], &settings).well(0);
    run(&["policy", "list", "--key-file", &key], &settings[..1]).well(0);
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
            (&empty, "the file is empty"),
            ("", "--"),
        ] {
            let ended = run(command, &[(&file, path)]);
            assert_eq!(ended.code, 2, "{ended:?}");
            for word in [words, path] {
                assert!(ended.stderr.contains(word), "{word}: {ended:?}");
            }
        }
    }
}

#[test]
fn a_secret_that_is_given_twice_is_told() {
    let folder = folder();
    let path = write(folder.path(), "secret", SECRET);
    for (name, command) in SECRETS {
        let file = format!("{name}_FILE");
        let ended = run(command, &[(&file, &path), (name, SECRET)]);
        assert_eq!(ended.code, 2, "{ended:?}");
        for word in [
            &format!("'{name}'"),
            &format!("'{file}'"),
            "cannot be used with",
        ] {
            assert!(ended.stderr.contains(word), "{word}: {ended:?}");
        }
        assert!(!ended.stderr.contains(SECRET), "{ended:?}");
    }
}

#[test]
fn a_seal_key_that_others_may_read_is_refused() {
    let folder = folder();
    let path = folder.path().join("seal.key");
    let name = path.to_str().expect("UTF-8");
    assert_eq!(run(&["seal", "new-key", name], &[]).code, 0);
    let database = sqlite_url(&folder.path().join("perdiem.db"));
    let settings = [
        ("PERDIEM_SEAL_KEY_FILE", name),
        ("DATABASE_URL", &*database),
    ];
    let restart = ["seal", "restart", "--reason", "a test"];
    // The group may read the file.
    for (mode, code, word) in [
        (0o644, 2, "chmod o="),
        (0o602, 2, "chmod o="),
        (0o640, 1, "there is no ledger at"),
        (0o600, 1, "there is no ledger at"),
    ] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
        let ended = run(&restart, &settings);
        assert_eq!(ended.code, code, "{mode:o}: {ended:?}");
        assert!(ended.stderr.contains(word), "{mode:o}: {ended:?}");
    }
}
