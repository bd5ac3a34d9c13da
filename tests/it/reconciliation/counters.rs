//! Counters that differ from the ledger are found, and healed on request.

use perdiem::counter::Reading;
use perdiem::domain::identity::AccountId;
use perdiem::domain::limit::text::encode_totals;
use perdiem::domain::line_text::totals_of;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Scene, kinds, nothing_differs, reconcile, with_redis};
use crate::http::{problem, replace};
use crate::support::app::{Stack, eventually, on_every_stack};
use crate::support::desk::on_every_store;
use crate::support::servers::Redis;

on_every_stack!(a_sound_ledger_has_nothing_that_differs);
on_every_store!(
    counters_that_are_wrong_are_found_and_healed,
    a_denial_by_a_total_heals_a_counter,
    what_is_no_counter_is_replaced,
    orphans_are_deleted,
    other_keys_are_left_alone,
    a_report_is_bounded,
);

async fn a_sound_ledger_has_nothing_that_differs(stack: Stack) {
    let scene = Scene::new(stack).await;
    nothing_differs(&scene.app, true).await;
    for (subject, count) in [("member-1", 5), ("member-2", 1)] {
        scene.grants(subject, count).await;
    }
    assert_eq!(scene.app.claim("member-1", None).await.status, 429);
    for apply in [false, true] {
        let report = nothing_differs(&scene.app, apply).await;
        let counters = match stack {
            Stack::Sqlite | Stack::Postgres => ("absent", 0),
            Stack::RedisAndSqlite | Stack::RedisAndPostgres => ("compared", 2),
        };
        assert_eq!(report["counters"], counters.0);
        // Redis can return a counter twice while its table grows.
        assert!(report["counter_count"].as_u64() >= Some(counters.1));
        assert_eq!(report["account_count"], 2);
        assert_eq!(report["entry_count"], 6);
        assert_eq!(report["requested_by"], "PERDIEM_ADMIN_KEY");
    }
}

/// Plants a line in a counter: its number and its units.
async fn plant(scene: &Scene, subject: &str, number: u64, used: u64) {
    let name = scene.counter_of(subject);
    let line: String = scene.run(&["HGET", &name, "line"]).await;
    let (start, totals) = line.rsplit_once(' ').expect("totals");
    let mut totals = totals_of(totals).expect("totals");
    totals[0].set_used(used);
    let line = format!("{start} {}", encode_totals(&totals));
    let number = number.to_string();
    let _: i64 = scene
        .run(&["HSET", &name, "number", &number, "line", &line])
        .await;
}

/// The number of the last line in the subject's counter.
async fn number(scene: &Scene, subject: &str) -> Option<u64> {
    match scene.reading(subject).await {
        Reading::Present { line, .. } => line.map(|line| line.number),
        Reading::Absent => None,
    }
}

async fn counters_that_are_wrong_are_found_and_healed(stack: Stack) {
    let scene = Scene::new(with_redis(stack)).await;
    let cases = [
        ("too-high", 9, 5, "counter_too_high"),
        ("too-low", 1, 1, "counter_lags"),
        ("another", 3, 5, "counter_differs"),
        ("as-it-is", 3, 3, ""),
    ];
    for (subject, ..) in cases {
        scene.grants(subject, 3).await;
    }
    for (subject, number, used, _) in cases {
        plant(&scene, subject, number, used).await;
    }
    let mut expected: Vec<&str> = cases.iter().map(|case| case.3).collect();
    expected.retain(|kind| !kind.is_empty());
    expected.sort_unstable();
    for apply in [false, false, true] {
        let report = reconcile(&scene.app, apply).await;
        assert_eq!(kinds(&report), expected, "{report}");
        assert_eq!(report["difference_count"], 3);
        assert_eq!(report["alarm_count"], 0);
        assert_eq!(report["healed_count"], if apply { 3 } else { 0 });
        for difference in report["differences"].as_array().expect("differences") {
            let case = cases.iter().find(|case| difference["subject"] == case.0);
            let (subject, number, used, kind) = case.expect("a subject");
            let window = json!({
                "per": "day", "found": used, "expected": 3,
                "window_start": "2026-11-20T16:00:00Z", "resets_at": "2026-11-21T16:00:00Z",
            });
            let expected = json!({
                "kind": kind, "policy": "benefit", "subject": subject, "alarm": false,
                "healed": apply, "found_number": number, "expected_number": 3,
                "windows": [window], "account": difference["account"],
                "figure": null, "date": null,
            });
            assert_eq!(*difference, expected);
        }
    }
    scene.books.counters_follow().await;
    nothing_differs(&scene.app, false).await;
    // A counter that denied too much denies no more, and no counter grants too much.
    for (subject, ..) in cases {
        scene.grants(subject, 2).await;
        assert_eq!(scene.app.claim(subject, None).await.status, 429);
        let ttl: i64 = scene.run(&["PTTL", &scene.counter_of(subject)]).await;
        assert!(ttl > 0, "{subject}: {ttl}");
    }
    nothing_differs(&scene.app, true).await;
}

/// A counter that denies what the total of all subjects denies is confirmed too.
async fn a_denial_by_a_total_heals_a_counter(stack: Stack) {
    let scene = Scene::new(with_redis(stack)).await;
    scene.grants("member-1", 3).await;
    let limits = json!([{ "max": 5, "per": "day" }]);
    let total = json!([{ "max": 1, "per": "day" }]);
    let put = json!({ "limits": limits, "total": total });
    replace(&scene.app, put).await;
    scene.app.claim("member-2", None).await.is(201);
    plant(&scene, "member-1", 9, 5).await;
    let name = scene.counter_of("member-1");
    let _: i64 = scene.run(&["HSET", &name, "confirmed", "0"]).await;
    let denied = scene.app.claim("member-1", None).await;
    let body = problem(&denied, 429, "quota-exceeded");
    assert_eq!(body["violated-policies"], json!(["total day"]));
    eventually("the counter follows", || async {
        number(&scene, "member-1").await == Some(3)
    })
    .await;
    nothing_differs(&scene.app, false).await;
}

async fn what_is_no_counter_is_replaced(stack: Stack) {
    let scene = Scene::new(with_redis(stack)).await;
    let junk: [&[&str]; 9] = [
        &["SET", "", "junk"],
        &["LPUSH", "", "junk"],
        &["SADD", "", "junk"],
        &["HSET", "", "number", "junk"],
        &["HSET", "", "number", "99999999999999999999999999"],
        // The script treats these as counters with higher numbers.
        &["HSET", "", "number", "9", "line", "1 2 - d1"],
        &["HSET", "", "number", "9", "line", "1 2 - d1,junk"],
        &["HDEL", "", "line"],
        &["HDEL", "", "number", "line", "confirmed", "keys"],
    ];
    let subject = |index: usize| format!("member-{index}");
    for index in 0..junk.len() {
        scene.grants(&subject(index), 2).await;
    }
    let mut planted = Vec::new();
    for (index, words) in junk.iter().enumerate() {
        let subject = subject(index);
        let name = scene.counter_of(&subject);
        if !words[0].starts_with('H') {
            let _: i64 = scene.run(&["DEL", &name]).await;
        }
        let mut words = words.to_vec();
        words[1] = &name;
        let _: redis::Value = scene.run(&words).await;
        planted.push(subject);
    }
    // A hash without fields does not exist.
    let gone = planted.pop().expect("a subject");
    assert_eq!(scene.reading(&gone).await, Reading::Absent);
    for apply in [false, true] {
        let report = reconcile(&scene.app, apply).await;
        let kinds = kinds(&report);
        assert_eq!(kinds.len(), planted.len(), "{report}");
        assert!(kinds.iter().all(|kind| *kind == "counter_unreadable"));
        assert_eq!(
            report["healed_count"],
            if apply { planted.len() } else { 0 },
            "{report}"
        );
        let window = &report["differences"][0]["windows"][0];
        assert_eq!(window["found"], Value::Null);
        assert_eq!(window["expected"], 2);
    }
    for subject in &planted {
        assert_eq!(number(&scene, subject).await, Some(2), "{subject}");
    }
    nothing_differs(&scene.app, false).await;
}

async fn orphans_are_deleted(stack: Stack) {
    let scene = Scene::new(with_redis(stack)).await;
    scene.grants("member-42", 2).await;
    let orphan = |number: u128| {
        scene
            .hand()
            .counter(AccountId(Uuid::from_u128(number << 64 | number)))
    };
    let source = scene.counter_of("member-42");
    let _: i64 = scene.run(&["COPY", &source, &orphan(7)]).await;
    let _: () = scene.run(&["SET", &orphan(8), "junk"]).await;
    let _: i64 = scene.run(&["HSET", &orphan(9), "number", "007"]).await;
    for apply in [false, true] {
        let report = reconcile(&scene.app, apply).await;
        assert_eq!(kinds(&report), ["counter_orphaned"; 3], "{report}");
        assert_eq!(report["healed_count"], if apply { 3 } else { 0 });
        for difference in report["differences"].as_array().expect("differences") {
            assert_eq!(difference["policy"], Value::Null);
            assert_eq!(difference["subject"], Value::Null);
            assert!(difference["account"].is_string());
            assert_eq!(difference["expected_number"], Value::Null);
        }
    }
    for number in 7..10 {
        let left: i64 = scene.run(&["EXISTS", &orphan(number)]).await;
        assert_eq!(left, 0);
    }
    assert_eq!(number(&scene, "member-42").await, Some(2));
    nothing_differs(&scene.app, false).await;
}

/// Keys with the same tags, and keys of other ledgers.
async fn other_keys_are_left_alone(stack: Stack) {
    let scene = Scene::new(with_redis(stack)).await;
    scene.grants("member-42", 1).await;
    let name = scene.counter_of("member-42");
    let (tag, account) = name.rsplit_once(':').expect("an account");
    let other_ledger = Uuid::new_v4().simple().to_string();
    let own_ledger = scene.books.ledger.identity().id.simple().to_string();
    let others = [
        format!("{tag}:queue"),
        format!("{name}:counted"),
        format!("{tag}:{}", account.to_uppercase()),
        format!("{tag}:{}", &account[1..]),
        format!("{tag}:{account}0"),
        format!("{tag}:{}", Uuid::new_v4()),
        format!("perdiem:{{{own_ledger}:zz}}:{account}"),
        name.replace(&own_ledger, &other_ledger),
    ];
    // The account has letters among its digits, so that its upper case is another name.
    assert!(account.chars().any(|digit| digit.is_ascii_alphabetic()));
    for other in &others {
        let _: () = scene.run(&["SET", other, "junk"]).await;
    }
    nothing_differs(&scene.app, true).await;
    for other in &others {
        let kept: String = scene.run(&["GET", other]).await;
        assert_eq!(kept, "junk");
        let _: i64 = scene.run(&["DEL", other]).await;
    }
}

async fn a_report_is_bounded(stack: Stack) {
    const ORPHANS: u64 = 1100;
    let scene = Scene::new(with_redis(stack)).await;
    let mut orphans = redis::pipe();
    for number in 0..ORPHANS {
        let account = AccountId(Uuid::from_u64_pair(number << 50, number + 1));
        orphans
            .cmd("SET")
            .arg(scene.hand().counter(account))
            .arg("junk");
    }
    scene.hand().pipe(&orphans).await;
    let report = reconcile(&scene.app, true).await;
    let differences = report["differences"].as_array().expect("differences");
    assert_eq!(differences.len(), 1000);
    assert_eq!(report["difference_count"], ORPHANS, "{}", report["id"]);
    assert_eq!(report["healed_count"], ORPHANS);
    nothing_differs(&scene.app, false).await;
}

/// The ledger is checked although Redis is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_down_is_told() {
    for stack in [Stack::RedisAndSqlite, Stack::RedisAndPostgres] {
        let mut redis = Redis::start();
        let mut ground = crate::support::app::Ground::new(stack);
        ground.redis_url = Some(redis.url());
        let scene = Scene::on(ground).await;
        scene.grants("member-42", 2).await;
        redis.kill();
        for apply in [false, true] {
            let report = nothing_differs(&scene.app, apply).await;
            assert_eq!(report["counters"], "unavailable");
            assert_eq!(report["entry_count"], 2);
        }
        redis.restart();
        eventually("Redis works again", || async {
            reconcile(&scene.app, false).await["counters"] == "compared"
        })
        .await;
    }
}
