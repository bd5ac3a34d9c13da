//! What the pages show.

use perdiem::console::{Method, routes};
use perdiem::http::{ConsoleSettings, ServeOptions};
use serde_json::json;

use super::{Browser, Got};
use crate::http::v1::keys::make_role;
use crate::support::app::{App, Ground, KEY, Stack, eventually, serve_options};
use crate::support::desk::on_every_store;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::postgres;

/// A text that would act if it became a part of the page.
pub const MARKUP: &str = "\"><svg onload=alert(1)>'&{{x}}\u{202e}";

/// The same without what no subject may have.
const MARKED: &str = "\"><svg onload=alert(1)>'&{{x}}";

/// An application with something on every page.
pub struct Furnished {
    pub app: App,
    pub grant: String,
    pub bundle: String,
    pub key: String,
    pub reconciliation: String,
    pub export: String,
}

impl Furnished {
    pub async fn on(stack: Stack) -> Self {
        let app = App::on(stack).await;
        let body = json!({
            "time_zone": "Asia/Shanghai", "limits": [{ "max": 3, "per": "day" }],
            "description": MARKUP, "reason": MARKUP,
        });
        app.put_policy("benefit", body).await.is(201);
        let body = json!({ "time_zone": "UTC", "limits": [{ "max": 5, "per": "hour" }], "reason": "other" });
        app.put_policy("other", body).await.is(201);
        let claim = json!({ "subject": "member-1", "metadata": { "order": MARKUP } });
        let granted = app.claim_body(claim, None).await.is(201);
        let grant = granted["grant"]["id"].as_str().expect("an id").to_owned();
        let claim = json!({ "policy": "benefit", "subject": "member-6" });
        let claims = json!({ "atomic": true, "claims": [claim] });
        let together = app.ask("POST /v1/claims", claims).await.is(200);
        app.claim_body(json!({ "subject": MARKED }), None)
            .await
            .is(201);
        for _ in 0..4 {
            app.claim("member-2", None).await;
        }
        app.override_day("member-3", 9).await;
        app.block("member-4").await.is(201);
        app.tiers("benefit").await;
        app.put_tier("member-5", "gold", None).await.is(201);
        app.claim_under("other", json!({ "subject": "member-1" }), None)
            .await
            .is(201);
        let key = make_role(&app, "claim", None).await;
        app.ask("POST /v1/keys", json!({ "name": MARKUP, "role": "claim" }))
            .await
            .is(201);
        let report = app.ask("POST /v1/reconciliations", json!({})).await.is(201);
        app.get("/v1/entries/export?format=csv").await;
        let changes = app.get("/v1/changes?kind=export").await.is(200);
        let text = |value: &serde_json::Value| match value.as_str() {
            Some(text) => text.to_owned(),
            None => value.to_string(),
        };
        Self {
            grant,
            bundle: text(&together["bundle"]),
            key: key.id,
            reconciliation: text(&report["id"]),
            export: text(&changes["items"][0]["revision"]),
            app,
        }
    }

    /// The address of a page, with things that exist.
    pub fn filled(&self, pattern: &str) -> String {
        let thing = |before: &str| match before {
            "policies" => "benefit",
            "subjects" => "member-1",
            "overrides" => "member-3",
            "blocks" => "member-4",
            "tiers" => "member-5",
            "top-up" => "01980000-0000-7000-8000-000000000000",
            "grants" => &self.grant,
            "bundles" => &self.bundle,
            "keys" => &self.key,
            "reconciliations" => &self.reconciliation,
            "exports" => &self.export,
            other => panic!("what is below {other}?"),
        };
        let mut path = Vec::new();
        for part in pattern.split('/') {
            let before = path.last().copied().unwrap_or_default();
            path.push(if part == "{}" { thing(before) } else { part });
        }
        let path = path.join("/");
        let needs_policy = ["/adjust", "/reset", "/top-up"]
            .iter()
            .any(|end| pattern.ends_with(end));
        if needs_policy {
            format!("{path}?policy=benefit")
        } else {
            path
        }
    }
}

on_every_store!(every_page_opens_for_its_roles_and_no_others);

async fn every_page_opens_for_its_roles_and_no_others(stack: Stack) {
    let furnished = Furnished::on(stack).await;
    let app = &furnished.app;
    for role in ["audit", "support", "admin"] {
        let key = make_role(app, role, None).await;
        let browser = Browser::signed_in(app, &key.secret).await;
        for (method, pattern, roles) in routes() {
            let path = furnished.filled(pattern);
            let may = roles.contains(&role);
            match method {
                Method::Get => {
                    let got = browser.open(&path).await;
                    let leads_on = pattern == "/console/find" && got.status == 303;
                    // Nothing is sealed in tests, so there is no proof.
                    let has_none = pattern.ends_with("/proof") && got.status == 409;
                    let expected = if may { 200 } else { 403 };
                    let is_right = leads_on || (may && has_none) || got.status == expected;
                    assert!(is_right, "{role} {path}: {got:?}");
                    if !may {
                        got.says("This needs the role");
                    }
                }
                // Without a token nobody may send a form; the role is told first.
                Method::Post => {
                    let form = super::Form {
                        action: path.clone(),
                        fields: Vec::new(),
                    };
                    let got = browser.send(&form).await;
                    assert_eq!(got.status, 403, "{role} {path}");
                    got.says(if may {
                        "This form is older"
                    } else {
                        "This needs the role"
                    });
                }
            }
        }
    }
}

on_every_store!(a_confined_key_sees_nothing_of_other_policies);

async fn a_confined_key_sees_nothing_of_other_policies(stack: Stack) {
    let furnished = Furnished::on(stack).await;
    let app = &furnished.app;
    for role in ["audit", "support"] {
        let key = make_role(app, role, Some("other")).await;
        let browser = Browser::signed_in(app, &key.secret).await;
        for (method, pattern, _) in routes() {
            if method == Method::Get {
                let path = furnished.filled(pattern);
                let got = browser.open(&path).await;
                assert!(!got.status.is_server_error(), "{role} {path}: {got:?}");
                // Only the address itself names the other policy.
                let text = got.html.replace(&path, "").replace("benefit:", "");
                let leaks = text.contains("member-2") || text.contains("Asia/Shanghai");
                assert!(!leaks, "{role} {path}: {text}");
            }
        }
        browser
            .page("/console/policies")
            .await
            .says("other")
            .is_silent_about("benefit");
        browser
            .page("/console/subjects/member-1")
            .await
            .says("under other")
            .is_silent_about("benefit");
    }
}

/// Whether a page has anything that acts, or comes from elsewhere.
fn check_safe(path: &str, got: &Got) {
    let html = &got.html;
    for bad in [
        "<svg onload",
        "style=",
        "onclick=",
        "javascript:",
        "src=\"http",
        "href=\"http",
    ] {
        assert!(!html.contains(bad), "{path}: {bad} in {html}");
    }
    let policy = got.headers.get("content-security-policy");
    let policy = policy.map(|field| field.to_str().expect("a text"));
    let policy = policy.unwrap_or_else(|| panic!("{path}: no policy"));
    assert!(
        policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    for (name, value) in [
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(
            got.headers.get(name).map(|it| it.as_bytes()),
            Some(value.as_bytes()),
            "{path}"
        );
    }
    // The largest is the page of a policy, once its charts have figures.
    assert!(html.len() <= 72 * 1024, "{path}: {} bytes", html.len());
}

on_every_store!(markup_stays_text_and_pages_stay_small);

async fn markup_stays_text_and_pages_stay_small(stack: Stack) {
    let furnished = Furnished::on(stack).await;
    let browser = Browser::signed_in(&furnished.app, KEY).await;
    let escaped = "/console/subjects/%22%3E%3Csvg%20onload=alert(1)%3E%27%26%7B%7Bx%7D%7D";
    let mut paths: Vec<String> = routes()
        .filter(|(method, ..)| *method == Method::Get)
        .map(|(_, pattern, _)| furnished.filled(pattern))
        .filter(|path| {
            !path.ends_with("/export") && !path.ends_with("/proof") && path != "/console/find"
        })
        .collect();
    paths.push(escaped.to_owned());
    paths.push("/console/find?q=%22%3E%3Csvg%20onload%3Dalert(1)%3E".to_owned());
    paths.push("/console/subjects?prefix=%22%3E%3Csvg%20onload%3Dalert(1)%3E".to_owned());
    paths.push("/console/nothing/%22%3E%3Csvg%20onload%3Dalert(1)%3E".to_owned());
    for path in &paths {
        let got = browser.open(path).await;
        assert!(!got.status.is_server_error(), "{path}: {got:?}");
        if got.status != 303 {
            check_safe(path, &got);
        }
    }
    browser.page(escaped).await.says(MARKED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn today_with_twenty_policies_is_small() {
    let app = App::on(Stack::Sqlite).await;
    for number in 0..25 {
        let body = json!({
            "time_zone": "Asia/Shanghai", "limits": [{ "max": 3, "per": "day" }], "reason": "a test",
        });
        app.put_policy(&format!("policy-{number}"), body)
            .await
            .is(201);
    }
    let browser = Browser::signed_in(&app, KEY).await;
    let got = browser.page("/console").await;
    got.says("This instance is ready.").says("All policies");
    assert!(got.html.len() <= 24 * 1024, "{} bytes", got.html.len());
}

on_every_store!(a_refusal_is_explained_and_its_units_go_back_once);

async fn a_refusal_is_explained_and_its_units_go_back_once(stack: Stack) {
    let furnished = Furnished::on(stack).await;
    let app = &furnished.app;
    let support = make_role(app, "support", None).await;
    let browser = Browser::signed_in(app, &support.secret).await;
    // 1. The search leads to the subject, and its page says why.
    let found = browser.open("/console/find?q=member-2").await;
    assert_eq!(found.location, "/console/subjects/member-2");
    eventually("the denial is listed", async || {
        let text = browser.page("/console/subjects/member-2").await.text();
        text.contains("the first refusal in this window")
    })
    .await;
    let page = browser.page("/console/subjects/member-2").await;
    page.says("under benefit is ✕ refused")
        .says("3 of 3 per day");
    // 2. The grant, its page, and the question before the reversal.
    let grant = page.ids("/console/grants/").remove(0);
    browser
        .page(&format!("/console/grants/{grant}"))
        .await
        .says("member-2 got 1 unit under benefit");
    let ask = browser
        .page(&format!("/console/grants/{grant}/give-back"))
        .await;
    let form = ask
        .form("/give-back")
        .with("units", "1")
        .with("reason", "SMS gateway refused");
    // 3. A double click gives back once.
    let (first, second) = tokio::join!(browser.send(&form), browser.send(&form));
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (303, 303));
    let entries = app
        .get("/v1/policies/benefit/subjects/member-2/entries")
        .await
        .is(200);
    let kinds = entries["items"].as_array().expect("items").iter();
    let reversals = kinds.filter(|entry| entry["kind"] == "reversal").count();
    assert_eq!(reversals, 1);
    browser
        .page(&format!("/console/grants/{grant}"))
        .await
        .says("Given back: SMS gateway refused");
    // 4. What is wrong is told on the page, and nothing happens.
    for units in ["0", "two", "-1", "99"] {
        let got = browser.send(&form.clone().with("units", units)).await;
        assert!(
            [409, 422].contains(&got.status.as_u16()),
            "{units}: {got:?}"
        );
    }
}

/// Half of a grant goes back once, although the same number is left afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_goes_back_once() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(4, "GMT+8").await;
    let granted = app
        .claim_body(json!({ "subject": "member-1", "units": 4 }), None)
        .await
        .is(201);
    let id = granted["grant"]["id"].as_str().expect("an id");
    let browser = Browser::signed_in(&app, KEY).await;
    let path = format!("/console/grants/{id}/give-back");
    let form = browser.page(&path).await.form("/give-back");
    let form = form.with("units", "2").with("reason", "half of it");
    for _ in 0..2 {
        browser.act(&form).await;
    }
    let usage = app
        .get("/v1/policies/benefit/subjects/member-1")
        .await
        .is(200);
    assert_eq!(usage["limits"][0]["used"], 2);
}

/// What the foot of a page shows can be pasted: a subject is a text of the backend's callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_quoted() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    app.claim("$(id)", None).await.is(201);
    let browser = Browser::signed_in(&app, KEY).await;
    browser
        .page("/console/subjects/%24%28id%29")
        .await
        .says("perdiem subject -- '$(id)'");
}

/// While a change is scheduled, pages tell and offer what decides now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduled_version_is_told_beside_the_one_in_force() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let body = json!({
        "time_zone": "GMT+8", "limits": [{ "max": 9, "per": "week" }],
        "effective": "2099-01-01", "reason": "a test",
    });
    app.put_policy("benefit", body).await.is(200);
    app.claim("member-1", None).await.is(201);
    let browser = Browser::signed_in(&app, KEY).await;
    for path in ["/console", "/console/policies"] {
        browser
            .page(path)
            .await
            .says("3 per day, +08:00")
            .says("9 per week, +08:00 from 2099-01-01");
    }
    let page = browser
        .page("/console/policies/benefit/overrides/member-1")
        .await;
    assert!(
        page.html.contains("max-day") && !page.html.contains("max-week"),
        "{}",
        page.html
    );
    let page = browser
        .page("/console/subjects/member-1/reset?policy=benefit")
        .await;
    page.says("3 per day").is_silent_about("9 per week");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_version_is_restored() {
    let app = App::on(Stack::Sqlite).await;
    for max in 1..=13 {
        app.benefit(max, "GMT+8").await;
    }
    let browser = Browser::signed_in(&app, KEY).await;
    let page = browser
        .page("/console/policies/benefit/edit?restore=2")
        .await;
    assert!(
        page.html
            .contains("name=\"max\" inputmode=\"numeric\" size=\"8\" value=\"2\"")
    );
    assert_eq!(
        browser
            .open("/console/policies/benefit/edit?restore=14")
            .await
            .status,
        404
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_search_finds_each_thing_by_its_id_or_name() {
    let furnished = Furnished::on(Stack::Sqlite).await;
    let browser = Browser::signed_in(&furnished.app, KEY).await;
    let Furnished {
        grant,
        key,
        reconciliation,
        ..
    } = &furnished;
    for (wanted, leads_to) in [
        (grant.as_str(), format!("/console/grants/{grant}")),
        (key, format!("/console/keys/{key}")),
        (
            reconciliation,
            format!("/console/reconciliations/{reconciliation}"),
        ),
        ("benefit", "/console/policies/benefit".to_owned()),
        (
            "benefit+member-2",
            "/console/subjects/member-2?policy=benefit".to_owned(),
        ),
        ("member-2", "/console/subjects/member-2".to_owned()),
        ("", "/console/subjects".to_owned()),
    ] {
        let got = browser.open(&format!("/console/find?q={wanted}")).await;
        assert_eq!(got.location, leads_to, "{wanted}");
    }
    browser
        .page("/console/find?q=member-")
        .await
        .says("6 subjects begin with");
    browser
        .page("/console/find?q=42")
        .await
        .says("Nothing is named");
    let got = browser.open("/console/subjects/member-22").await;
    assert_eq!(got.status, 404);
    got.says("It never claimed, or is spelt otherwise")
        .says("member-2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_has_the_bytes_of_the_api() {
    let furnished = Furnished::on(Stack::Sqlite).await;
    let browser = Browser::signed_in(&furnished.app, KEY).await;
    eventually("three entries have positions", async || {
        let list = furnished.app.get("/v1/entries").await.is(200);
        list["as_of"].as_u64() >= Some(3)
    })
    .await;
    let path = "/entries/export?format=csv&as_of=3";
    let here = browser.page(&format!("/console{path}")).await;
    let there = furnished.app.get(&format!("/v1{path}")).await;
    assert_eq!(here.html, there.text);
    assert!(here.headers.contains_key("content-disposition"));
}

/// Times are those of the policy's zone, or all in UTC.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_has_one_zone() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "Asia/Shanghai").await;
    app.claim("member-1", None).await.is(201);
    let browser = Browser::signed_in(&app, KEY).await;
    let local = browser.page("/console/subjects/member-1").await;
    local
        .says("At 11:04:05 +08:00")
        .says("times in Asia/Shanghai");
    let utc = browser.page("/console/subjects/member-1?zone=utc").await;
    utc.says("At 03:04:05 +00:00")
        .says("show local times")
        .is_silent_about("+08:00");
    let then = browser
        .page("/console/subjects/member-1?policy=benefit&at=2026-11-21T08:00")
        .await;
    then.says(
        "At 08:00:00 +08:00 a claim of 1 under benefit is ✕ refused : no version of the policy",
    );
    let ahead = browser
        .page("/console/subjects/member-1?policy=benefit&at=2099-01-01T00:00")
        .await;
    ahead.says("Write a time that has passed");
}

/// Without the ledger the page says what is unknown, and never 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn today_says_what_is_unknown_while_the_ledger_is_away() {
    let ground = Ground::new(Stack::Postgres);
    let direct = App::start(&ground).await;
    direct.benefit(3, "GMT+8").await;
    let proxy = Proxy::before(postgres().port()).await;
    let app = App::start_with(&ground, |options| {
        options.database_url = proxy.url(&ground.database_url);
        options.answer_time = std::time::Duration::from_secs(2);
    })
    .await;
    let browser = Browser::signed_in(&app, KEY).await;
    browser.page("/console").await.says("benefit");
    proxy.set(Mode::Refuse);
    eventually("the page says so", async || {
        let got = browser.open("/console").await;
        assert_eq!(got.status, 200, "{got:?}");
        got.text().contains("unknown now")
    })
    .await;
}

async fn serving(console: Option<ConsoleSettings>) -> App {
    let serve = ServeOptions {
        console,
        ..serve_options()
    };
    let app = App::try_serve(&Ground::new(Stack::Sqlite), serve, |_| {}).await;
    let app = app.expect("the application starts");
    app.benefit(3, "GMT+8").await;
    app
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_can_be_off_or_only_show() {
    let off = serving(None).await;
    let browser = Browser::of(&off);
    for path in ["/console", "/console/sign-in", "/console/policies"] {
        assert_eq!(browser.open(path).await.status, 404);
    }
    let shows = serving(Some(ConsoleSettings {
        environment: Some("production <b>".to_owned()),
        is_read_only: true,
        ..ConsoleSettings::default()
    }))
    .await;
    let browser = Browser::signed_in(&shows, KEY).await;
    let page = browser.page("/console/policies/benefit").await;
    page.says("production <b>")
        .is_silent_about(">Edit<")
        .is_silent_about(">Pause<");
    assert!(page.html.contains("<body class=\"hue-"), "{}", page.html);
    let form = super::Form {
        action: "/console/policies/benefit/pause".to_owned(),
        fields: vec![("reason".to_owned(), "x".to_owned())],
    };
    let got = browser.send(&form).await;
    assert_eq!(got.status, 403);
    got.says("This console only shows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_kept_by_browsers() {
    let app = App::on(Stack::Sqlite).await;
    let browser = Browser::of(&app);
    let page = browser.page("/console/sign-in").await;
    for start in ["href=\"/console/a/", "src=\"/console/a/"] {
        let name = page
            .html
            .split(start)
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let got = browser
            .page(&format!("/console/a/{}", name.expect("a file")))
            .await;
        let kept = got.headers.get("cache-control").expect("a field");
        assert_eq!(kept, "public, max-age=31536000, immutable");
    }
    assert_eq!(
        browser.open("/console/a/console.00000000.css").await.status,
        303
    );
}
