//! Wrong keys: an address that sends many wrong keys is slowed down.

use std::net::Ipv4Addr;

use reqwest::{Client, Method};
use tokio::task::JoinSet;

use super::{client_from, make_role, status_of};
use crate::http::problem;
use crate::support::app::{Answer, App, KEY, Stack, client_builder, eventually};

async fn send(client: &Client, app: &App, secret: &str) -> Answer {
    let url = format!("{}/v1/policies", app.url);
    Answer::of(client.get(url).bearer_auth(secret)).await
}

/// The metric that counts wrong keys.
async fn counted(app: &App) -> u64 {
    let text = app.get("/metrics").await.text;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("perdiem_wrong_keys_total "));
    line.expect("the metric").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_is_nearly_right_is_wrong() {
    let app = App::on(Stack::Sqlite).await;
    let secret = make_role(&app, "admin", None).await.secret;
    let flip = |index: usize| {
        let mut bytes = secret.clone().into_bytes();
        bytes[index] = if bytes[index] == b'0' { b'1' } else { b'0' };
        String::from_utf8(bytes).expect("a text")
    };
    let wrong = [
        flip(8),
        flip(30),
        flip(55),
        secret.to_uppercase(),
        format!("{secret}0"),
        secret[..55].to_owned(),
        secret[8..].to_owned(),
    ];
    let client = client_from([2, 1]);
    for secret in &wrong {
        let answer = send(&client, &app, secret).await;
        problem(&answer, 401, "unauthorized");
        assert!(!answer.text.contains(secret.as_str()), "{answer:?}");
    }
    assert_eq!(counted(&app).await, wrong.len() as u64);
    // A request without a key is not a request with a wrong key.
    for scheme in ["", "Bearer", "Bearer ", "Basic eA=="] {
        let request = client.get(format!("{}/v1/policies", app.url));
        let answer = Answer::of(request.header("Authorization", scheme)).await;
        problem(&answer, 401, "unauthorized");
    }
    assert_eq!(counted(&app).await, wrong.len() as u64);
    assert_eq!(status_of(&app, &secret).await, 200);
}

/// So many answers wait that further wrong keys are refused at once. A valid key is not slowed
/// down, also from the same address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_keys_again_and_again_are_slowed_down() {
    let app = App::on(Stack::Sqlite).await;
    let client = client_from([2, 2]);
    for _ in 0..10 {
        problem(&send(&client, &app, "wrong").await, 401, "unauthorized");
    }
    eventually("a wrong key is refused", || async {
        let mut crowd = JoinSet::new();
        for _ in 0..90 {
            let request = client.get(format!("{}/v1/policies", app.url));
            crowd.spawn(Answer::of(request.bearer_auth("wrong")));
        }
        assert_eq!(send(&client, &app, KEY).await.status, 200);
        let answers = crowd.join_all().await;
        assert_eq!(send(&client, &app, KEY).await.status, 200);
        let (slow, refused): (Vec<&Answer>, Vec<&Answer>) =
            answers.iter().partition(|answer| answer.status == 401);
        for answer in slow {
            problem(answer, 401, "unauthorized");
        }
        for answer in &refused {
            problem(answer, 429, "too-many-wrong-keys");
            let wait = answer.header("retry-after").map(str::parse::<u64>);
            assert!(wait.is_some_and(|wait| wait.is_ok_and(|wait| wait > 0)));
        }
        !refused.is_empty()
    })
    .await;
    // Another address is not slowed down.
    let refused = send(&client_from([2, 3]), &app, "wrong").await;
    problem(&refused, 401, "unauthorized");
}

/// A client that disconnects while its answer waits frees its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_of_those_who_left_are_free_again() {
    let app = App::on(Stack::Sqlite).await;
    let address = Ipv4Addr::new(127, 9, 2, 4);
    for _ in 0..3 {
        let client = client_from([2, 4]);
        let mut crowd = JoinSet::new();
        for _ in 0..80 {
            let request = client.get(format!("{}/v1/policies", app.url));
            crowd.spawn(Answer::of(request.bearer_auth("wrong")));
        }
        crowd.abort_all();
    }
    let client = client_builder().local_address(Some(address.into()));
    let client = client.build().expect("a client");
    eventually("a wrong key is answered with 401 again", || async {
        send(&client, &app, "wrong").await.status == 401
    })
    .await;
    let answer = Answer::of(app.request(Method::GET, "/v1/policies")).await;
    assert_eq!(answer.status, 200);
}
