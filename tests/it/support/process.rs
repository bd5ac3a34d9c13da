//! perdiem as a process of its own, to be killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use reqwest::{Client, Method, RequestBuilder};

use super::app::{KEY, client};

/// A running `perdiem serve`. Dies when it is dropped.
pub struct Process {
    child: Child,
    pub url: String,
    client: Client,
}

impl Process {
    /// Starts the binary on a ledger, and waits until it says where it listens.
    pub fn start(database_url: &str, settings: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_perdiem"))
            .arg("serve")
            .env("DATABASE_URL", database_url)
            .env_remove("REDIS_URL")
            .env("PERDIEM_BIND", "127.0.0.1:0")
            .env("PERDIEM_ADMIN_KEY", KEY)
            .env("PERDIEM_LOG", "off")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        let rest = line.strip_prefix("perdiem listens on ");
        let url = rest.and_then(|rest| rest.split(' ').next());
        Self {
            url: url
                .unwrap_or_else(|| panic!("an address: {line:?}"))
                .to_owned(),
            child,
            client: client(),
        }
    }

    /// SIGKILL. Returns when it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it ends");
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.url);
        self.client.request(method, url).bearer_auth(KEY)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
