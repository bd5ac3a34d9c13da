//! The parts that commands without a server share: the ledger, the key of seals, and the progress
//! bar.

use std::cell::Cell;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use anyhow::ensure;
use chrono::{DateTime, TimeDelta, Utc};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

use super::client::TryAgain;
use crate::config::DatabaseArgs;
use host::chain::Chain;
use host::clock::Clock;
use ledger::{ClockReading, Ledger, LedgerOptions, OpenError};
use verify::key::UNSIGNED;

/// The longest time for a read of the ledger.
const QUERY_TIME: Duration = Duration::from_secs(60);
/// Without a terminal, progress is reported once for this many things.
const SHOWN_EVERY: u64 = 100_000;

/// Shows how many things are done.
pub struct WorkBar {
    bar: ProgressBar,
    things: &'static str,
    shown: Cell<u64>,
}

impl WorkBar {
    /// For positions of the record.
    pub fn of_positions() -> anyhow::Result<Self> {
        Self::of("positions")
    }

    pub fn of(things: &'static str) -> anyhow::Result<Self> {
        let bar = ProgressBar::new(0);
        let style = format!("{{bar:40}} {{percent:>3}} %, {{pos}} of {{len}} {things}");
        bar.set_style(ProgressStyle::with_template(&style)?);
        let shown = Cell::new(0);
        Ok(Self { bar, things, shown })
    }

    pub fn tell(&self, done: u64, of: u64) {
        self.bar.set_length(of);
        self.bar.set_position(done);
        let is_back = done < self.shown.get();
        if is_back {
            self.shown.set(0);
        }
        if !stderr().is_terminal() && done - self.shown.get() >= SHOWN_EVERY {
            self.shown.set(done);
            eprintln!("{done} of {of} {}", self.things);
        }
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Opens a ledger for a long command. Such a command neither creates nor migrates a ledger.
pub async fn open(database: &DatabaseArgs) -> anyhow::Result<Ledger> {
    let opened = Ledger::open_existing(&options(database), Clock::system().now()).await;
    opened.map_err(unopened)
}

/// As [`open`], for a command that writes nothing: a standby will do.
pub async fn open_to_read(database: &DatabaseArgs) -> anyhow::Result<Ledger> {
    let options = options(database);
    let now = Clock::system().now();
    match Ledger::open_existing(&options, now).await {
        Err(OpenError::Standby(_)) => Ledger::open_to_read(&options, now).await,
        opened => opened,
    }
    .map_err(unopened)
}

fn options(database: &DatabaseArgs) -> LedgerOptions {
    LedgerOptions {
        url: database.url().to_owned(),
        claim_timeout: QUERY_TIME,
        query_timeout: QUERY_TIME,
    }
}

/// What did not succeed just now is [`TryAgain`].
fn unopened(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Unreadable {
            is_lasting: false, ..
        } => TryAgain(Chain(&error).to_string()).into(),
        error => error.into(),
    }
}

/// Waits for Ctrl-C or SIGTERM. From the first poll on, neither ends the process by itself: so poll it
/// before the work.
pub async fn interruption() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = ctrl_c() => Ok(interrupted?),
        _ = terminate.recv() => Ok(()),
    }
}

/// How far the clock of this machine may be off the ledger's, as by the default of
/// PERDIEM_CLOCK_TOLERANCE_SECONDS.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::seconds(10);

/// The present instant, for what a command adds to the record. The machine's clock must agree with
/// the ledger's.
pub async fn present(ledger: &Ledger) -> anyhow::Result<DateTime<Utc>> {
    let now = Clock::system().now();
    let ClockReading { offset, .. } = ledger.read_clock(now).await?;
    ensure!(
        offset.abs() <= CLOCK_TOLERANCE,
        "this machine's clock is off the ledger's clock by {} s: correct it (NTP), and run the \
         command again",
        offset.num_seconds()
    );
    Ok(now)
}

/// Says that signatures were not checked.
pub fn tell_of_no_key() {
    println!("{UNSIGNED}");
}
