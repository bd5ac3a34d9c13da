//! The id of a request.

use reqwest::Method;

use crate::support::app::{Answer, App, Stack};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_has_an_id_and_a_fit_one_is_given_back() {
    let app = App::on(Stack::Sqlite).await;
    let ask = async |path: &str, id: Option<&str>| {
        let mut request = app.bare_request(Method::GET, path);
        if let Some(id) = id {
            request = request.header("X-Request-Id", id);
        }
        let answer = Answer::of(request).await;
        answer.header("x-request-id").expect("an id").to_owned()
    };
    let longest = "a".repeat(64);
    for path in ["/livez", "/v1/policies", "/nowhere", "/docs"] {
        for id in ["a", "req-17_b.C", longest.as_str()] {
            assert_eq!(ask(path, Some(id)).await, id);
        }
        let too_long = "a".repeat(65);
        for id in [
            None,
            Some(""),
            Some("a b"),
            Some("a\"b"),
            Some(&too_long),
            Some("{}"),
        ] {
            let given = ask(path, id).await;
            assert!(uuid::Uuid::parse_str(&given).is_ok(), "{given}");
        }
        assert_ne!(ask(path, None).await, ask(path, None).await);
    }
}
