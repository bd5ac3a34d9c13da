//! The settings of PostgreSQL that an instance depends on, compared with what
//! `docs/operations/postgresql.md` says.

use std::fmt;

use sqlx::postgres::PgPool;

/// The defaults of PostgreSQL, in kB. They are for a machine with little memory.
const SMALL_BUFFERS: i64 = 128 * 1024;
const SMALL_WAL: i64 = 1024 * 1024;

/// What is wrong with the value of a setting, and what to write. The size is the value in kB.
fn advice(name: &str, value: &str, size: Option<i64>) -> Option<&'static str> {
    let is_at_most = |most: i64| size.is_some_and(|size| size <= most);
    match name {
        "fsync" if value == "off" => Some(
            "a power cut can lose grants that were answered, and damage the database: write \
             fsync = on into postgresql.conf, and reload PostgreSQL",
        ),
        "full_page_writes" if value == "off" => Some(
            "a power cut can damage the database: write full_page_writes = on into \
             postgresql.conf, and reload PostgreSQL",
        ),
        "synchronous_commit" if !["on", "remote_apply"].contains(&value) => Some(
            "perdiem sets it to on for its own connections, but a power cut or a fail-over can \
             lose what other programs commit: write synchronous_commit = on into postgresql.conf, \
             and reload PostgreSQL",
        ),
        "shared_buffers" if is_at_most(SMALL_BUFFERS) => Some(
            "claims become slow when the indexes of the ledger do not fit into it: write a quarter \
             of the machine's memory into postgresql.conf, such as shared_buffers = '4GB', and \
             restart PostgreSQL",
        ),
        "max_wal_size" if is_at_most(SMALL_WAL) => Some(
            "frequent checkpoints cost disk and time: write max_wal_size = '8GB' into \
             postgresql.conf, and reload PostgreSQL",
        ),
        _ => None,
    }
}

/// A setting of PostgreSQL that should have another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingAdvice {
    pub name: String,
    pub value: String,
    /// What is wrong with the value, and what to write.
    pub advice: &'static str,
}

impl SettingAdvice {
    /// Whether a power cut can lose what was committed.
    pub fn loses_commits(&self) -> bool {
        ["fsync", "full_page_writes"].contains(&&*self.name)
    }
}

impl fmt::Display for SettingAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            value,
            advice,
        } = self;
        write!(f, "PostgreSQL's {name} is {value}: {advice}")
    }
}

/// The settings that should have another value, by name.
pub async fn found(pool: &PgPool) -> Result<Vec<SettingAdvice>, sqlx::Error> {
    let read = sqlx::query_as::<_, (String, String, Option<i64>)>(
        "SELECT name, CASE WHEN unit IS NULL THEN reset_val ELSE current_setting(name) END AS value,
             CASE unit WHEN '8kB' THEN reset_val::bigint * 8 WHEN 'kB' THEN reset_val::bigint
                 WHEN 'MB' THEN reset_val::bigint * 1024 END AS size
         FROM pg_settings WHERE name IN
             ('fsync', 'full_page_writes', 'synchronous_commit', 'shared_buffers', 'max_wal_size')
         ORDER BY name",
    );
    let settings = read.fetch_all(pool).await?.into_iter();
    let advised = settings.filter_map(|(name, value, size)| {
        let advice = advice(&name, &value, size)?;
        Some(SettingAdvice {
            name,
            value,
            advice,
        })
    });
    Ok(advised.collect())
}

/// Logs one warning for each setting that should have another value.
pub async fn warn(pool: &PgPool) {
    match found(pool).await {
        Ok(found) => {
            for setting in found {
                tracing::warn!("{setting}");
            }
        }
        // A server that is not quite PostgreSQL.
        Err(error) => tracing::info!(%error, "the settings of PostgreSQL cannot be read"),
    }
}
