//! The writing half of the claims' way: bursts, and the guarded statement.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::QueryAs;
use sqlx::{Connection, FromRow, PgConnection, Postgres};
use uuid::Uuid;

use super::Store;
use crate::components::{has_components, whole};
use crate::encoding::{claimed_by, encode_flags, encode_kind, has_details, signed};
use crate::fence::{Burst, Fence};
use crate::query::Session;
use crate::shared_use::{self, shares};
use crate::time_bounds::TimeSpan;
use crate::{Draft, LedgerError, new_blinds};
use domain::claim::{Metadata, Subject};
use domain::grant::{Entry, EntryKind, Line};
use domain::identity::AccountId;
use domain::line_text::encode_state;
use domain::shared::after;

impl Store {
    /// One statement, so one transaction and one round trip.
    pub async fn burst(&self, drafts: &[&Draft], fence: &Fence) -> Result<Burst, LedgerError> {
        let rows = Row::all(drafts);
        let span = self.span(drafts);
        self.claims
            .run(async |connection| {
                match burst(&rows, fence, span, connection)
                    .await
                    .map_err(LedgerError::from)
                {
                    Ok(Some((_, _, Some(refused_at)))) => Ok(Burst::Untimely(refused_at)),
                    Ok(Some((horizon, existing, None))) => Ok(if existing.is_empty() {
                        Burst::Committed(Fence { horizon, ..*fence })
                    } else {
                        Burst::Exist(existing.into_iter().map(AccountId).collect())
                    }),
                    Ok(None) => Ok(Burst::Behind),
                    // The statement was undone, and the connection can be used again.
                    Err(LedgerError::Conflict) => Ok(Burst::Conflict),
                    Err(error) => Err(error),
                }
            })
            .await
    }

    /// One statement, so one transaction, unless drafts have to be appended together. The inner error is the time of
    /// the server, if it refuses an instant; then nothing was written.
    pub async fn append(
        &self,
        drafts: &[&Draft],
    ) -> Result<Result<HashSet<AccountId>, DateTime<Utc>>, LedgerError> {
        if shares(drafts) || has_components(drafts) {
            return self.append_components(drafts).await;
        }
        let rows = Row::all(drafts);
        let span = self.span(drafts);
        self.in_time(async |connection| append(&rows, span, connection).await)
            .await
    }

    /// As [`Store::append`], with drafts of which some are appended all or none, or change the usage of shared
    /// limits. Those for which there is not the room that they need are left out.
    async fn append_components(
        &self,
        drafts: &[&Draft],
    ) -> Result<Result<HashSet<AccountId>, DateTime<Utc>>, LedgerError> {
        let span = self.span(drafts);
        self.claims
            .run(async |connection| {
                let mut drafts = drafts.to_vec();
                while !drafts.is_empty() {
                    let mut transaction = connection.begin().await?;
                    // 1. The drafts for which there is room, and whose last lines are the assumed ones.
                    let mut session = Session::Postgres(&mut transaction, Duration::MAX);
                    let used = shared_use::lock(&mut session, &drafts).await?;
                    let (fitting, _) = shared_use::fitting(&drafts, used.clone());
                    let rows = Row::all(&fitting);
                    let accounts = match append(&rows, span, &mut transaction).await? {
                        Ok(accounts) => accounts,
                        Err(theirs) => {
                            transaction.rollback().await?;
                            return Ok(Err(theirs));
                        }
                    };
                    // 2. If a component is only partly in, all is undone, and the others are tried alone.
                    let whole = whole(&fitting, &accounts);
                    if whole.len() < accounts.len() {
                        transaction.rollback().await?;
                        drafts = whole;
                        continue;
                    }
                    // 3. Without the drafts that lost, the others may find other room than they need.
                    let changes = whole.iter().flat_map(|draft| &draft.shared);
                    let Some(used) = after(&used, changes).filter(|_| !whole.is_empty()) else {
                        transaction.rollback().await?;
                        break;
                    };
                    let mut session = Session::Postgres(&mut transaction, Duration::MAX);
                    shared_use::change(&mut session, &used).await?;
                    transaction.commit().await?;
                    return Ok(Ok(accounts));
                }
                Ok(Ok(HashSet::new()))
            })
            .await
    }

    fn span(&self, drafts: &[&Draft]) -> TimeSpan {
        let bounds = self.bounds.as_ref();
        let span = bounds.map(|bounds| bounds.span(drafts));
        span.unwrap_or_default()
    }
}

/// The statement of a burst:
/// 1. `fence`: one row if the server shows the fence. The row has the accounts to open that exist
///    already, and the time of the server if that is outside of the span.
/// 2. `opened`: opens the new accounts, if none of them exists and the time is in the span.
/// 3. The details and the entries are inserted under the same condition.
/// 4. The result: the horizon of a server that has the entries, the accounts that exist, and the
///    refused time. No row means that the server does not show the fence.
///
/// Invariant: the unique index on account and number makes a fork impossible. A gap is impossible
/// because the line before each account's first entry is known to be committed.
///
/// $1 to $10 are the columns of the entries that differ between plain grants, and $11 to $14 the accounts
/// that entries open. An UNNEST in the select list costs PostgreSQL a sixth less than one in FROM, which first
/// writes each array to a store of its own. The time of the server is that at which the statement began, so
/// that a wait for a lock does not count; a missing end of the span refuses nothing.
///
/// This one is for plain grants: it names as few columns as possible.
const BURST_OF_PLAIN_GRANTS: &str = "
    WITH fence AS MATERIALIZED (
        SELECT ARRAY(
            SELECT opened.id FROM unnest($11::uuid[]) AS opened (id) CROSS JOIN LATERAL (
                SELECT FROM accounts WHERE accounts.id = opened.id LIMIT 1
            ) AS found
        ) AS existing, CASE WHEN statement_timestamp() < $19::timestamptz
                OR statement_timestamp() > $20::timestamptz THEN statement_timestamp() END AS refused_at
        WHERE pg_postmaster_start_time() = $15
            AND hashtextextended(pg_relation_filepath('entries'), 0) = $16
            AND pg_snapshot_xmax(pg_current_snapshot())::text::bigint >= $17
            AND erasure_epoch() = $18
    ), opened AS (
        INSERT INTO accounts (id, policy, subject, blind)
        SELECT * FROM (
            SELECT unnest($11::uuid[]) AS account, unnest($12::integer[]), unnest($13::text[]),
                unnest($14::uuid[])
        ) AS opened WHERE EXISTS (SELECT FROM fence WHERE existing = '{}' AND refused_at IS NULL)
    ), entered AS (
        INSERT INTO entries (account, number, id, at, policy, policy_version, units, key, claimed_by,
            totals, kind, flags)
        SELECT unnest($1::uuid[]) AS account, unnest($2::bigint[]) AS number, unnest($3::uuid[]) AS id,
            unnest($4::timestamptz[]) AS at, unnest($5::integer[]) AS policy,
            unnest($6::integer[]) AS policy_version, unnest($7::bigint[]) AS units,
            unnest($8::uuid[]) AS key, unnest($9::integer[]) AS claimed_by,
            unnest($10::text[]) AS totals, 1, 0
        FROM fence WHERE existing = '{}' AND refused_at IS NULL
    )
    SELECT pg_current_xact_id()::text::bigint + 1, existing, refused_at FROM fence";
/// The same for all entries: $15 to $18 are their other columns, and $19 to $28 their details.
const BURST: &str = "
    WITH fence AS MATERIALIZED (
        SELECT ARRAY(
            SELECT opened.id FROM unnest($11::uuid[]) AS opened (id) CROSS JOIN LATERAL (
                SELECT FROM accounts WHERE accounts.id = opened.id LIMIT 1
            ) AS found
        ) AS existing, CASE WHEN statement_timestamp() < $33::timestamptz
                OR statement_timestamp() > $34::timestamptz THEN statement_timestamp() END AS refused_at
        WHERE pg_postmaster_start_time() = $29
            AND hashtextextended(pg_relation_filepath('entries'), 0) = $30
            AND pg_snapshot_xmax(pg_current_snapshot())::text::bigint >= $31
            AND erasure_epoch() = $32
    ), opened AS (
        INSERT INTO accounts (id, policy, subject, blind)
        SELECT * FROM (
            SELECT unnest($11::uuid[]) AS account, unnest($12::integer[]), unnest($13::text[]),
                unnest($14::uuid[])
        ) AS opened WHERE EXISTS (SELECT FROM fence WHERE existing = '{}' AND refused_at IS NULL)
    ), detailed AS (
        INSERT INTO entry_details (account, number, id, kind, of_grant, held_until, made_by,
            reason, per, bundle)
        SELECT * FROM (
            SELECT unnest($19::uuid[]) AS account, unnest($20::bigint[]), unnest($21::uuid[]),
                unnest($22::smallint[]), unnest($23::uuid[]), unnest($24::timestamptz[]),
                unnest($25::text[]), unnest($26::text[]), unnest($27::text[]), unnest($28::uuid[])
        ) AS details WHERE EXISTS (SELECT FROM fence WHERE existing = '{}' AND refused_at IS NULL)
    ), entered AS (
        INSERT INTO entries (account, number, id, at, policy, policy_version, units, key, claimed_by,
            totals, kind, flags, lapses_at, metadata)
        SELECT unnest($1::uuid[]) AS account, unnest($2::bigint[]) AS number, unnest($3::uuid[]) AS id,
            unnest($4::timestamptz[]) AS at, unnest($5::integer[]) AS policy,
            unnest($6::integer[]) AS policy_version, unnest($7::bigint[]) AS units,
            unnest($8::uuid[]) AS key, unnest($9::integer[]) AS claimed_by,
            unnest($10::text[]) AS totals, unnest($15::smallint[]) AS kind, unnest($16::smallint[]) AS flags,
            unnest($17::timestamptz[]) AS lapses_at, unnest($18::text[]) AS metadata
        FROM fence WHERE existing = '{}' AND refused_at IS NULL
    )
    SELECT pg_current_xact_id()::text::bigint + 1, existing, refused_at FROM fence";

/// The guarded append. It takes an account's entries only if the account's last entry is the
/// assumed one, in everything that a decision reads of it. If the time of the server is outside of
/// the span, it takes nothing, and returns that time.
/// 1. `guarded`: the first entry of each account whose last entry is the assumed one. A first entry
///    that confirms or ends a grant is left out if the grant is confirmed or ended already.
/// 2. `firsts`: inserts these entries. The unique index makes two writers of the same number wait
///    for each other, and one of them inserts nothing.
/// 3. `rest`: inserts the other entries of the accounts of `firsts`. No other writer can have their
///    numbers, because it would need the first number.
/// 4. `detailed` and `opened`: insert the details, and the accounts that begin with entry 1.
///
/// The entries of an account that meet another writer's are left out together. A key or a grant
/// that is taken by an entry behind the first one undoes the whole statement. Entry 1 needs no look
/// at the entry before it. `erasure_epoch` shows that no account has got another id since the
/// statement's snapshot, and none does until the commit.
const GUARDED: &str = "
    WITH clock AS MATERIALIZED (
        SELECT CASE WHEN statement_timestamp() < $35::timestamptz
                OR statement_timestamp() > $36::timestamptz THEN statement_timestamp() END AS refused_at
    ), input AS (
        SELECT unnest($1::uuid[]) AS account, unnest($2::bigint[]) AS number, unnest($3::uuid[]) AS id,
            unnest($4::timestamptz[]) AS at, unnest($5::integer[]) AS policy,
            unnest($6::integer[]) AS policy_version, unnest($7::bigint[]) AS units,
            unnest($8::uuid[]) AS key, unnest($9::integer[]) AS claimed_by,
            unnest($10::text[]) AS totals,
            unnest($15::smallint[]) AS kind, unnest($16::smallint[]) AS flags,
            unnest($17::timestamptz[]) AS lapses_at, unnest($18::text[]) AS metadata,
            unnest($29::boolean[]) AS is_first, unnest($30::text[]) AS assumed,
            unnest($31::timestamptz[]) AS assumed_at, unnest($32::integer[]) AS assumed_version,
            unnest($33::timestamptz[]) AS assumed_lapses, unnest($34::uuid[]) AS of_grant
    ), guarded AS (
        SELECT input.*
        FROM input LEFT JOIN LATERAL (
            SELECT number, at, policy_version, lapses_at, totals FROM entries
            WHERE entries.account = input.account AND input.number > 1
            ORDER BY number DESC LIMIT 1
        ) AS last ON true
        WHERE is_first AND (SELECT refused_at FROM clock) IS NULL
            AND (SELECT erasure_epoch()) = (SELECT erasures FROM ledger)
            AND COALESCE(last.number, 0) = input.number - 1
            AND last.totals IS NOT DISTINCT FROM input.assumed
            AND last.at IS NOT DISTINCT FROM input.assumed_at
            AND last.policy_version IS NOT DISTINCT FROM input.assumed_version
            AND last.lapses_at IS NOT DISTINCT FROM input.assumed_lapses
            AND (input.of_grant IS NULL OR (
                SELECT taken.id FROM entry_details AS taken
                JOIN entry_kinds AS of_taken ON of_taken.kind = taken.kind
                JOIN entry_kinds AS of_input ON of_input.kind = input.kind
                WHERE taken.of_grant = input.of_grant AND of_taken.ends_hold AND of_input.ends_hold
                    AND (of_taken.closes_as IS NULL) = (of_input.closes_as IS NULL) LIMIT 1
            ) IS NULL)
    ), firsts AS (
        INSERT INTO entries (account, number, id, at, policy, policy_version, units, key, claimed_by,
            totals, kind, flags, lapses_at, metadata)
        SELECT account, number, id, at, policy, policy_version, units, key, claimed_by, totals, kind,
            flags, lapses_at, metadata
        FROM guarded
        ON CONFLICT DO NOTHING
        RETURNING account
    ), rest AS (
        INSERT INTO entries (account, number, id, at, policy, policy_version, units, key, claimed_by,
            totals, kind, flags, lapses_at, metadata)
        SELECT account, number, id, at, policy, policy_version, units, key, claimed_by, totals, kind,
            flags, lapses_at, metadata
        FROM input
        WHERE NOT is_first AND account IN (SELECT account FROM firsts)
    ), detailed AS (
        INSERT INTO entry_details (account, number, id, kind, of_grant, held_until, made_by,
            reason, per, bundle)
        SELECT * FROM (
            SELECT unnest($19::uuid[]) AS account, unnest($20::bigint[]), unnest($21::uuid[]),
                unnest($22::smallint[]), unnest($23::uuid[]), unnest($24::timestamptz[]),
                unnest($25::text[]), unnest($26::text[]), unnest($27::text[]), unnest($28::uuid[])
        ) AS details WHERE account IN (SELECT account FROM firsts)
    ), opened AS (
        INSERT INTO accounts (id, policy, subject, blind)
        SELECT * FROM (
            SELECT unnest($11::uuid[]) AS account, unnest($12::integer[]), unnest($13::text[]),
                unnest($14::uuid[])
        ) AS opened WHERE account IN (SELECT account FROM firsts)
    )
    SELECT account, NULL::timestamptz FROM firsts
    UNION ALL SELECT NULL, refused_at FROM clock WHERE refused_at IS NOT NULL";

/// An entry of a draft, as a row to insert.
struct Row<'a> {
    draft: &'a Draft,
    entry: &'a Entry,
    is_first: bool,
}

impl<'a> Row<'a> {
    /// Sorted by account, so that two batches cannot deadlock.
    fn all(drafts: &[&'a Draft]) -> Vec<Self> {
        let mut sorted = drafts.to_vec();
        sorted.sort_unstable_by_key(|draft| draft.account);
        let rows = |draft: &'a Draft| {
            let entries = draft.entries.iter().enumerate();
            entries.map(move |(index, entry)| Row {
                draft,
                entry,
                is_first: index == 0,
            })
        };
        sorted.into_iter().flat_map(rows).collect()
    }

    /// The line that must be committed before this entry. Only the first entry of a draft has one:
    /// the others follow the first.
    fn assumed(&self) -> Option<&'a Line> {
        self.draft.after.as_ref().filter(|_| self.is_first)
    }

    /// Whether the common columns say everything about the entry.
    fn is_plain_grant(&self) -> bool {
        let entry = self.entry;
        entry.kind == (EntryKind::Grant { held_until: None })
            && entry.provisional.is_none()
            && !entry.would_deny
            && entry.crossed.is_empty()
            && entry.line.lapses_at.is_none()
            && entry.metadata.is_none()
            && entry.note.is_none()
            && entry.bundle.is_none()
    }
}

type Statement<'q, T> = QueryAs<'q, Postgres, T, PgArguments>;

fn column<'r, R, T>(rows: &'r [R], of: impl Fn(&'r R) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}

/// A statement with the values of $1 to $14.
fn with_common<'q, T>(statement: &'static str, rows: &'q [Row<'_>]) -> Statement<'q, T>
where
    T: for<'r> FromRow<'r, PgRow>,
{
    let opening = |row: &&Row<'_>| row.entry.line.number == 1;
    let opened: Vec<&Draft> = rows.iter().filter(opening).map(|row| row.draft).collect();
    sqlx::query_as(statement)
        .bind(column(rows, |row| row.draft.account.0))
        .bind(column(rows, |row| signed(row.entry.line.number)))
        .bind(column(rows, |row| row.entry.id.0))
        .bind(column(rows, |row| row.entry.line.at))
        .bind(column(rows, |row| row.draft.policy.0))
        .bind(column(rows, |row| version(&row.entry.line)))
        .bind(column(rows, |row| signed(row.entry.units.get())))
        .bind(column(rows, |row| row.entry.key.map(|key| key.0)))
        .bind(column(rows, |row| claimed_by(row.entry)))
        .bind(column(rows, |row| encode_state(&row.entry.line)))
        .bind(column(&opened, |draft| draft.account.0))
        .bind(column(&opened, |draft| draft.policy.0))
        .bind(column(&opened, |draft| {
            draft.subject.as_ref().map(Subject::as_str)
        }))
        .bind(new_blinds(opened.len()))
}

/// Adds the values of $15 to $28 to the statement.
fn with_further<'q, T>(statement: Statement<'q, T>, rows: &'q [Row<'_>]) -> Statement<'q, T> {
    let entries = rows.iter().map(|row| row.entry);
    let detailed: Vec<&Entry> = entries.filter(|entry| has_details(entry)).collect();
    let note = |entry: &'q Entry| entry.note.as_ref();
    statement
        .bind(column(rows, |row| encode_kind(row.entry.kind)))
        .bind(column(rows, |row| encode_flags(row.entry)))
        .bind(column(rows, |row| row.entry.line.lapses_at))
        .bind(column(rows, |row| {
            row.entry.metadata.as_ref().map(Metadata::as_str)
        }))
        .bind(column(&detailed, |entry| entry.account.0))
        .bind(column(&detailed, |entry| signed(entry.line.number)))
        .bind(column(&detailed, |entry| entry.id.0))
        .bind(column(&detailed, |entry| encode_kind(entry.kind)))
        .bind(column(&detailed, |entry| entry.kind.of().map(|of| of.0)))
        .bind(column(&detailed, |entry| entry.held_until()))
        .bind(column(&detailed, |entry| note(entry).map(|note| &*note.by)))
        .bind(column(&detailed, |entry| {
            note(entry).and_then(|note| note.reason.as_deref())
        }))
        .bind(column(&detailed, |entry| {
            entry.kind.per().map(|per| per.to_string())
        }))
        .bind(column(&detailed, |entry| {
            entry.bundle.map(|bundle| bundle.0)
        }))
}

/// What a burst returns: the new horizon, the accounts to open that exist already, and the time of
/// the server if it refuses an instant.
type BurstRow = (i64, Vec<Uuid>, Option<DateTime<Utc>>);

/// Runs a burst. Returns `None` if the server does not show the fence.
async fn burst(
    rows: &[Row<'_>],
    fence: &Fence,
    span: TimeSpan,
    connection: &mut PgConnection,
) -> Result<Option<BurstRow>, sqlx::Error> {
    let statement = if rows.iter().all(Row::is_plain_grant) {
        with_common(BURST_OF_PLAIN_GRANTS, rows)
    } else {
        with_further(with_common(BURST, rows), rows)
    };
    statement
        .bind(fence.place.started_at)
        .bind(fence.place.file)
        .bind(fence.horizon)
        .bind(fence.place.erasures)
        .bind(span.from)
        .bind(span.until)
        .fetch_optional(connection)
        .await
}

/// Runs [`GUARDED`]. Returns the accounts whose entries were inserted, or the time of the server if
/// it refuses an instant.
async fn append(
    rows: &[Row<'_>],
    span: TimeSpan,
    connection: &mut PgConnection,
) -> Result<Result<HashSet<AccountId>, DateTime<Utc>>, sqlx::Error> {
    let appended: Vec<(Option<Uuid>, Option<DateTime<Utc>>)> =
        with_further(with_common(GUARDED, rows), rows)
            .bind(column(rows, |row| row.is_first))
            .bind(column(rows, |row| row.assumed().map(encode_state)))
            .bind(column(rows, |row| row.assumed().map(|line| line.at)))
            .bind(column(rows, |row| row.assumed().map(version)))
            .bind(column(rows, |row| {
                row.assumed().and_then(|line| line.lapses_at)
            }))
            .bind(column(rows, |row| row.entry.kind.of().map(|of| of.0)))
            .bind(span.from)
            .bind(span.until)
            .fetch_all(connection)
            .await?;
    if let Some(refused_at) = appended.iter().find_map(|(_, refused_at)| *refused_at) {
        return Ok(Err(refused_at));
    }
    let accounts = appended.into_iter().filter_map(|(account, _)| account);
    Ok(Ok(accounts.map(AccountId).collect()))
}

/// The version of the policy that decided a line, as a column stores it.
fn version(line: &Line) -> i32 {
    line.policy_version.cast_signed()
}
