//! Where the counters are: what a URL says, and how to get a connection from it.

use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{Sentinel, SentinelNodeConnectionInfo};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisError, TlsMode,
};
use tokio::time::timeout;

use super::breaker::CounterError;
use super::link::Link;

/// The longest that a connection may take to come about, and a sentinel to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the cluster's client sends a command, when slots move or a node goes.
const CLUSTER_ATTEMPTS: u32 = 3;

/// What `REDIS_URL` names.
pub enum Address {
    /// One server.
    Node(Client),
    /// The primary that sentinels know by a name.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<ConnectionInfo>,
        /// What they call the primary.
        name: String,
        /// How to connect to it.
        node: Box<SentinelNodeConnectionInfo>,
    },
    /// The nodes of a Redis Cluster.
    Cluster(Box<ClusterClient>),
}

/// A URL, taken apart: `redis+sentinel://user:password@host:port,host:port/path`.
struct Parts<'a> {
    scheme: &'a str,
    /// `redis` or `rediss`.
    node_scheme: &'static str,
    /// With its `@`; empty without one.
    user: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Result<Self, CounterError> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| CounterError::Url("it has no ://".to_owned()))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let at = authority.rfind('@').map_or(0, |at| at + 1);
        let (user, hosts) = authority.split_at(at);
        Ok(Self {
            scheme,
            node_scheme: match scheme.starts_with("rediss") {
                true => "rediss",
                false => "redis",
            },
            user,
            hosts: hosts.split(',').collect(),
            path,
        })
    }

    fn nodes(&self, user: &str, path: &str) -> Result<Vec<ConnectionInfo>, CounterError> {
        let node = |host| node(&format!("{}://{user}{host}/{path}", self.node_scheme));
        self.hosts.iter().map(node).collect()
    }
}

impl Address {
    /// Reads a URL. `timeout` bounds what a connection's calls may take.
    ///
    /// # Errors
    /// [`CounterError::Url`].
    pub fn parse(url: &str, timeout: Duration) -> Result<Self, CounterError> {
        let parts = Parts::of(url)?;
        match parts.scheme {
            "redis+sentinel" | "rediss+sentinel" => {
                let (name, database) = parts.path.split_once('/').unwrap_or((parts.path, ""));
                if name.is_empty() {
                    let detail = "it does not say what the sentinels call the primary";
                    return Err(CounterError::Url(detail.to_owned()));
                }
                // The user, the password and the database are the primary's.
                let primary = parts.nodes(parts.user, database)?.swap_remove(0);
                let node = SentinelNodeConnectionInfo::default()
                    .set_redis_connection_info(primary.redis_settings().clone())
                    .set_tcp_settings(tcp_settings());
                let node = match parts.node_scheme {
                    "rediss" => node.set_tls_mode(TlsMode::Secure),
                    _ => node,
                };
                Ok(Self::Sentinel {
                    sentinels: parts.nodes("", "")?,
                    name: name.to_owned(),
                    node: Box::new(node),
                })
            }
            "redis+cluster" | "rediss+cluster" => {
                if !parts.path.is_empty() {
                    let detail = "a cluster has one database, and no path names it";
                    return Err(CounterError::Url(detail.to_owned()));
                }
                let client = ClusterClient::builder(parts.nodes(parts.user, "")?)
                    .connection_timeout(CONNECT_TIMEOUT)
                    .response_timeout(timeout)
                    .retries(CLUSTER_ATTEMPTS)
                    .min_retry_wait(1)
                    .max_retry_wait(20)
                    .tcp_settings(tcp_settings())
                    .build();
                Ok(Self::Cluster(Box::new(client.map_err(unreadable)?)))
            }
            _ => {
                let client = Client::open(node(url)?).map_err(unreadable)?;
                Ok(Self::Node(client))
            }
        }
    }

    /// Connects, and says where to.
    ///
    /// # Errors
    /// What Redis or its client says.
    pub async fn connect(&self, response_timeout: Duration) -> Result<(Link, String), RedisError> {
        let client = match self {
            Self::Node(client) => client.clone(),
            Self::Sentinel { .. } => self.primary().await?,
            Self::Cluster(client) => {
                let connecting = timeout(CONNECT_TIMEOUT, client.get_async_connection()).await;
                let connection = connecting.map_err(|_| silence())??;
                return Ok((Link::Cluster(connection), "the cluster".to_owned()));
            }
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(response_timeout));
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok((Link::Node(connection), place(&client)))
    }

    /// Where the sentinels say that the primary is now; `None` where nobody keeps watch, and
    /// while no sentinel knows.
    pub async fn present_place(&self) -> Option<String> {
        match self {
            Self::Sentinel { .. } => Some(place(&self.primary().await.ok()?)),
            Self::Node(_) | Self::Cluster(_) => None,
        }
    }

    /// Asks the sentinels anew each time: the client looks the primary up only once.
    async fn primary(&self) -> Result<Client, RedisError> {
        let Self::Sentinel {
            sentinels,
            name,
            node,
        } = self
        else {
            return Err(silence());
        };
        let mut sentinel = Sentinel::build(sentinels.clone())?;
        let looking = timeout(CONNECT_TIMEOUT, sentinel.async_master_for(name, Some(node)));
        looking.await.map_err(|_| silence())?
    }
}

/// Commands leave at once, and a path that swallows them is given up.
fn tcp_settings() -> TcpSettings {
    TcpSettings::default()
        .set_nodelay(true)
        .set_user_timeout(Duration::from_secs(5))
}

fn node(url: &str) -> Result<ConnectionInfo, CounterError> {
    let info = url.into_connection_info().map_err(unreadable)?;
    Ok(info.set_tcp_settings(tcp_settings()))
}

fn place(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

fn unreadable(error: RedisError) -> CounterError {
    CounterError::Url(error.to_string())
}

fn silence() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, CounterError> {
        Address::parse(url, Duration::from_millis(100))
    }

    #[test]
    fn sentinels_and_a_name() {
        let url = "redis+sentinel://user:p%40ss@one:26379,two:26380/mymaster/2";
        let Ok(Address::Sentinel {
            sentinels, name, ..
        }) = parse(url)
        else {
            panic!("{url}")
        };
        assert_eq!(name, "mymaster");
        let places: Vec<String> = sentinels
            .iter()
            .map(|info| info.addr().to_string())
            .collect();
        assert_eq!(places, ["one:26379", "two:26380"]);
        assert!(
            sentinels
                .iter()
                .all(|info| info.redis_settings().password().is_none())
        );
    }

    #[test]
    fn nodes_of_a_cluster() {
        for url in [
            "redis+cluster://one:1",
            "rediss+cluster://user:pass@one:1,two:2/",
        ] {
            assert!(matches!(parse(url), Ok(Address::Cluster(_))), "{url}");
        }
    }

    #[test]
    fn what_cannot_be_read() {
        for url in [
            "localhost:6379",
            "http://localhost",
            "redis+sentinel://one:26379",
            "redis+sentinel://one:26379/",
            "redis+sentinel://one:26379,:x/name",
            "redis+sentinel://one:26379/name/second",
            "redis+cluster://one:1/0",
            "redis+cluster://",
            "redis+other://one:1",
        ] {
            assert!(matches!(parse(url), Err(CounterError::Url(_))), "{url}");
        }
    }
}
