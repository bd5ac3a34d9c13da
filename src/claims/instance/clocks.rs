//! What an instance knows of its clock: whether it agrees with the ledger, and whether the wall
//! clock of the machine agrees with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::metrics::Metrics;
use host::clock::FollowedClock;
use ledger::{ClockReading, Ledger, LedgerError, Untimely};

/// A problem with a clock. The text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClockTrouble {
    /// The clock is off PostgreSQL's, or off the bounds of an append: nothing is decided.
    #[error(
        "this instance's clock is off the ledger's clock by {} s, more than the tolerance: correct \
         the clock that is wrong, this machine's or PostgreSQL's (NTP), then restart perdiem; or \
         change PERDIEM_CLOCK_TOLERANCE_SECONDS; no claim is decided and nothing is changed until \
         then",
        .0.num_seconds()
    )]
    Off(TimeDelta),
    /// SQLite has no clock: the newest entries and changes are ahead. Nothing is decided.
    #[error(
        "this machine's clock is off the ledger's clock: the newest entries are {} s ahead of it; if \
         the machine's clock is wrong, correct it (NTP); if it is right now, start perdiem with \
         PERDIEM_CLOCK_TOLERANCE_SECONDS=0, and without it again after claims of two subjects; no \
         claim is decided and nothing is changed until then",
        .0.num_seconds().abs()
    )]
    BehindNewest(TimeDelta),
    /// The wall clock of the machine is off. It decides nothing.
    #[error(
        "this machine's wall clock is {} s {} perdiem's clock: it was set, or drifts; perdiem goes on \
         by its own clock, and decides all claims; if the wall clock is wrong, correct it (NTP); if it \
         is right now, restart perdiem",
        .0.num_seconds().abs(),
        if *.0 < TimeDelta::zero() { "behind" } else { "ahead of" }
    )]
    WallClock(TimeDelta),
    /// The last line of some account is in the future. Other accounts are decided.
    #[error(
        "an entry is at {}, in the future: a clock was wrong when it was appended; claims of its \
         subject get 503 until then, and all others are decided; if this machine's clock is wrong \
         instead, correct it (NTP) and restart perdiem",
        .0.to_rfc3339_opts(SecondsFormat::Secs, true)
    )]
    FutureEntry(DateTime<Utc>),
}

/// The last findings about clocks.
#[derive(Default)]
pub struct ClockFindings {
    /// Whether the clock has agreed with the ledger once. From then on the wall clock is only
    /// compared.
    has_begun: AtomicBool,
    /// Nothing is decided because of this.
    off: ArcSwap<Option<ClockTrouble>>,
    /// How far the wall clock is ahead, if this is more than the tolerance.
    wall_ahead: ArcSwap<Option<TimeDelta>>,
    /// The latest last line that was found in the future.
    future_entry: ArcSwap<Option<DateTime<Utc>>>,
}

impl ClockFindings {
    /// Whether the clock is off by more than the tolerance.
    pub fn is_off(&self) -> bool {
        self.off.load().is_some()
    }

    pub fn off(&self) -> Option<ClockTrouble> {
        (**self.off.load()).clone()
    }

    /// What is wrong with clocks, but stops nothing.
    pub fn warnings(&self, now: DateTime<Utc>) -> impl Iterator<Item = ClockTrouble> {
        let wall_ahead = self.wall_ahead.load().map(ClockTrouble::WallClock);
        let future = self.future_entry.load().filter(|at| *at > now);
        wall_ahead
            .into_iter()
            .chain(future.map(ClockTrouble::FutureEntry))
    }

    /// Notes that the ledger refused the instants of a draft. If the clock is ahead, nothing is
    /// decided before the next look. An old instant does not show that the clock is behind: the
    /// process may have been paused after the decision.
    pub fn note_untimely(&self, why: Untimely) {
        match why {
            Untimely::Clock(off) if off < TimeDelta::zero() => {}
            Untimely::Clock(off) => self.note_off(Some(ClockTrouble::Off(off))),
            Untimely::LastLine(at) => self.note_future_entry(at),
        }
    }

    /// Compares the clock with the ledger, and the wall clock with the clock. Within the tolerance
    /// the clock follows the clock of the ledger.
    pub async fn check(
        &self,
        clock: &FollowedClock,
        ledger: &Ledger,
        tolerance: TimeDelta,
        metrics: &Metrics,
    ) -> Result<(), LedgerError> {
        // 1. Until the clock agrees with the ledger for the first time, it starts again at the wall
        //    clock: somebody may have corrected it. Nothing was decided yet.
        let has_begun = self.has_begun.load(Ordering::SeqCst);
        if !has_begun {
            clock.start_again();
        }
        // 2. The smallest offset from the ledger's clock that explains the times of this call. It is
        //    that of the corrected clock: the own one drifts away over the weeks.
        let asked_at = clock.own();
        let correction = clock.correction();
        let reading = ledger.read_clock(asked_at + correction).await?;
        let told_at = clock.own();
        let ClockReading { offset, outlier } = reading;
        let offset_least = reading.offset_least(told_at - asked_at);
        metrics.clock_offset(offset_least.as_seconds_f64());
        // 3. Within the tolerance the clock follows PostgreSQL's: at once if nothing was decided yet.
        //    Outside of it nothing is decided.
        let agrees = offset_least.abs() <= tolerance;
        if agrees && ledger.has_clock() {
            let theirs = asked_at + correction - offset;
            clock.follow(theirs, asked_at, told_at, !has_begun);
        }
        if agrees {
            self.has_begun.store(true, Ordering::SeqCst);
        }
        let trouble = if ledger.has_clock() {
            ClockTrouble::Off(offset_least)
        } else {
            ClockTrouble::BehindNewest(offset_least)
        };
        self.note_off(Some(trouble).filter(|_| !agrees));
        // 4. One instant in the future may be wrong. The account has it to itself.
        if let Some(at) = outlier.filter(|at| *at - told_at > tolerance) {
            self.note_future_entry(at);
        }
        // 5. The wall clock is compared, and decides nothing.
        let wall_ahead = clock.wall_ahead();
        metrics.wall_clock_offset(wall_ahead.as_seconds_f64());
        self.note_wall(Some(wall_ahead).filter(|ahead| ahead.abs() > tolerance));
        Ok(())
    }

    fn note_off(&self, trouble: Option<ClockTrouble>) {
        let before = self.off.swap(Arc::new(trouble.clone()));
        match (&*before, trouble) {
            (None, Some(trouble)) => tracing::error!("{trouble}"),
            (Some(_), None) => tracing::info!("the clock agrees with the ledger again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    fn note_wall(&self, ahead: Option<TimeDelta>) {
        let before = self.wall_ahead.swap(Arc::new(ahead));
        match (&*before, ahead) {
            (None, Some(ahead)) => tracing::warn!("{}", ClockTrouble::WallClock(ahead)),
            (Some(_), None) => {
                tracing::info!("the machine's wall clock agrees with perdiem's again")
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    fn note_future_entry(&self, at: DateTime<Utc>) {
        let before = self.future_entry.load();
        if before.is_none_or(|before| before < at) {
            self.future_entry.store(Arc::new(Some(at)));
            tracing::warn!("{}", ClockTrouble::FutureEntry(at));
        }
    }
}
