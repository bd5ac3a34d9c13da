//! PgBouncer between perdiem and PostgreSQL.

use serde_json::json;

use super::{Process, folder, setting_fault};
use crate::support::app::{Answer, KEY, client};
use crate::support::servers::{PgBouncer, Postgres};

/// Refuses each entry of a session without perdiem's settings.
const SETTINGS_ARE_SET: &str = "
    CREATE FUNCTION check_session() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF current_setting('synchronous_commit') <> 'on'
            OR '0' IN (current_setting('statement_timeout'), current_setting('lock_timeout'),
                current_setting('idle_in_transaction_session_timeout'))
        THEN
            RAISE 'a session lacks its settings';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER check_session BEFORE INSERT ON entries
        FOR EACH ROW EXECUTE FUNCTION check_session()";

/// PgBouncer with its default settings refuses a start-up message with settings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_a_pooler_have_their_settings() {
    let postgres = Postgres::start_with(&["synchronous_commit=off"]);
    let pooler = PgBouncer::before(&postgres, &["pool_mode = session"]);
    let url = pooler.url(&postgres.create_database());
    let name = url.rsplit('/').next().expect("a name");
    super::migrate(&url);
    postgres.execute(name, SETTINGS_ARE_SET);
    let folder = folder();
    let settings = [("DATABASE_URL", &*url), ("PERDIEM_ADMIN_KEY", KEY)];
    let (server, address) = Process::serve(folder.path(), &settings);
    let policy = client().put(format!("{address}/v1/policies/benefit"));
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    let made = Answer::of(policy.bearer_auth(KEY).json(&rule)).await;
    assert_eq!(made.status, 201, "{made:?}");
    for status in [201, 201, 201, 429] {
        let claim = client().post(format!("{address}/v1/policies/benefit/claims"));
        let claim = claim
            .bearer_auth(KEY)
            .json(&json!({ "subject": "member-42" }));
        let answer = Answer::of(claim).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let listed = super::get(&address, "/v1/grants?policy=benefit", KEY).await;
    assert_eq!(listed.json()["items"].as_array().map(Vec::len), Some(3));
    server.end();
}

#[test]
fn a_pooler_that_shares_sessions_is_told_at_the_start() {
    let postgres = Postgres::start();
    for (settings, unit) in [
        (["pool_mode = transaction", ""], "each transaction"),
        (
            ["pool_mode = transaction", "server_round_robin = 1"],
            "each transaction",
        ),
        (["pool_mode = statement", ""], "each statement"),
    ] {
        let pooler = PgBouncer::before(&postgres, &settings);
        let url = pooler.url(&postgres.create_database());
        setting_fault(
            &[("DATABASE_URL", &url)],
            &[unit, "pool_mode = session", "DATABASE_URL"],
        );
    }
}
