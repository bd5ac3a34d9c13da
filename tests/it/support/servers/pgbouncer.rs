//! PgBouncer, a pooler before a PostgreSQL.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Postgres, Server, find_in_path, path_text};
use crate::support::guardian::Guardian;

/// Writes the port into the configuration, and becomes the program.
const BEGIN: &str = "sed \"s/PORT/$2/\" pooler.ini >running.ini && exec $1 running.ini";

/// A PgBouncer on 127.0.0.1, without passwords.
pub struct PgBouncer {
    server: Server,
}

impl PgBouncer {
    /// Starts a pooler for all databases of a cluster, with more settings, such as `pool_mode =
    /// session`.
    pub fn before(postgres: &Postgres, settings: &[&str]) -> PgBouncer {
        let program = find_in_path("pgbouncer")
            .or_else(|| Some(PathBuf::from("/usr/sbin/pgbouncer")).filter(|it| it.is_file()))
            .expect("pgbouncer is missing: run scripts/install-test-tools");
        // PgBouncer refuses to run as root, as PostgreSQL does.
        let is_root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
        let (user, parent, before) = if is_root {
            (
                "postgres",
                PathBuf::from("/tmp"),
                "setpriv --reuid=postgres --regid=postgres --init-groups -- ",
            )
        } else {
            ("", env::temp_dir(), "")
        };
        let guardian = Guardian::start(&parent, user, "crash");
        let configuration = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={} user=postgres\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = PORT\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             default_pool_size = 40\n\
             {}\n",
            postgres.port(),
            settings.join("\n")
        );
        fs::write(guardian.folder.join("pooler.ini"), configuration).expect("a file");
        let program = format!("{before}{}", path_text(&program));
        let command = ["sh", "-c", BEGIN, "sh", &program].map(str::to_owned);
        PgBouncer {
            server: Server::start(guardian, command.to_vec(), pgbouncer_is_ready),
        }
    }

    /// The URL of a database of the cluster, through the pooler.
    pub fn url(&self, url: &str) -> String {
        let name = url.rsplit('/').next().expect("a name");
        format!(
            "postgres://postgres@127.0.0.1:{}/{name}",
            self.server.port()
        )
    }
}

/// PgBouncer says on which port it listens, and when it is up.
fn pgbouncer_is_ready(folder: &Path, _pid: u32, port: u16) -> bool {
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    log.contains(&format!("listening on 127.0.0.1:{port}")) && log.contains("process up")
}
