//! The specification, and the pages below `/docs`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reqwest::Method;

use crate::http::problem;
use crate::support::app::{Answer, App, Stack};
use crate::support::operations::operations;

fn browser() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs = ["chromium", "chromium-browser", "google-chrome"];
    let mut candidates = std::env::split_paths(&path)
        .flat_map(|folder| programs.map(|program| folder.join(program)));
    let found = candidates.find(|candidate| candidate.is_file());
    found.expect("chromium is missing: run scripts/install-test-tools")
}

/// The elements of a page after its scripts have run.
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

/// The elements of a page of this instance after the page's scripts have run.
async fn in_browser(app: &App, path: &str) -> String {
    let url = format!("{}{path}", app.url);
    let dom = tokio::task::spawn_blocking(move || {
        let profile = tempfile::tempdir().expect("a temporary folder");
        rendered(&url, profile.path())
    });
    dom.await.expect("the browser runs")
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

/// Gets a page without a key, and checks the header fields that every page has.
async fn page(app: &App, path: &str) -> Answer {
    let page = Answer::of(app.bare_request(Method::GET, path)).await;
    assert_eq!(page.status, 200, "{page:?}");
    let kind = page.header("content-type");
    assert_eq!(kind, Some("text/html; charset=utf-8"), "{path}");
    assert_eq!(page.header("cache-control"), Some("no-store"), "{path}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'self'"), "{policy}");
    assert!(
        !policy.contains("http") && !policy.contains('*'),
        "{policy}"
    );
    page
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_are_made_of_nothing_from_elsewhere() {
    let app = App::on(Stack::Sqlite).await;
    for (path, links_least) in [("/docs", 10), ("/docs/problems", 3), ("/docs/reference", 5)] {
        let page = page(&app, path).await;
        // An inline script would need a weaker `Content-Security-Policy`.
        assert_eq!(
            page.text.matches("<script").count(),
            page.text.matches("<script src=").count(),
            "{path}"
        );
        let links = links(&page.text);
        assert!(links.len() >= links_least, "{links:?}");
        for link in links {
            assert!(!link.contains("//"), "{link}");
            let (file, _) = link.split_once('#').unwrap_or((link, ""));
            if file.is_empty() || file == "data:," || file == "/docs/" {
                // The link is a place in this page, an empty icon or the base.
                continue;
            }
            let file = if file.starts_with('/') {
                file.to_owned()
            } else {
                format!("/docs/{file}")
            };
            let answer = Answer::of(app.bare_request(Method::GET, &file)).await;
            assert_eq!(answer.status, 200, "{link}");
            assert!(!answer.text.is_empty(), "{link}");
            if file.starts_with("/docs") {
                assert!(answer.header("content-security-policy").is_some(), "{link}");
            }
        }
    }
    problem(&app.get("/docs/nothing.css").await, 404, "not-found");
}

/// `scripts/check-examples` runs the examples of this page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_finds_a_first_claim_and_the_frequent_problems() {
    let app = App::on(Stack::Sqlite).await;
    let page = page(&app, "/docs").await;
    let problems = self::page(&app, "/docs/problems").await;
    for language in ["curl", "python", "typescript", "go", "java"] {
        let panel = format!("<section class=\"panel\" id=\"{language}\">");
        assert_eq!(page.text.matches(&panel).count(), 1, "{language}");
        let tab = format!("for=\"show-{language}\"");
        assert_eq!(page.text.matches(&tab).count(), 1, "{language}");
    }
    // Texts are escaped.
    assert!(page.text.contains("-H &quot;Idempotency-Key: A-17&quot;"));
    assert!(page.text.contains("func main() {"));
    // Both pages explain a problem in the same words.
    for kind in ["unauthorized", "quota-exceeded", "undecided", "unavailable"] {
        let section = |text: &str| {
            let begins = format!("<section id=\"{kind}\">");
            let (_, rest) = text.split_once(&begins).expect("a section");
            let (section, _) = rest.split_once("</section>").expect("the section's end");
            section.to_owned()
        };
        assert_eq!(section(&page.text), section(&problems.text), "{kind}");
    }
}

/// The links to operations in the reference name operations that exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_into_the_reference_lead_to_operations() {
    let app = App::on(Stack::Sqlite).await;
    let page = page(&app, "/docs").await;
    let operations: Vec<String> = operations()
        .iter()
        .map(|operation| {
            let tag = operation.said["tags"][0].as_str().expect("a tag");
            let id = operation.said["operationId"].as_str().expect("an id");
            format!("#/{tag}/{id}")
        })
        .collect();
    let links = links(&page.text);
    let led = links
        .iter()
        .filter_map(|link| link.strip_prefix("/docs/reference"))
        .filter(|anchor| !anchor.is_empty());
    let led: Vec<&str> = led.collect();
    assert!(led.len() > 3, "{led:?}");
    for anchor in led {
        assert!(operations.iter().any(|known| known == anchor), "{anchor}");
    }
}

/// The text in a gzip stream. `gzip` refuses a stream with a wrong checksum or length.
fn unpacked(stream: &[u8]) -> String {
    let mut gzip = Command::new("gzip")
        .args(["--decompress", "--stdout"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip runs");
    let mut stdin = gzip.stdin.take().expect("a pipe");
    stdin.write_all(stream).expect("gzip reads");
    drop(stdin);
    let output = gzip.wait_with_output().expect("gzip ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("a text")
}

/// A document comes compressed to clients that take gzip, and as it is to all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_come_packed_where_the_client_takes_gzip() {
    let app = App::on(Stack::Sqlite).await;
    for (path, content_type, begin) in [
        (
            "/docs/swagger-ui.css",
            "text/css; charset=utf-8",
            ".swagger-ui",
        ),
        ("/docs/page.css", "text/css; charset=utf-8", ""),
        ("/openapi.yaml", "application/yaml", "openapi: "),
        ("/docs", "text/html; charset=utf-8", "<!doctype html>"),
        (
            "/docs/problems",
            "text/html; charset=utf-8",
            "<!doctype html>",
        ),
    ] {
        let plain = app.get(path).await;
        assert_eq!(plain.header("content-encoding"), None, "{path}");
        assert!(plain.text.starts_with(begin), "{path}: {}", plain.text);
        let request = app.request(Method::GET, path);
        let request = request.header("Accept-Encoding", "br, gzip;q=0.5");
        let answer = request.send().await.expect("an answer");
        let headers = answer.headers().clone();
        assert_eq!(headers["content-encoding"], "gzip", "{path}");
        assert_eq!(headers["content-type"], content_type, "{path}");
        assert_eq!(headers["vary"], "Accept-Encoding", "{path}");
        let stream = answer.bytes().await.expect("a body");
        assert!(stream.len() < plain.text.len() / 2, "{path}");
        assert_eq!(unpacked(&stream), plain.text, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_type_of_a_problem_leads_to_its_explanation() {
    let app = App::on(Stack::Sqlite).await;
    let problem = problem(&app.get("/nothing").await, 404, "not-found");
    let type_of = problem["type"].as_str().expect("a type");
    let (page, anchor) = type_of.split_once('#').expect("an anchor");
    let page = self::page(&app, page).await;
    for anchor in [anchor, "quota-exceeded"] {
        assert!(page.text.contains(&format!("<section id=\"{anchor}\">")));
    }
    assert!(!page.text.contains("<script"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reference_shows_every_operation() {
    let app = App::on(Stack::Sqlite).await;
    let dom = in_browser(&app, "/docs/reference").await;
    let specification = serde_json::to_value(perdiem::http::specification()).expect("JSON");
    for path in specification["paths"].as_object().expect("paths").keys() {
        let shown = format!("data-path=\"{path}\"");
        assert!(dom.contains(&shown), "{path} is not shown in {dom}");
    }
    assert!(dom.contains("A daily-quota service with a persistent ledger"));
    assert!(!dom.contains("Failed to load"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_have_the_address_in_the_browser() {
    let app = App::on(Stack::Sqlite).await;
    let dom = in_browser(&app, "/docs").await;
    let address = format!("PERDIEM_URL=<span class=\"origin\">{}</span>", app.url);
    assert!(dom.contains(&address), "{address} is not shown in {dom}");
    // The script adds buttons to the blocks that a reader copies.
    assert!(dom.contains(">Copy</button>"), "{dom}");
}

/// Older versions had the reference at `/docs`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_links_to_operations_lead_to_the_reference() {
    let app = App::on(Stack::Sqlite).await;
    let dom = in_browser(&app, "/docs#/claims/claim").await;
    assert!(dom.contains("id=\"operations-claims-claim\""), "{dom}");
}
