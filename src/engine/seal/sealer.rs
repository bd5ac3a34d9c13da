//! The sealer: it makes the log of leaves behind the record, and signs checkpoints.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::Instant;

use super::pushing::SealPusher;
use super::reader::tree_of;
use super::status::SealStatus;
use crate::clock::Clock;
use crate::domain::identity::to_micros;
use crate::domain::record::Mark;
use crate::domain::seal::leaf::Hash;
use crate::domain::seal::note::{Checkpoint, SealKey};
use crate::domain::seal::tree::{GrowingTree, leaf_hash};
use crate::engine::following::RecordFollower;
use crate::engine::record::leaves_of;
use crate::ledger::{Ledger, LedgerError, Seal, SealOrigin};

/// How many marks are worked on at a time. Small, since the threads are those of claims.
const MARKS_MOST: u32 = 4;
/// After how many leaves others get the thread.
const YIELD_EVERY: usize = 64;
/// How long an instance that saw another one at work waits for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Checkpoints are at least so long apart.
const SIGN_EVERY: Duration = Duration::from_secs(1);

/// What the sealer knows of the log.
struct KnownLog {
    origin: SealOrigin,
    tree: GrowingTree,
    /// The size of the newest checkpoint.
    signed: u64,
}

/// Adds the leaves of what has positions to the log. Each instance runs one, and goes on by compare
/// and set; one that sees another at work leaves it to it.
pub struct Sealer {
    ledger: Ledger,
    clock: Clock,
    key: Arc<SealKey>,
    status: Arc<SealStatus>,
    pusher: Option<SealPusher>,
    known: Option<KnownLog>,
    another_at: Option<Instant>,
    signed_at: Option<Instant>,
}

impl RecordFollower for Sealer {
    const NAME: &'static str = "seals";

    fn lag(&self) -> Duration {
        let lag = self.status.lag(self.clock.now());
        lag.to_std().unwrap_or_default()
    }

    async fn step(&mut self) -> Result<bool, LedgerError> {
        let stepped = self.seal_next().await;
        if stepped.is_err() {
            // What was added to the tree may not be in the log.
            self.known = None;
        }
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
        Self {
            ledger,
            clock,
            key,
            status,
            pusher,
            known: None,
            another_at: None,
            signed_at: None,
        }
    }

    /// Seals the next marks. Returns whether there may be more.
    async fn seal_next(&mut self) -> Result<bool, LedgerError> {
        // 1. How far is the log? The first sealer begins it.
        let now = self.clock.now();
        let Some((origin, size)) = self.ledger.sealed_size().await? else {
            let origin = SealOrigin {
                number: 1,
                name: self.key.origin(self.ledger.identity().id, None),
                begun_at: to_micros(now),
            };
            self.ledger.add_first_origin(&origin).await?;
            return Ok(true);
        };
        // 2. Is it the log that this instance knows, or that left the building?
        if let Some(why) = self.refusal(&origin, size).await? {
            self.status.note_trouble(why, now);
            return Ok(false);
        }
        // 3. What has a position, and is not sealed?
        let marks = self.ledger.marks_to_follow(size, MARKS_MOST + 1).await?;
        let (before, marks) = match marks.split_first() {
            Some((first, others)) if first.position == size => (*first, others),
            _ if size > 0 => {
                let why = format!("{size} positions are sealed, and the record ends before them");
                self.status.note_trouble(why, now);
                return Ok(false);
            }
            _ => (Mark::FIRST, &marks[..]),
        };
        let marks = &marks[..marks.len().min(MARKS_MOST as usize)];
        self.status.note(marks.first().map(|mark| mark.recorded_at));
        if self.another_at.is_some_and(|at| at.elapsed() < PATIENCE) {
            return Ok(false);
        }
        // 4. Its leaves.
        let mut known = match self.known.take() {
            Some(known) => known,
            None => self.learn(origin, size).await?,
        };
        if let Some(last) = marks.last() {
            let leaves = self.ledger.leaves_to_seal(before.place, last.place).await?;
            let leaves = leaves_of(before, marks, leaves)?;
            for leaves in leaves.chunks(YIELD_EVERY) {
                for leaf in leaves {
                    let hash = match leaf.line() {
                        Some(line) => leaf_hash(line.as_bytes()),
                        None => self.hash_before(&known.origin, leaf.position).await?,
                    };
                    known.tree.push(hash);
                }
                yield_now().await;
            }
        }
        // 5. Into the log, with a checkpoint if it is time.
        let rows = known.tree.take_rows();
        let seal = self.sign(&known);
        if rows.is_empty() && seal.is_none() {
            self.known = Some(known);
            return Ok(false);
        }
        let added = self.ledger.add_seal(&known.origin, &rows, seal.as_ref());
        if !added.await? {
            self.another_at = Some(Instant::now());
            return Ok(false);
        }
        if let Some(seal) = seal {
            known.signed = seal.size;
            self.signed_at = Some(Instant::now());
            if let Some(pusher) = &self.pusher {
                pusher.push(seal.note);
            }
        }
        self.known = Some(known);
        if marks.len() < MARKS_MOST as usize {
            self.status.note(None);
            return Ok(false);
        }
        Ok(true)
    }

    /// The hash of a leaf whose entry was dropped: seals were restarted since, and the log before has
    /// it.
    async fn hash_before(&self, origin: &SealOrigin, position: u64) -> Result<Hash, LedgerError> {
        let before = origin.number - 1;
        let hashes = self.ledger.tile_hashes(before, 0, position - 1, position);
        let hash = hashes.await?.first().copied();
        hash.ok_or_else(|| {
            LedgerError::Corrupt(format!(
                "position {position}: its entry was dropped, and the log before has no hash of it"
            ))
        })
    }

    /// Why nothing may be added to the log, if so.
    async fn refusal(
        &mut self,
        origin: &SealOrigin,
        size: u64,
    ) -> Result<Option<String>, LedgerError> {
        if !self.key.is_for(&origin.name) {
            let name = &origin.name;
            return Ok(Some(format!(
                "the log of seals is {name}, and the key in PERDIEM_SEAL_KEY_FILE has another name"
            )));
        }
        if let Some(known) = &self.known {
            let known_size = known.tree.size();
            match known.origin.number == origin.number {
                true if known_size == size => return Ok(None),
                true if known_size > size => {
                    return Ok(Some(format!(
                        "{known_size} positions were sealed, and the log has {size} of them"
                    )));
                }
                true => self.another_at = Some(Instant::now()),
                false => {}
            }
            self.known = None;
        }
        match &self.pusher {
            Some(pusher) => match pusher.target.newest().await {
                Some(note) => self.differs(&note, origin, size).await,
                None => Ok(None),
            },
            None => Ok(None),
        }
    }

    /// How the log differs from a checkpoint that left the building.
    async fn differs(
        &self,
        note: &str,
        origin: &SealOrigin,
        size: u64,
    ) -> Result<Option<String>, LedgerError> {
        let pushed = match Checkpoint::parse(note) {
            Ok(pushed) => pushed,
            Err(error) => {
                return Ok(Some(format!("the checkpoint in PERDIEM_SEAL_TO: {error}")));
            }
        };
        let first = self.key.origin(self.ledger.identity().id, None);
        // The end of an origin tells when it began; the first one has none.
        let begun = |name: &str| match name.strip_prefix(&first)? {
            "" => Some(0),
            end => end.strip_prefix('/')?.parse::<i64>().ok(),
        };
        let (name, pushed_size) = (&pushed.origin, pushed.size);
        let Some(pushed_begun) = begun(name) else {
            return Ok(Some(format!(
                "PERDIEM_SEAL_TO has the seals of another ledger ({name}): name another folder"
            )));
        };
        let present = begun(&origin.name);
        if present > Some(pushed_begun) {
            return Ok(None);
        }
        if present < Some(pushed_begun) || pushed_size > size {
            return Ok(Some(format!(
                "{name} was sealed with {pushed_size} positions, and the ledger has {size} of {}",
                origin.name
            )));
        }
        let root = tree_of(&self.ledger, origin.number, pushed_size)
            .await?
            .root();
        Ok((root != pushed.root).then(|| {
            format!("the first {pushed_size} positions are not those that {name} was sealed with")
        }))
    }

    /// Reads what the log ends with.
    async fn learn(&self, origin: SealOrigin, size: u64) -> Result<KnownLog, LedgerError> {
        let tree = tree_of(&self.ledger, origin.number, size).await?;
        let last = self.ledger.last_seal().await?;
        let last = last.filter(|seal| seal.origin.number == origin.number);
        if let (Some(pusher), Some(seal)) = (&self.pusher, &last) {
            pusher.push(seal.note.clone());
        }
        Ok(KnownLog {
            origin,
            tree,
            signed: last.map_or(0, |seal| seal.size),
        })
    }

    /// A checkpoint of a tree, if it has one to make.
    fn sign(&self, known: &KnownLog) -> Option<Seal> {
        let is_early = self.signed_at.is_some_and(|at| at.elapsed() < SIGN_EVERY);
        let size = known.tree.size();
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
