//! Redis and its sentinels.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult};

use super::{Server, find_in_path, path_text};
use crate::support::guardian::Guardian;

/// The longest time that a Redis may take for a test's command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// A Redis on 127.0.0.1 that stores nothing on disk and evicts nothing.
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

    /// Starts a private Redis with more arguments, such as `["--maxmemory-policy", "allkeys-lru"]`.
    /// They also apply after a [`Redis::restart`].
    pub fn start_with(args: &[&str]) -> Redis {
        Redis::start_in(&env::temp_dir(), args)
    }

    /// As [`Redis::start_with`], in a new folder inside `parent`.
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

    /// Starts a sentinel, which stores its state in its configuration file.
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

    /// Sends a command, on its own connection.
    ///
    /// # Errors Returns the error of Redis or of its client.
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
}

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Redis {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

/// Redis answers PING and reports its process id, or asks for a password.
fn redis_is_ready(_folder: &Path, pid: u32, port: u16) -> bool {
    let own_id = format!("process_id:{pid}\r\n");
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"PING\r\nINFO server\r\n")?;
        let mut answer = String::new();
        let mut part = [0; 4096];
        loop {
            let count = stream.read(&mut part)?;
            answer.push_str(&String::from_utf8_lossy(&part[..count]));
            if answer.starts_with("-NOAUTH") || answer.contains(&own_id) {
                return Ok(!answer.starts_with("-LOADING"));
            }
            // Another server's answer has the same length as this one's.
            if count == 0 || answer.contains("executable:") {
                return Ok(false);
            }
        }
    };
    ask().unwrap_or(false)
}
