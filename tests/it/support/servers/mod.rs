//! Real PostgreSQL and Redis servers, private to this test process.
//!
//! A process that is killed runs no destructor, and a static is never dropped. So each server
//! belongs to a *guardian*: a small shell whose standard input is a pipe that this process
//! holds. However this process ends, the pipe closes, and the guardian ends the server and
//! removes its folder. Dropping a server does the same, and waits for it.
//!
//! The processes of a server are found in `/proc`: this is for Linux.

mod postgres;
mod redis;

use std::collections::HashSet;
use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use postgres::Postgres;
pub use redis::{Redis, redis_at};

use super::guardian::{Guardian, path_text};

/// How long a server may take until it answers.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// The pause between two looks at a server that is starting.
const POLL_PAUSE: Duration = Duration::from_millis(10);
/// On how many ports a start is tried, when others are quicker to take them.
const PORT_ATTEMPTS: u32 = 20;

/// The PostgreSQL cluster that all tests share, started when the first one asks.
///
/// Each test makes its own database there. A test that stops, pauses or configures a cluster
/// wants one of its own: [`Postgres::start`].
pub fn postgres() -> &'static Postgres {
    static SHARED: OnceLock<Postgres> = OnceLock::new();
    SHARED.get_or_init(Postgres::start)
}

/// The Redis that all tests share, started when the first one asks.
///
/// A test that stops, pauses, flushes or configures a Redis wants one of its own:
/// [`Redis::start`].
pub fn redis() -> &'static Redis {
    static SHARED: OnceLock<Redis> = OnceLock::new();
    SHARED.get_or_init(Redis::start)
}

/// A port of 127.0.0.1 on which nobody listens, and that this process has not had before.
///
/// It lies below 55,536, so that `port + 10000`, the bus of a Redis Cluster, is a port too.
/// Another process may take it at any time: a test that starts a server on it tries again.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("no free port");
        let port = listener.local_addr().expect("a bound address").port();
        if port < 55_536 && given.insert(port) {
            return port;
        }
    }
}

/// What PostgreSQL and Redis have in common: a command that ends in a port.
pub struct Server {
    guardian: Guardian,
    /// The command line, to which the port is added.
    command: Vec<String>,
    is_ready: IsReady,
    port: u16,
}

/// Whether the server with this folder, process id and port is ready. It must not be taken in
/// by another server that has the port.
type IsReady = fn(folder: &Path, pid: u32, port: u16) -> bool;

impl Server {
    fn start(guardian: Guardian, command: Vec<String>, is_ready: IsReady) -> Server {
        let mut server = Server {
            guardian,
            command,
            is_ready,
            port: 0,
        };
        for _ in 0..PORT_ATTEMPTS {
            server.port = free_port();
            if server.launch() {
                return server;
            }
        }
        panic!("{PORT_ATTEMPTS} ports in a row were taken by others");
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends it as a crash would: SIGKILL for all of its processes. Returns when they are gone.
    pub fn kill(&mut self) {
        self.guardian.tell("crash");
    }

    /// Starts it again on the same port, and ends it before if it runs. Returns when it answers.
    /// PostgreSQL keeps its data; a Redis is empty unless its arguments ask for persistence.
    pub fn restart(&mut self) {
        self.kill();
        // Another process may have taken the port meanwhile.
        let deadline = Instant::now() + START_DEADLINE;
        while !self.launch() {
            assert!(Instant::now() < deadline, "port {} was taken", self.port);
            thread::sleep(POLL_PAUSE);
        }
    }

    /// Stops its processes in their tracks (SIGSTOP): connections stay open, and nobody answers.
    pub fn pause(&self) {
        self.guardian.tell("pause");
    }

    /// Lets it go on after [`Server::pause`].
    pub fn resume(&self) {
        self.guardian.tell("resume");
    }

    /// Starts the server and waits until it is ready. False if its port is in use.
    fn launch(&self) -> bool {
        let mut command = self.command.clone();
        command.push(self.port.to_string());
        assert!(
            self.guardian.run("launch", &command),
            "the guardian is gone"
        );
        let pid = self.guardian.server_pid();
        let deadline = Instant::now() + START_DEADLINE;
        while !(self.is_ready)(&self.guardian.folder, pid, self.port) {
            let ended = !is_running(pid);
            if ended || Instant::now() >= deadline {
                let log = self.guardian.log_tail();
                self.guardian.tell("crash");
                if ended && log.contains("Address already in use") {
                    return false;
                }
                let what = if ended { "ended" } else { "did not answer" };
                panic!("the server {what}: {}\n{log}", command.join(" "));
            }
            thread::sleep(POLL_PAUSE);
        }
        true
    }
}

/// False once the process has ended, whether or not its parent has taken notice.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

pub fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}
