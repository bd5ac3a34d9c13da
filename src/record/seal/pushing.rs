//! Pushes checkpoints out of the building: into a folder, or to a program.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use chrono::{DateTime, Utc};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::folder::write_note;
use super::status::SealStatus;
use host::clock::Clock;

/// The longest run time of a program.
const COMMAND_TIME: Duration = Duration::from_secs(30);
/// After this time the newest checkpoint is pushed again, also if nothing new was sealed.
const AGAIN_AFTER: Duration = Duration::from_secs(60 * 60);
/// The pause after a failure, at first and at most.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// Where checkpoints are pushed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SealTarget {
    /// A folder that exists. `checkpoint` is the newest checkpoint. The last checkpoint of each log
    /// and of each day has a file of its own.
    Folder(PathBuf),
    /// A program and its arguments. It gets the checkpoint on its standard input.
    Program(String, Vec<String>),
}

impl SealTarget {
    /// # Errors
    /// A text that says what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed = match text.split_once(':') {
            Some(("file", folder)) if !folder.is_empty() => Some(Self::Folder(folder.into())),
            Some(("command", line)) => {
                let mut words = line.split_whitespace().map(str::to_owned);
                let program = words.next();
                program.map(|program| Self::Program(program, words.collect()))
            }
            _ => None,
        };
        parsed.ok_or_else(|| "write file:FOLDER or command:PROGRAM ARGUMENTS".to_owned())
    }

    /// `part` is in the names of incomplete files. A program may run as long as `patience`.
    async fn push(
        &self,
        note: String,
        part: String,
        patience: Duration,
        now: DateTime<Utc>,
    ) -> io::Result<()> {
        match self {
            Self::Folder(folder) => {
                let folder = folder.clone();
                spawn_blocking(move || write_note(&folder, &note, &part, now)).await?
            }
            Self::Program(program, arguments) => {
                let run = run_program(program, arguments, &note);
                let late =
                    |_| io::Error::other(format!("the program runs for more than {patience:?}"));
                timeout(patience, run).await.map_err(late)?
            }
        }
    }
}

/// Without the arguments of a program, which may include a password.
impl fmt::Display for SealTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(formatter, "file:{}", folder.display()),
            Self::Program(program, _) => write!(formatter, "command:{program}"),
        }
    }
}

async fn run_program(program: &str, arguments: &[String], note: &str) -> io::Result<()> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A program need not read its input. Its exit status says whether it succeeded.
        let _ = input.write_all(note.as_bytes()).await;
    }
    let status = child.wait().await?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("the program ended with {status}")))
    }
}

/// Pushes the newest checkpoint, in the background.
#[derive(Clone)]
pub struct SealPusher {
    pub target: SealTarget,
    pub clock: Clock,
    pub status: Arc<SealStatus>,
    newest: Arc<watch::Sender<Option<String>>>,
    part: Uuid,
}

impl SealPusher {
    pub fn new(target: SealTarget, clock: Clock, status: Arc<SealStatus>) -> Self {
        Self {
            target,
            clock,
            status,
            newest: Arc::default(),
            part: Uuid::new_v4(),
        }
    }

    /// Leaves the next push to another instance.
    pub fn forget(&self) {
        self.newest.send_replace(None);
    }

    /// Makes a checkpoint the next one to push.
    pub fn push(&self, note: String) {
        self.newest.send_replace(Some(note));
    }

    /// Pushes checkpoints until the task is aborted. A failed push is tried again.
    pub async fn run(self) {
        let mut newest = self.newest.subscribe();
        newest.mark_changed();
        let mut retry = RETRY_FIRST;
        loop {
            let _ = timeout(AGAIN_AFTER, newest.changed()).await;
            let Some(note) = newest.borrow_and_update().clone() else {
                continue;
            };
            let part = self.part.simple().to_string();
            let pushed = self.target.push(note, part, COMMAND_TIME, self.clock.now());
            match pushed.await {
                Ok(()) => retry = RETRY_FIRST,
                Err(error) => {
                    self.status.note_push_failure();
                    let target = &self.target;
                    tracing::warn!(%error, "a seal cannot be pushed to {target}: trying again");
                    sleep(retry).await;
                    retry = (retry * 2).min(RETRY_MOST);
                    newest.mark_changed();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn targets_are_folders_and_programs() {
        let folder = SealTarget::Folder("/mnt/seals".into());
        assert_eq!(SealTarget::parse("file:/mnt/seals"), Ok(folder));
        let program = SealTarget::Program("aws".to_owned(), vec!["s3".to_owned()]);
        assert_eq!(SealTarget::parse("command: aws  s3"), Ok(program));
        for text in ["", "file:", "command: ", "s3://bucket", "folder"] {
            assert!(SealTarget::parse(text).is_err(), "{text}");
        }
    }
    /// A script, and the target that runs it.
    fn script(folder: &TempDir, text: &str) -> SealTarget {
        let path = folder.path().join("push");
        fs::write(&path, text).unwrap();
        SealTarget::Program("sh".to_owned(), vec![path.display().to_string()])
    }

    async fn pushed(target: &SealTarget, patience: Duration) -> Result<(), String> {
        let note = "x".repeat(1 << 20);
        let part = "test".to_owned();
        let pushed = target.push(note, part, patience, DateTime::UNIX_EPOCH);
        pushed.await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn how_a_program_ends_tells_whether_it_pushed() {
        let folder = TempDir::new().unwrap();
        let long = Duration::from_secs(60);
        // The text is longer than a pipe's buffer, and the script does not read it.
        assert_eq!(pushed(&script(&folder, "exit 0"), long).await, Ok(()));
        let fails = pushed(&script(&folder, "cat > /dev/null; exit 3"), long).await;
        assert!(fails.is_err_and(|error| error.contains("exit status: 3")));
        let hangs = script(&folder, "exec sleep 1000");
        let late = pushed(&hangs, Duration::from_millis(50)).await;
        assert!(late.is_err_and(|error| error.contains("runs for more than 50ms")));
        assert_eq!(hangs.to_string(), "command:sh");
        let gone = SealTarget::Program("/no/such/program".to_owned(), Vec::new());
        assert!(pushed(&gone, long).await.is_err());
    }
}
