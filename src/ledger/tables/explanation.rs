//! What an explanation reads of an account: the line at an instant, the entries behind a total, and
//! the history of a grant.

use chrono::{DateTime, Utc};

use super::history::decode_listed;
use crate::boxed;
use crate::entry_rows::decode_line;
use crate::query::query;
use crate::{LedgerError, ListedEntry, RecordTables};
use domain::grant::{Entry, Line};
use domain::identity::{AccountId, EntryId};
use domain::record::RecordPlace;
use domain::window::Window;

/// The last line of the account $1 that was appended until $2, up to the place ($3, $4) and up to
/// the number $5.
const LINE: &str = "
    SELECT number, at, policy_version, lapses_at, totals FROM entries
    WHERE account = $1 AND ($2 IS NULL OR at <= $2) AND (xact, id) <= ($3, $4)
        AND number <= $5
    ORDER BY number DESC LIMIT 1";

/// The entries of the account $1, up to the number $2, that count from $3 up to $4.
const COUNT: &str = "SELECT count(*) FROM counted_entries
    WHERE account = $1 AND number <= $2 AND counted_id >= $3 AND counted_id < $4";
const NEWEST: &str = "SELECT * FROM listed_entries
    WHERE account = $1 AND number <= $2 AND counted_id >= $3 AND counted_id < $4
    ORDER BY number DESC LIMIT $5";

/// The entry $2 of the account $1, and those that name its id, $3.
const LIFE: &str = "SELECT * FROM listed_entries WHERE account = $1 AND number = $2
    UNION ALL SELECT f.* FROM entry_details AS named
    JOIN listed_entries AS f ON f.account = named.account AND f.number = named.number
    WHERE named.of_grant = $3
    ORDER BY number";

impl RecordTables {
    /// The last line of an account that was appended up to an instant, and is up to a place of the
    /// record.
    #[boxed]
    pub async fn line_then(
        &self,
        account: AccountId,
        at: Option<DateTime<Utc>>,
        up_to: RecordPlace,
    ) -> Result<Option<Line>, LedgerError> {
        let line = query(LINE)
            .bind(account)
            .bind(at)
            .bind(up_to.xact)
            .bind(up_to.id)
            .bind(i64::MAX);
        self.ledger
            .reads()
            .await?
            .lend()
            .first(line, decode_line)
            .await
    }

    /// The line before an entry's line.
    #[boxed]
    pub async fn line_before(&self, entry: &Entry) -> Result<Option<Line>, LedgerError> {
        let line = query(LINE)
            .bind(entry.account)
            .bind(None::<DateTime<Utc>>)
            .bind(RecordPlace::LAST.xact)
            .bind(RecordPlace::LAST.id)
            .bind(entry.line.number - 1);
        self.ledger
            .reads()
            .await?
            .lend()
            .first(line, decode_line)
            .await
    }

    /// The entries of an account, up to a line, that count in a window: how many there are, and the
    /// newest of them, at most `limit`.
    #[boxed]
    pub async fn counted_in(
        &self,
        account: AccountId,
        line: &Line,
        window: Window,
        limit: u32,
    ) -> Result<(u64, Vec<ListedEntry>), LedgerError> {
        let counted = |text: &'static str| {
            query(text)
                .bind(account)
                .bind(line.number)
                .bind(EntryId::first_at(window.start))
                .bind(EntryId::first_at(window.end))
        };
        let mut held = self.ledger.reads().await?;
        let mut session = held.lend();
        let newest = session
            .all(counted(NEWEST).bind(limit), decode_listed)
            .await?;
        let count = if newest.len() < limit as usize {
            newest.len() as u64
        } else {
            session.one(counted(COUNT)).await?
        };
        Ok((count, newest))
    }

    /// A grant, followed by the entries that name it.
    #[boxed]
    pub async fn life_of(&self, grant: &Entry) -> Result<Vec<ListedEntry>, LedgerError> {
        let life = query(LIFE)
            .bind(grant.account)
            .bind(grant.line.number)
            .bind(grant.id);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(life, decode_listed)
            .await
    }
}
