//! `perdiem export`: the files can be checked, also after an interruption.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::folder;
use crate::http::all_items;
use crate::http::v1::exports::fill;
use crate::support::app::{App, Ground, KEY, Stack, eventually};
use crate::support::terminal::Said;

const SUBJECTS: [&str; 6] = [
    "0012345",
    "1e10",
    "+8613800138000",
    "=1+1",
    "a,\"b\"",
    "ä/😀",
];

/// An application with one entry for each subject, and one reversal.
async fn with_entries() -> (App, TempDir) {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(9, "Asia/Shanghai").await;
    let mut grant = String::new();
    for subject in SUBJECTS {
        let body = json!({ "subject": subject, "metadata": { "order": "0017" } });
        grant = app.claim_body(body, None).await.grant_id();
    }
    app.reverse(&grant, "no, \"no\"\r\nno").await.is(201);
    eventually("the entries have positions", || async {
        all_items(&app, "/v1/entries").await.len() == SUBJECTS.len() + 1
    })
    .await;
    (app, folder())
}

async fn export(app: &App, file: &Path, more: &[&str]) -> Said {
    let file = file.to_str().expect("a path");
    Said::by(app, &[&["export", file], more].concat()).await
}

fn sha256(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The names of the files in a folder.
fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().expect("a name"))
        .collect();
    names.sort();
    names
}

fn manifest(folder: &TempDir, file: &str) -> Value {
    let path = folder.path().join(format!("{file}.manifest.json"));
    serde_json::from_slice(&fs::read(path).expect("a manifest")).expect("JSON")
}

/// The rows that the server exports, without the manifest.
async fn served(app: &App, format: &str, query: &str) -> String {
    let path = format!("/v1/entries/export?format={format}&{query}");
    let text = app.get(&path).await.text;
    match text.find("{\"manifest\"") {
        Some(begin) => text[..begin].to_owned(),
        None => text,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_have_what_the_manifest_says() {
    let (app, folder) = with_entries().await;
    for (format, filters, query) in [
        ("csv", vec![], ""),
        ("ndjson", vec!["--subject", "1e10"], "subject=1e10"),
        (
            "ndjson",
            vec![
                "--policy",
                "benefit",
                "--on",
                "2026-11-21",
                "--metadata",
                "order=0017",
            ],
            "policy=benefit&on=2026-11-21&metadata.order=0017",
        ),
    ] {
        let file = folder.path().join("entries");
        let flag = format!("--{format}");
        let filters = [&[flag.as_str()], &filters[..]].concat();
        let said = export(&app, &file, &filters).await.well(0);
        let bytes = fs::read(&file).expect("a file");
        let manifest = manifest(&folder, "entries");
        assert_eq!(manifest["sha256"], sha256(&bytes), "{query}");
        assert!(said.contains(&sha256(&bytes)), "{said}");
        let query = format!("{query}&as_of={}", manifest["as_of"]);
        let served = served(&app, format, &query).await;
        assert_eq!(String::from_utf8(bytes).expect("UTF-8"), served);
        assert_eq!(names(&folder), ["entries", "entries.manifest.json"]);
        let again = export(&app, &file, &filters).await.fault();
        assert!(again.contains("exists"), "{again}");
        fs::remove_file(&file).expect("a file");
    }
}

/// Ids and subjects stay texts, also where a spreadsheet would read a number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workbook_keeps_texts() {
    let (app, folder) = with_entries().await;
    let file = folder.path().join("entries.xlsx");
    export(&app, &file, &["--xlsx"]).await.well(0);
    let read = "import sys, zipfile
print(zipfile.ZipFile(sys.argv[1]).read('xl/worksheets/sheet1.xml').decode())";
    let sheet = Command::new("python3")
        .args(["-c", read])
        .arg(&file)
        .output();
    let sheet = String::from_utf8(sheet.expect("Python runs").stdout).expect("UTF-8");
    for (row, subject) in (2..).zip(SUBJECTS) {
        let cell = format!("<c r=\"D{row}\" t=\"inlineStr\"><is><t>{subject}</t></is></c>");
        assert!(sheet.contains(&cell), "{cell}: {sheet}");
        let units = format!("<c r=\"I{row}\"><v>1</v></c>");
        assert!(sheet.contains(&units), "{units}: {sheet}");
        // 2026-11-21 is day 46347 of a workbook's calendar, which begins in 1900.
        let date = format!("<c r=\"E{row}\" s=\"2\"><v>46347</v></c>");
        assert!(sheet.contains(&date), "{date}: {sheet}");
    }
    let manifest = manifest(&folder, "entries.xlsx");
    let query = format!("as_of={}", manifest["as_of"]);
    let rows = served(&app, "ndjson", &query).await;
    assert_eq!(manifest["sha256"], sha256(rows.as_bytes()));
    assert_eq!(
        names(&folder),
        ["entries.xlsx", "entries.xlsx.manifest.json"]
    );
}

/// An interruption can come between any two bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_goes_on_from_the_last_whole_row() {
    let (app, folder) = with_entries().await;
    let file = folder.path().join("entries");
    let beside = |end: &str| folder.path().join(format!("entries{end}"));
    for format in ["csv", "ndjson"] {
        let flag = format!("--{format}");
        export(&app, &file, &[&flag]).await.well(0);
        let whole = fs::read(&file).expect("a file");
        let first = manifest(&folder, "entries");
        let state = json!({
            "url": app.url,
            "parameters": { "format": format },
            "as_of": first["as_of"],
            "manifest": format!("/v1/exports/{}", first["revision"]),
        });
        app.claim(&format!("later-{format}"), None).await.is(201);
        for cut in [
            0,
            10,
            whole.len() / 3,
            whole.len() - 40,
            whole.len() - 1,
            whole.len(),
        ] {
            fs::remove_file(&file).expect("a file");
            fs::write(beside(".part"), &whole[..cut]).expect("a file");
            fs::write(beside(".part.json"), state.to_string()).expect("a file");
            let other = export(&app, &file, &[&flag, "--kind", "grant"])
                .await
                .fault();
            assert!(other.contains("belongs to another export"), "{other}");
            export(&app, &file, &[&flag]).await.well(0);
            assert_eq!(fs::read(&file).expect("a file"), whole, "{format} {cut}");
            assert_eq!(manifest(&folder, "entries"), first, "{format} {cut}");
        }
        // The command finds rows that were changed in the meantime.
        let mut changed = whole.clone();
        let name = b"benefit";
        let mut places = changed.windows(name.len());
        let place = places.position(|it| it == name).expect("a policy");
        changed[place] ^= 1;
        fs::remove_file(&file).expect("a file");
        fs::write(beside(".part"), changed).expect("a file");
        fs::write(beside(".part.json"), state.to_string()).expect("a file");
        let told = export(&app, &file, &[&flag]).await.fault();
        assert!(told.contains("does not match its manifest"), "{told}");
        for end in [".part", ".part.json", ".manifest.json"] {
            fs::remove_file(beside(end)).expect("a file");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_leaves_what_goes_on() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::start(&ground).await;
    fill(&app, &ground, 8001).await;
    eventually("the entries have positions", || async {
        let newest = app.get("/v1/entries?limit=1").await.json();
        newest["as_of"].as_u64() > Some(8001)
    })
    .await;
    let folder = folder();
    let file = folder.path().join("entries");
    let mut child = Command::new(env!("CARGO_BIN_EXE_perdiem"))
        .args(["export", file.to_str().expect("a path"), "--ndjson"])
        .env("PERDIEM_URL", &app.url)
        .env("PERDIEM_KEY", KEY)
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let part = folder.path().join("entries.part");
    eventually("rows are written", || async {
        fs::metadata(&part).is_ok_and(|part| part.len() > 0)
    })
    .await;
    let interrupt = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupt.expect("kill runs").success());
    assert_eq!(child.wait().expect("the process ends").code(), Some(75));
    assert_eq!(names(&folder), ["entries.part", "entries.part.json"]);
    export(&app, &file, &["--ndjson"]).await;
    let bytes = fs::read(&file).expect("a file");
    assert_eq!(manifest(&folder, "entries")["sha256"], sha256(&bytes));
    assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 8001);
}
