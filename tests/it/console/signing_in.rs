//! The sign-in, and how long it lasts.

use chrono::TimeDelta;

use reqwest::Method;

use super::{Browser, Form, Got, encoded};
use crate::http::v1::keys::{end, make_role, revoke};
use crate::support::app::{App, KEY, Stack, eventually};
use crate::support::desk::on_every_store;

on_every_store!(a_key_opens_the_console_until_it_ends);

async fn a_key_opens_the_console_until_it_ends(stack: Stack) {
    let app = App::on(stack).await;
    // One admin key must be left.
    make_role(&app, "admin", None).await;
    for role in ["audit", "support", "admin"] {
        let key = make_role(&app, role, None).await;
        let browser = Browser::signed_in(&app, &key.secret).await;
        browser
            .page("/console")
            .await
            .says(&format!("a {role} ({role})"));
        revoke(&app, KEY, &key.id).await.is(200);
        eventually("the revoked key is signed out", async || {
            browser.open("/console").await.status == 303
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_gets_the_sign_in_and_comes_back_to_the_page() {
    let app = App::on(Stack::Sqlite).await;
    let mut browser = Browser::of(&app);
    let got = browser.open("/console/policies?archived=true").await;
    assert_eq!(got.status, 303);
    let wanted = "/console/sign-in?to=%2Fconsole%2Fpolicies%3Farchived%3Dtrue";
    assert_eq!(got.location, wanted);
    browser.page(wanted).await.says("Sign in with an API key");
    let got = browser
        .sign_in(KEY, "/console/policies?archived=true")
        .await;
    assert_eq!(got.location, "/console/policies?archived=true");
    let cookie = got.cookie.expect("a cookie");
    for attribute in [
        "HttpOnly",
        "SameSite=Strict",
        "Path=/console",
        "Max-Age=28800",
    ] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    // This machine needs no TLS to itself; any other host does.
    assert!(!cookie.contains("Secure"), "{cookie}");
    // Nobody is led to another site.
    for elsewhere in [
        "https://example.org",
        "//example.org",
        "/console\\example.org",
        "/consolex",
        "",
    ] {
        let got = browser.sign_in(KEY, elsewhere).await;
        assert_eq!(got.location, "/console", "{elsewhere}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cookie_for_another_host_needs_tls() {
    let app = App::on(Stack::Sqlite).await;
    let browser = Browser::of(&app);
    let request = browser.request(Method::POST, "/console/sign-in");
    let request = encoded(request, &[("key", KEY)])
        .header("Host", "perdiem.example.org")
        .header("Origin", "https://perdiem.example.org");
    let cookie = Got::of(request).await.cookie.expect("a cookie");
    assert!(cookie.contains("Secure"), "{cookie}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_may_not_sign_in_are_told_why() {
    let app = App::on(Stack::Sqlite).await;
    let mut browser = Browser::of(&app);
    let claims = make_role(&app, "claim", None).await;
    let got = browser.sign_in(&claims.secret, "").await;
    assert_eq!((got.status.as_u16(), got.cookie.is_none()), (403, true));
    got.says(
        "This key is for a backend. Ask an admin for a key of the role support, audit or admin.",
    );
    for wrong in ["", "perdiem_", "kein Schlüssel", "x\ny"] {
        let got = browser.sign_in(wrong, "").await;
        assert!([401, 429].contains(&got.status.as_u16()), "{got:?}");
        assert!(got.cookie.is_none());
    }
    let gone = make_role(&app, "audit", None).await;
    revoke(&app, KEY, &gone.id).await.is(200);
    let got = browser.sign_in(&gone.secret, "").await;
    assert!([401, 429].contains(&got.status.as_u16()), "{got:?}");
}

/// Wrong keys at the console and at the API share one bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_wrong_keys_ends_in_a_page_with_the_wait() {
    let app = App::on(Stack::Sqlite).await;
    let browser = Browser::of(&app);
    eventually("the flood is refused", async || {
        let trying = (0..90).map(|number| {
            let secret = format!("perdiem_wrong_{number}");
            let fields = vec![("key".to_owned(), secret)];
            let form = Form {
                action: "/console/sign-in".to_owned(),
                fields,
            };
            let browser = &browser;
            async move { browser.send(&form).await }
        });
        let mut got = futures_util::future::join_all(trying).await.into_iter();
        let refused = got.find(|got| got.status == 429);
        refused.is_some_and(|got| {
            got.says("Too many wrong keys were sent. Try again in");
            true
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_its_key() {
    let (app, clock) = App::with_clock(Stack::Sqlite).await;
    let key = make_role(&app, "audit", None).await;
    let browser = Browser::signed_in(&app, &key.secret).await;
    end(&app, KEY, &key.id, Some("2026-11-21T04:00:00Z"))
        .await
        .is(200);
    browser.page("/console").await;
    clock.advance(TimeDelta::hours(1));
    assert_eq!(browser.open("/console").await.location, "/console/sign-in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_lasts_eight_hours_and_cannot_be_forged() {
    let (app, clock) = App::with_clock(Stack::Sqlite).await;
    let key = make_role(&app, "audit", None).await;
    let mut browser = Browser::signed_in(&app, &key.secret).await;
    let cookie = browser.cookie.clone().expect("a cookie");
    let (name, session) = cookie.split_once('=').expect("a name");
    assert!(!cookie.contains(&key.secret), "the cookie shows no secret");
    // A sign-in at another ledger, one that was changed, and what is none.
    let elsewhere = App::on(Stack::Sqlite).await;
    let stranger = Browser::signed_in(&elsewhere, KEY).await;
    let of_stranger = stranger.cookie.expect("a cookie");
    let forged = [
        of_stranger.split_once('=').expect("a name").1.to_owned(),
        session.replace(char::is_numeric, "A"),
        session[1..].to_owned(),
        format!("{session}A"),
        key.secret.clone(),
        key.id.clone(),
        String::new(),
        ".".repeat(9),
        "9".repeat(400),
    ];
    for session in forged {
        browser.cookie = Some(format!("{name}={session}"));
        assert_eq!(browser.open("/console").await.status, 303, "{session}");
    }
    browser.cookie = Some(cookie);
    clock.advance(TimeDelta::hours(8) - TimeDelta::seconds(2));
    browser.page("/console").await;
    clock.advance(TimeDelta::seconds(2));
    assert_eq!(browser.open("/console").await.status, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signing_out_removes_the_cookie() {
    let app = App::on(Stack::Sqlite).await;
    let browser = Browser::signed_in(&app, KEY).await;
    let form = browser.page("/console").await.form("/sign-out");
    let got = browser.send(&form).await;
    assert_eq!(got.location, "/console/sign-in");
    let cookie = got.cookie.expect("a cookie");
    assert!(
        cookie.starts_with("perdiem_console=;") && cookie.contains("Max-Age=0"),
        "{cookie}"
    );
    // A link cannot sign anybody out.
    assert_eq!(browser.open("/console/sign-out").await.status, 404);
}
