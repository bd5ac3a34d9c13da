//! What PostgreSQL says of itself, of the ledger's database, and of the user that an instance connects as.

use std::time::Duration;

use chrono::TimeDelta;
use sqlx::PgPool;

use crate::advice::{SettingAdvice, found};
use crate::cluster::numbers_go_on;
use crate::schema::{check, check_made, migrator};
use crate::service_role::{Ownership, lacks_right, missing_rights};
use crate::sessions::{Sessions, shared_by};
use crate::standbys::StandbyFacts;
use crate::tables::instances::time_of;
use crate::{ClockReading, OpenError, postgres};
use host::clock::Clock;

/// The longest wait for a connection, and for each answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Two connections are compared, to find a pooler.
const CONNECTIONS: u32 = 2;

/// What is known of a server and of a database.
pub struct ServerFacts {
    /// Host, port and database, without credentials.
    pub place: String,
    pub version: String,
    /// Such as 150018.
    pub version_number: i32,
    /// Why an instance does not start on it. Each text says what to do.
    pub refusals: Vec<OpenError>,
    pub is_standby: bool,
    /// How far the machine's clock is ahead of the server's at least.
    pub clock_offset: TimeDelta,
    pub role: RoleFacts,
    pub standbys: StandbyFacts,
    /// Settings that should have other values.
    pub advice: Vec<SettingAdvice>,
    pub vacuum: VacuumFacts,
    pub limits: ClientLimits,
}

/// The user of the connection.
pub struct RoleFacts {
    pub name: String,
    pub is_superuser: bool,
    /// Whether it may make tables.
    pub may_create: bool,
    /// Whether it can do what the owner of the tables can. `false` if there are no tables yet.
    pub is_owner: bool,
    /// The rights that an instance needs and it lacks. Empty if there are no tables yet.
    pub missing: Vec<String>,
}

/// The settings of autovacuum.
pub struct VacuumFacts {
    pub is_on: bool,
    /// Whether inserts alone make it work on a table.
    pub counts_inserts: bool,
    /// Tables of the ledger that it leaves out.
    pub without: Vec<String>,
}

/// How many connections there can be, of all users who are no superusers.
pub struct ClientLimits {
    pub of_server: i32,
    /// -1 for no limit, as in the following one.
    pub of_role: i32,
    pub of_database: i32,
}

impl ClientLimits {
    /// The most connections of an instance.
    pub const OF_INSTANCE: u32 = postgres::CONNECTIONS_MOST;

    /// The smallest of the limits.
    pub fn least(&self) -> u32 {
        let limits = [self.of_server, self.of_role, self.of_database];
        let limits = limits.into_iter().filter_map(|limit| limit.try_into().ok());
        limits.min().unwrap_or_default()
    }
}

impl ServerFacts {
    pub(super) async fn read(
        url: &str,
        reads_only: bool,
        clock: &Clock,
    ) -> Result<Self, OpenError> {
        let sessions = Sessions::of(url)?.with_timeouts(PATIENCE).reading();
        let sessions = if reads_only {
            sessions.on_any()
        } else {
            sessions
        };
        let place = sessions.place();
        let pool = sessions.pool(CONNECTIONS, PATIENCE, Duration::ZERO);
        let pool = postgres::connect(&sessions, pool, PATIENCE).await?;
        let facts = Self::ask(&pool, &place, reads_only, clock).await;
        pool.close().await;
        facts
    }

    async fn ask(
        pool: &PgPool,
        place: &str,
        reads_only: bool,
        clock: &Clock,
    ) -> Result<Self, OpenError> {
        let failed = failed(place);
        let (version, version_number, is_standby) = sqlx::query_as(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::integer,
                 pg_is_in_recovery()",
        )
        .fetch_one(pool)
        .await
        .map_err(failed)?;
        let mut refusals = Vec::new();
        if is_standby && !reads_only {
            refusals.push(OpenError::Standby(place.to_owned()));
        }
        if let Some(unit) = shared_by(pool).await.map_err(failed)? {
            let place = place.to_owned();
            refusals.push(OpenError::Pooled { place, unit });
        }
        refusals.extend(postgres::check_encoding(pool, place).await.err());
        let (role, of_schema) = role(pool, place, reads_only, is_standby).await?;
        refusals.extend(of_schema);
        Ok(Self {
            place: place.to_owned(),
            version,
            version_number,
            refusals,
            is_standby,
            clock_offset: clock_offset(pool, clock).await.map_err(failed)?,
            role,
            standbys: StandbyFacts::of(pool).await.map_err(failed)?,
            advice: found(pool).await.map_err(failed)?,
            vacuum: vacuum(pool).await.map_err(failed)?,
            limits: limits(pool).await.map_err(failed)?,
        })
    }
}

/// The error of a question that the server did not answer.
fn failed(place: &str) -> impl Fn(sqlx::Error) -> OpenError + Copy {
    move |error| OpenError::Failed {
        place: place.to_owned(),
        source: error.into(),
    }
}

async fn clock_offset(pool: &PgPool, clock: &Clock) -> Result<TimeDelta, sqlx::Error> {
    let asked_at = clock.now();
    let theirs = time_of(pool).await?;
    let reading = ClockReading {
        offset: asked_at - theirs,
        outlier: None,
    };
    Ok(reading.offset_least(clock.now() - asked_at))
}

/// The user, and why the database is no ledger of this version that the user can serve.
async fn role(
    pool: &PgPool,
    place: &str,
    reads_only: bool,
    is_standby: bool,
) -> Result<(RoleFacts, Option<OpenError>), OpenError> {
    let failed = failed(place);
    let (name, is_superuser, may_create) = sqlx::query_as(
        "SELECT rolname::text AS name, rolsuper AS is_superuser,
             COALESCE(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create
         FROM pg_roles WHERE rolname = current_user",
    )
    .fetch_one(pool)
    .await
    .map_err(failed)?;
    let mut role = RoleFacts {
        name,
        is_superuser,
        may_create,
        is_owner: false,
        missing: Vec::new(),
    };
    // 1. The migrations: a user without any right to the ledger cannot even read which ones it has.
    let (applied, has_tables) = match postgres::survey(pool).await {
        Err(error) if lacks_right(&error) => {
            let place = place.to_owned();
            let source = error.into();
            return Ok((role, Some(OpenError::NoRight { place, source })));
        }
        surveyed => surveyed.map_err(failed)?,
    };
    let migrator = migrator(postgres::MIGRATIONS);
    if let Err(error) = check(&migrator, &applied, has_tables, place) {
        return Ok((role, Some(error)));
    }
    if applied.is_empty() {
        return Ok((role, Some(OpenError::Missing(place.to_owned()))));
    }
    // 2. Who owns the tables: only the owner can migrate them.
    let mut connection = pool.acquire().await.map_err(failed)?;
    let Ownership { owner, is_ours } = Ownership::read(&mut connection).await.map_err(failed)?;
    drop(connection);
    role.is_owner = is_ours;
    if let Err(OpenError::Older {
        place,
        found,
        known,
    }) = check_made(&migrator, &applied, place)
    {
        let behind = OpenError::Behind {
            place,
            found,
            known,
            owner,
        };
        return Ok((role, Some(behind)));
    }
    // 3. The rights to what the migrations made, and the order of its entries.
    role.missing = missing_rights(pool, reads_only).await.map_err(failed)?;
    let may_write = !is_standby && !reads_only && role.missing.is_empty();
    let goes_on = !may_write || numbers_go_on(pool).await.map_err(failed)?;
    let begun_again = (!goes_on).then(|| OpenError::NumbersBegunAgain(place.to_owned()));
    Ok((role, begun_again))
}

async fn vacuum(pool: &PgPool) -> Result<VacuumFacts, sqlx::Error> {
    let read = sqlx::query_as(
        "SELECT current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean AS is_on,
             COALESCE(current_setting('autovacuum_vacuum_insert_threshold', true)::integer, -1) >= 0
                 AS counts_inserts,
             ARRAY(
                 SELECT c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                 WHERE n.nspname = current_schema() AND c.relkind = 'r'
                     AND c.reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off']
                 ORDER BY 1
             ) AS without",
    );
    let (is_on, counts_inserts, without) = read.fetch_one(pool).await?;
    Ok(VacuumFacts {
        is_on,
        counts_inserts,
        without,
    })
}

async fn limits(pool: &PgPool) -> Result<ClientLimits, sqlx::Error> {
    let read = sqlx::query_as(
        "SELECT current_setting('max_connections')::integer
                 - current_setting('superuser_reserved_connections')::integer
                 - COALESCE(current_setting('reserved_connections', true)::integer, 0) AS of_server,
             r.rolconnlimit AS of_role, d.datconnlimit AS of_database
         FROM pg_roles AS r, pg_database AS d
         WHERE r.rolname = current_user AND d.datname = current_database()",
    );
    let (of_server, of_role, of_database) = read.fetch_one(pool).await?;
    Ok(ClientLimits {
        of_server,
        of_role,
        of_database,
    })
}
