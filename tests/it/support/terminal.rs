//! A terminal: commands of the binary that call a server.

use std::process::{Command, Output};

use serde_json::Value;

use super::app::{App, KEY};

/// A command's output and exit code.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// Runs the binary with the admin key of an application.
    pub async fn by(app: &App, args: &[&str]) -> Self {
        Self::with_key(&app.url, KEY, args).await
    }

    /// Runs the binary with a key for a server.
    pub async fn with_key(url: &str, key: &str, args: &[&str]) -> Self {
        Self::with_variables(url, key, args, &[]).await
    }

    /// As [`Said::with_key`], with more variables.
    pub async fn with_variables(
        url: &str,
        key: &str,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perdiem"));
        command
            .args(args)
            .envs(variables.iter().copied())
            .env("PERDIEM_URL", url)
            .env("PERDIEM_KEY", key);
        let run = tokio::task::spawn_blocking(move || command.output());
        let Output {
            status,
            stdout,
            stderr,
        } = run.await.expect("a thread").expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Self {
            code: status.code().expect("an exit code"),
            stdout: text(stdout),
            stderr: text(stderr),
        }
    }

    /// Asserts the exit code and an empty standard error. Returns the output.
    #[track_caller]
    pub fn well(self, code: i32) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (code, ""), "{self:?}");
        self.stdout
    }

    /// As [`Said::well`], and parses the output as JSON.
    #[track_caller]
    pub fn json(self, code: i32) -> Value {
        serde_json::from_str(&self.well(code)).expect("JSON")
    }

    /// The single line of the error message.
    #[track_caller]
    pub fn fault(self) -> String {
        self.fault_of(1)
    }

    /// As [`Said::fault`], of a command that ends with this code.
    #[track_caller]
    pub fn fault_of(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        let line = self.stderr.strip_suffix('\n').expect("a line");
        assert!(!line.contains('\n'), "{line}");
        let words = line.strip_prefix("perdiem: ");
        words.expect("the name of the program").to_owned()
    }
}
