//! Grants, each with the entries that name it.

use crate::domain::grant::{Followers, Grant};
use crate::domain::identity::EntryId;
use crate::ledger::encoding::{decode_follower, decode_note, grant_kind};
use crate::ledger::entry_rows::{decode_entry, entry_columns, millisecond, with_details};
use crate::ledger::query::{Texts, query};
use crate::ledger::row::StoredRow;
use crate::ledger::{Ledger, LedgerError};

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

/// The quarter of a second of an id. The index of a policy's entries uses it.
macro_rules! postgres_quarter {
    ($id:expr) => {
        concat!("substring(uuid_send(", $id, "), 1, 5)")
    };
}

macro_rules! sqlite_quarter {
    ($id:expr) => {
        concat!("substr(", $id, ", 1, 5)")
    };
}
pub(super) use {postgres_quarter, sqlite_quarter};

/// The partial reversals of a grant.
macro_rules! partial_reversals {
    ($grant:literal) => {
        concat!(
            "FROM entry_details AS part
             JOIN entries AS pe ON pe.account = part.account AND pe.number = part.number
             WHERE part.of_grant = ",
            $grant,
            ".id AND part.kind IN (
                 SELECT kind FROM entry_kinds WHERE sign < 0 AND closes_as IS NULL
             )"
        )
    };
}
pub(super) use partial_reversals;

/// A query for grants: columns and joins around a choice of entries `g`.
macro_rules! grants_where {
    ($($choice:expr),*) => {
        concat!(
            "SELECT ",
            entry_columns!(),
            ", p.name AS policy, a.subject,
                c.id AS confirmation, ce.at AS confirmed_at, ce.units AS confirmed_units, c.made_by AS confirmed_by,
                c.kind AS confirmation_kind, x.id AS closing, x.kind AS closing_kind, xe.at AS closed_at,
                xe.units AS closed_units,
                x.made_by AS closed_by, x.reason AS closing_reason,
                (SELECT CAST(COALESCE(SUM(pe.units), 0) AS bigint) ",
            partial_reversals!("e"),
            ") AS returned, (SELECT CAST(COUNT(*) AS integer) ",
            partial_reversals!("e"),
            ") AS parts
             FROM (SELECT g.* FROM ",
            $($choice,)*
            ") AS e",
            with_details!(),
            "JOIN policies AS p ON p.id = e.policy
             JOIN accounts AS a ON a.id = e.account
             LEFT JOIN entry_details AS c ON c.of_grant = e.id
                 AND c.kind IN (SELECT kind FROM entry_kinds WHERE ends_hold AND closes_as IS NULL)
             LEFT JOIN entries AS ce ON ce.account = c.account AND ce.number = c.number
             LEFT JOIN entry_details AS x ON x.of_grant = e.id
                 AND x.kind IN (SELECT kind FROM entry_kinds WHERE closes_as IS NOT NULL)
             LEFT JOIN entries AS xe ON xe.account = x.account AND xe.number = x.number
             ORDER BY e.id DESC"
        )
    };
}

pub(super) use grants_where;

const ONE: Texts = Texts {
    postgres: grants_where!(
        "entries AS g WHERE ",
        millisecond!("id"),
        " = ",
        millisecond!("$1"),
        " AND id = $1 AND kind = ",
        grant_kind!()
    ),
    sqlite: grants_where!("entries AS g WHERE id = $1 AND kind = ", grant_kind!()),
};

impl Ledger {
    /// One grant.
    pub async fn grant(&self, id: EntryId) -> Result<Option<Grant>, LedgerError> {
        let one = query(ONE).bind(id);
        self.in_time(async |mut session| session.first(one, decode).await)
            .await
    }
}
