//! Grants, each with the entries that name it.

use crate::boxed;
use crate::encoding::{decode_follower, decode_note};
use crate::entry_rows::decode_entry;
use crate::query::{Texts, query};
use crate::row::StoredRow;
use crate::{ClaimTables, LedgerError};
use domain::grant::{Followers, Grant};
use domain::identity::{BundleId, EntryId};

pub(super) fn decode(row: &StoredRow<'_>) -> Result<Grant, LedgerError> {
    let entry = decode_entry(row)?;
    let confirmation = decode_follower(
        entry.id,
        row.get("confirmation")?,
        row.get("confirmation_kind")?,
        row.get("confirmed_units")?,
        row.get("confirmed_at")?,
        decode_note(row.get("confirmed_by")?, None),
    )?;
    let closing = decode_follower(
        entry.id,
        row.get("closing")?,
        row.get("closing_kind")?,
        row.get("closed_units")?,
        row.get("closed_at")?,
        decode_note(row.get("closed_by")?, row.get("closing_reason")?),
    )?;
    Ok(Grant {
        entry,
        policy: row.get("policy")?,
        subject: row.get("subject")?,
        followers: Followers {
            returned: row.get("returned")?,
            parts: row.get("parts")?,
            confirmation,
            closing,
        },
    })
}

const ONE: Texts = Texts {
    postgres: "SELECT * FROM grant_rows
        WHERE id = $1 AND substring(uuid_send(id), 1, 6) = substring(uuid_send($1), 1, 6)",
    sqlite: "SELECT * FROM grant_rows WHERE id = $1",
};

const BUNDLE: &str = "SELECT g.* FROM entry_details AS b
    JOIN grant_rows AS g ON g.account = b.account AND g.number = b.number
    WHERE b.bundle = $1 ORDER BY g.id";

/// Every statement, by name.
#[cfg(feature = "faults")]
pub(super) fn texts() -> Vec<(String, Texts)> {
    vec![("bundle".to_owned(), BUNDLE.into())]
}

impl ClaimTables {
    /// The grants of a bundle that were not dropped, in the order of their ids.
    #[boxed]
    pub async fn bundle(&self, id: BundleId) -> Result<Vec<Grant>, LedgerError> {
        let all = query(BUNDLE).bind(id);
        self.ledger
            .in_time(async |mut session| session.all(all, decode).await)
            .await
    }

    /// One grant.
    #[boxed]
    pub async fn grant(&self, id: EntryId) -> Result<Option<Grant>, LedgerError> {
        let one = query(ONE).bind(id);
        self.ledger
            .in_time(async |mut session| session.first(one, decode).await)
            .await
    }
}
