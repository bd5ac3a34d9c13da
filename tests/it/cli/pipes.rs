//! Commands whose output nobody reads to the end, as with `| head -1`.

use std::io::pipe;
use std::process::{Command, Stdio};

use reqwest::Method;

use super::folder;
use crate::seals::{all_is_sealed, sealing, verifier};
use crate::support::app::{App, Ground, KEY, Stack};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_ends_quietly_when_nobody_reads() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::start_with(&ground, sealing).await;
    app.benefit(3, "UTC").await;
    let grant = app.claim("member-42", None).await.grant_id();
    all_is_sealed(&app, &ground).await;
    let folder = folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let proof = app.request(Method::GET, &format!("/v1/grants/{grant}/proof"));
    let proof = proof.send().await.expect("an answer").text().await;
    std::fs::write(file("proof"), proof.expect("a proof")).expect("a file");
    let key = verifier().to_string();
    let proof = file("proof");
    let exported = file("entries");
    let commands: [&[&str]; 9] = [
        &["entries"],
        &["entries", "--json"],
        &["stats"],
        &["explain", &grant],
        &["proof", &grant],
        &["verify", "--key", &key],
        &["verify", "--key", &key, "--proof", &proof],
        &["export", &exported, "--csv"],
        &["openapi"],
    ];
    for command in commands {
        let (reader, writer) = pipe().expect("a pipe");
        drop(reader);
        let mut run = Command::new(env!("CARGO_BIN_EXE_perdiem"));
        run.args(command)
            .env("PERDIEM_URL", &app.url)
            .env("PERDIEM_KEY", KEY)
            .env("DATABASE_URL", &ground.database_url)
            .stdout(writer)
            .stderr(Stdio::piped());
        let ended = tokio::task::spawn_blocking(move || run.output());
        let ended = ended.await.expect("a thread").expect("the binary runs");
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(
            (ended.status.code(), &*told),
            (Some(141), ""),
            "{command:?}"
        );
    }
    // The file that the export wrote before is whole.
    assert!(folder.path().join("entries.manifest.json").exists());
}
