//! The sealer: it adds leaves to the log along the record, and signs checkpoints.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

use super::growing::{first_seal, grow};
use super::learning::{Learner, LogState, SealStop, lost};
use super::pushing::SealPusher;
use super::status::SealStatus;
use crate::following::{RecordFollower, Stepped};
use domain::identity::to_micros;
use domain::record::Mark;
use domain::seal::note::{LogName, SealKey};
use host::clock::Clock;
use ledger::{Ledger, LedgerError, Seal, SealOrigin, SealedLog};

/// About how many positions are sealed at once.
const POSITIONS_MOST: u64 = 8192;
/// The pause between two looks for what was added by hand.
const FORGED_EVERY: Duration = Duration::from_secs(1);
/// How long an instance waits after it saw another one at work.
const PATIENCE: Duration = Duration::from_secs(30);
/// The shortest time between two checkpoints, unless this many positions have none.
const SIGN_EVERY: Duration = Duration::from_secs(1);
const SIGN_ALWAYS: u64 = 16_384;

/// Adds the leaves of recorded entries and changes to the log. Each instance runs a sealer.
/// Invariant: the log only grows. Leaves are added by compare and set, and a sealer that sees
/// another one at work leaves the work to it.
pub struct Sealer {
    ledger: Ledger,
    clock: Clock,
    key: Arc<SealKey>,
    status: Arc<SealStatus>,
    pusher: Option<SealPusher>,
    learner: Learner,
    known: Option<LogState>,
    /// The newest log that this instance saw, and its size.
    seen: Option<(SealOrigin, u64)>,
    another_at: Option<Instant>,
    signed_at: Option<Instant>,
    /// When this instance looked for what was added by hand.
    looked_at: Option<Instant>,
    /// The last step stopped. A reason is told if the next look finds one too.
    is_stopped: bool,
}

impl RecordFollower for Sealer {
    const NAME: &'static str = "seals";

    async fn step(&mut self) -> Result<Stepped, LedgerError> {
        let stop = match self.seal_next().await {
            Ok(is_more) => {
                self.is_stopped = false;
                return Ok(Stepped { is_more, rows: 0 });
            }
            Err(stop) => stop,
        };
        // The tree in memory may have leaves that are not in the log. Forget it.
        self.known = None;
        let (why, stepped) = match stop {
            SealStop::Why(why) => (Some(why), Ok(Stepped::default())),
            SealStop::Ledger(LedgerError::Corrupt(what)) => (Some(what), Ok(Stepped::default())),
            SealStop::Ledger(error) => (None, Err(error)),
        };
        let lasts = std::mem::replace(&mut self.is_stopped, why.is_some());
        let why = why.filter(|_| lasts);
        self.status.note_stop(why, self.clock.now());
        stepped
    }
}

impl Sealer {
    pub fn new(
        ledger: Ledger,
        clock: Clock,
        key: Arc<SealKey>,
        status: Arc<SealStatus>,
        pusher: Option<SealPusher>,
    ) -> Self {
        let learner = Learner {
            ledger: ledger.clone(),
            key: key.clone(),
            target: pusher.as_ref().map(|pusher| pusher.target.clone()),
        };
        Self {
            ledger,
            clock,
            key,
            status,
            pusher,
            learner,
            known: None,
            seen: None,
            another_at: None,
            signed_at: None,
            looked_at: None,
            is_stopped: false,
        }
    }

    /// Seals the next marks. Returns whether there may be more.
    async fn seal_next(&mut self) -> Result<bool, SealStop> {
        let now = self.clock.now();
        if self.looked_at.is_none_or(|at| at.elapsed() >= FORGED_EVERY) {
            self.status
                .note_forged(self.ledger.audit().forged_place().await?);
            self.looked_at = Some(Instant::now());
        }
        // 1. Read the size of the log. It must not be smaller than this instance saw before. The
        //    first sealer begins the log.
        let found = self.ledger.audit().sealed_log().await?;
        self.is_not_behind(found.as_ref())?;
        let Some(log) = found else {
            return self.begin(now).await;
        };
        self.seen = Some((log.origin.clone(), log.size));
        // 2. Compare the log with what this instance knows. If the sizes differ, another instance
        //    is at work: wait. If this instance does not know the log, check and learn it.
        let known = self.known.take();
        let known = known.filter(|known| known.origin == log.origin);
        let is_known = |known: &LogState| known.tree.size() == log.size;
        if known.as_ref().is_some_and(|known| !is_known(known)) {
            self.another_at = Some(Instant::now());
        }
        if self.another_at.is_some_and(|at| at.elapsed() < PATIENCE) {
            if let Some(pusher) = &self.pusher {
                pusher.forget();
            }
            let (_, marks) = self.marks_after(log.size, 1).await?;
            self.status.note(marks.first().map(|mark| mark.recorded_at));
            return Ok(false);
        }
        let known = match known.filter(is_known) {
            Some(known) => Some(known),
            None => self.learner.learn(&log).await?,
        };
        let Some(mut known) = known else {
            return Ok(false);
        };
        // 3. Read the marks after the leaves of the tree.
        let size = known.tree.size();
        let (before, marks) = self.marks_after(size, POSITIONS_MOST).await?;
        // 4. Add the leaves to the tree in memory.
        let LogState { origin, tree, .. } = &mut known;
        grow(&self.ledger, origin, tree, before, &marks).await?;
        self.status.note(marks.first().map(|mark| mark.recorded_at));
        // 5. Write the new hashes to the log, with a signed checkpoint if it is time for one.
        let rows = known.tree.take_rows();
        let seal = self.sign(&known);
        if rows.is_empty() && seal.is_none() {
            self.push_stored(&mut known, now);
            self.known = Some(known);
            return Ok(false);
        }
        let added = self
            .ledger
            .audit()
            .add_seal(&known.origin, &rows, seal.as_ref())
            .await;
        if !added? {
            self.another_at = Some(Instant::now());
            return Ok(false);
        }
        // 6. Push the new checkpoint out of the building.
        if let Some(seal) = seal {
            known.signed = seal.size;
            known.stored = None;
            self.signed_at = Some(Instant::now());
            if let Some(pusher) = &self.pusher {
                pusher.push(seal.note);
            }
        }
        let is_full = known.tree.size() >= size + POSITIONS_MOST;
        self.known = Some(known);
        if !is_full {
            self.status.note(None);
            return Ok(false);
        }
        Ok(true)
    }

    /// The mark that ends at a size, and the next marks with about so many positions, which are not
    /// sealed.
    async fn marks_after(&self, size: u64, positions: u64) -> Result<(Mark, Vec<Mark>), SealStop> {
        let mut marks = self
            .ledger
            .record()
            .marks_to_follow(size..size + positions + 1)
            .await?;
        let is_sealed = |mark: &Mark| mark.position == size;
        let before = match marks.first().copied().filter(is_sealed) {
            Some(before) => before,
            None if size == 0 => Mark::FIRST,
            None => {
                return lost(format!(
                    "{size} positions are sealed, but the record ends before them"
                ));
            }
        };
        marks.retain(|mark| mark.position > size);
        Ok((before, marks))
    }

    /// Checks that the log is not smaller or older than this instance saw before.
    fn is_not_behind(&self, found: Option<&SealedLog>) -> Result<(), SealStop> {
        let Some((seen, seen_size)) = self.seen.as_ref() else {
            return Ok(());
        };
        let name = &seen.name;
        let Some(SealedLog { origin, size, .. }) = found else {
            return lost(format!(
                "{seen_size} positions were sealed, but {name} is gone"
            ));
        };
        let begun = |origin: &SealOrigin| LogName::parse(&origin.name).map(|log| log.begun);
        let is_behind = if origin == seen {
            size < seen_size
        } else {
            begun(origin) <= begun(seen)
        };
        if is_behind {
            lost(format!(
                "{seen_size} positions of {name} were sealed, but the log has {size} positions of \
                 {}",
                origin.name
            ))
        } else {
            Ok(())
        }
    }

    /// Begins the first log.
    async fn begin(&mut self, now: DateTime<Utc>) -> Result<bool, SealStop> {
        // Read what was pushed, and then whether another instance has begun the log meanwhile.
        let pushed = self.learner.read_pushed(None).await?;
        if self.ledger.audit().sealed_log().await?.is_some() {
            return Ok(true);
        }
        self.learner.compare_all(pushed, None).await?;
        let origin = SealOrigin {
            number: 1,
            name: self.key.origin(self.ledger.identity().id, None),
            begun_at: to_micros(now),
        };
        self.status.note(None);
        let Some((rows, seal)) = first_seal(&self.ledger, &self.key, origin).await? else {
            return Ok(false);
        };
        let is_ours = self.ledger.audit().begin_origin(&rows, &seal, None).await?;
        if let Some(pusher) = self.pusher.as_ref().filter(|_| is_ours) {
            pusher.push(seal.note);
        }
        Ok(true)
    }

    /// Pushes the newest checkpoint of another instance, after that instance has had enough time to
    /// push it.
    fn push_stored(&self, known: &mut LogState, now: DateTime<Utc>) {
        let patience = TimeDelta::seconds(PATIENCE.as_secs().cast_signed());
        let is_old = |seal: &mut Seal| now - seal.sealed_at >= patience;
        if let Some(seal) = known.stored.take_if(is_old)
            && let Some(pusher) = &self.pusher
        {
            pusher.push(seal.note);
        }
    }

    /// A checkpoint of the tree, if it is time for one.
    fn sign(&self, known: &LogState) -> Option<Seal> {
        let size = known.tree.size();
        let is_early = self.signed_at.is_some_and(|at| at.elapsed() < SIGN_EVERY)
            && size - known.signed < SIGN_ALWAYS;
        if size == known.signed || is_early {
            return None;
        }
        let note = self.key.sign(&known.origin.name, size, &known.tree.root());
        Some(Seal {
            origin: known.origin.clone(),
            size,
            note,
            sealed_at: to_micros(self.clock.now()),
        })
    }
}
