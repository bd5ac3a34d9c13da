//! Sends the lines of a file one after the other.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;

use super::client::can_try_again;
use super::csv_lines::CsvLine;
use super::places::PlaceNames;
use super::refusal::{Refused, at_places};
use super::{FAILED, ServerArgs};
use host::chain::Chain;

/// The first status of an answer that says nothing about the line, but about the server.
const FAULT_OF_SERVER: u16 = 500;

/// The group of the word that names one subject or one grant, where there is no file. A flag of files conflicts with it,
/// because clap does not require `--file` beside what excludes it.
pub const ONE: &str = "one";

/// The flags of every command that reads a file of lines.
#[derive(Debug, Args)]
pub struct BulkArgs {
    /// Go on after a line of the file that the server refuses, and list all refused lines at the end
    #[arg(long, requires = "file", conflicts_with = ONE)]
    pub keep_going: bool,
}

/// How the lines of a file are sent, and what is said of them.
pub struct BulkRun<'a> {
    pub server: &'a ServerArgs,
    pub keeps_going: bool,
    /// A dry run says of every line what it would do.
    pub is_dry_run: bool,
    /// Whether the server tries a line in a dry run. Otherwise it can still refuse one.
    pub is_tried: bool,
    /// Where the parts of a line's request are in the file.
    pub places: PlaceNames,
    /// What is done with a line, and what is said if it was done before.
    pub words: [&'static str; 2],
}

/// What became of a line.
pub enum LineResult {
    Done,
    /// It was done before, for example by an earlier run of the file.
    DoneBefore,
    /// In a dry run: why the server would refuse it.
    WouldFail(String),
}

/// What became of a file.
#[derive(Debug, Default, Serialize)]
struct BulkSummary {
    dry_run: bool,
    lines: usize,
    done: u64,
    done_before: u64,
    refused: Vec<RefusedLine>,
}

#[derive(Debug, Serialize)]
struct RefusedLine {
    line: u64,
    detail: String,
}

impl BulkRun<'_> {
    /// Whether a dry run says of each line what it would change.
    pub fn tells_lines(&self) -> bool {
        self.is_dry_run && !self.server.json
    }

    /// Sends each line, and stops at the first one that is refused, unless the run goes on.
    ///
    /// # Errors
    /// The error of the line at which the run stopped.
    pub async fn send<T>(
        &self,
        lines: &[CsvLine<T>],
        send: impl AsyncFn(&T) -> anyhow::Result<LineResult>,
    ) -> anyhow::Result<ExitCode> {
        let mut summary = BulkSummary {
            dry_run: self.is_dry_run,
            lines: lines.len(),
            ..BulkSummary::default()
        };
        let mut codes = BTreeSet::new();
        let bar = if self.tells_lines() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(lines.len() as u64)
        };
        for CsvLine { number, content } in lines {
            let line = *number;
            let sent = send(content).await;
            let detail = match sent.map_err(|error| at_places(error, self.places)) {
                Ok(LineResult::Done) => {
                    summary.done += 1;
                    None
                }
                Ok(LineResult::DoneBefore) => {
                    summary.done_before += 1;
                    None
                }
                Ok(LineResult::WouldFail(why)) => {
                    codes.insert(FAILED);
                    Some(why)
                }
                Err(error) => match self.exit_code_of(&error) {
                    Some(code) => {
                        codes.insert(code);
                        Some(Chain(error.as_ref()).to_string())
                    }
                    None => {
                        bar.finish_and_clear();
                        return Err(self.stopped(line, error, summary)?);
                    }
                },
            };
            let refused = detail.map(|detail| RefusedLine { line, detail });
            summary.refused.extend(refused);
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.tell(&summary)?;
        let code = codes.pop_first().unwrap_or_default();
        let is_one_code = codes.is_empty();
        Ok(ExitCode::from(if is_one_code { code } else { FAILED }))
    }

    /// The exit code of a refused line after which the run goes on.
    fn exit_code_of(&self, error: &anyhow::Error) -> Option<u8> {
        let refused = error.downcast_ref::<Refused>();
        let refused = refused.filter(|it| it.problem.status < FAULT_OF_SERVER)?;
        (self.keeps_going || self.is_dry_run).then(|| refused.exit_code())
    }

    /// The error of a run that stopped.
    fn stopped(
        &self,
        line: u64,
        error: anyhow::Error,
        mut summary: BulkSummary,
    ) -> anyhow::Result<anyhow::Error> {
        let counts = self.counts(&summary);
        let remedy = if can_try_again(&error) {
            "run the command again"
        } else {
            "correct the line, and run the command again"
        };
        if self.server.json {
            let detail = Chain(error.as_ref()).to_string();
            summary.refused.push(RefusedLine { line, detail });
            self.tell(&summary)?;
        }
        Ok(error.context(format!(
            "stopped at line {line}; before it: {counts}; {remedy}: nothing is done twice"
        )))
    }

    fn counts(&self, summary: &BulkSummary) -> String {
        let [done, done_before] = self.words;
        let refused = match summary.refused.len() {
            0 => String::new(),
            count => format!(", refused {count}"),
        };
        format!(
            "{done} {}, {done_before} {}{refused}",
            summary.done, summary.done_before
        )
    }

    fn tell(&self, summary: &BulkSummary) -> anyhow::Result<()> {
        if self.server.json {
            println!("{:#}", serde_json::to_value(summary)?);
            return Ok(());
        }
        println!("{}", self.counts(summary));
        if self.is_dry_run {
            let untried = if self.is_tried {
                ""
            } else {
                "; the server tried no line"
            };
            println!("dry run: nothing was changed{untried}");
        }
        for RefusedLine { line, detail } in &summary.refused {
            eprintln!("perdiem: line {line}: {detail}");
        }
        Ok(())
    }
}
