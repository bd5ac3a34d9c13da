//! Real PostgreSQL and Redis servers, private to this test process.
//!
//! A killed process runs no destructor, and a static is never dropped. Therefore each server has a
//! *guardian*: a small shell whose standard input is a pipe that this process holds. However this
//! process ends, the pipe closes. Then the guardian ends the server and removes its folder.
//! Dropping a server does the same, and waits for it.
//!
//! The processes of a server are found in `/proc`. Therefore this needs Linux.

mod pgbouncer;
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

pub use pgbouncer::PgBouncer;
pub use postgres::Postgres;
pub use redis::{Redis, redis_at};

use super::guardian::{Guardian, path_text};

/// The longest time until a server answers.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// The pause between two checks of a starting server.
const POLL_PAUSE: Duration = Duration::from_millis(10);
/// The number of ports that a start tries when other processes take them.
const PORT_ATTEMPTS: u32 = 20;

/// The PostgreSQL cluster that all tests share. The first call starts it.
///
/// Each test makes its own database there. A test that stops, pauses or configures a cluster needs
/// its own: [`Postgres::start`].
pub fn postgres() -> &'static Postgres {
    static SHARED: OnceLock<Postgres> = OnceLock::new();
    SHARED.get_or_init(Postgres::start)
}

/// The Redis that all tests share. The first call starts it.
///
/// A test that stops, pauses, flushes or configures a Redis needs its own: [`Redis::start`].
pub fn redis() -> &'static Redis {
    static SHARED: OnceLock<Redis> = OnceLock::new();
    SHARED.get_or_init(Redis::start)
}

/// A free port of 127.0.0.1 that this process has not used before.
///
/// The port is below 55,536, so that `port + 10000`, the bus of a Redis Cluster, is a port too.
/// Another process can take the port at any time: a test that starts a server on it tries again.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound address").port();
        if port < 55_536 && given.insert(port) {
            return port;
        }
    }
}

/// The common part of PostgreSQL and Redis: a command that ends in a port.
pub struct Server {
    guardian: Guardian,
    /// The command line without the port.
    command: Vec<String>,
    is_ready: IsReady,
    port: u16,
}

/// Whether the server with this folder, process id and port is ready. The check must not accept
/// another server that has the port.
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

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server as a crash does: SIGKILL for all of its processes. Returns when they are
    /// gone.
    pub fn kill(&mut self) {
        self.guardian.tell("crash");
    }

    /// Starts the server again on the same port, and ends it first if it runs. Returns when it
    /// answers. PostgreSQL keeps its data. A Redis is empty, unless its arguments ask for
    /// persistence.
    pub fn restart(&mut self) {
        self.kill();
        // Another process can have taken the port.
        let deadline = Instant::now() + START_DEADLINE;
        while !self.launch() {
            assert!(Instant::now() < deadline, "port {} was taken", self.port);
            thread::sleep(POLL_PAUSE);
        }
    }

    /// Pauses the server's processes (SIGSTOP): connections stay open, and no request is answered.
    pub fn pause(&self) {
        self.guardian.tell("pause");
    }

    /// Lets the server continue after [`Server::pause`].
    pub fn resume(&self) {
        self.guardian.tell("resume");
    }

    /// Starts the server and waits until it is ready. Returns false if its port is in use.
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

/// False after the process has ended, whether or not its parent has collected it.
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
