//! Forms that other sites send, and requests that are no forms.

use reqwest::Method;
use serde_json::Value;

use super::{Browser, Form, Got, encoded};
use crate::http::v1::keys::make_role;
use crate::support::app::{App, KEY, Stack};

/// A pause that must not happen.
async fn pause_of(browser: &Browser) -> Form {
    let ask = browser.page("/console/policies/benefit/pause").await;
    ask.form("/pause").with("reason", "a test")
}

async fn is_paused(app: &App) -> bool {
    app.get("/v1/policies/benefit")
        .await
        .is(200)
        .get("pause")
        .is_some_and(Value::is_object)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_of_another_site_changes_nothing() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let browser = Browser::signed_in(&app, KEY).await;
    let form = pause_of(&browser).await;
    let host = app.url.trim_start_matches("http://").to_owned();
    let sent = async |fields: &[(&'static str, &str)]| {
        let request = browser.request(Method::POST, &form.action);
        let mut request = encoded(request, &form.fields);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        Got::of(request).await.status.as_u16()
    };
    for fields in [
        &[][..],
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "same-site")],
        &[("Sec-Fetch-Site", "none")],
        &[("Origin", "https://example.org")],
        &[("Origin", "null")],
        &[("Origin", "")],
        &[("Sec-Fetch-Site", "cross-site"), ("Origin", &*app.url)],
        &[("Origin", &format!("http://{host}.example.org"))],
    ] {
        assert_eq!(sent(fields).await, 403, "{fields:?}");
    }
    assert!(!is_paused(&app).await);
    assert_eq!(sent(&[("Origin", &app.url)]).await, 303);
    assert!(is_paused(&app).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_needs_a_token_of_its_own() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let browser = Browser::signed_in(&app, KEY).await;
    let form = pause_of(&browser).await;
    let of_another_page = browser
        .page("/console/policies/benefit/archive")
        .await
        .form("/archive");
    let admin = make_role(&app, "admin", None).await;
    let other = Browser::signed_in(&app, &admin.secret).await;
    let of_another_key = pause_of(&other).await;
    let token = |form: &Form| {
        let found = form.fields.iter().find(|(name, _)| name == "form");
        found.expect("a token").1.clone()
    };
    for wrong in [
        "".to_owned(),
        "x".to_owned(),
        token(&of_another_page),
        token(&of_another_key),
    ] {
        let got = browser.send(&form.clone().with("form", &wrong)).await;
        assert_eq!(got.status, 403, "{wrong}");
    }
    assert!(!is_paused(&app).await);
    assert_eq!(browser.send(&form).await.status, 303);
}

/// Nothing is written by a link, and nothing else than a form is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_methods_and_bodies_are_refused() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let browser = Browser::signed_in(&app, KEY).await;
    for method in [Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
        let got = Got::of(browser.request(method.clone(), "/console/policies/benefit/pause")).await;
        assert_eq!(got.status, 405, "{method}");
    }
    for path in [
        "/console/policies/benefit/apply",
        "/console/grants/x/confirm",
        "/console/keys/x/revoke",
    ] {
        assert_eq!(browser.open(path).await.status, 404, "{path}");
    }
    let long = browser
        .request(Method::POST, "/console/new-policy")
        .header("Sec-Fetch-Site", "same-origin")
        .body("x".repeat(70_000));
    assert_eq!(Got::of(long).await.status, 413);
    let bytes = browser
        .request(Method::POST, "/console/new-policy")
        .header("Sec-Fetch-Site", "same-origin")
        .body(vec![0xff; 100]);
    assert_eq!(Got::of(bytes).await.status, 403);
    for path in [
        "/console/%FF",
        "/console/subjects/%FF",
        "/console/subjects/%00",
        "/console//",
    ] {
        let got = browser.open(path).await;
        assert!(got.status.is_client_error(), "{path}: {got:?}");
    }
}

/// A page costs its reader's places, and not those of claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_not_cached_and_a_key_in_the_header_opens_nothing() {
    let app = App::on(Stack::Sqlite).await;
    let got = Got::of(
        app.bare_request(Method::GET, "/console/keys")
            .bearer_auth(KEY),
    )
    .await;
    // The client follows to the sign-in.
    got.says("Sign in with an API key");
    assert_eq!(
        got.headers.get("cache-control").map(|it| it.as_bytes()),
        Some(&b"no-store"[..])
    );
}
