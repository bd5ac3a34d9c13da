//! perdiem as a separate process, to be killed, paused and stopped.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use reqwest::{Client, Method, RequestBuilder};

use super::app::{KEY, client};

/// The longest time that a process may take to stop after a request.
const END_DEADLINE: Duration = Duration::from_secs(60);
/// As the limits of an application in this process: a busy machine makes no claim undecided. A test
/// that waits for one of them sets its own.
const PATIENCE: [(&str, &str); 3] = [
    ("PERDIEM_CLAIM_DEADLINE_MS", "30000"),
    ("PERDIEM_ANSWER_SECONDS", "30"),
    ("PERDIEM_REDIS_TIMEOUT_MS", "10000"),
];

/// A running `perdiem serve`. It is killed when it is dropped.
pub struct Process {
    child: Child,
    /// Stays open: a process that cannot print ends.
    _output: BufReader<ChildStdout>,
    pub url: String,
    client: Client,
}

impl Process {
    /// Starts the binary on a ledger, and waits until it prints its address. It writes no log.
    pub fn start(database_url: &str, settings: &[(&str, &str)]) -> Self {
        let settings = [&PATIENCE[..], settings].concat();
        let mut command = command(database_url, &settings);
        let process = Self::launch(command.env("PERDIEM_LOG", "off"));
        process.expect("an address")
    }

    /// As [`Process::start`], with a log file. Returns `None` if the process ended at once, for
    /// example because its port was in use.
    pub fn try_start_logging(
        database_url: &str,
        settings: &[(&str, &str)],
        log: File,
    ) -> Option<Self> {
        let mut command = command(database_url, settings);
        command.env("PERDIEM_LOG", "info,sqlx=off");
        Self::launch(command.envs(settings.iter().copied()).stderr(log))
    }

    fn launch(command: &mut Command) -> Option<Self> {
        let mut child = command.spawn().expect("the binary starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        let rest = line.strip_prefix("perdiem listens on ");
        let url = rest.and_then(|rest| rest.split(' ').next());
        let process = Self {
            url: url.unwrap_or_default().to_owned(),
            child,
            _output: output,
            client: client(),
        };
        // Otherwise the process is dropped, and ends.
        (!process.url.is_empty()).then_some(process)
    }

    /// Sends SIGKILL. Returns when the process is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("the process is killed");
        self.child.wait().expect("the process ends");
    }

    /// Pauses the process (SIGSTOP).
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets the process continue (SIGCONT).
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Asks the process to stop (SIGTERM).
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// The exit status; `None` while the process runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process is paused, by any sender.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, state)| state.starts_with('T'))
    }

    /// Waits until the process has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + END_DEADLINE;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "the process did not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, name: &str) {
        let signalled = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        assert!(signalled.is_ok_and(|status| status.success()), "{name}");
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.url);
        self.client.request(method, url).bearer_auth(KEY)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process can be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(database_url: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perdiem"));
    command
        .arg("serve")
        .env("DATABASE_URL", database_url)
        .env_remove("REDIS_URL")
        .env("PERDIEM_BIND", "127.0.0.1:0")
        .env("PERDIEM_ADMIN_KEY", KEY)
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}
