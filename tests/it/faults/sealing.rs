//! Two instances seal one ledger, far from its database, and are killed in turns. Nobody changed
//! the ledger, so nobody may say so.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::trial::Trial;
use super::world::World;
use crate::seals::{seal_key, verified};
use crate::support::app::{Answer, Ground, KEY, client, eventually};
use crate::support::proxy::Mode;

/// How far the database is.
const FAR: Duration = Duration::from_millis(15);
/// How long instances are killed, without `PERDIEM_SEAL_KILLS_SECONDS`.
const SECONDS: u64 = 25;

/// Reads what instances report about the ledger, on and on.
struct Reader {
    heard: Arc<Mutex<BTreeSet<String>>>,
    reading: JoinHandle<()>,
}

impl Reader {
    fn of(urls: Vec<String>) -> Self {
        let heard = Arc::<Mutex<BTreeSet<String>>>::default();
        let reading = tokio::spawn(read_on(urls, heard.clone()));
        Self { heard, reading }
    }

    /// What was said about the seals.
    fn end(self) -> BTreeSet<String> {
        self.reading.abort();
        self.heard.lock().expect("no panic").clone()
    }
}

async fn read_on(urls: Vec<String>, heard: Arc<Mutex<BTreeSet<String>>>) {
    let http = client();
    loop {
        for url in &urls {
            // An instance that was just killed does not answer.
            let Ok(answer) = http.get(format!("{url}/readyz")).send().await else {
                continue;
            };
            let text = answer.text().await.unwrap_or_default();
            if text.contains("is not sealed") || text.contains("by hand") {
                heard.lock().expect("no panic").insert(text);
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealing_instances_are_killed_in_turns() {
    let seconds = std::env::var("PERDIEM_SEAL_KILLS_SECONDS");
    let seconds = seconds.map_or(SECONDS, |text| text.parse().expect("a number"));
    let folder = TempDir::new().expect("a folder");
    let key = folder.path().join("key");
    let outside = folder.path().join("outside");
    fs::write(&key, seal_key().secret()).expect("a file");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("a mode");
    fs::create_dir(&outside).expect("a folder");
    let world = World::plain().await;
    let mut setup = world.setup();
    setup.set("PERDIEM_SEAL_KEY_FILE", &key.display().to_string());
    setup.set("PERDIEM_SEAL_TO", &format!("file:{}", outside.display()));
    let ground = Ground::of_database(setup.database_url.clone());
    for proxy in &world.to_ledger {
        proxy.set(Mode::Late(FAR));
    }
    let mut trial = Trial::begin("sealing_instances_are_killed_in_turns", setup).await;
    let instances = trial.instances.iter();
    let urls: Vec<String> = instances.map(|one| one.process.url.clone()).collect();
    let sealed = async || {
        let latest = client().get(format!("{}/v1/seals/latest", urls[0]));
        let latest = Answer::of(latest.bearer_auth(KEY)).await;
        if latest.status.is_success() {
            latest.json()["size"].as_u64().expect("a size")
        } else {
            0
        }
    };
    let reader = Reader::of(urls.clone());
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut kills = 0;
    while Instant::now() < end {
        let victim = kills % 2;
        trial.pause(0, 900).await;
        trial.instances[victim].process.kill();
        trial.pause(0, 200).await;
        trial.instances[victim].start_again(&[]);
        kills += 1;
    }
    trial.mark("the last is back");
    trial.everybody_grants(20).await;
    for proxy in &world.to_ledger {
        proxy.set(Mode::Pass);
    }
    let ended = trial.judge().await;
    let recorded = async || {
        let list = client().get(format!("{}/v1/entries?limit=1", urls[0]));
        let list = Answer::of(list.bearer_auth(KEY)).await;
        list.json()["as_of"].as_u64().expect("a position")
    };
    let goal = recorded().await;
    eventually("everything is sealed", async || sealed().await >= goal).await;
    assert_eq!(reader.end(), BTreeSet::new(), "after {kills} kills");
    ended.finds_nothing().await;
    let well = verified(&ground, None).await;
    let well = well.unwrap_or_else(|error| panic!("after {kills} kills: {error}"));
    assert!(well.sealed >= goal, "{well:?}");
}
