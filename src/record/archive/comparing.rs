//! Compares an archive with its ledger.

use std::path::Path;

use super::sealed::SealedHashes;
use super::{ArchiveFailure, differs, refused};
use crate::seal::leaves_between;
use domain::seal::tree::leaf_hash;
use ledger::Ledger;
use verify::archive::CheckedArchive;
use verify::files::HashFile;

/// The number of leaves that are made at once.
const LEAVES_MOST: u64 = 2048;

/// Makes the leaves of an archive again from the ledger's rows, and names the first one that
/// differs. For a dropped entry it uses the hash in the log. Check the archive's files first: see
/// [`check_archive`](verify::archive::check_archive). `tell` gets the progress and the total.
///
/// # Errors
/// [`ArchiveFailure`].
pub async fn compare_archive(
    ledger: &Ledger,
    folder: &Path,
    archive: &CheckedArchive,
    tell: impl Fn(u64, u64),
) -> Result<(), ArchiveFailure> {
    let index = &archive.index;
    let origins = ledger.audit().seal_origins().await?;
    let Some(origin) = origins.iter().find(|origin| origin.name == index.origin) else {
        return refused(format!(
            "the archive is of another ledger: this ledger never had the log {}",
            index.origin
        ));
    };
    let mut sealed = SealedHashes::new(ledger, origin.number);
    for span in &index.spans {
        let mut hashes = HashFile::open(folder.join(&span.hashes.name))?;
        let mut next = span.first;
        while next <= span.last {
            tell(next - 1, index.last);
            let end = (next + LEAVES_MOST).min(span.last + 1);
            for leaf in leaves_between(ledger, next, end).await? {
                let position = leaf.position;
                let hash = match leaf.line() {
                    Some(line) => leaf_hash(line.as_bytes()),
                    None => sealed.at(position).await?,
                };
                if hashes.next_hash()? != hash {
                    return differs(format!(
                        "position {position}: {} in the ledger differs from the archive",
                        leaf.name()
                    ));
                }
                next = position + 1;
            }
            if next < end {
                return differs(format!(
                    "position {next}: the archive has it, but the ledger ends before it"
                ));
            }
        }
    }
    tell(index.last, index.last);
    Ok(())
}
