//! The exit codes tell "no", "broken" and "later" apart.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::run;
use crate::support::app::{App, KEY, Stack};
use crate::support::command_line::command;
use crate::support::servers::free_port;
use crate::support::terminal::Said;

/// The URL of a server that answers each connection with these bytes.
async fn answering(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_protocol_is_broken_and_an_absent_server_is_there_later() {
    let app = App::on(Stack::Sqlite).await;
    let tls = app.url.replace("http://", "https://");
    // RFC 8446, section 6: a fatal alert of a server that cannot read the request.
    let alert = answering(&[21, 3, 3, 0, 2, 2, 50]).await;
    let proxy = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\noops";
    let proxy = answering(proxy.as_bytes()).await;
    let page = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\noops").await;
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let subject = "a/b";
    #[rustfmt::skip]
    let rows = [
        (&tls, 1, "check whether PERDIEM_URL begins with http or https"),
        (&alert, 1, "check whether PERDIEM_URL begins with http or https"),
        (&page, 1, "is not from perdiem: check PERDIEM_URL"),
        (&proxy, 75, "from something before it"),
        (&nowhere, 75, "the server does not answer"),
    ];
    for (url, code, told) in rows {
        let said = Said::with_key(url, KEY, &["usage", "benefit", subject]).await;
        let fault = said.fault_of(code);
        assert!(fault.contains(told), "{url}: {fault}");
        assert!(!fault.contains("%2F"), "{url}: {fault}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_is_an_answer_of_its_own() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(1, "GMT+8").await;
    let run = async |line: &str, code: i32| {
        let said = command(&app, line).await;
        assert_eq!(said.code, code, "{line}: {said:?}");
        format!("{}{}", said.stdout, said.stderr)
    };
    let granted = run("claim benefit a --idempotency-key first", 0).await;
    let grant = granted.split_whitespace().nth(1).expect("an id").to_owned();
    run("claim benefit a", 3).await;
    run("claim benefit a --dry-run", 3).await;
    run(&format!("reverse {grant} --reason x"), 0).await;
    run("claim benefit a --idempotency-key first", 3).await;
    run("policy pause benefit --reason x", 0).await;
    let paused = run("claim benefit b --json", 3).await;
    assert!(
        paused.contains("\"policy-inactive\"") || paused.contains("#policy-inactive"),
        "{paused}"
    );
    run(
        "policy put later --limit '1 per day' --time-zone UTC --from tomorrow",
        0,
    )
    .await;
    let early = run("claim later a", 3).await;
    assert!(early.contains("not active before "), "{early}");
    run("claim nothing a", 1).await;
    run("claim benefit", 2).await;
}

#[test]
fn a_missing_key_is_a_setting_with_two_ways() {
    let said = run(&["policy", "list"], &[]);
    let fault = said.fault_of(2);
    for way in ["PERDIEM_KEY is not set", "--key-file", "PERDIEM_KEY_FILE"] {
        assert!(fault.contains(way), "{fault}");
    }
}

#[test]
fn shells_complete_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell], &[]).well(0);
        for word in ["claim", "idempotency-key", "backtest"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(&["completions", "tcsh"], &[]).code, 2);
}
