//! The sums of the entries that count in windows of shared limits.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::access::Snapshot;
use crate::boxed;
use crate::query::{Session, Texts, query};
use crate::shared_use::decode;
use crate::{LedgerError, RecordTables};
use domain::identity::EntryId;
use domain::record::RecordPlace;
use domain::shared::SharedKey;

/// One of all windows, at the place $1 of their order.
const AT_PLACE: &str = "SELECT policy, since, per, starts_at, used FROM shared_use
    ORDER BY policy, since, per, starts_at LIMIT 1 OFFSET $1";

/// The units of the policy $1 that versions from $2 on decided, and that count from the id $3 up to the id $4: those of
/// entries on lines up to $5 and places up to ($6, $7).
const OWN_SUM: Texts = Texts {
    postgres: "SELECT CAST(COALESCE(SUM(k.sign * e.units), 0) AS bigint) AS units
        FROM entries AS e JOIN entry_kinds AS k ON k.kind = e.kind
        WHERE e.policy = $1 AND e.policy_version >= $2 AND e.id >= $3 AND e.id < $4
            AND substring(uuid_send(e.id), 1, 5)
                BETWEEN substring(uuid_send($3), 1, 5) AND substring(uuid_send($4), 1, 5)
            AND NOT k.names_grant AND e.at <= $5 AND (e.xact, e.id) <= ($6, $7)",
    sqlite: "SELECT COALESCE(SUM(k.sign * e.units), 0) AS units
        FROM entries AS e JOIN entry_kinds AS k ON k.kind = e.kind
        WHERE e.policy = $1 AND e.policy_version >= $2 AND e.id >= $3 AND e.id < $4
            AND substr(e.id, 1, 5) BETWEEN substr($3, 1, 5) AND substr($4, 1, 5)
            AND NOT k.names_grant AND e.at <= $5 AND (e.xact, e.id) <= ($6, $7)",
};
/// The units of such grants that were given back, in the same way.
const RETURNED_SUM: Texts = Texts {
    postgres: "SELECT CAST(COALESCE(SUM(e.units), 0) AS bigint) AS units
        FROM entry_details AS d JOIN entry_kinds AS k ON k.kind = d.kind
        JOIN entries AS e ON e.account = d.account AND e.number = d.number
        WHERE d.of_grant >= $3 AND d.of_grant < $4 AND k.sign < 0 AND e.policy = $1
            AND e.at <= $5 AND (e.xact, e.id) <= ($6, $7) AND $2 <= (
                SELECT policy_version FROM entries AS granted
                WHERE substring(uuid_send(granted.id), 1, 6) = substring(uuid_send(d.of_grant), 1, 6)
                    AND granted.id = d.of_grant LIMIT 1
            )",
    sqlite: "SELECT COALESCE(SUM(e.units), 0) AS units
        FROM entry_details AS d JOIN entry_kinds AS k ON k.kind = d.kind
        JOIN entries AS e ON e.account = d.account AND e.number = d.number
        WHERE d.of_grant >= $3 AND d.of_grant < $4 AND k.sign < 0 AND e.policy = $1
            AND e.at <= $5 AND (e.xact, e.id) <= ($6, $7)
            AND $2 <= (SELECT policy_version FROM entries AS granted WHERE granted.id = d.of_grant)",
};

/// Up to where entries are summed.
#[derive(Debug, Clone, Copy)]
pub struct SummedUpTo {
    pub at: DateTime<Utc>,
    pub place: RecordPlace,
}

impl SummedUpTo {
    pub const ALL: Self = Self {
        at: DateTime::<Utc>::MAX_UTC,
        place: RecordPlace::LAST,
    };
}

/// The sum of the entries that count in a window of a shared limit, which ends at an instant.
async fn summed(
    session: &mut Session<'_>,
    key: &SharedKey,
    ends_at: Option<DateTime<Utc>>,
    up_to: SummedUpTo,
) -> Result<i64, LedgerError> {
    let last = EntryId(Uuid::max());
    let sum = |texts: Texts| {
        query(texts)
            .bind(key.policy)
            .bind(key.since)
            .bind(EntryId::first_from(key.start))
            .bind(ends_at.map_or(last, EntryId::first_from))
            .bind(up_to.at)
            .bind(up_to.place.xact)
            .bind(up_to.place.id)
    };
    let own: i64 = session.one(sum(OWN_SUM)).await?;
    let returned: i64 = session.one(sum(RETURNED_SUM)).await?;
    Ok(own.saturating_sub(returned))
}

impl RecordTables {
    /// The sum of the entries that count in a window of a shared limit, which ends at an instant.
    #[boxed]
    pub async fn shared_sum(
        &self,
        key: &SharedKey,
        ends_at: Option<DateTime<Utc>>,
        up_to: SummedUpTo,
    ) -> Result<i64, LedgerError> {
        let mut held = self.ledger.reads().await?;
        summed(&mut held.lend(), key, ends_at, up_to).await
    }
}

impl Snapshot {
    /// The window of a shared limit that a random number chooses, with its usage.
    #[boxed]
    pub async fn shared_window(
        &mut self,
        random: u64,
    ) -> Result<Option<(SharedKey, i64)>, LedgerError> {
        let mut session = self.0.lend();
        let count: u64 = session
            .one(query("SELECT COUNT(*) AS windows FROM shared_use"))
            .await?;
        let Some(place) = random.checked_rem(count) else {
            return Ok(None);
        };
        session.first(query(AT_PLACE).bind(place), decode).await
    }

    /// As [`RecordTables::shared_sum`], of all entries.
    #[boxed]
    pub async fn shared_sum(
        &mut self,
        key: &SharedKey,
        ends_at: Option<DateTime<Utc>>,
    ) -> Result<i64, LedgerError> {
        summed(&mut self.0.lend(), key, ends_at, SummedUpTo::ALL).await
    }
}
