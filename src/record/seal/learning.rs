//! The checks before a sealer continues a log: the log must be complete, of this ledger and this
//! key, and the same as the one that was pushed out of the building.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::folder::{PushedNote, PushedNotes, read_pushed};
use super::growing::SIGNED_WITHIN;
use super::pushing::SealTarget;
use super::reader::tree_of;
use domain::seal::note::{Checkpoint, LogName, SealKey};
use domain::seal::tree::GrowingTree;
use ledger::{Ledger, LedgerError, Seal, SealOrigin, SealedLog};

/// Why nothing is sealed.
#[derive(Debug)]
pub enum SealStop {
    /// The reason, for people.
    Why(String),
    Ledger(LedgerError),
}

impl From<LedgerError> for SealStop {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

fn stop<T>(why: String) -> Result<T, SealStop> {
    Err(SealStop::Why(why))
}

/// What was sealed is gone from the ledger.
pub fn lost<T>(what: String) -> Result<T, SealStop> {
    stop(format!(
        "{what}; after a restore from a backup, start a new log with `perdiem seal restart`"
    ))
}

/// What the sealer knows of the log.
pub struct LogState {
    pub origin: SealOrigin,
    pub tree: GrowingTree,
    /// The size of the newest checkpoint.
    pub signed: u64,
    /// The newest checkpoint, if this instance has not pushed it.
    pub stored: Option<Seal>,
}

/// Checks logs before they are continued.
pub struct Learner {
    pub ledger: Ledger,
    pub key: Arc<SealKey>,
    pub target: Option<SealTarget>,
}

impl Learner {
    /// Checks the log that was just seen, and reads what a sealer needs. `None` if the log is
    /// another one now.
    pub async fn learn(&self, seen: &SealedLog) -> Result<Option<LogState>, SealStop> {
        let name = &seen.origin.name;
        // 1. Check that the log is of this ledger and this key.
        if !self.key.is_for(name) {
            return stop(format!(
                "the log of seals is {name}, but the key in PERDIEM_SEAL_KEY_FILE has another name"
            ));
        }
        let id = self.ledger.identity().id;
        if LogName::parse(name).is_none_or(|log| log.ledger != id) {
            return stop(format!(
                "the log of seals is {name}, but the ledger's id is {id}: the id was changed, or \
                 the log is of another ledger"
            ));
        }
        // 2. Read what was pushed, and then the log. The log has everything that was pushed before,
        //    and can only grow. From here on this one reading of its size decides.
        let pushed = self.read_pushed(Some(&seen.origin)).await?;
        let log = self.ledger.audit().sealed_log().await?;
        let is_same = |log: &SealedLog| log.origin == seen.origin && log.size >= seen.size;
        let Some(SealedLog { origin, size, last }) = log.filter(is_same) else {
            return Ok(None);
        };
        // 3. Check that the log has everything that was sealed.
        let gone = |what: String| lost(format!("the log of seals is gone: {name} {what}"));
        let Some(last) = last else {
            return gone("was begun, and has no checkpoint".to_owned());
        };
        let signed = last.size;
        if signed > size {
            return gone(format!(
                "has a checkpoint of {signed} positions, but only {size} positions"
            ));
        }
        if size - signed > SIGNED_WITHIN {
            return gone(format!(
                "has {size} positions, and its last checkpoint is of {signed}: later ones are gone"
            ));
        }
        // 4. Check that this key signed the checkpoint.
        let checkpoint = Checkpoint::parse(&last.note);
        let checkpoint = checkpoint.and_then(|checkpoint| {
            checkpoint.check(&self.key.verifier_of(name))?;
            Ok(checkpoint)
        });
        let checkpoint = checkpoint.map_err(|error| {
            SealStop::Why(format!(
                "the last checkpoint of {name}: {error}; name the file of the key that signed it in \
                 PERDIEM_SEAL_KEY_FILE, or begin a log of the new key with `perdiem seal restart`"
            ))
        })?;
        let signed_root = tree_of(&self.ledger, origin.number, signed).await?.root();
        if (checkpoint.size, checkpoint.root) != (signed, signed_root) {
            return lost(format!(
                "the hashes of {name} do not have the root of its checkpoint of {signed} \
                 positions: somebody changed them"
            ));
        }
        // 5. Check that the log is the one that was pushed out of the building.
        self.compare_all(pushed, Some((&origin, size))).await?;
        let tree = tree_of(&self.ledger, origin.number, size).await?;
        Ok(Some(LogState {
            origin,
            tree,
            signed,
            stored: Some(last),
        }))
    }

    /// Reads what was pushed out of the building.
    pub async fn read_pushed(&self, origin: Option<&SealOrigin>) -> Result<PushedNotes, SealStop> {
        let Some(SealTarget::Folder(folder)) = self.target.clone() else {
            return Ok(PushedNotes::default());
        };
        let log = origin.and_then(|origin| LogName::parse(&origin.name));
        let key = self.key.verifier();
        let is_good = move |checkpoint: &Checkpoint| checkpoint.check(&key).is_ok();
        in_folder(&folder, move |folder| read_pushed(folder, log, is_good)).await
    }

    /// Checks that what was pushed out of the building belongs to the log, which was read later.
    /// Without a log in the ledger, nothing may have been pushed.
    pub async fn compare_all(
        &self,
        pushed: PushedNotes,
        log: Option<(&SealOrigin, u64)>,
    ) -> Result<(), SealStop> {
        let of_log = log.and_then(|(origin, _)| LogName::parse(&origin.name));
        let is_new = pushed.of_log.is_none() && of_log.is_some_and(|log| log.begun > 0);
        let mut damaged = None;
        let mut is_compared = false;
        for PushedNote { path, checkpoint } in pushed.newest.into_iter().chain(pushed.of_log) {
            match checkpoint {
                Ok(checkpoint) => is_compared |= self.compare(&path, &checkpoint, log).await?,
                Err(error) => damaged = Some((path, error)),
            }
        }
        let Some((path, error)) = damaged.filter(|_| !is_compared) else {
            return Ok(());
        };
        // A damaged file is written again if another file has as much, or if a restart began a log
        // that was not pushed yet.
        if let Some(last) = pushed.of_days {
            self.compare(&path, &last, log).await?;
            return Ok(());
        }
        if is_new {
            Ok(())
        } else {
            stop(format!(
                "{} in PERDIEM_SEAL_TO is damaged ({error}), and no other file there has a checkpoint \
                 of this log: replace the file by a copy of the newest checkpoint, or begin another \
                 log with `perdiem seal restart`",
                path.display()
            ))
        }
    }

    /// Compares a pushed checkpoint with the log. Returns false for a checkpoint of an older log.
    async fn compare(
        &self,
        path: &Path,
        pushed: &Checkpoint,
        log: Option<(&SealOrigin, u64)>,
    ) -> Result<bool, SealStop> {
        let file = path.display();
        let name = &pushed.origin;
        let pushed_size = pushed.size;
        let id = self.ledger.identity().id;
        let pushed_log = LogName::parse(name).filter(|log| log.ledger == id);
        let Some(pushed_log) = pushed_log else {
            return stop(format!(
                "PERDIEM_SEAL_TO has the seals of another ledger ({name} in {file}): name another \
                 folder"
            ));
        };
        let present = log.and_then(|(origin, _)| LogName::parse(&origin.name));
        if present.is_some_and(|present| present.begun > pushed_log.begun) {
            return Ok(false);
        }
        if let Err(error) = pushed.check(&self.key.verifier_of(name)) {
            return stop(format!(
                "{file} in PERDIEM_SEAL_TO: {error}; name the file of the key that signed it in \
                 PERDIEM_SEAL_KEY_FILE, or begin a log of the new key with `perdiem seal restart`"
            ));
        }
        let Some((origin, size)) = log.filter(|_| present == Some(pushed_log)) else {
            let present = log.map_or("no seals".to_owned(), |(origin, size)| {
                format!("{size} of {}", origin.name)
            });
            return lost(format!(
                "{name} was sealed with {pushed_size} positions, but the ledger has {present}"
            ));
        };
        if pushed_size > size {
            return lost(format!(
                "{name} was sealed with {pushed_size} positions, but the ledger has only {size} \
                 of them"
            ));
        }
        let root = tree_of(&self.ledger, origin.number, pushed_size)
            .await?
            .root();
        if root == pushed.root {
            Ok(true)
        } else {
            lost(format!(
                "the first {pushed_size} positions differ from what {name} was sealed with"
            ))
        }
    }
}

/// Reads a folder of checkpoints.
async fn in_folder<T: Send + 'static>(
    folder: &Path,
    read: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, SealStop> {
    let path: PathBuf = folder.to_owned();
    let done = spawn_blocking(move || read(&path)).await;
    let done = done.map_err(io::Error::other).and_then(|done| done);
    done.map_err(|error| {
        SealStop::Why(format!(
            "the folder {} of PERDIEM_SEAL_TO cannot be read ({error}): make it, or mount its disk, and \
             let the service's user read and write it",
            folder.display()
        ))
    })
}
