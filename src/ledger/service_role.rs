//! The service's role on PostgreSQL: it may add to the ledger, but not change what is in it. The
//! owner of the tables sets up the role. The users that perdiem connects as are members of it.

use std::str::FromStr;

use sqlx::postgres::PgDatabaseError;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use super::{Ledger, LedgerError};
use crate::boxed;

/// Every right of the service, by table, view and function. The service has no other right. A migration
/// that makes one of them adds a line here. To PostgreSQL a view is a table.
///
/// Where the service may change rows, the columns are named. `LOCK TABLE` needs a right to all
/// columns of `reconciliations`. The default of the column sets the `xact` of an entry or a change,
/// so that nobody can choose its place in the record. Triggers check what erasures and followers
/// insert, and let figures and counts of denials of days only grow. Those of quarter hours are no part
/// of the record, so no trigger checks them.
const RIGHTS: [(&str, &str); 80] = [
    // The claims' way.
    ("TABLE accounts", "SELECT, INSERT"),
    (
        "TABLE entries",
        "SELECT, INSERT (number, at, units, policy, policy_version, claimed_by, kind, flags,
             account, id, key, lapses_at, totals, metadata)",
    ),
    ("TABLE entry_details", "SELECT, INSERT"),
    ("TABLE entry_kinds", "SELECT"),
    // What admins change, and what is done with the record.
    ("TABLE ledger", "SELECT, UPDATE (revision)"),
    ("TABLE policies", "SELECT, INSERT"),
    (
        "TABLE policy_versions",
        "SELECT, INSERT (policy, version, revision, rule, archived, effective_at, changed_at,
             changed_by, reason)",
    ),
    ("TABLE keys", "SELECT, INSERT"),
    (
        "TABLE key_versions",
        "SELECT, INSERT (key, version, revision, name, role, policies, bounds, ends_at, revoked,
             changed_at, changed_by, reason)",
    ),
    ("TABLE key_uses", "SELECT, INSERT"),
    ("TABLE overrides", "SELECT, INSERT"),
    (
        "TABLE override_versions",
        "SELECT, INSERT (account, version, revision, limits, until, changed_at, changed_by, \
         reason)",
    ),
    (
        "TABLE acts",
        "SELECT, INSERT (revision, kind, about, changed_at, changed_by, reason, blind)",
    ),
    // What is derived from the entries.
    ("TABLE record_marks", "SELECT, INSERT"),
    ("TABLE day_figures", "SELECT, INSERT, UPDATE (value)"),
    ("TABLE day_figures_mark", "SELECT, UPDATE (position)"),
    ("TABLE lapses_mark", "SELECT, UPDATE (recorded_until, turn)"),
    ("TABLE shared_use", "SELECT, INSERT, UPDATE (used)"),
    (
        "TABLE open_days",
        "SELECT, INSERT, UPDATE (ends_at, changed_at), DELETE",
    ),
    ("TABLE reconciliations", "SELECT, INSERT, UPDATE"),
    ("TABLE differences", "SELECT, INSERT"),
    ("TABLE seal_origins", "SELECT, INSERT"),
    ("TABLE seal_hashes", "SELECT, INSERT"),
    ("TABLE seals", "SELECT, INSERT"),
    // Only the owner may drop archived entries.
    ("TABLE dropped_entries", "SELECT"),
    ("TABLE cuts", "SELECT"),
    // What is kept for some time.
    (
        "TABLE denied_claims",
        "SELECT, INSERT, UPDATE (denied, not_kept)",
    ),
    ("TABLE first_denials", "SELECT, INSERT, DELETE"),
    (
        "TABLE instances",
        "SELECT, INSERT, UPDATE (seen_at), DELETE",
    ),
    (
        "TABLE quarter_figures",
        "SELECT, INSERT, UPDATE (grants, units, given_back_units), DELETE",
    ),
    (
        "TABLE quarter_denials",
        "SELECT, INSERT, UPDATE (denied), DELETE",
    ),
    // Views, which only read.
    ("TABLE entry_rows", "SELECT"),
    ("TABLE counted_entries", "SELECT"),
    ("TABLE named_keys", "SELECT"),
    ("TABLE listed_entries", "SELECT"),
    ("TABLE followers", "SELECT"),
    ("TABLE partial_reversals", "SELECT"),
    ("TABLE grant_states", "SELECT"),
    ("TABLE grant_rows", "SELECT"),
    ("TABLE policy_rows", "SELECT"),
    ("TABLE override_rows", "SELECT"),
    ("TABLE change_rows", "SELECT"),
    // Erasures. Only functions of the owner change what was appended.
    (
        "TABLE erasing_accounts",
        "SELECT, INSERT, UPDATE (revision, step, done, override_ended, due_at, subject), DELETE",
    ),
    ("TABLE erased_leaves", "SELECT, INSERT"),
    ("TABLE erased_accounts", "SELECT, INSERT"),
    ("FUNCTION erasure_epoch()", "EXECUTE"),
    ("FUNCTION records_erasure()", "EXECUTE"),
    ("FUNCTION leaf_digest(uuid, uuid, text[])", "EXECUTE"),
    ("FUNCTION json_field(text, text)", "EXECUTE"),
    ("FUNCTION erase_entries(uuid, bigint, bigint)", "EXECUTE"),
    (
        "FUNCTION erase_entry_details(uuid, bigint, bigint)",
        "EXECUTE",
    ),
    ("FUNCTION erase_act(bigint, text)", "EXECUTE"),
    ("FUNCTION erase_names(uuid)", "EXECUTE"),
    (
        "FUNCTION replace_entries(uuid, uuid, bigint, bigint)",
        "EXECUTE",
    ),
    ("FUNCTION clear_keys(uuid, bigint, bigint)", "EXECUTE"),
    ("FUNCTION close_account(uuid, uuid)", "EXECUTE"),
    ("FUNCTION replace_override(uuid, uuid)", "EXECUTE"),
    // The functions above call this one.
    ("FUNCTION want_erasure(uuid, uuid)", ""),
    // The migrations that the database has run.
    ("TABLE _sqlx_migrations", "SELECT"),
    // Triggers call this, whatever the rights of their user.
    ("FUNCTION refuse_to_change_entries()", ""),
    ("FUNCTION let_entries_be_erased()", ""),
    ("FUNCTION let_entry_details_be_erased()", ""),
    ("FUNCTION let_acts_be_erased()", ""),
    ("FUNCTION let_changes_be_listed()", ""),
    ("FUNCTION let_marks_go_on()", ""),
    ("FUNCTION let_leaves_be_kept()", ""),
    ("FUNCTION let_accounts_be_erased()", ""),
    ("FUNCTION let_pseudonyms_be_kept()", ""),
    ("FUNCTION let_owners_cut()", ""),
    ("FUNCTION let_places_be_dropped()", ""),
    ("FUNCTION let_entries_be_dropped()", ""),
    ("FUNCTION let_entry_details_be_dropped()", ""),
    ("FUNCTION let_figures_go()", ""),
    ("FUNCTION refuse_to_shrink_figures()", ""),
    ("FUNCTION let_figures_of_open_days_grow()", ""),
    ("FUNCTION let_figures_follow()", ""),
    ("FUNCTION let_figures_be_made_again()", ""),
    ("FUNCTION let_days_close()", ""),
    ("FUNCTION let_denials_be_counted()", ""),
    ("FUNCTION let_first_denials_go()", ""),
];

/// One transaction at a time may grant rights in a database: PostgreSQL refuses a second one.
const LOCK: i64 = 0x7065_7264_6965_6d01;

/// PostgreSQL's code for a missing right: insufficient_privilege.
const NO_RIGHT: &str = "42501";
/// PostgreSQL's codes for a role that somebody else has just made: duplicate_object, and
/// unique_violation if both were made at the same moment.
const IS_THERE: [&str; 2] = ["42710", "23505"];
/// The longest name that PostgreSQL does not cut off, in bytes.
const NAME_LENGTH_MOST: usize = 63;

/// The name of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleName(String);

impl FromStr for RoleName {
    type Err = RoleNameError;

    fn from_str(name: &str) -> Result<Self, RoleNameError> {
        match name.len() {
            1..=NAME_LENGTH_MOST => Ok(Self(name.to_owned())),
            _ => Err(RoleNameError),
        }
    }
}

/// A name that no role can have.
#[derive(Debug, thiserror::Error)]
#[error("a role's name has 1 to {NAME_LENGTH_MOST} bytes")]
pub struct RoleNameError;

/// Why the service's role could not be set up. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServiceRoleError {
    #[error(
        "the role {role} does not exist, and this user may not make it: let a superuser run \
         CREATE ROLE {role} NOLOGIN, and run perdiem migrate again"
    )]
    Missing { role: String },
    #[error(
        "only {owner}, the owner of the ledger's tables, may set up the role {role}: run \
         perdiem migrate as {owner}"
    )]
    NotOwner { role: String, owner: String },
    #[error(
        "the role {role} can do everything that {owner}, the owner of the ledger's tables, can \
         do: name another one in PERDIEM_SERVICE_ROLE"
    )]
    Owner { role: String, owner: String },
    #[error("cannot set up the role {role}")]
    Failed {
        role: String,
        #[source]
        source: LedgerError,
    },
}

impl ServiceRoleError {
    /// The setting that is wrong; `None` if another one does not help.
    pub fn setting(&self) -> Option<&'static str> {
        match self {
            Self::Owner { .. } => Some("PERDIEM_SERVICE_ROLE"),
            Self::Missing { .. } | Self::NotOwner { .. } | Self::Failed { .. } => None,
        }
    }
}

impl Ledger {
    /// Makes the service's role if it does not exist, and gives it exactly the rights that the
    /// service needs. Returns its quoted name, or `None` if the store has no roles.
    ///
    /// # Errors
    /// [`ServiceRoleError`]; each says what to do.
    #[boxed]
    pub async fn set_up_role(&self, role: &RoleName) -> Result<Option<String>, ServiceRoleError> {
        match self {
            Self::Postgres(store) => set_up(&store.own.sessions, role).await.map(Some),
            Self::Sqlite(_) => Ok(None),
        }
    }
}

/// Who owns the tables of the ledger.
pub struct Ownership {
    pub owner: String,
    /// Whether the connection's user is the owner, a member of the owner, or a superuser.
    pub is_ours: bool,
}

impl Ownership {
    pub async fn read(connection: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let (owner, is_ours) = sqlx::query_as(
            "SELECT pg_get_userbyid(relowner)::text AS owner,
                 pg_has_role(relowner, 'USAGE') AS is_ours
             FROM pg_class WHERE oid = '_sqlx_migrations'::regclass",
        )
        .fetch_one(connection)
        .await?;
        Ok(Self { owner, is_ours })
    }
}

/// The single rights of a line of [`RIGHTS`]: each with its column, or without one for the whole table.
fn single_rights(rights: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut verb = "";
    let mut is_in_columns = false;
    rights.split(',').map(move |part| {
        let part = part.trim();
        let column = match part.split_once('(') {
            Some((before, column)) => {
                verb = before.trim();
                is_in_columns = true;
                column
            }
            None if is_in_columns => part,
            None => {
                verb = part;
                ""
            }
        };
        is_in_columns &= !column.ends_with(')');
        (verb, column.trim_end_matches(')'))
    })
}

/// The rights of the service that the user of the connection lacks, such as `INSERT on entries`. An instance that
/// only reads needs only those to read.
pub async fn missing_rights(pool: &PgPool, reads_only: bool) -> Result<Vec<String>, sqlx::Error> {
    let mut things = Vec::new();
    let mut verbs = Vec::new();
    let mut columns = Vec::new();
    for (thing, rights) in RIGHTS.iter().filter(|(_, rights)| !rights.is_empty()) {
        let (_, name) = thing.split_once(' ').unwrap_or_default();
        for (verb, column) in single_rights(rights) {
            if !reads_only || verb == "SELECT" {
                things.push(name);
                verbs.push(verb);
                columns.push(column);
            }
        }
    }
    let missing = sqlx::query_scalar(
        "SELECT DISTINCT verb || ' on ' || thing FROM unnest($1, $2, $3) AS wanted (thing, verb, field)
         WHERE NOT CASE
             WHEN verb = 'EXECUTE' THEN has_function_privilege(thing, verb)
             WHEN field = '' THEN has_table_privilege(thing, verb)
             ELSE has_column_privilege(thing, field, verb)
         END ORDER BY 1",
    );
    let missing = missing.bind(things).bind(verbs).bind(columns);
    missing.fetch_all(pool).await
}

/// Whether the user of the connection had no right to the statement.
pub fn lacks_right(error: &sqlx::Error) -> bool {
    code(error) == Some(NO_RIGHT)
}

fn code(error: &sqlx::Error) -> Option<&str> {
    let sqlx::Error::Database(error) = error else {
        return None;
    };
    let error = error.try_downcast_ref::<PgDatabaseError>()?;
    Some(error.code())
}

async fn set_up(pool: &PgPool, RoleName(name): &RoleName) -> Result<String, ServiceRoleError> {
    let failed = |error: sqlx::Error| ServiceRoleError::Failed {
        role: name.clone(),
        source: error.into(),
    };
    let mut connection = pool.acquire().await.map_err(failed)?;
    // 1. Check that this user owns the tables: only the owner can give rights.
    let ownership = Ownership::read(&mut connection).await.map_err(failed)?;
    let Ownership { owner, is_ours } = ownership;
    let role = quoted(&mut connection, name).await.map_err(failed)?;
    if !is_ours {
        return Err(ServiceRoleError::NotOwner { role, owner });
    }
    // 2. Make the role if it does not exist. Roles belong to the whole cluster, so another ledger
    //    may have made it.
    let mut is_mighty = is_mighty(&mut connection, name).await.map_err(failed)?;
    if is_mighty.is_none() {
        match make(&mut connection, name).await {
            Err(error) if lacks_right(&error) => return Err(ServiceRoleError::Missing { role }),
            Err(error) if code(&error).is_some_and(|code| IS_THERE.contains(&code)) => {}
            made => made.map_err(failed)?,
        }
        is_mighty = self::is_mighty(&mut connection, name)
            .await
            .map_err(failed)?;
    }
    // 3. Refuse a superuser and the owner: no right can be taken from them.
    if is_mighty == Some(true) {
        return Err(ServiceRoleError::Owner { role, owner });
    }
    // 4. Give the rights of the list, in one transaction.
    let given = give_rights(&mut connection, name).await;
    given.map(|()| role).map_err(failed)
}

/// A name, quoted for SQL.
async fn quoted(connection: &mut PgConnection, name: &str) -> Result<String, sqlx::Error> {
    let quoted = sqlx::query_scalar("SELECT quote_ident($1)").bind(name);
    quoted.fetch_one(connection).await
}

/// Whether a role can do everything that the owner of the tables can. `None` if the role does not
/// exist.
async fn is_mighty(connection: &mut PgConnection, name: &str) -> Result<Option<bool>, sqlx::Error> {
    let is_mighty = sqlx::query_scalar(
        "SELECT pg_has_role(role.oid, owned.relowner, 'MEMBER')
         FROM pg_roles AS role, pg_class AS owned
         WHERE role.rolname = $1 AND owned.oid = '_sqlx_migrations'::regclass",
    );
    is_mighty.bind(name).fetch_optional(connection).await
}

async fn make(connection: &mut PgConnection, name: &str) -> Result<(), sqlx::Error> {
    let make = sqlx::query_scalar("SELECT format('CREATE ROLE %I NOLOGIN', $1)").bind(name);
    let make: String = make.fetch_one(&mut *connection).await?;
    sqlx::query(AssertSqlSafe(make)).execute(connection).await?;
    tracing::info!(role = name, "the service's role was made");
    Ok(())
}

/// PostgreSQL writes the statements, because it knows how to quote the role. Rights of PUBLIC are
/// removed too: the role would have them also.
async fn give_rights(connection: &mut PgConnection, name: &str) -> Result<(), sqlx::Error> {
    let (things, rights): (Vec<&str>, Vec<&str>) = RIGHTS.into_iter().unzip();
    let mut transaction = connection.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(LOCK)
        .execute(&mut *transaction)
        .await?;
    let statements: Vec<String> = sqlx::query_scalar(
        "SELECT format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), $1)
         WHERE NOT has_schema_privilege($1, current_schema(), 'USAGE')
         UNION ALL SELECT format('REVOKE ALL ON %s FROM PUBLIC, %I', thing, $1)
         FROM unnest($2) AS thing
         UNION ALL SELECT format('GRANT %s ON %s TO %I', rights, thing, $1)
         FROM unnest($2, $3) AS given (thing, rights) WHERE rights <> ''",
    )
    .bind(name)
    .bind(things)
    .bind(rights)
    .fetch_all(&mut *transaction)
    .await?;
    for statement in statements {
        sqlx::query(AssertSqlSafe(statement))
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_rights_has_single_rights() {
        let rights = "SELECT, INSERT (kind, flags,\n     account), DELETE";
        let found: Vec<_> = single_rights(rights).collect();
        let inserts = ["kind", "flags", "account"].map(|column| ("INSERT", column));
        assert_eq!(found[0], ("SELECT", ""));
        assert_eq!(found[1..4], inserts);
        assert_eq!(found[4..], [("DELETE", "")]);
    }
}
