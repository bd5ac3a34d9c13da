//! `archive.json`: the files of an archive, and what they prove.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use domain::seal::leaf::hex;

/// The name of the index file.
pub const INDEX: &str = "archive.json";
/// The format of the archives that this program writes.
pub const FORM: u32 = 1;
/// The most positions of a file.
const SPAN_MOST: u64 = 1_000_000;

/// Positions of the record, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositionSpan {
    pub first: u64,
    pub last: u64,
}

impl PositionSpan {
    /// The spans of the files with the positions above `after` and up to `last`. A file ends at a
    /// multiple of a million, or at `last`.
    pub fn all(after: u64, last: u64) -> impl Iterator<Item = Self> {
        let span = move |after: u64| {
            let end = (after / SPAN_MOST + 1) * SPAN_MOST;
            let first = after + 1;
            let last = end.min(last);
            (first <= last).then_some(Self { first, last })
        };
        std::iter::successors(span(after), move |before| span(before.last))
    }

    /// The name of the file with the leaves.
    pub fn leaves_name(self) -> String {
        format!("leaves-{:012}-{:012}.ndjson", self.first, self.last)
    }

    /// The name of the file with the hashes of the leaves, 32 bytes each.
    pub fn hashes_name(self) -> String {
        format!("hashes-{:012}-{:012}.bin", self.first, self.last)
    }
}

/// The name of the file with a checkpoint.
pub fn checkpoint_name(size: u64) -> String {
    format!("checkpoint-{size:012}.note")
}

/// A file, and the SHA-256 of its bytes in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchivedFile {
    pub name: String,
    pub sha256: String,
}

/// The files of a span.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchivedSpan {
    pub first: u64,
    pub last: u64,
    pub leaves: ArchivedFile,
    pub hashes: ArchivedFile,
}

impl ArchivedSpan {
    pub fn span(&self) -> PositionSpan {
        PositionSpan {
            first: self.first,
            last: self.last,
        }
    }
}

/// The content of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveIndex {
    pub form: u32,
    /// The log's name: the first line of its checkpoints.
    pub origin: String,
    /// The archive has what was recorded before this instant.
    pub before: DateTime<Utc>,
    /// The archive has the positions from 1 to this one.
    pub last: u64,
    /// The root of the tree of these positions, in Base64.
    pub root: String,
    pub spans: Vec<ArchivedSpan>,
    /// A signed checkpoint of the same log.
    pub checkpoint: ArchivedFile,
    /// The proof that the checkpoint's tree has grown out of the archive's tree (RFC 6962, section
    /// 2.1.2).
    pub consistency: Vec<String>,
}

/// The file's content: the index, and the SHA-256 of its JSON without spaces.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexFile {
    archive: ArchiveIndex,
    sha256: String,
}

impl ArchiveIndex {
    /// The text of the index file.
    ///
    /// # Errors
    /// Errors of the JSON.
    pub fn text(&self) -> serde_json::Result<String> {
        let file = IndexFile {
            archive: self.clone(),
            sha256: hex(&Sha256::digest(serde_json::to_vec(self)?)),
        };
        Ok(format!("{}\n", serde_json::to_string_pretty(&file)?))
    }

    /// Reads the text of an index file. An index has exactly one text, so any changed byte is an
    /// error.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let file: IndexFile =
            serde_json::from_str(text).map_err(|_| "the file is not the index of an archive")?;
        let index = file.archive;
        if index.form != FORM {
            return Err("another version of perdiem made the archive: check it with that version");
        }
        if index.text().ok().as_deref() != Some(text) {
            return Err("the file was changed: it does not have its own SHA-256");
        }
        let wanted = index.spans.iter().try_fold(0, |after, it| {
            let is_next = it.first == after + 1 && it.first <= it.last;
            let leaves = it.span().leaves_name();
            let hashes = it.span().hashes_name();
            let is_named = it.leaves.name == leaves && it.hashes.name == hashes;
            (is_next && is_named).then_some(it.last)
        });
        if wanted == Some(index.last) && index.last > 0 {
            Ok(index)
        } else {
            Err("the spans do not have all positions from 1 on")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> ArchiveIndex {
        let file = |name: String| ArchivedFile {
            name,
            sha256: "ab".repeat(32),
        };
        let spans = PositionSpan::all(0, 1_000_007).map(|span| ArchivedSpan {
            first: span.first,
            last: span.last,
            leaves: file(span.leaves_name()),
            hashes: file(span.hashes_name()),
        });
        ArchiveIndex {
            form: FORM,
            origin: "perdiem/1".to_owned(),
            before: DateTime::UNIX_EPOCH,
            last: 1_000_007,
            root: "AAAA".to_owned(),
            spans: spans.collect(),
            checkpoint: file(checkpoint_name(2_000_000)),
            consistency: vec!["AAAA".to_owned()],
        }
    }

    #[test]
    fn files_end_at_multiples_of_a_million() {
        let spans = |after, last| -> Vec<(u64, u64)> {
            PositionSpan::all(after, last)
                .map(|span| (span.first, span.last))
                .collect()
        };
        assert_eq!(spans(0, 0), []);
        assert_eq!(spans(5, 5), []);
        assert_eq!(spans(0, 1), [(1, 1)]);
        assert_eq!(spans(0, 1_000_000), [(1, 1_000_000)]);
        let wanted = [
            (8, 1_000_000),
            (1_000_001, 2_000_000),
            (2_000_001, 2_000_003),
        ];
        assert_eq!(spans(7, 2_000_003), wanted);
    }

    #[test]
    fn an_index_with_a_changed_byte_is_none() {
        let text = index().text().unwrap();
        assert_eq!(ArchiveIndex::parse(&text), Ok(index()));
        for position in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[position] ^= 1;
            let Ok(changed) = String::from_utf8(bytes) else {
                continue;
            };
            assert!(ArchiveIndex::parse(&changed).is_err(), "{changed}");
        }
        assert!(ArchiveIndex::parse(&text.replace('\n', " ")).is_err());
    }

    #[test]
    fn spans_follow_each_other() {
        let mut gap = index();
        gap.spans.remove(0);
        let mut other = index();
        other.spans[1].leaves.name = "../other".to_owned();
        let mut longer = index();
        longer.last += 1;
        for index in [gap, other, longer] {
            assert!(ArchiveIndex::parse(&index.text().unwrap()).is_err());
        }
    }
}
