//! Real PostgreSQL and Redis servers, private to this test process.
//!
//! A process that is killed runs no destructor, and a static is never dropped. So each server
//! belongs to a *guardian*: a small shell whose standard input is a pipe that this process
//! holds. However this process ends, the pipe closes, and the guardian ends the server and
//! removes its folder. Dropping a server does the same, and waits for it.
//!
//! The processes of a server are found in `/proc`: this is for Linux.

#![allow(
    dead_code,
    reason = "a set of tools: not every one is in use at all times"
)]

use std::{
    collections::HashSet,
    env, fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use redis::{FromRedisValue, RedisResult, aio::MultiplexedConnection};

use super::app::eventually;
use super::guardian::Guardian;

/// How long a server may take until it answers.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// How long a Redis may take to do what a test tells it.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two looks at a server that is starting.
const POLL_PAUSE: Duration = Duration::from_millis(10);
/// On how many ports a start is tried, when others are quicker to take them.
const PORT_ATTEMPTS: u32 = 20;

/// How `initdb` makes a cluster.
const NEW_DATA: &str =
    "-D data -U postgres -A trust -E UTF8 --locale=C --no-sync --no-instructions";

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
/// Another process may take it at any time: whoever starts a server on it tries again.
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

/// A PostgreSQL cluster on 127.0.0.1: UTF8, locale C, everybody is trusted, 300 connections.
///
/// It does not force its writes to disk: what it committed survives [`Postgres::kill`], which
/// leaves the machine running, and that is all the tests can do to it.
pub struct Postgres {
    server: Server,
    bin: PathBuf,
}

impl Postgres {
    /// Starts a private cluster.
    pub fn start() -> Postgres {
        Postgres::start_with(&[])
    }

    /// Starts a private cluster with more settings, such as `"log_statement=all"`. They hold
    /// after a [`Postgres::restart`] too.
    pub fn start_with(settings: &[&str]) -> Postgres {
        Postgres::make(None, "initdb", NEW_DATA, settings)
    }

    /// Starts a private cluster in a folder of its own in this one, which its user must reach.
    pub fn start_in(parent: &Path) -> Postgres {
        Postgres::make(Some(parent), "initdb", NEW_DATA, &[])
    }

    /// Starts a standby that copies this cluster, and follows it.
    pub fn start_standby(&self) -> Postgres {
        let words = format!(
            "-D data -h 127.0.0.1 -p {} -U postgres --write-recovery-conf --wal-method=stream \
             --checkpoint=fast --no-sync",
            self.port()
        );
        Postgres::make(None, "pg_basebackup", &words, &[])
    }

    /// Cuts a standby off its primary. Returns when it receives nothing more.
    pub async fn cut_off(&self) {
        for sql in [
            "ALTER SYSTEM SET primary_conninfo = ''",
            "SELECT pg_reload_conf()",
        ] {
            self.execute("postgres", sql);
        }
        eventually("the standby receives nothing", || async {
            self.execute("postgres", "SELECT count(*) FROM pg_stat_wal_receiver") == "0"
        })
        .await;
    }

    /// Makes a standby the primary. Returns when it takes writes.
    pub fn promote(&self) {
        self.execute("postgres", "SELECT pg_promote()");
    }

    /// Makes the data with a program of PostgreSQL's and its words, and starts on them.
    fn make(parent: Option<&Path>, maker: &str, words: &str, settings: &[&str]) -> Postgres {
        let bin = postgres_bin();
        // PostgreSQL refuses to run as root. `setpriv` becomes the program it starts, so the
        // process id stays PostgreSQL's own. Another user may not reach root's TMPDIR.
        let is_root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
        let (user, usual_parent) = if is_root {
            ("postgres", PathBuf::from("/tmp"))
        } else {
            ("", env::temp_dir())
        };
        let program = |name: &str| -> Vec<String> {
            let mut words = Vec::new();
            if is_root {
                words.extend(
                    "setpriv --reuid=postgres --regid=postgres --init-groups --"
                        .split(' ')
                        .map(str::to_owned),
                );
            }
            words.push(path_text(&bin.join(name)));
            words
        };

        let guardian = Guardian::start(parent.unwrap_or(&usual_parent), user, "quit");
        let mut make = program(maker);
        make.extend(words.split_whitespace().map(str::to_owned));
        if !guardian.run("try", &make) {
            panic!("{maker} failed:\n{}", guardian.log_tail());
        }

        let mut command = program("postgres");
        command.extend(["-D".to_owned(), "data".to_owned()]);
        let ours = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=300",
            "fsync=off",
            "full_page_writes=off",
            // In the data folder, not in /dev/shm, where a killed cluster would leave it.
            "dynamic_shared_memory_type=mmap",
        ];
        for setting in ours.iter().chain(settings) {
            command.extend(["-c".to_owned(), (*setting).to_owned()]);
        }
        command.push("-p".to_owned());
        let server = Server::start(guardian, command, postgres_is_ready);
        Postgres { server, bin }
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// Whether it can be asked, and answers.
    pub fn answers(&self) -> bool {
        self.psql("postgres", "SELECT 1").status.success()
    }

    /// Makes an empty database with a name of its own, and returns its URL.
    pub fn create_database(&self) -> String {
        self.create_database_with("")
    }

    /// As [`Postgres::create_database`], with its tables in a folder.
    pub fn create_database_in(&self, parent: &Path) -> String {
        let folder = parent.join("tables");
        fs::create_dir(&folder).expect("a folder");
        // PostgreSQL may be another user than this process, and wants the folder for its own.
        let owner = fs::metadata(&self.server.guardian.folder).expect("its folder");
        chown(&folder, Some(owner.uid()), Some(owner.gid())).expect("an owner");
        let sql = format!("CREATE TABLESPACE small LOCATION '{}'", folder.display());
        self.execute("postgres", &sql);
        self.create_database_with("TABLESPACE small")
    }

    fn create_database_with(&self, settings: &str) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        // Nobody can be connected to template0, which would make the copy fail.
        let sql = format!("CREATE DATABASE {name} TEMPLATE template0 {settings}");
        self.execute("postgres", &sql);
        self.url(&name)
    }

    /// Copies a database as it is at a moment at which nobody is connected to it.
    pub fn copy_database(&self, name: &str) {
        for sql in [
            format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"),
            format!(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                 WHERE datname = '{name}'"
            ),
            format!("CREATE DATABASE {name}_copy TEMPLATE {name}"),
            format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"),
        ] {
            self.execute("postgres", &sql);
        }
    }

    /// Ends a database, with all who are connected to it.
    pub fn drop_database(&self, name: &str) {
        let sql = format!("DROP DATABASE {name} WITH (FORCE)");
        self.execute("postgres", &sql);
    }

    /// Gives the copy of a database its name.
    pub fn rename_copy(&self, name: &str) {
        let sql = format!("ALTER DATABASE {name}_copy RENAME TO {name}");
        self.execute("postgres", &sql);
    }

    /// The URL of a database of this cluster, as its superuser.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/{database}",
            self.server.port
        )
    }

    /// Ends the cluster as a crash would: SIGKILL for all of its processes. Returns when they
    /// are gone.
    pub fn kill(&mut self) {
        self.server.guardian.tell("crash");
    }

    /// Starts the cluster again with the same data on the same port, and ends it before if it
    /// runs. Returns when it accepts connections.
    pub fn restart(&mut self) {
        self.server.restart();
    }

    /// Stops all processes of the cluster in their tracks (SIGSTOP): connections stay open,
    /// and nobody answers.
    pub fn pause(&self) {
        self.server.guardian.tell("pause");
    }

    /// Lets the cluster go on after [`Postgres::pause`].
    pub fn resume(&self) {
        self.server.guardian.tell("resume");
    }

    /// Runs SQL in a database, through `psql`, and returns the rows: a line each, the columns
    /// parted by `|`.
    pub fn execute(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql);
        if !output.status.success() {
            let fault = String::from_utf8_lossy(&output.stderr);
            panic!("{sql}\n{fault}\n{}", self.server.guardian.log_tail());
        }
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Begins to run SQL in a database.
    pub fn begin(&self, database: &str, sql: &str) -> Child {
        let mut command = self.psql_command(database, sql);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("psql should start")
    }

    fn psql(&self, database: &str, sql: &str) -> Output {
        let output = self.psql_command(database, sql).output();
        output.expect("psql should start: run scripts/install-test-tools")
    }

    fn psql_command(&self, database: &str, sql: &str) -> Command {
        let mut command = Command::new(self.bin.join("psql"));
        command
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--set=ON_ERROR_STOP=1", "--command", sql])
            .args(["--dbname", &self.url(database)])
            .stdin(Stdio::null());
        command
    }
}

/// A Redis on 127.0.0.1 that keeps nothing on disk and evicts nothing.
pub struct Redis {
    server: Server,
}

/// A connection to a Redis.
pub async fn redis_at(url: impl redis::IntoConnectionInfo) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await;
    connection.expect("a connection")
}

impl Redis {
    /// Starts a private Redis.
    pub fn start() -> Redis {
        Redis::start_with(&[])
    }

    /// Starts a private Redis with more arguments, such as
    /// `["--maxmemory-policy", "allkeys-lru"]`. They hold after a [`Redis::restart`] too.
    pub fn start_with(args: &[&str]) -> Redis {
        Redis::start_in(&env::temp_dir(), args)
    }

    /// As [`Redis::start_with`], in a folder of its own in this one.
    pub fn start_in(parent: &Path, args: &[&str]) -> Redis {
        let ours = [
            ["--bind", "127.0.0.1"],
            ["--save", ""],
            ["--appendonly", "no"],
            ["--maxmemory-policy", "noeviction"],
        ];
        let words = ours.iter().flatten().chain(args).copied();
        Redis::launch(Guardian::start(parent, "", "crash"), words)
    }

    /// Starts a sentinel, which keeps what it learns in its configuration file.
    pub fn start_sentinel(configuration: &str) -> Redis {
        let guardian = Guardian::start(&env::temp_dir(), "", "crash");
        let file = guardian.folder.join("sentinel.conf");
        fs::write(file, configuration).expect("a file can be written");
        Redis::launch(guardian, ["sentinel.conf", "--sentinel"].into_iter())
    }

    fn launch<'a>(guardian: Guardian, words: impl Iterator<Item = &'a str>) -> Redis {
        let program = find_in_path("redis-server")
            .expect("redis-server is missing: run scripts/install-test-tools");
        let mut command = vec![path_text(&program)];
        command.extend(words.map(str::to_owned));
        command.push("--port".to_owned());
        Redis {
            server: Server::start(guardian, command, redis_is_ready),
        }
    }

    /// Sends a command, on a connection of its own.
    ///
    /// # Errors
    /// What Redis, or its client, says.
    pub fn try_command<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_connection_with_timeout(COMMAND_TIMEOUT)?;
        connection.set_read_timeout(Some(COMMAND_TIMEOUT))?;
        let mut command = redis::Cmd::new();
        command.arg(words).query(&mut connection)
    }

    /// Sends a command that must succeed.
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let answer = self.try_command(words);
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The URL of its database 0.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// Ends it as a crash would: SIGKILL. Returns when it is gone.
    pub fn kill(&mut self) {
        self.server.guardian.tell("crash");
    }

    /// Starts it again on the same port, empty unless its arguments ask for persistence, and
    /// ends it before if it runs. Returns when it answers.
    pub fn restart(&mut self) {
        self.server.restart();
    }

    /// Stops it in its tracks (SIGSTOP): connections stay open, and nobody answers.
    pub fn pause(&self) {
        self.server.guardian.tell("pause");
    }

    /// Lets it go on after [`Redis::pause`].
    pub fn resume(&self) {
        self.server.guardian.tell("resume");
    }
}

/// What PostgreSQL and Redis have in common: a command that ends in a port.
struct Server {
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

    /// Keeps the port. If another process has taken it meanwhile, waits for it to let go.
    fn restart(&mut self) {
        self.guardian.tell("crash");
        let deadline = Instant::now() + START_DEADLINE;
        while !self.launch() {
            assert!(Instant::now() < deadline, "port {} was taken", self.port);
            thread::sleep(POLL_PAUSE);
        }
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

/// PostgreSQL says in its lock file who it is (line 1) and how far it is (line 8).
fn postgres_is_ready(folder: &Path, pid: u32, _port: u16) -> bool {
    let lock = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = lock.lines().map(str::trim).collect();
    lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")
}

/// Redis answers PING and says who it is, or that it wants a password.
fn redis_is_ready(_folder: &Path, pid: u32, port: u16) -> bool {
    let own_id = format!("process_id:{pid}\r\n");
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"PING\r\nINFO server\r\n")?;
        let (mut answer, mut part) = (String::new(), [0; 4096]);
        loop {
            let count = stream.read(&mut part)?;
            answer.push_str(&String::from_utf8_lossy(&part[..count]));
            if answer.starts_with("-NOAUTH") || answer.contains(&own_id) {
                return Ok(!answer.starts_with("-LOADING"));
            }
            // Another server's answer is as long as this one's would be.
            if count == 0 || answer.contains("executable:") {
                return Ok(false);
            }
        }
    };
    ask().unwrap_or(false)
}

/// False once the process has ended, whether or not its parent has taken notice.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// The folder of PostgreSQL's programs: `PERDIEM_POSTGRES_BIN`, or the newest version that
/// Debian's packages have installed, or where `PATH` finds `postgres`.
fn postgres_bin() -> PathBuf {
    if let Some(bin) = env::var_os("PERDIEM_POSTGRES_BIN") {
        let bin = PathBuf::from(bin);
        let is_there = bin.join("postgres").is_file();
        assert!(is_there, "PERDIEM_POSTGRES_BIN has no postgres in it");
        return bin;
    }
    let version = |entry: &fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let newest = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("bin/postgres").is_file())
        .max_by_key(version)
        .map(|entry| entry.path().join("bin"));
    newest
        .or_else(|| {
            // A link in PATH need not have its siblings beside it.
            let program = find_in_path("postgres")?.canonicalize().ok()?;
            Some(program.parent()?.to_owned())
        })
        .expect("PostgreSQL is missing: run scripts/install-test-tools")
}

pub fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

pub fn path_text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}
