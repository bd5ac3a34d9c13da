//! Checks an archive by its files alone.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use tokio::task::yield_now;

use crate::failure::{FileFailure, differs, refused, unusable};
use crate::files::{HashFile, LineFile, sha256_of};
use crate::index::{ArchiveIndex, ArchivedFile, ArchivedSpan, INDEX, checkpoint_name};
use domain::seal::leaf::Hash;
use domain::seal::note::{Checkpoint, NOTE_MAX_BYTES, VerifierKey, decode_hash, encode_hash};
use domain::seal::tree::{GrowingTree, is_consistent, leaf_hash};

/// After this many leaves other tasks get the thread, such as the one that waits for an
/// interruption.
const YIELD_EVERY: u64 = 4096;

/// An archive whose files were checked.
#[derive(Debug)]
pub struct CheckedArchive {
    pub index: ArchiveIndex,
    pub checkpoint: Checkpoint,
}

impl CheckedArchive {
    /// What the archive has, in words.
    pub fn told(&self, folder: &Path) -> String {
        let index = &self.index;
        format!(
            "{} has the positions 1 to {} of {}, recorded before {}, checked by a checkpoint of {} positions",
            folder.display(),
            index.last,
            index.origin,
            index.before,
            self.checkpoint.size
        )
    }
}

/// The index of a folder; `None` if there is none.
pub fn read_index(folder: &Path) -> Result<Option<ArchiveIndex>, FileFailure> {
    let path = folder.join(INDEX);
    if path.try_exists().map_err(unusable(&path))? {
        parse_index(&path).map(Some)
    } else {
        Ok(None)
    }
}

fn parse_index(path: &Path) -> Result<ArchiveIndex, FileFailure> {
    let bytes = fs::read(path).map_err(unusable(path))?;
    let text = String::from_utf8(bytes).map_err(|_| "the file was changed: it is not text");
    let index = text.and_then(|text| ArchiveIndex::parse(&text));
    index.or_else(|what| differs(format!("{}: {what}", path.display())))
}

/// Checks all files of a folder. `tell` gets the progress and the total.
///
/// # Errors
/// [`FileFailure`]. It names the file that was changed, and the position if possible.
pub async fn check_archive(
    folder: &Path,
    key: Option<&VerifierKey>,
    tell: impl Fn(u64, u64),
) -> Result<CheckedArchive, FileFailure> {
    let path = folder.join(INDEX);
    if !path.try_exists().map_err(unusable(&path))? {
        return refused(format!(
            "{} has no {INDEX}: the folder is no archive, or `perdiem archive` was interrupted: \
             run that again",
            folder.display()
        ));
    }
    check_files(folder, &path, key, tell).await
}

/// As [`check_archive`], but the index is in a file of another name.
pub async fn check_files(
    folder: &Path,
    index: &Path,
    key: Option<&VerifierKey>,
    tell: impl Fn(u64, u64),
) -> Result<CheckedArchive, FileFailure> {
    // 1. Read the index: what should the archive have?
    let index = parse_index(index)?;
    // 2. Check that the checkpoint is signed, and of the same log.
    let checkpoint = check_checkpoint(folder, &index, key)?;
    // 3. Check that the leaves have the stored hashes, and that the hashes have the stored root.
    let mut tree = GrowingTree::default();
    for span in &index.spans {
        check_span(folder, span, &mut tree, |done| tell(done, index.last)).await?;
    }
    tell(index.last, index.last);
    let last = index.last;
    let root = tree.root();
    if encode_hash(&root) != index.root {
        return differs(format!(
            "the leaves of the positions 1 to {last} do not have the root in {INDEX}: somebody \
             made the files again"
        ));
    }
    // 4. Check that the checkpoint's tree has grown out of the archive's tree.
    let path: Option<Vec<Hash>> = index.consistency.iter().map(|it| decode_hash(it)).collect();
    let is_prefix =
        path.is_some_and(|path| is_consistent(last, checkpoint.size, root, checkpoint.root, &path));
    if is_prefix {
        Ok(CheckedArchive { index, checkpoint })
    } else {
        differs(format!(
            "the positions 1 to {last} are not the first ones of {}: somebody made the files \
             again, or the checkpoint is of another log",
            index.checkpoint.name
        ))
    }
}

fn check_digest(folder: &Path, file: &ArchivedFile, found: &str) -> Result<(), FileFailure> {
    if found == file.sha256 {
        Ok(())
    } else {
        differs(format!(
            "{} was changed: its SHA-256 is {found}, but {INDEX} has {}",
            folder.join(&file.name).display(),
            file.sha256
        ))
    }
}

fn check_checkpoint(
    folder: &Path,
    index: &ArchiveIndex,
    key: Option<&VerifierKey>,
) -> Result<Checkpoint, FileFailure> {
    let path = folder.join(&index.checkpoint.name);
    check_digest(folder, &index.checkpoint, &sha256_of(&path)?)?;
    let mut note = String::new();
    let read = File::open(&path).and_then(|file| {
        let mut file = file.take(NOTE_MAX_BYTES as u64 + 1);
        file.read_to_string(&mut note)
    });
    read.map_err(unusable(&path))?;
    let checkpoint = Checkpoint::parse(&note);
    let checked = checkpoint.and_then(|checkpoint| {
        key.map_or(Ok(()), |key| checkpoint.check(key))?;
        Ok(checkpoint)
    });
    let checkpoint = checked.or_else(|error| differs(format!("{}: {error}", path.display())))?;
    let is_named = index.checkpoint.name == checkpoint_name(checkpoint.size);
    if checkpoint.origin != index.origin || !is_named {
        return differs(format!(
            "{} has {} positions of {}, but {INDEX} names {}",
            path.display(),
            checkpoint.size,
            checkpoint.origin,
            index.origin
        ));
    }
    Ok(checkpoint)
}

async fn check_span(
    folder: &Path,
    span: &ArchivedSpan,
    tree: &mut GrowingTree,
    tell: impl Fn(u64),
) -> Result<(), FileFailure> {
    // Check the hashes first: with them a changed leaf can be named.
    let hashes = folder.join(&span.hashes.name);
    check_digest(folder, &span.hashes, &sha256_of(&hashes)?)?;
    let mut hashes = HashFile::open(hashes)?;
    let mut leaves = LineFile::open(folder.join(&span.leaves.name))?;
    for position in span.first..=span.last {
        let place = leaves.path.display().to_string();
        let Some(line) = leaves.next_line()? else {
            return differs(format!(
                "{place}: position {position}: the line is missing or has no end"
            ));
        };
        let hash = leaf_hash(line);
        if hashes.next_hash()? != hash {
            return differs(format!(
                "{place}: position {position}: the line is not what was sealed: somebody changed, \
                 moved or removed it"
            ));
        }
        tree.push(hash);
        if position.is_multiple_of(YIELD_EVERY) {
            tree.take_rows();
            tell(position);
            yield_now().await;
        }
    }
    tree.take_rows();
    check_digest(folder, &span.leaves, &leaves.sha256()?)
}
