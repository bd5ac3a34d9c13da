//! The binary, as a person at a terminal or a supervisor uses it.

mod apply;
mod approvals;
mod bulk;
mod changes;
mod commands;
mod corrections;
mod demo;
mod doctor;
mod entries;
mod erasure;
mod exits;
mod export;
mod files;
mod pipes;
mod poolers;
mod problems;
mod secrets;
mod serving;
mod sessions;
mod settings;
mod statistics;
mod status;
mod times;
mod versions;
mod warnings;
mod written;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::Method;
use tempfile::TempDir;

use crate::support::app::{Answer, KEY, client};
use crate::support::terminal::Said;

const DEADLINE: Duration = Duration::from_secs(420);
/// A secret in the URLs and keys of these tests. No output may show the secret.
const SECRET: &str = "hunter2-is-secret";

/// A process of the binary. Dropping this value kills the process.
struct Process {
    child: Child,
    output: TempDir,
}

impl Process {
    /// Starts the binary in a folder, with these settings only.
    fn start(folder: &Path, args: &[&str], settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perdiem"));
        command.args(args);
        Self::spawn(command, folder, settings)
    }

    /// Starts the binary with a terminal as its standard output. It ends with the terminal, although
    /// `script` alone is killed.
    fn start_at_terminal(folder: &Path, args: &[&str], settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new("script");
        let program = env!("CARGO_BIN_EXE_perdiem");
        let line = format!("exec setpriv --pdeathsig KILL {program} {}", args.join(" "));
        command.args(["--quiet", "--command", &line, "/dev/null"]);
        Self::spawn(command, folder, settings)
    }

    fn spawn(mut command: Command, folder: &Path, settings: &[(&str, &str)]) -> Self {
        for (name, _) in std::env::vars() {
            let is_setting = ["PERDIEM_", "DATABASE_URL", "REDIS_"]
                .iter()
                .any(|beginning| name.starts_with(beginning));
            if is_setting || name.contains("_proxy") {
                command.env_remove(name);
            }
        }
        let output = self::folder();
        let file = |name| File::create(output.path().join(name)).expect("a file");
        let child = command
            .envs(settings.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn();
        Self {
            child: child.expect("the binary starts"),
            output,
        }
    }

    /// Starts a server on a free port. Returns the process and its URL when the server listens.
    fn serve(folder: &Path, settings: &[(&str, &str)]) -> (Self, String) {
        let process = Self::start(folder, &["serve", "--bind", "127.0.0.1:0"], settings);
        let line = process.wait_for("stdout", |line| line.starts_with("perdiem listens on "));
        let url = line.split(' ').find(|word| word.starts_with("http://"));
        (process, url.expect("a URL").to_owned())
    }

    /// The process's output on `stdout` or `stderr` until now.
    fn output(&self, stream: &str) -> String {
        fs::read_to_string(self.output.path().join(stream)).expect("UTF-8")
    }

    /// Waits for a line of the output.
    #[track_caller]
    fn wait_for(&self, stream: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let output = self.output(stream);
            let mut whole = output
                .split_inclusive('\n')
                .filter_map(|line| line.strip_suffix('\n'));
            if let Some(line) = whole.find(|line| is_wanted(line)) {
                return line.to_owned();
            }
            assert!(
                Instant::now() < deadline,
                "the line did not come in time: {output}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks the process to end, as a supervisor does.
    fn terminate(&self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    /// Waits for the end of the process.
    #[track_caller]
    fn ended(mut self) -> Said {
        let deadline = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            let stderr = self.output("stderr");
            assert!(
                Instant::now() < deadline,
                "the process did not end: {stderr}"
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        Said {
            code: status.code().expect("an exit code"),
            stdout: self.output("stdout"),
            stderr: self.output("stderr"),
        }
    }

    /// Asks the process to end and waits. The exit code must be 0.
    #[track_caller]
    fn end(self) -> Said {
        self.terminate();
        let ended = self.ended();
        assert_eq!(ended.code, 0, "{ended:?}");
        ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process can have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

pub fn run(args: &[&str], settings: &[(&str, &str)]) -> Said {
    let folder = folder();
    Process::start(folder.path(), args, settings).ended()
}

/// The one line that a command prints before it fails.
#[track_caller]
pub fn fault(args: &[&str], settings: &[(&str, &str)]) -> String {
    fault_of(1, args, settings)
}

/// As [`fault`], of a command that ends with this code.
#[track_caller]
fn fault_of(code: i32, args: &[&str], settings: &[(&str, &str)]) -> String {
    let said = run(args, settings);
    assert_eq!(said.stdout, "", "{said:?}");
    let line = said.fault_of(code);
    assert!(!line.contains("hunter2"), "{line}");
    // The line repeats nothing.
    let mut parts: Vec<&str> = line.split([':', ';']).map(str::trim).collect();
    let count = parts.len();
    parts.sort_unstable();
    parts.dedup();
    assert_eq!(parts.len(), count, "{line}");
    line
}

/// Checks the line of a server that cannot start at the moment, and may start later.
#[track_caller]
pub fn start_fault(settings: &[(&str, &str)], words: &[&str]) {
    start_fault_of(1, settings, words);
}

/// Checks the line of a server that never starts with these settings.
#[track_caller]
pub fn setting_fault(settings: &[(&str, &str)], words: &[&str]) {
    start_fault_of(2, settings, words);
}

#[track_caller]
pub fn start_fault_of(code: i32, settings: &[(&str, &str)], words: &[&str]) {
    let mut all = vec![("PERDIEM_BIND", "127.0.0.1:0"), ("PERDIEM_ADMIN_KEY", KEY)];
    all.extend_from_slice(settings);
    let line = fault_of(code, &["serve"], &all);
    for word in words {
        assert!(line.contains(word), "{word}: {line}");
    }
}

fn sqlite_url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

pub fn migrate(url: &str) {
    run(&["migrate"], &[("DATABASE_URL", url)]).well(0);
}

/// Sends a `GET` with a key.
async fn get(url: &str, path: &str, key: &str) -> Answer {
    Answer::of(
        client()
            .request(Method::GET, format!("{url}{path}"))
            .bearer_auth(key),
    )
    .await
}
