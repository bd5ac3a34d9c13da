//! The specification, and the page that renders it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reqwest::Method;

use crate::http::problem;
use crate::support::app::{Answer, App, Stack};

fn browser() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs = ["chromium", "chromium-browser", "google-chrome"];
    let mut candidates = std::env::split_paths(&path)
        .flat_map(|folder| programs.map(|program| folder.join(program)));
    let found = candidates.find(|candidate| candidate.is_file());
    found.expect("chromium is missing: run scripts/install-test-tools")
}

/// The page's elements after its scripts have run.
fn rendered(url: &str, profile: &Path) -> String {
    let output = Command::new(browser())
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args(["--disable-dev-shm-usage", "--no-first-run"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--virtual-time-budget=20000", "--dump-dom", url])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .expect("the browser runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The values of `src` and `href` in a page.
fn links(html: &str) -> Vec<&str> {
    let mut links = Vec::new();
    for attribute in ["src=\"", "href=\""] {
        let values = html.split(attribute).skip(1);
        links.extend(values.filter_map(|rest| rest.split('"').next()));
    }
    links
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_specification_is_served() {
    let app = App::on(Stack::Sqlite).await;
    let answer = app.get("/openapi.yaml").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/yaml"));
    assert_eq!(answer.text, perdiem::http::specification_yaml());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_is_made_of_nothing_from_elsewhere() {
    let app = App::on(Stack::Sqlite).await;
    let page = app.get("/docs").await;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(
        page.header("content-type")
            .is_some_and(|kind| kind.starts_with("text/html"))
    );
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'self'"), "{policy}");
    assert!(
        !policy.contains("http") && !policy.contains('*'),
        "{policy}"
    );
    let links = links(&page.text);
    assert!(links.len() > 3, "{links:?}");
    for link in links {
        assert!(!link.contains("//"), "{link}");
        let link = link.strip_prefix("./").unwrap_or(link);
        if link.starts_with('/') {
            // The base.
            continue;
        }
        let answer = app.get(&format!("/docs/{link}")).await;
        assert_eq!(answer.status, 200, "{link}");
        assert!(!answer.text.is_empty(), "{link}");
        assert!(answer.header("content-security-policy").is_some(), "{link}");
    }
    problem(&app.get("/docs/nothing.css").await, 404, "not-found");
}

/// What a gzip stream holds. `gzip` refuses one whose checksum or length is wrong.
fn unpacked(stream: &[u8]) -> String {
    let mut gzip = Command::new("gzip")
        .args(["--decompress", "--stdout"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip runs");
    let mut stdin = gzip.stdin.take().expect("a pipe");
    stdin.write_all(stream).expect("it reads");
    drop(stdin);
    let output = gzip.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("a text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_page_is_made_of_comes_packed() {
    let app = App::on(Stack::Sqlite).await;
    let request = app.request(Method::GET, "/docs/swagger-ui.css");
    let answer = request.send().await.expect("an answer");
    let headers = answer.headers();
    assert_eq!(headers["content-encoding"], "gzip");
    assert_eq!(headers["content-type"], "text/css; charset=utf-8");
    let stream = answer.bytes().await.expect("a body");
    assert!(unpacked(&stream).starts_with(".swagger-ui"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_type_of_a_problem_leads_to_its_explanation() {
    let app = App::on(Stack::Sqlite).await;
    let problem = problem(&app.get("/nothing").await, 404, "not-found");
    let type_of = problem["type"].as_str().expect("a type");
    let (page, anchor) = type_of.split_once('#').expect("an anchor");
    let page = Answer::of(app.bare_request(Method::GET, page)).await;
    assert_eq!(page.status, 200, "{page:?}");
    let kind = page.header("content-type");
    assert_eq!(kind, Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").is_some());
    for anchor in [anchor, "quota-exceeded"] {
        assert!(page.text.contains(&format!("<section id=\"{anchor}\">")));
    }
    assert!(!page.text.contains("<script"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_shows_every_operation() {
    let app = App::on(Stack::Sqlite).await;
    let url = format!("{}/docs", app.url);
    let dom = tokio::task::spawn_blocking(move || {
        let profile = tempfile::tempdir().expect("a temporary folder");
        rendered(&url, profile.path())
    });
    let dom = dom.await.expect("the browser runs");
    let specification = serde_json::to_value(perdiem::http::specification()).expect("JSON");
    for path in specification["paths"].as_object().expect("paths").keys() {
        let shown = format!("data-path=\"{path}\"");
        assert!(dom.contains(&shown), "{path} is not shown in {dom}");
    }
    assert!(dom.contains("A daily-quota service with a persistent ledger"));
    assert!(!dom.contains("Failed to load"));
}
