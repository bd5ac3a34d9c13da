//! Groups of Redis servers: with Sentinel, and as a Cluster.

use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::servers::{Redis, find_in_path};

/// The longest time until servers agree.
const AGREED_WITHIN: Duration = Duration::from_secs(60);
/// The sentinels' name for the primary.
const NAME: &str = "perdiem";
const SENTINELS: usize = 3;
const SHARDS: usize = 3;
/// A primary sends its data to a replica without a wait for more replicas.
const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

/// Two servers, the second at first a replica of the first, and three sentinels. A primary that is
/// silent for a second counts as down.
pub struct Watched {
    pub servers: [Redis; 2],
    sentinels: Vec<Redis>,
}

impl Watched {
    /// Starts the sentinels, and a replica that connects to its primary at the port `source`, for
    /// example a proxy's port.
    pub fn start(primary: Redis, source: u16) -> Self {
        let source = source.to_string();
        let settings = [&["--replicaof", "127.0.0.1", &source], &AT_ONCE[..]].concat();
        let replica = Redis::start_with(&settings);
        let configuration = format!(
            "bind 127.0.0.1\n\
             sentinel monitor {NAME} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {NAME} 1000\n\
             sentinel failover-timeout {NAME} 60000\n",
            port = primary.port(),
        );
        let sentinels = (0..SENTINELS).map(|_| Redis::start_sentinel(&configuration));
        let watched = Self {
            servers: [primary, replica],
            sentinels: sentinels.collect(),
        };
        wait_until("the sentinels know each other and the replica", || {
            watched.sentinels.iter().all(|sentinel| {
                let facts: Vec<String> = sentinel.command(&["SENTINEL", "MASTER", NAME]);
                let fact = |name: &str| {
                    let place = facts.iter().position(|fact| fact == name)?;
                    facts.get(place + 1)?.parse::<usize>().ok()
                };
                fact("num-other-sentinels") == Some(SENTINELS - 1) && fact("num-slaves") == Some(1)
            })
        });
        wait_until("the replica is in step", || is_in_step(&watched.servers[1]));
        watched
    }

    /// The URL that leads to the present primary.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis+sentinel://{}/{NAME}", hosts.join(","))
    }

    /// The server that a majority of the sentinels treats as the primary.
    pub fn primary(&self) -> usize {
        let votes = |server: &Redis| {
            let port = server.port().to_string();
            let place = ["127.0.0.1".to_owned(), port];
            let names = |sentinel: &&Redis| {
                let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
                sentinel.command::<Vec<String>>(&words) == place
            };
            self.sentinels.iter().filter(names).count()
        };
        usize::from(votes(&self.servers[1]) > SENTINELS / 2)
    }

    /// Makes the sentinels promote this server, after it follows the present primary.
    pub fn fail_over_to(&self, server: usize) {
        wait_until("the sentinels fail over", || {
            // They refuse while the replica is unknown or behind, and during a fail-over.
            let words = ["SENTINEL", "FAILOVER", NAME];
            let _ = self.sentinels[0].try_command::<()>(&words);
            thread::sleep(Duration::from_millis(500));
            self.primary() == server
        });
        self.wait_for_primary(server);
    }

    /// Waits until the sentinels have promoted this server, and the server knows it.
    pub fn wait_for_primary(&self, server: usize) {
        wait_until("the sentinels have promoted the server", || {
            self.primary() == server
                && self.servers[server]
                    .try_command::<String>(&["INFO", "replication"])
                    .is_ok_and(|info| info.contains("role:master"))
        });
    }
}

/// A Redis Cluster: three primaries with one replica each.
pub struct Cluster {
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts the cluster. A node that is silent for a second and a half counts as down.
    pub fn start() -> Self {
        let settings = [
            ["--cluster-enabled", "yes"],
            ["--cluster-node-timeout", "1500"],
        ];
        let settings = [&settings.concat()[..], &AT_ONCE].concat();
        let nodes: Vec<Redis> = (0..2 * SHARDS)
            .map(|_| Redis::start_with(&settings))
            .collect();
        let cluster = Self { nodes };
        let places = cluster.places();
        let mut words = vec!["create"];
        words.extend(places.iter().map(String::as_str));
        words.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        manage(&words);
        wait_until("the cluster serves every slot", || cluster.is_whole());
        wait_until("the replicas are in step", || {
            let primaries = cluster.primaries();
            let mut replicas = (0..cluster.nodes.len()).filter(|node| !primaries.contains(node));
            primaries.len() == SHARDS && replicas.all(|node| is_in_step(&cluster.nodes[node]))
        });
        cluster
    }

    fn places(&self) -> Vec<String> {
        let place = |node: &Redis| format!("127.0.0.1:{}", node.port());
        self.nodes.iter().map(place).collect()
    }

    /// The URL of the cluster.
    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.places().join(","))
    }

    /// The nodes that answer and are primaries.
    pub fn primaries(&self) -> Vec<usize> {
        let is_primary = |number: &usize| {
            let role = self.nodes[*number].try_command::<String>(&["INFO", "replication"]);
            role.is_ok_and(|info| info.contains("role:master"))
        };
        (0..self.nodes.len()).filter(is_primary).collect()
    }

    /// Whether every node that answers reports that every slot is served.
    pub fn is_whole(&self) -> bool {
        self.nodes.iter().all(|node| {
            let info = node.try_command::<String>(&["CLUSTER", "INFO"]);
            info.map_or(true, |info| info.contains("cluster_state:ok"))
        })
    }

    /// The URLs of the primaries.
    pub fn urls_of_primaries(&self) -> Vec<String> {
        let primaries = self.primaries().into_iter();
        primaries.map(|number| self.nodes[number].url()).collect()
    }

    /// Moves so many slots, with their content, from one primary to another.
    pub fn move_slots(&self, from: usize, to: usize, count: usize) {
        let id = |number: usize| self.nodes[number].command::<String>(&["CLUSTER", "MYID"]);
        let place = &self.places()[from];
        // The nodes hear of the last move one after the other. Until all know it, no slot can be moved.
        wait_until("the nodes agree about the slots", || {
            managed(&["check", place]).status.success()
        });
        manage(&[
            "reshard",
            place,
            "--cluster-from",
            &id(from),
            "--cluster-to",
            &id(to),
            "--cluster-slots",
            &count.to_string(),
            "--cluster-yes",
        ]);
    }
}

/// Whether a replica has its primary's data.
fn is_in_step(replica: &Redis) -> bool {
    let info = replica.try_command::<String>(&["INFO", "replication"]);
    info.is_ok_and(|info| info.contains("master_link_status:up"))
}

fn manage(words: &[&str]) {
    let output = managed(words);
    assert!(
        output.status.success(),
        "{words:?}:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn managed(words: &[&str]) -> Output {
    let program = find_in_path("redis-cli");
    let program = program.expect("redis-cli is missing: run scripts/install-test-tools");
    Command::new(program)
        .arg("--cluster")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("redis-cli should start")
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + AGREED_WITHIN;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}
