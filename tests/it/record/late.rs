//! Units that count on an earlier day than the day of their record.

use std::time::Duration;

use chrono::TimeDelta;
use perdiem::host::clock::{Clock, ManualClock};
use serde_json::json;

use crate::http::items;
use crate::http::v1::statistics::are_sums_of_the_entries;
use crate::support::app::{App, Ground, Stack, eventually, instant};
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::{Postgres, Redis};

/// Redis decides just before midnight, while the ledger does not answer. The ledger gets the grant
/// on the next day. An adjustment then adds units to the day before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_in_the_figures_of_its_day() {
    let postgres = Postgres::start();
    let redis = Redis::start();
    let proxy = Proxy::before(postgres.port()).await;
    let mut ground = Ground::new(Stack::Sqlite);
    ground.database_url = proxy.url(&postgres.create_database());
    ground.redis_url = Some(redis.url());
    let clock = ManualClock::at(instant("2026-11-21T15:30:00Z"));
    let app = App::start_with(&ground, |options| {
        options.clock = Clock::Manual(clock.clone());
        options.claim_deadline = Duration::from_secs(12);
        options.redis_timeout = Duration::from_secs(2);
    })
    .await;
    let limits = json!([{ "max": 3, "per": "day" }]);
    let rule = json!({ "time_zone": "GMT+8", "limits": limits, "on_ledger_outage": "count" });
    app.put_policy("benefit", rule).await;
    proxy.set(Mode::Refuse);
    let counted = app.claim("a", None).await;
    assert_eq!(counted.status, 201, "{counted:?}");
    assert_eq!(counted.json()["provisional"], true, "{counted:?}");
    clock.advance(TimeDelta::hours(1));
    proxy.set(Mode::Pass);
    let adjusted = json!({ "units": 2, "at": "2026-11-21T15:59:59Z", "reason": "a test" });
    eventually("the adjustment is accepted", || async {
        let key = Some("one adjustment");
        app.adjust("b", adjusted.clone(), key)
            .await
            .status
            .is_success()
    })
    .await;
    let entries = async || {
        let list = app.get("/v1/entries").await;
        if list.status == 200 {
            items(&list)
        } else {
            Vec::new()
        }
    };
    eventually("both are recorded", || async { entries().await.len() == 2 }).await;
    for entry in entries().await {
        let recorded_at = instant(entry["recorded_at"].as_str().expect("an instant"));
        assert_eq!(entry["counted_on"], "2026-11-21", "{entry}");
        assert_eq!(recorded_at, instant("2026-11-21T16:30:00Z"), "{entry}");
    }
    let days = are_sums_of_the_entries(&app).await;
    assert_eq!(days.len(), 1);
    let figures = ["provisional_grants", "units", "adjusted_up_units"];
    assert_eq!(
        figures.map(|figure| days[0][figure].as_u64()),
        [Some(1), Some(1), Some(2)]
    );
    let since = "/v1/stats?policy=benefit&recorded_from=2026-11-22";
    assert_eq!(items(&app.get(since).await), days);
    let then = "/v1/stats?policy=benefit&recorded_to=2026-11-22";
    assert!(items(&app.get(then).await).is_empty());
}
