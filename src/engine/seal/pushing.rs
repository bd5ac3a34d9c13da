//! Pushes checkpoints out of the building: into a folder, or to a program.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use chrono::{DateTime, Utc};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::status::SealStatus;
use crate::clock::Clock;

/// The longest that a program may take.
const COMMAND_TIME: Duration = Duration::from_secs(30);
/// The newest checkpoint is pushed again after so long, also if nothing new was sealed.
const AGAIN_AFTER: Duration = Duration::from_secs(60 * 60);
/// How long to wait after a failure, at first and at most.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);
/// The newest checkpoint in a folder.
const NEWEST: &str = "checkpoint";

/// Where checkpoints are pushed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SealTarget {
    /// A folder: `checkpoint` is the newest one, and each day's last one stays under its date.
    Folder(PathBuf),
    /// A program and its arguments. It gets the checkpoint on its standard input.
    Program(String, Vec<String>),
}

impl SealTarget {
    /// # Errors
    /// What to write instead.
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

    /// The newest checkpoint that was pushed, where it can be read back.
    pub async fn newest(&self) -> Option<String> {
        let Self::Folder(folder) = self else {
            return None;
        };
        let path = folder.join(NEWEST);
        let read = spawn_blocking(move || fs::read_to_string(path));
        read.await.ok()?.ok()
    }

    async fn push(&self, note: String, now: DateTime<Utc>) -> io::Result<()> {
        match self {
            Self::Folder(folder) => {
                let folder = folder.clone();
                spawn_blocking(move || write_files(&folder, &note, now)).await?
            }
            Self::Program(program, arguments) => {
                let run = run_program(program, arguments, &note);
                timeout(COMMAND_TIME, run).await?
            }
        }
    }
}

fn write_files(folder: &Path, note: &str, now: DateTime<Utc>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for name in [format!("{}.note", now.date_naive()), NEWEST.to_owned()] {
        // Nobody reads half a checkpoint.
        let part = folder.join(format!("{name}.part"));
        fs::write(&part, note)?;
        fs::rename(part, folder.join(name))?;
    }
    Ok(())
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
        input.write_all(note.as_bytes()).await?;
    }
    let status = child.wait().await?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("the program ended with {status}"))),
    }
}

/// Pushes the newest checkpoint, in the background.
#[derive(Clone)]
pub struct SealPusher {
    pub target: SealTarget,
    pub clock: Clock,
    pub status: Arc<SealStatus>,
    newest: Arc<watch::Sender<Option<String>>>,
}

impl SealPusher {
    pub fn new(target: SealTarget, clock: Clock, status: Arc<SealStatus>) -> Self {
        Self {
            target,
            clock,
            status,
            newest: Arc::default(),
        }
    }

    /// Makes a checkpoint the next one to be pushed.
    pub fn push(&self, note: String) {
        self.newest.send_replace(Some(note));
    }

    /// Pushes what comes, until it is aborted. What fails is tried again.
    pub async fn run(self) {
        let mut newest = self.newest.subscribe();
        newest.mark_changed();
        let mut retry = RETRY_FIRST;
        loop {
            let _ = timeout(AGAIN_AFTER, newest.changed()).await;
            let Some(note) = newest.borrow_and_update().clone() else {
                continue;
            };
            match self.target.push(note, self.clock.now()).await {
                Ok(()) => retry = RETRY_FIRST,
                Err(error) => {
                    self.status.note_push_failure();
                    tracing::warn!(%error, "a seal cannot be pushed out: it is tried again");
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
}
