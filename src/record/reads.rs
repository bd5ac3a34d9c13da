//! Records who looked at which subject: an act of the record for each read that shows a named
//! subject. A read is answered after its act is committed.
//!
//! The acts are bounded. A key has one act an hour for the same read, and an instance adds at most
//! [`SECOND_MOST`] acts in a second. A read beyond that is refused, because an answer without an act
//! would be a gap that nobody sees. Acts that come while others are written share the next
//! transaction.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use foldhash::{HashMap, HashSet};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, oneshot};

use crate::Record;
use claims::instance::{Failure, Metrics};
use domain::identity::to_micros;
use domain::reads::SubjectRead;
use host::clock::Clock;
use ledger::{Act, ActKind, Ledger, LedgerError};

/// The largest number of acts in one second. One key alone gets half of them.
const SECOND_MOST: usize = 100;
const KEY_MOST: usize = SECOND_MOST / 2;
/// The number of reads that are remembered as recorded. At the limit all are forgotten, and recorded
/// again.
const KNOWN_MOST: usize = 65_536;

/// Why a read was not recorded, and must not be answered.
#[derive(Debug, thiserror::Error)]
pub enum ReadFailure {
    #[error("too many reads are to be recorded")]
    TooMany,
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// A key, what it read, and the subject: the start of a hash.
type ReadId = [u8; 16];
/// Told to the requests that wait for an act.
type ActWritten = Result<(), Arc<LedgerError>>;

/// Records reads.
pub struct ReadRecorder {
    ledger: Ledger,
    clock: Clock,
    metrics: Metrics,
    reads: Mutex<RecentReads>,
    wake: Notify,
}

/// The reads of one hour.
#[derive(Default)]
struct RecentReads {
    /// The hours since 1970.
    hour: i64,
    /// Reads whose acts are committed.
    known: HashSet<ReadId>,
    /// Reads whose acts are not committed, with the requests that wait for them.
    under_way: HashMap<ReadId, Vec<oneshot::Sender<ActWritten>>>,
    /// The acts that nobody writes yet.
    waiting: Vec<(ReadId, Act)>,
    /// A second, and the acts that were begun in it, by key.
    second: i64,
    begun: HashMap<String, usize>,
}

/// What a request does about its read.
enum ReadTurn {
    Recorded,
    Wait(oneshot::Receiver<ActWritten>),
    Refused,
}

impl RecentReads {
    fn turn(&mut self, read: SubjectRead<'_>, by: &str, now: DateTime<Utc>) -> ReadTurn {
        // 1. A read that was recorded in this hour is not recorded again.
        let about = read.about();
        let digest = Sha256::digest(format!("{by} {about}"));
        let id: ReadId = std::array::from_fn(|index| digest[index]);
        let hour = now.timestamp() / 3600;
        if self.hour != hour || self.known.len() >= KNOWN_MOST {
            self.hour = hour;
            self.known.clear();
        }
        if self.known.contains(&id) {
            return ReadTurn::Recorded;
        }
        // 2. Requests for the same read wait for the same act.
        let (sender, receiver) = oneshot::channel();
        let same = match self.under_way.entry(id) {
            Entry::Occupied(same) => {
                same.into_mut().push(sender);
                return ReadTurn::Wait(receiver);
            }
            Entry::Vacant(vacant) => vacant,
        };
        // 3. A new act needs room in this second.
        if self.second != now.timestamp() {
            self.second = now.timestamp();
            self.begun.clear();
        }
        let of_key = self.begun.get(by).copied().unwrap_or_default();
        if of_key >= KEY_MOST || self.begun.values().sum::<usize>() >= SECOND_MOST {
            return ReadTurn::Refused;
        }
        self.begun.insert(by.to_owned(), of_key + 1);
        same.insert(vec![sender]);
        let act = Act {
            revision: 0,
            kind: ActKind::Read,
            about,
            at: to_micros(now),
            by: by.to_owned(),
            reason: None,
        };
        self.waiting.push((id, act));
        ReadTurn::Wait(receiver)
    }

    /// Ends acts that were written, or could not be.
    fn end(&mut self, ids: &[ReadId], written: &ActWritten) {
        for id in ids {
            if written.is_ok() {
                self.known.insert(*id);
            }
            for sender in self.under_way.remove(id).into_iter().flatten() {
                // A request that does not wait any more has no receiver.
                drop(sender.send(written.clone()));
            }
        }
    }
}

impl ReadRecorder {
    pub fn new(ledger: Ledger, clock: Clock, metrics: Metrics) -> Self {
        Self {
            ledger,
            clock,
            metrics,
            reads: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Writes acts until the task is aborted.
    pub async fn run(self: Arc<Self>) {
        // A writer that panicked has lost its acts: the requests that wait for them get an error.
        *self.reads() = RecentReads::default();
        loop {
            self.wake.notified().await;
            let waiting = std::mem::take(&mut self.reads().waiting);
            if waiting.is_empty() {
                continue;
            }
            let (ids, acts): (Vec<ReadId>, Vec<Act>) = waiting.into_iter().unzip();
            let written = self.ledger.record().add_acts(&acts).await.map_err(Arc::new);
            if written.is_ok() {
                self.metrics.reads_recorded(acts.len());
            }
            self.reads().end(&ids, &written);
        }
    }

    /// Records a read. Returns after its act is committed.
    async fn record(&self, read: SubjectRead<'_>, by: &str) -> Result<(), ReadFailure> {
        let turn = self.reads().turn(read, by, self.clock.now());
        let written = match turn {
            ReadTurn::Recorded => return Ok(()),
            ReadTurn::Refused => {
                self.metrics.read_refused();
                return Err(ReadFailure::TooMany);
            }
            ReadTurn::Wait(written) => written,
        };
        self.wake.notify_one();
        match written.await {
            Ok(written) => Ok(written.map_err(Failure::Ledger)?),
            Err(_) => Err(Failure::Interrupted.into()),
        }
    }

    fn reads(&self) -> MutexGuard<'_, RecentReads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    /// Records that a caller looked at a subject, if the settings say so. Call it when the answer is
    /// ready, and before it is sent.
    ///
    /// # Errors
    /// [`ReadFailure`]: then there must be no answer.
    pub async fn record_read(
        &self,
        caller: &str,
        read: SubjectRead<'_>,
    ) -> Result<(), ReadFailure> {
        match &self.read_recorder {
            Some(recorder) => recorder.record(read, caller).await,
            None => Ok(()),
        }
    }
}
