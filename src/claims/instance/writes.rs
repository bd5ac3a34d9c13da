//! Whether the ledger takes writes. A ledger that can be read and not be written looks healthy to
//! every poll, while each claim waits for its 503.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::metrics::Metrics;
use domain::zones;
use host::chain::Chain;
use host::clock::Clock;
use ledger::{Ledger, LedgerError};

/// The pause between the starts of two probes.
const EVERY: Duration = Duration::from_secs(1);
/// The same after the disk was full. A small write can succeed where an entry does not.
const EVERY_ON_FULL_DISK: Duration = Duration::from_secs(5);
/// How long a probe may take before the instance is not ready.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why nothing can be written. The text says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteTrouble {
    #[error(
        "the ledger's disk is full or fails: make room on the disk of the database, or replace it; \
         nothing is granted until a write succeeds"
    )]
    Disk,
    #[error(
        "the ledger is read-only: connect to the primary if this server was demoted to a standby, \
         or make the database writable again (a managed database is often made read-only when its \
         storage is full); nothing is granted until a write succeeds"
    )]
    ReadOnly,
    #[error(
        "somebody holds a lock on the tables of entries: find the session in pg_locks and end it; \
         nothing is granted until a write succeeds"
    )]
    Locked,
    #[error(
        "the ledger can be read, but no write ends in time: look for locks, a slow disk, and too few \
         standbys that answer; nothing is granted until a write succeeds"
    )]
    Stuck,
}

impl WriteTrouble {
    /// What an error of a write tells by itself.
    fn of_error(error: &LedgerError) -> Option<Self> {
        match error {
            error if error.is_disk_full() => Some(Self::Disk),
            error if error.is_read_only() => Some(Self::ReadOnly),
            error if error.is_locked() => Some(Self::Locked),
            _ => None,
        }
    }
}

/// What the last writes told.
#[derive(Default)]
pub struct Writes {
    trouble: ArcSwap<Option<WriteTrouble>>,
    /// Whether entries were committed since the last look.
    has_committed: AtomicBool,
}

impl Writes {
    pub fn trouble(&self) -> Option<WriteTrouble> {
        **self.trouble.load()
    }

    /// Notes how an append of entries ended. An error that tells no cause says nothing: the claims'
    /// outcomes do.
    pub fn note_append<T>(&self, appended: &Result<T, LedgerError>) {
        match appended {
            Ok(_) => {
                self.has_committed.store(true, Ordering::Relaxed);
                self.note(None, None);
            }
            // A lock on one account is a conflict of claims. A probe tells whether it is more.
            Err(error) if error.is_locked() => {}
            Err(error) => {
                if let Some(trouble) = WriteTrouble::of_error(error) {
                    self.note(Some(trouble), Some(error));
                }
            }
        }
    }

    /// Notes how a write of the instance about itself ended. Other tables may be locked, so it does
    /// not tell that entries can be written.
    pub fn note_report<T>(&self, reported: &Result<T, LedgerError>) {
        let can_end = matches!(
            self.trouble(),
            Some(WriteTrouble::Disk | WriteTrouble::ReadOnly)
        );
        match reported {
            Ok(_) if can_end => self.note(None, None),
            Ok(_) => {}
            Err(error) => {
                let trouble = WriteTrouble::of_error(error);
                let trouble = trouble.filter(|trouble| *trouble != WriteTrouble::Locked);
                if trouble.is_some() {
                    self.note(trouble, Some(error));
                }
            }
        }
    }

    fn note(&self, trouble: Option<WriteTrouble>, error: Option<&LedgerError>) {
        // Every batch of claims comes here: most of them change nothing.
        let before = self.trouble();
        if before == trouble {
            return;
        }
        self.trouble.store(Arc::new(trouble));
        let cause = error.map(|error| Chain(error).to_string());
        match trouble {
            Some(trouble) => tracing::error!(cause, "{trouble}"),
            None => tracing::info!("the ledger can be written again"),
        }
    }
}

/// Tries a write when claims end undecided and nothing is committed, and while there is a trouble.
pub struct WriteProber {
    ledger: Ledger,
    clock: Clock,
    instance: Uuid,
    metrics: Metrics,
    writes: Arc<Writes>,
    /// How many claims had ended undecided at the last commit or probe.
    undecided: u64,
    running: Option<(Instant, JoinHandle<()>)>,
}

impl WriteProber {
    pub fn new(
        ledger: Ledger,
        clock: Clock,
        instance: Uuid,
        metrics: Metrics,
        writes: Arc<Writes>,
    ) -> Self {
        Self {
            ledger,
            clock,
            instance,
            metrics,
            writes,
            undecided: 0,
            running: None,
        }
    }

    /// Begins a probe if one is due. A ledger that answers nothing is not probed: the watcher tells
    /// of it.
    pub fn look(&mut self, is_silent: bool) {
        // 1. After a commit, the claims that ended before it tell nothing.
        let undecided = self.metrics.undecided_claims();
        if self.writes.has_committed.swap(false, Ordering::Relaxed) {
            self.undecided = undecided;
        }
        // 2. Probe if claims ended undecided since, or to find the end of a trouble.
        let trouble = self.writes.trouble();
        if is_silent || trouble.is_none() && undecided <= self.undecided {
            return;
        }
        // 3. One probe runs at a time, and not too often.
        let every = match trouble {
            Some(WriteTrouble::Disk) => EVERY_ON_FULL_DISK,
            _ => EVERY,
        };
        if let Some((began_at, probe)) = &self.running
            && (!probe.is_finished() || began_at.elapsed() < every)
        {
            return;
        }
        self.undecided = undecided;
        let ledger = self.ledger.clone();
        let now = self.clock.now();
        let instance = self.instance;
        let writes = self.writes.clone();
        let probe = tokio::spawn(async move {
            let rules = zones::rules().to_string();
            probe(&writes, ledger.probe_writes(instance, &rules, now)).await;
        });
        self.running = Some((Instant::now(), probe));
    }
}

impl Drop for WriteProber {
    fn drop(&mut self) {
        if let Some((_, probe)) = &self.running {
            probe.abort();
        }
    }
}

/// Notes how a write ends, and before that, that it does not end.
async fn probe(writes: &Writes, write: impl Future<Output = Result<(), LedgerError>>) {
    let mut write = Box::pin(write);
    let written = match timeout(PATIENCE, &mut write).await {
        Ok(written) => written,
        Err(_) => {
            if writes.trouble().is_none() {
                writes.note(Some(WriteTrouble::Stuck), None);
            }
            write.await
        }
    };
    match &written {
        Ok(()) => writes.note(None, None),
        Err(error) => {
            let trouble = WriteTrouble::of_error(error).unwrap_or(WriteTrouble::Stuck);
            writes.note(Some(trouble), Some(error));
        }
    }
}
