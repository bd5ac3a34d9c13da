//! The role of the service on PostgreSQL. The role is enough to serve, and cannot change an
//! appended row.

mod figures;
mod inserts;

use chrono::TimeDelta;
use perdiem::engine::{ArchiveOrder, drop_archived};
use perdiem::host::clock::{Clock, ManualClock};
use perdiem::ledger::{Ledger, LedgerOptions, Opening, RoleName, ServiceRoleError};
use reqwest::Method;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::time::Duration;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::http::v1::statistics::are_sums_of_the_entries;
use crate::record::all_is_recorded;
use crate::seals::ledger;
use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant};
use crate::support::books::Books;
use crate::support::hand::Hand;
use crate::support::servers::postgres;

const ROLE: &str = "perdiem_service";

/// The columns that the service changes. It changes no other table.
const CHANGED: [(&str, &[&str]); 12] = [
    ("ledger", &["revision"]),
    ("day_figures", &["value"]),
    ("day_figures_mark", &["position"]),
    ("lapses_mark", &["recorded_until", "turn"]),
    ("shared_use", &["used"]),
    ("denied_claims", &["denied", "not_kept"]),
    ("quarter_figures", &["grants", "units", "given_back_units"]),
    ("quarter_denials", &["denied"]),
    ("instances", &["seen_at"]),
    ("open_days", &["ends_at", "changed_at"]),
    (
        "erasing_accounts",
        &[
            "revision",
            "step",
            "done",
            "override_ended",
            "due_at",
            "subject",
        ],
    ),
    // `LOCK TABLE` needs the right to all of them.
    (
        "reconciliations",
        &[
            "id",
            "started_at",
            "requested_by",
            "apply",
            "finished_at",
            "counters_compared",
            "accounts",
            "entries",
            "counters",
            "differences",
            "healed",
            "alarms",
            "ledger",
            "checked_to",
            "next_account",
        ],
    ),
];
/// The tables in which the service deletes rows.
const FORGOTTEN: [&str; 6] = [
    "first_denials",
    "quarter_figures",
    "quarter_denials",
    "instances",
    "open_days",
    "erasing_accounts",
];

/// A ledger with the connections of three users.
struct Cast {
    /// The server's superuser.
    ground: Ground,
    /// The owner of the tables, who may make roles.
    owner: Ground,
    /// A member of the service's role.
    service: Ground,
}

impl Cast {
    /// An empty database.
    fn new() -> Self {
        let ground = Ground::empty(Stack::RedisAndPostgres);
        let number = Uuid::new_v4().simple();
        let owner = format!("owner_{number}");
        let service = format!("service_{number}");
        let make = format!("CREATE ROLE {owner} LOGIN CREATEROLE; CREATE ROLE {service} LOGIN");
        postgres().execute("postgres", &make);
        let give = format!("ALTER DATABASE {} OWNER TO {owner}", name(&ground));
        postgres().execute("postgres", &give);
        Self {
            owner: of_user(&ground, &owner),
            service: of_user(&ground, &service),
            ground,
        }
    }

    /// A ledger that the owner has migrated. The service can start on it.
    async fn migrated() -> Self {
        let cast = Self::new();
        migrate(&cast.owner, ROLE)
            .await
            .expect("the owner migrates");
        cast.execute(&format!("GRANT {ROLE} TO {}", user(&cast.service)));
        cast
    }

    /// Runs SQL as the superuser.
    fn execute(&self, sql: &str) -> String {
        postgres().execute(name(&self.ground), sql)
    }

    /// Asserts that an instance of the member does not start.
    async fn cannot_start(&self, words: &[&str]) {
        let started = App::try_start(&self.service, |_| {}).await;
        let error = started.err().expect("the instance must not start");
        let told = format!("{:#}", anyhow::Error::new(error));
        for word in words {
            assert!(told.contains(word), "{word}: {told}");
        }
    }
}

fn name(ground: &Ground) -> &str {
    ground.database_url.rsplit('/').next().expect("a name")
}

fn user(ground: &Ground) -> &str {
    let (_, rest) = ground.database_url.split_once("//").expect("a URL");
    rest.split('@').next().expect("a user")
}

fn of_user(ground: &Ground, user: &str) -> Ground {
    let mut ground = ground.clone();
    let url = ground
        .database_url
        .replace("//postgres@", &format!("//{user}@"));
    ground.database_url = url;
    ground
}

fn options(ground: &Ground) -> LedgerOptions {
    LedgerOptions {
        url: ground.database_url.clone(),
        claim_timeout: Duration::from_secs(30),
        query_timeout: Duration::from_secs(30),
    }
}

/// Migrates as `perdiem migrate` does.
async fn migrate(ground: &Ground, role: &str) -> Result<Option<String>, ServiceRoleError> {
    let ledger = Ledger::open(&options(ground), instant(NOON)).await;
    let ledger = ledger.unwrap_or_else(|error| panic!("{error:?}"));
    let role: RoleName = role.parse().expect("a name");
    let set_up = ledger.set_up_role(&role).await;
    ledger.close().await;
    set_up
}

/// A connection of one user, which tries statements.
struct Trier(PgConnection);

impl Trier {
    async fn of(ground: &Ground) -> Self {
        let connection = PgConnection::connect(&ground.database_url).await;
        Self(connection.expect("a connection"))
    }

    /// PostgreSQL's code for the error of a statement.
    async fn fault(&mut self, sql: &str) -> Option<String> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.0).await;
        let error = done.err()?;
        let code = error.as_database_error().and_then(|error| error.code());
        Some(
            code.unwrap_or_else(|| panic!("{sql}: {error}"))
                .into_owned(),
        )
    }

    async fn may(&mut self, sql: &str) {
        assert_eq!(self.fault(sql).await, None, "{sql}");
    }

    /// Asserts that this user has no right to the statement: insufficient_privilege.
    async fn may_not(&mut self, sql: &str) {
        assert_eq!(self.fault(sql).await.as_deref(), Some("42501"), "{sql}");
    }

    async fn rows<T>(&mut self, sql: &'static str) -> Vec<T>
    where
        T: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
    {
        let rows = sqlx::query_as(sql).fetch_all(&mut self.0).await;
        rows.expect("rows")
    }
}

/// A member of the role can do everything that the service does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_role_is_enough_to_serve() {
    let cast = Cast::migrated().await;
    let app = App::start(&cast.service).await;
    let rule = |max: u64| json!({ "time_zone": "UTC", "limits": [{ "max": max, "per": "day" }] });
    app.benefit(3, "UTC").await;
    app.benefit(4, "GMT+8").await;
    app.ask("PUT /v1/policies/sms", rule(2)).await.is(201);
    let mut counted = rule(9);
    counted["durability"] = json!("counted");
    app.ask("PUT /v1/policies/tea", counted).await.is(201);
    for max in [7, 8] {
        app.override_day("vip", max).await;
    }
    assert_eq!(app.delete_override("vip").await.status, 200);
    let key = json!({ "name": "a till", "role": "claim", "reason": "a test" });
    let key = app.ask("POST /v1/keys", key).await.is(201);
    let id = key["id"].as_str().expect("an id");
    let replace = format!("POST /v1/keys/{id}/replacement");
    let replaced = app.ask(&replace, json!({ "reason": "a test" })).await;
    let secret = replaced.is(201)["secret"].clone();
    let secret = secret.as_str().expect("a secret");
    let own = app.ask_as(secret, "GET /v1/keys/me", json!(null)).await;
    assert_eq!(own.status, 200, "{own:?}");
    let revoke = app.request(Method::DELETE, &format!("/v1/keys/{id}?reason=a+test"));
    assert!(Answer::of(revoke).await.status.is_success());

    // Claims and their corrections.
    let first = app.claim("a", Some("order-1")).await;
    assert_eq!(
        app.claim("a", Some("order-1")).await.grant_id(),
        first.grant_id()
    );
    assert_eq!(app.reverse(&first.grant_id(), "a test").await.status, 201);
    let hold = json!({ "subject": "a", "hold_seconds": 600, "metadata": { "order": "A-17" } });
    let hold = app.claim_body(hold, None).await;
    assert!(app.confirm(&hold.grant_id()).await.status.is_success());
    let units = json!({ "units": 2, "reason": "a test" });
    assert_eq!(app.adjust("b", units, Some("order-2")).await.status, 201);
    let batch = ["b", "c"].map(|subject| json!({ "policy": "benefit", "subject": subject }));
    let batch = json!({ "claims": batch, "atomic": true });
    app.ask("POST /v1/claims", batch).await.is(200);
    for expected in [201, 201, 429, 429] {
        let claim = json!({ "subject": "d" });
        assert_eq!(app.claim_under("sms", claim, None).await.status, expected);
    }
    for _ in 0..3 {
        let claim = json!({ "subject": "e" });
        assert_eq!(app.claim_under("tea", claim, None).await.status, 201);
    }
    Books::open(&cast.ground).await.counters_follow().await;

    // The data that is made from them.
    all_is_recorded(&app, &cast.ground).await;
    are_sums_of_the_entries(&app).await;
    eventually("the denials are written", || async {
        cast.execute("SELECT sum(denied) FROM denied_claims") == "2"
            && cast.execute("SELECT count(*) FROM first_denials") == "1"
    })
    .await;
    eventually("the use of a key is written", || async {
        cast.execute("SELECT count(*) FROM key_uses") == "1"
    })
    .await;
    let export = app.get("/v1/entries/export?format=ndjson").await;
    assert_eq!(export.status, 200, "{export:?}");
    let hand = Hand::of(&cast.ground).await;
    let counter = Books::open(&cast.ground).await.account_of("a");
    hand.run::<i64>(&["HSET", &hand.counter(counter), "number", "9"])
        .await;
    let heal = json!({ "apply": true });
    let report = app.ask("POST /v1/reconciliations", heal).await.is(201);
    assert_eq!(
        (&report["healed_count"], &report["alarm_count"]),
        (&json!(1), &json!(0))
    );
    let days = json!({ "policy": rule(1), "from": "2026-11-01", "to": "2026-11-03" });
    let backtest = app.ask("POST /v1/policies/benefit/backtest", days).await;
    assert!(backtest.status.is_success(), "{backtest:?}");
    app.get("/readyz").await.is(200);
    assert_eq!(cast.execute("SELECT count(*) FROM instances"), "1");
}

/// An erasure runs to its end. The functions that change appended rows refuse every other subject.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subject_is_erased_with_it() {
    let cast = Cast::migrated().await;
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_with(&cast.service, |options| {
        options.record_reads = true;
        options.clock = Clock::Manual(clock.clone());
    })
    .await;
    app.benefit(3, "UTC").await;
    app.override_day("a", 2).await;
    app.get("/v1/policies/benefit/subjects/a").await.is(200);
    let claim = json!({ "subject": "a", "metadata": { "order": "A-17" } });
    let grant = app.claim_body(claim, Some("order-1")).await.grant_id();
    assert_eq!(app.reverse(&grant, "a told us").await.status, 201);
    app.claim("b", None).await;
    let reason = json!({ "reason": "request 17" });
    let erased = app.ask("POST /v1/subjects/a/erasure", reason).await;
    assert!(erased.status.is_success(), "{erased:?}");
    let texts = "SELECT count(*) FROM accounts, entries, entry_details, overrides
        WHERE accounts.subject = 'a' OR overrides.subject = 'a' OR entries.metadata IS NOT NULL
            OR entry_details.reason IS NOT NULL";
    eventually("the texts are erased", || async {
        cast.execute(texts) == "0"
    })
    .await;
    for (days, done) in [
        (2, "SELECT count(*) = 1 FROM erased_accounts"),
        (3, "SELECT count(*) = 0 FROM erasing_accounts"),
    ] {
        clock.advance(TimeDelta::days(days));
        eventually(done, || async {
            // An instance learns the end of the override within a minute.
            clock.advance(TimeDelta::minutes(1));
            cast.execute(done) == "t"
        })
        .await;
    }
    let keys = "SELECT count(*) FROM entries WHERE key IS NOT NULL";
    assert_eq!(cast.execute(keys), "0");
    let reads = "SELECT about FROM acts WHERE kind = 'read'";
    let erased = r#"{"erased":["subject"],"filters":{"policy":"benefit"},"read":"usage"}"#;
    assert_eq!(cast.execute(reads), erased);
    let mut trier = Trier::of(&cast.service).await;
    for function in [
        "erase_entries(account, 0, 9)",
        "erase_names(account)",
        "replace_entries(account, gen_random_uuid(), 0, 9)",
        "clear_keys(account, 0, 9)",
        "close_account(account, gen_random_uuid())",
        "replace_override(account, gen_random_uuid())",
    ] {
        let of_other = "(SELECT id AS account FROM accounts WHERE subject = 'b') AS other";
        let call = format!("SELECT {function} FROM {of_other}");
        let fault = trier.fault(&call);
        let is_harmless = function.starts_with("clear_keys");
        let refused = (!is_harmless).then_some("P0001");
        assert_eq!(fault.await.as_deref(), refused, "{function}");
    }
    assert_eq!(
        cast.execute("SELECT count(*) FROM accounts WHERE subject = 'b'"),
        "1"
    );
}

/// Only the owner drops archived entries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_dropped_with_it() {
    let cast = Cast::migrated().await;
    let outside = tempfile::tempdir().expect("a temporary folder");
    let order = ArchiveOrder {
        folder: outside.path().join("archive"),
        before: instant("2024-01-01T00:00:00Z"),
        reason: None,
        key: None,
    };
    let refusal = async |ground: &Ground| {
        let ledger = ledger(ground).await;
        let dropped = drop_archived(&ledger, &order, instant(NOON), |_, _| (), |_, _| ()).await;
        ledger.close().await;
        dropped.expect_err("a refusal").to_string()
    };
    let refused = refusal(&cast.service).await;
    assert!(refused.contains("only the owner"), "{refused}");
    let refused = refusal(&cast.owner).await;
    assert!(
        refused.contains("nothing of this ledger is sealed"),
        "{refused}"
    );
    let mut trier = Trier::of(&cast.service).await;
    for sql in [
        "DELETE FROM entries",
        "DELETE FROM entry_details",
        "INSERT INTO dropped_entries SELECT xact, id, 1, policy FROM entries",
        "INSERT INTO cuts SELECT id, at, 1 FROM entries",
        "UPDATE day_figures_mark SET kept_to = NULL",
        "INSERT INTO acts (revision, kind, about, changed_at, changed_by, blind)
         VALUES ((SELECT revision FROM ledger), 'cut', '{}', '2026-01-01', 'x', gen_random_uuid())",
    ] {
        trier.may_not(sql).await;
    }
}

/// Also if the owner had given more rights before, to the role or to everyone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_appended_can_be_changed_with_it() {
    let cast = Cast::migrated().await;
    drop(App::start(&cast.service).await);
    let role = format!("role_{}", Uuid::new_v4().simple());
    cast.execute(&format!(
        "CREATE ROLE {role}; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role};
         GRANT UPDATE (units) ON entries TO {role}; GRANT ALL ON entries, acts TO PUBLIC;
         REVOKE {ROLE} FROM {service}; GRANT {role} TO {service}",
        service = user(&cast.service)
    ));
    let mut trier = Trier::of(&cast.service).await;
    // Only the trigger refuses it.
    let fault = trier.fault("DELETE FROM seals").await;
    assert_eq!(fault.as_deref(), Some("P0001"));
    let set_up = migrate(&cast.owner, &role)
        .await
        .expect("the role is set up");
    assert_eq!(set_up.as_deref(), Some(role.as_str()));

    let columns: Vec<(String, String)> = trier
        .rows(
            "SELECT relname::text, attname::text
             FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
             WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'm', 'f')
                 AND attnum > 0 AND NOT attisdropped",
        )
        .await;
    for (table, column) in &columns {
        let changed = CHANGED.iter().find(|(changed, _)| changed == table);
        let update = format!("UPDATE {table} SET {column} = DEFAULT WHERE false");
        if changed.is_some_and(|(_, columns)| columns.contains(&column.as_str())) {
            trier.may(&update).await
        } else {
            trier.may_not(&update).await
        }
    }
    let mut tables: Vec<&String> = columns.iter().map(|(table, _)| table).collect();
    tables.dedup();
    assert!(tables.len() > 15, "{tables:?}");
    for table in tables {
        let read = trier.fault(&format!("SELECT count(*) FROM {table}")).await;
        assert_eq!(
            read, None,
            "src/ledger/service_role.rs has no rights for {table}"
        );
        let delete = format!("DELETE FROM {table} WHERE false");
        if FORGOTTEN.contains(&table.as_str()) {
            trier.may(&delete).await
        } else {
            trier.may_not(&delete).await
        }
        for sql in [
            format!("TRUNCATE {table}"),
            format!("DROP TABLE {table}"),
            format!("ALTER TABLE {table} ADD COLUMN more text"),
            format!("ALTER TABLE {table} DISABLE TRIGGER ALL"),
            format!("ALTER TABLE {table} OWNER TO {}", user(&cast.service)),
            format!("CREATE RULE more AS ON INSERT TO {table} DO INSTEAD NOTHING"),
            format!(
                "CREATE TRIGGER more BEFORE INSERT ON {table} FOR EACH ROW
                 EXECUTE FUNCTION suppress_redundant_updates_trigger()"
            ),
        ] {
            trier.may_not(&sql).await;
        }
    }
    // A view is read with the rights of its owner, so a right to change it would change tables.
    let views: Vec<(String, bool)> = trier
        .rows(
            "SELECT relname::text, has_table_privilege(oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')
                 OR has_any_column_privilege(oid, 'INSERT, UPDATE')
             FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'v'",
        )
        .await;
    assert!(views.len() > 10, "{views:?}");
    for (view, may_change) in views {
        trier.may(&format!("SELECT * FROM {view} LIMIT 1")).await;
        assert!(!may_change, "{view} can be changed");
        trier.may_not(&format!("DROP VIEW {view}")).await;
        trier
            .may_not(&format!("CREATE OR REPLACE VIEW {view} AS SELECT 1 AS one"))
            .await;
    }
    let triggers: Vec<(String, String)> = trier
        .rows("SELECT tgname::text, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal")
        .await;
    assert!(triggers.len() > 3, "{triggers:?}");
    for (trigger, table) in triggers {
        trier
            .may_not(&format!("DROP TRIGGER {trigger} ON {table}"))
            .await;
        trier
            .may_not(&format!("ALTER TABLE {table} DISABLE TRIGGER {trigger}"))
            .await;
    }
    let functions: Vec<(String, bool)> = trier
        .rows(
            "SELECT oid::regprocedure::text, has_function_privilege(oid, 'EXECUTE') FROM pg_proc
             WHERE pronamespace = 'public'::regnamespace",
        )
        .await;
    // Nobody's temporary table takes the place of one that a function reads.
    let fixed: Vec<(String, bool)> = trier
        .rows(
            "SELECT oid::regprocedure::text,
                 COALESCE('search_path=public, pg_temp' = ANY(proconfig), false)
             FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
        )
        .await;
    for (function, is_fixed) in fixed {
        assert!(is_fixed, "{function} has no search_path");
    }
    // The service may call the functions that erase. Triggers and those functions call the others.
    for (function, may_call) in functions {
        let is_of_others = ["refuse_", "let_", "want_"].iter();
        let is_of_others = is_of_others.clone().any(|of| function.starts_with(of));
        assert_eq!(may_call, !is_of_others, "{function}");
    }
    for sql in [
        "CREATE OR REPLACE FUNCTION refuse_to_change_entries() RETURNS trigger LANGUAGE plpgsql
         AS $$ BEGIN RETURN NULL; END $$",
        "DROP FUNCTION refuse_to_change_entries()",
        "SET session_replication_role = replica",
        "DO 'BEGIN LOCK TABLE entries IN ACCESS EXCLUSIVE MODE; END'",
        "SELECT setval('policies_id_seq', 1)",
        "CREATE TABLE more (id int)",
        // A place in the record that belongs to another transaction.
        "INSERT INTO entries (xact) VALUES (1)",
        "INSERT INTO policy_versions (xact) VALUES (1)",
        "INSERT INTO key_versions (xact) VALUES (1)",
        "INSERT INTO override_versions (xact) VALUES (1)",
        "INSERT INTO acts (xact) VALUES (1)",
        "INSERT INTO ledger SELECT * FROM ledger",
        &format!("SET ROLE {}", user(&cast.owner)),
        &format!("ALTER ROLE {role} SUPERUSER"),
    ] {
        trier.may_not(sql).await;
    }
}

/// A user that may read the views alone can read all of them, and no table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_the_views_reads_no_table() {
    let cast = Cast::migrated().await;
    let app = App::start(&cast.service).await;
    app.benefit(3, "UTC").await;
    app.claim("a", None).await;
    let user = user(&cast.service).replace("service", "reader");
    let reader = of_user(&cast.ground, &user);
    let views =
        cast.execute("SELECT string_agg(viewname, ', ') FROM pg_views WHERE schemaname = 'public'");
    cast.execute(&format!(
        "CREATE ROLE {user} LOGIN; GRANT SELECT ON {views} TO {user}"
    ));
    let mut trier = Trier::of(&reader).await;
    for view in views.split(", ") {
        trier.may(&format!("SELECT * FROM {view}")).await;
        trier.may_not(&format!("DROP VIEW {view}")).await;
    }
    let grants: Vec<(String, String)> = trier.rows("SELECT subject, state FROM grant_rows").await;
    assert_eq!(grants, [("a".to_owned(), "granted".to_owned())]);
    for table in [
        "entries",
        "entry_details",
        "accounts",
        "keys",
        "erasing_accounts",
    ] {
        trier.may_not(&format!("SELECT * FROM {table}")).await;
    }
    trier.may_not("DELETE FROM named_keys").await;
}

/// One user migrates and another one serves. The service's message says what the owner must do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_needs_the_owner_says_so() {
    let cast = Cast::new();
    migrate(&cast.owner, ROLE)
        .await
        .expect("the owner migrates");
    cast.cannot_start(&[
        "has no right to the ledger",
        "perdiem migrate",
        "permission denied",
    ])
    .await;
    cast.execute(&format!("GRANT {ROLE} TO {}", user(&cast.service)));
    drop(App::start(&cast.service).await);

    // The ledger was restored into another cluster.
    cast.execute("UPDATE ledger SET xact_offset = xact_offset + 5000000000");
    cast.cannot_start(&[
        "transaction numbers are lower",
        "perdiem migrate as the owner",
    ])
    .await;
    migrate(&cast.owner, ROLE)
        .await
        .expect("the owner migrates");
    drop(App::start(&cast.service).await);

    // The service cannot give itself rights.
    let refused = migrate(&cast.service, ROLE)
        .await
        .expect_err("the user is not the owner");
    assert!(
        matches!(refused, ServiceRoleError::NotOwner { .. }),
        "{refused:?}"
    );
}

/// The ledger is older than the program: only its owner migrates it.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_does_not_migrate() {
    let cast = Cast::migrated().await;
    let next = "CREATE TABLE next (id integer)";
    let options = options(&cast.service);
    let opened = Ledger::open_with_next(&options, Opening::Make, next, instant(NOON));
    let Err(refused) = opened.await.map(drop) else {
        panic!("a member has migrated the ledger")
    };
    let remedy = format!("run perdiem migrate as {}", user(&cast.owner));
    assert!(refused.to_string().contains(&remedy), "{refused}");
}

/// A role belongs to the cluster. Owners of several ledgers make the role at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_make_one_role_at_once() {
    for _ in 0..3 {
        let role = format!("Role {}", Uuid::new_v4());
        let grounds = [(); 3].map(|()| Ground::empty(Stack::Postgres));
        let mut migrations = JoinSet::new();
        for ground in grounds.iter().flat_map(|ground| [ground, ground]) {
            let ground = ground.clone();
            let role = role.clone();
            migrations.spawn(async move { migrate(&ground, &role).await });
        }
        for migrated in migrations.join_all().await {
            let quoted = migrated.expect("the role is set up");
            assert_eq!(quoted, Some(format!("\"{role}\"")));
        }
    }
}
