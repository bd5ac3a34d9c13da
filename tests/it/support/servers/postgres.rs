//! PostgreSQL, and copies of its data.

use std::env;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Server, find_in_path, path_text};
use crate::support::guardian::Guardian;
use crate::support::waiting::eventually;

/// The command that makes a cluster.
const NEW_DATA: &str =
    "-D data -U postgres -A trust -E UTF8 --locale=C --no-sync --no-instructions";

/// A PostgreSQL cluster on 127.0.0.1: UTF8, locale C, no passwords, 300 connections.
///
/// The cluster does not force its writes to disk. Its commits survive [`Postgres::kill`], because
/// the machine keeps running. The tests do not test more.
pub struct Postgres {
    server: Server,
    bin: PathBuf,
}

impl Postgres {
    /// Starts a private cluster.
    pub fn start() -> Postgres {
        Postgres::start_with(&[])
    }

    /// Starts a private cluster with more settings, such as `"log_statement=all"`. They also apply
    /// after a [`Postgres::restart`].
    pub fn start_with(settings: &[&str]) -> Postgres {
        Postgres::make(None, "initdb", NEW_DATA, settings)
    }

    /// Starts a private cluster in a new folder inside `parent`. Its user must be able to reach
    /// `parent`.
    pub fn start_in(parent: &Path) -> Postgres {
        Postgres::make(Some(parent), "initdb", NEW_DATA, &[])
    }

    /// Starts a standby that copies and follows this cluster.
    pub fn start_standby(&self) -> Postgres {
        let words = format!(
            "-D data -h 127.0.0.1 -p {} -U postgres --write-recovery-conf --wal-method=stream \
             --checkpoint=fast --no-sync",
            self.port()
        );
        Postgres::make(None, "pg_basebackup", &words, &[])
    }

    /// Separates a standby from its primary. Returns when the standby receives nothing more.
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

    /// Makes a standby the primary. Returns when it accepts writes.
    pub fn promote(&self) {
        self.execute("postgres", "SELECT pg_promote()");
    }

    /// Makes the data with a program of PostgreSQL and its words, and starts the cluster.
    fn make(parent: Option<&Path>, maker: &str, words: &str, settings: &[&str]) -> Postgres {
        let bin = postgres_bin();
        // PostgreSQL refuses to run as root. `setpriv` replaces itself with the program, so the
        // process id is PostgreSQL's own. Another user may be unable to reach root's TMPDIR.
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
            // Otherwise a worker starts for every database in turn: for hundreds of them in a minute.
            "autovacuum=off",
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

    /// Whether the cluster answers.
    pub fn answers(&self) -> bool {
        self.psql("postgres", "SELECT 1").status.success()
    }

    /// Makes an empty database with a new name, and returns its URL.
    pub fn create_database(&self) -> String {
        self.create_database_with("")
    }

    /// As [`Postgres::create_database`], with its tables in a folder.
    pub fn create_database_in(&self, parent: &Path) -> String {
        let folder = parent.join("tables");
        fs::create_dir(&folder).expect("a folder");
        // PostgreSQL may run as another user than this process, and must own the folder.
        let owner = fs::metadata(&self.server.guardian.folder).expect("the guardian's folder");
        chown(&folder, Some(owner.uid()), Some(owner.gid())).expect("an owner");
        let sql = format!("CREATE TABLESPACE small LOCATION '{}'", folder.display());
        self.execute("postgres", &sql);
        self.create_database_with("TABLESPACE small")
    }

    fn create_database_with(&self, settings: &str) -> String {
        // Nobody can be connected to template0. A connected user would make the copy fail.
        self.copy_template("template0", settings)
    }

    /// Makes a database with a new name that is a copy of another one, and returns its URL.
    pub fn copy_template(&self, template: &str, settings: &str) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let sql = format!("CREATE DATABASE {name} TEMPLATE {template} {settings}");
        self.execute("postgres", &sql);
        self.url(&name)
    }

    /// Copies a database at a moment when nobody is connected to it.
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

    /// Drops a database, and ends its connections.
    pub fn drop_database(&self, name: &str) {
        let sql = format!("DROP DATABASE {name} WITH (FORCE)");
        self.execute("postgres", &sql);
    }

    /// Gives the copy of a database the database's name.
    pub fn rename_copy(&self, name: &str) {
        let sql = format!("ALTER DATABASE {name}_copy RENAME TO {name}");
        self.execute("postgres", &sql);
    }

    /// Restores a dump of a database into an empty one, possibly in another cluster.
    pub fn dump_into(&self, from: &str, to: &str) {
        let restore = "\"$1\" --no-owner \"$3\" | \"$2\" --quiet --set ON_ERROR_STOP=1 \"$4\"";
        let mut shell = Command::new("bash");
        let shell = shell.args(["-o", "pipefail", "-c", restore, "restore"]);
        let shell = shell
            .arg(self.bin.join("pg_dump"))
            .arg(self.bin.join("psql"));
        let output = shell.args([from, to]).output().expect("bash should start");
        let fault = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{fault}");
    }

    /// The output of `pg_dump` for a database.
    pub fn dump(&self, url: &str) -> Vec<u8> {
        let dump = Command::new(self.bin.join("pg_dump")).arg(url).output();
        let output = dump.expect("pg_dump should start");
        let fault = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{fault}");
        output.stdout
    }

    /// The URL of a database of this cluster, as its superuser.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/{database}",
            self.server.port
        )
    }

    /// The URL of a database that names this server, and another one by its port.
    pub fn url_or(&self, other: u16, database: &str) -> String {
        let one = self.port();
        format!("postgres://postgres@127.0.0.1:{one},127.0.0.1:{other}/{database}")
    }

    /// Runs SQL in a database, through `psql`. Returns the rows: one a line, with `|` between the
    /// columns.
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

impl Deref for Postgres {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Postgres {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

/// PostgreSQL's lock file has its process id (line 1) and its state (line 8).
fn postgres_is_ready(folder: &Path, pid: u32, _port: u16) -> bool {
    let lock = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = lock.lines().map(str::trim).collect();
    lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")
}

/// The folder of PostgreSQL's programs: `PERDIEM_POSTGRES_BIN`, or the newest version of Debian's
/// packages, or the folder of `postgres` in `PATH`.
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
            // A link in PATH may lie in a folder without the other programs.
            let program = find_in_path("postgres")?.canonicalize().ok()?;
            Some(program.parent()?.to_owned())
        })
        .expect("PostgreSQL is missing: run scripts/install-test-tools")
}
