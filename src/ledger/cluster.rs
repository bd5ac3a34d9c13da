//! The numbers of PostgreSQL's transactions, in one order across clusters. After a dump is restored
//! into another cluster, that cluster may count from lower numbers than the stored ones. An offset
//! keeps the order.

use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use super::service_role::Ownership;

/// The tables whose rows have a place in the record.
const PLACED: [&str; 5] = [
    "entries",
    "policy_versions",
    "key_versions",
    "override_versions",
    "acts",
];

/// The newest stored number, the next number of the server, and whether the columns' defaults add
/// the ledger's offset. A number that is at least 2^31 above the newest mark was added by hand, and
/// is ignored.
struct Numbers {
    newest: i64,
    next: i64,
    is_default: bool,
}

impl Numbers {
    async fn read(connection: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let numbers: (i64, i64, bool) = sqlx::query_as(
            "WITH likely AS (
                 SELECT COALESCE(
                     (SELECT xact + 2147483648 FROM record_marks ORDER BY after DESC LIMIT 1),
                     9223372036854775807
                 ) AS xact
             )
             SELECT GREATEST(
                 (SELECT MAX(xact) FROM entries WHERE xact <= (SELECT xact FROM likely)),
                 (SELECT MAX(xact) FROM policy_versions WHERE xact <= (SELECT xact FROM likely)),
                 (SELECT MAX(xact) FROM key_versions WHERE xact <= (SELECT xact FROM likely)),
                 (SELECT MAX(xact) FROM override_versions WHERE xact <= (SELECT xact FROM likely)),
                 (SELECT MAX(xact) FROM acts WHERE xact <= (SELECT xact FROM likely)), 0
             ) AS newest,
             pg_current_xact_id()::text::bigint + xact_offset AS next,
             (
                 SELECT bool_and(CASE WHEN added LIKE '%+%'
                     THEN added LIKE '%+ ' || xact_offset || ')%'
                         OR added LIKE '%+ ''' || xact_offset || '''::bigint)%'
                     ELSE xact_offset = 0
                 END) FROM (
                     SELECT pg_get_expr(adbin, adrelid) AS added
                     FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
                     WHERE attname = 'xact' AND adrelid = ANY($1::regclass[])
                 ) AS column_defaults
             ) AS is_default
             FROM ledger",
        )
        .bind(PLACED)
        .fetch_one(connection)
        .await?;
        let (newest, next, is_default) = numbers;
        Ok(Self {
            newest,
            next,
            is_default,
        })
    }

    fn go_on(&self) -> bool {
        self.is_default && self.newest < self.next
    }
}

/// Whether the numbers of transactions go on where the stored ones end.
pub async fn numbers_go_on(pool: &PgPool) -> Result<bool, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    let numbers = Numbers::read(&mut transaction).await?;
    transaction.rollback().await?;
    Ok(numbers.go_on())
}

/// Raises the offset of transaction numbers if the server's next number is not above the stored
/// ones. Returns false if the offset must be raised and this user may not: only the owner of the
/// tables may.
// 1. Mostly nothing has to be done.
pub async fn settle_offset(pool: &PgPool) -> Result<bool, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    if Numbers::read(&mut transaction).await?.go_on() {
        transaction.rollback().await?;
        return Ok(true);
        // 2. Only the owner of the tables may change their defaults.
    }
    if !Ownership::read(&mut transaction).await?.is_ours {
        transaction.rollback().await?;
        return Ok(false);
    }
    // 3. Nobody appends while this lock is held. Other instances that open the ledger wait here,
    //    and then find the offset raised. So read the numbers again.
    sqlx::query("LOCK TABLE entries IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *transaction)
        .await?;
    let numbers = Numbers::read(&mut transaction).await?;
    if numbers.go_on() {
        transaction.rollback().await?;
        return Ok(true);
    }
    // 4. Raise the offset by the missing numbers, and write it into the default of each table.
    let missing = (numbers.newest + 1 - numbers.next).max(0);
    let offset: i64 = sqlx::query_scalar(
        "UPDATE ledger SET xact_offset = xact_offset + $1 RETURNING xact_offset",
    )
    .bind(missing)
    .fetch_one(&mut *transaction)
    .await?;
    for table in PLACED {
        let default = format!(
            "ALTER TABLE {table} ALTER COLUMN xact
             SET DEFAULT (pg_current_xact_id()::text::bigint + {offset})"
        );
        sqlx::query(AssertSqlSafe(default))
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    tracing::info!(
        offset,
        "the server's transaction numbers are lower than the stored ones: an offset keeps the order of entries"
    );
    Ok(true)
}
