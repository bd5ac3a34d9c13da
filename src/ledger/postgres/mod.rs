//! The ledger on PostgreSQL.

mod append;
mod entries;

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use tokio::time::timeout;

use super::cluster::settle_offset;
use super::connections::{Connections, Opener};
use super::query::Session;
use super::schema::{self, Applied, MigrationFile};
use super::service_role::{Ownership, lacks_right};
use super::sessions::{SessionPool, Sessions, shared_by};
use super::{
    LedgerError, LedgerOptions, OpenError, Opening, READS_MOST, SNAPSHOTS_MOST, TimeBounds, advice,
};
use domain::identity::Identity;

pub use entries::last_lines;

pub const MIGRATIONS: &[MigrationFile] = &schema::migrations!("postgres");

/// Connections for claims and what they wait for. There are few, because each carries a whole
/// batch.
const CLAIM_CONNECTIONS: u32 = 8;
/// Connections for the regular looks at changes and the clock. No request takes them, so that an
/// instance learns of a revoked key however busy it is.
const POLL_CONNECTIONS: u32 = 2;
/// Connections for turns at accounts. A turn holds one until it ends.
const TURN_CONNECTIONS: u32 = 4;
/// Connections for edits.
const EDIT_CONNECTIONS: u32 = 3;
/// Connections for the instance's own work: reconciliations, the record, statistics.
const OWN_CONNECTIONS: u32 = 4;
/// The most connections of an instance.
pub const CONNECTIONS_MOST: u32 = CLAIM_CONNECTIONS
    + POLL_CONNECTIONS
    + TURN_CONNECTIONS
    + EDIT_CONNECTIONS
    + OWN_CONNECTIONS
    + READS_MOST
    + SNAPSHOTS_MOST;
/// A connection for the instance's own work that was used more recently is not tested before it is
/// used again: a follower would wait for the server twice for each statement.
const TESTED_AFTER: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For work that nobody waits for, and for the pause of a snapshot between two reads.
const OWN_TIMEOUT: Duration = Duration::from_secs(60);

/// A PostgreSQL database. Each kind of work has its own connections, so that no kind can take the
/// connections of another.
#[derive(Clone)]
pub struct Store {
    pub(super) claims: Connections<PgConnection>,
    pub(super) polls: Connections<PgConnection>,
    turns: SessionPool,
    pub(super) reads: SessionPool,
    pub(super) snapshots: SessionPool,
    pub(super) edits: SessionPool,
    pub(super) own: SessionPool,
    /// Whether the server shows the parts of a fence. Some managed servers do not.
    shows_fence: bool,
    pub(crate) bounds: Option<TimeBounds>,
    identity: Identity,
}

impl Store {
    pub async fn open(
        options: &LedgerOptions,
        opening: Opening,
        migrator: &Migrator,
        now: DateTime<Utc>,
    ) -> Result<Self, OpenError> {
        // 1. Connect.
        // No statement reads so much that compiling it first would pay, and none reads a long table
        // whole. The planner would, with a plan that was made for an empty table, and where it cannot know
        // how few entries a mark has.
        let base = Sessions::of(&options.url)?
            .with("jit", "off")
            .with("enable_seqscan", "off");
        let place = base.place();
        let base = match opening {
            Opening::Read => base.reading().on_any(),
            Opening::Make | Opening::Find => base,
        };
        let for_own = base
            .clone()
            .with_timeouts(OWN_TIMEOUT)
            .with("plan_cache_mode", "force_custom_plan");
        let own = for_own.pool(OWN_CONNECTIONS, CONNECT_TIMEOUT, TESTED_AFTER);
        let own = connect(&for_own, own, CONNECT_TIMEOUT).await?;
        let failed = |source: LedgerError| OpenError::Failed {
            place: place.clone(),
            source,
        };
        // The user of a migrated ledger may have no rights to it.
        let unusable = |error: sqlx::Error| {
            if lacks_right(&error) {
                OpenError::NoRight {
                    place: place.clone(),
                    source: error.into(),
                }
            } else {
                failed(error.into())
            }
        };
        // 2. Check that a connection is a session, that the database is for perdiem, and which migrations it has run.
        let shared = shared_by(&own).await;
        if let Some(unit) = shared.map_err(|error| failed(error.into()))? {
            return Err(OpenError::Pooled { place, unit });
        }
        check_encoding(&own, &place).await?;
        let is_standby: bool = sqlx::query_scalar("SELECT pg_is_in_recovery()")
            .fetch_one(&own)
            .await
            .map_err(|error| failed(error.into()))?;
        if is_standby && opening != Opening::Read {
            return Err(OpenError::Standby(place));
        }
        let (applied, has_tables) = survey(&own).await.map_err(unusable)?;
        schema::check(migrator, &applied, has_tables, &place)?;
        if opening != Opening::Make {
            schema::check_made(migrator, &applied, &place)?;
        }
        // 3. Migrate it if needed; only the owner of the tables may.
        let mut first = own.acquire().await.map_err(|error| failed(error.into()))?;
        let known = migrator.iter().count();
        if applied.len() < known {
            if !applied.is_empty() {
                let ownership = Ownership::read(&mut first).await.map_err(unusable)?;
                if !ownership.is_ours {
                    return Err(OpenError::Behind {
                        place,
                        found: applied.len(),
                        known,
                        owner: ownership.owner,
                    });
                }
            }
            let migrating = migrate(base.clone(), migrator);
            let migrated = schema::log_progress(migrator, &applied, migrating).await;
            migrated.map_err(failed)?;
        }
        // 4. Read the identity of the ledger; a new ledger gets one. Keep the order of
        //    transactions.
        let identity = schema::identify(Session::Postgres(&mut first, OWN_TIMEOUT), now);
        let identity = identity.await.map_err(failed)?;
        base.know(identity.id);
        drop(first);
        let shows_fence = match opening {
            // A reader gets no transaction number, and only appends need a fence.
            Opening::Read => false,
            Opening::Make | Opening::Find => {
                if !settle_offset(&own).await.map_err(unusable)? {
                    return Err(OpenError::NumbersBegunAgain(place));
                }
                advice::warn(&own).await;
                shows_fence(&own).await.map_err(unusable)?
            }
        };
        // 5. Set up the connections of each kind of work.
        // Plan lists with their values: a plan for all values may read and sort a whole policy.
        let planning = |timeout| {
            let sessions = base.clone().with_timeouts(timeout);
            sessions.with("plan_cache_mode", "force_custom_plan")
        };
        let answering = planning(options.query_timeout);
        let lasting = planning(OWN_TIMEOUT);
        let patience = options.query_timeout / 4;
        let answers = |most| answering.connect_lazy(answering.pool(most, patience, Duration::ZERO));
        let snapshots = lasting.pool(SNAPSHOTS_MOST, patience, Duration::ZERO);
        let snapshots = lasting.connect_lazy(snapshots);
        let claiming = base.with_timeouts(options.claim_timeout);
        let turns = claiming.pool(TURN_CONNECTIONS, options.claim_timeout / 3, Duration::MAX);
        let turns = claiming.connect_lazy(turns);
        Ok(Self {
            polls: Connections::new(claiming.clone(), POLL_CONNECTIONS, options.claim_timeout),
            claims: Connections::new(claiming, CLAIM_CONNECTIONS, options.claim_timeout),
            turns,
            reads: answers(READS_MOST),
            snapshots,
            edits: answers(EDIT_CONNECTIONS),
            own: for_own.bounded(own),
            shows_fence,
            bounds: None,
            identity,
        })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Runs statements that a claim waits for.
    async fn in_time<T>(
        &self,
        statements: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, LedgerError> {
        Ok(self.claims.run(statements).await?)
    }

    pub async fn close(&self) {
        self.claims.close().await;
        self.polls.close().await;
        self.turns.sessions.close().await;
        self.reads.sessions.close().await;
        self.snapshots.sessions.close().await;
        self.edits.sessions.close().await;
        self.own.sessions.close().await;
    }
}

/// Makes the first connection of a pool. It is waited for at most twice as long as `patience`.
///
/// # Errors
/// [`OpenError::Unreadable`].
pub async fn connect(
    sessions: &Sessions,
    pool: PgPoolOptions,
    patience: Duration,
) -> Result<PgPool, OpenError> {
    let connected = match sessions.look().await {
        Ok(()) => sessions.connect(pool).await,
        Err(error) => Err(error),
    };
    match connected {
        Ok(pool) => Ok(pool),
        Err(error) => {
            let error = reason(sessions, error, patience).await;
            Err(OpenError::Unreadable {
                place: sessions.place(),
                is_lasting: is_refused(&error),
                reason: error.to_string(),
                remedy: "see that PostgreSQL runs there and that DATABASE_URL names a user and a \
                         database that it knows",
            })
        }
    }
}

/// Why there is no connection. A pool tries for a while and says only that it waited. A single
/// connection gets the reason.
async fn reason(sessions: &Sessions, error: sqlx::Error, patience: Duration) -> sqlx::Error {
    let sqlx::Error::PoolTimedOut = error else {
        return error;
    };
    match timeout(patience, sessions.open()).await {
        Ok(Err(told)) => told,
        Ok(Ok(_)) | Err(_) => error,
    }
}

/// Whether PostgreSQL knows no such user, password or database: invalid_authorization_specification,
/// invalid_password, invalid_catalog_name. Others can be over soon.
fn is_refused(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    let is_refused = code.is_some_and(|code| ["28000", "28P01", "3D000"].contains(&&*code));
    is_refused || matches!(error, sqlx::Error::Configuration(_))
}

/// Migrates the database, however long it takes: an index on a large table takes long.
async fn migrate(sessions: Sessions, migrator: &Migrator) -> Result<(), LedgerError> {
    let pool = sessions
        .connect(PgPoolOptions::new().max_connections(1))
        .await?;
    let migrated = migrator.run(&pool).await;
    pool.close().await;
    migrated.map_err(|error| LedgerError::Unavailable(error.into()))
}

pub async fn check_encoding(pool: &PgPool, place: &str) -> Result<(), OpenError> {
    let encoding: String = sqlx::query_scalar("SHOW server_encoding")
        .fetch_one(pool)
        .await
        .map_err(|error| OpenError::Failed {
            place: place.to_owned(),
            source: error.into(),
        })?;
    match encoding.as_str() {
        "UTF8" => Ok(()),
        _ => Err(OpenError::Encoding {
            place: place.to_owned(),
            encoding,
        }),
    }
}

/// Whether the server shows the parts of a fence to this user. Servers with another storage may have no part.
async fn shows_fence(pool: &PgPool) -> Result<bool, sqlx::Error> {
    let shown = sqlx::query_scalar(
        "SELECT num_nulls(pg_postmaster_start_time(), pg_relation_filepath('entries'),
             pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_xact_id()) = 0",
    );
    let (is_shown, error) = match shown.fetch_one(pool).await {
        Ok(is_shown) => (is_shown, None),
        Err(error @ sqlx::Error::Database(_)) => (false, Some(error)),
        Err(error) => return Err(error),
    };
    if !is_shown {
        let error = error.as_ref().map(tracing::field::display);
        tracing::info!(error, "the server shows no fence: every append is guarded");
    }
    Ok(is_shown)
}

/// The migrations that the database has run, and whether it has other tables. Those of extensions are nobody's.
pub async fn survey(pool: &PgPool) -> Result<(Vec<Applied>, bool), sqlx::Error> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
             AND NOT EXISTS (SELECT 1 FROM pg_depend AS d
                 WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')",
    )
    .fetch_all(pool)
    .await?;
    let applied = if tables.iter().any(|table| table == "_sqlx_migrations") {
        sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations")
            .fetch_all(pool)
            .await?
    } else {
        Vec::new()
    };
    let has_tables = tables.iter().any(|table| table != "_sqlx_migrations");
    Ok((applied, has_tables))
}
