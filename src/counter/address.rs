//! The address of the counters: how a URL is read, and how a connection is made from it.

use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError,
    TlsCertificates, TlsMode,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::timeout;

use super::error::CounterError;
use super::link::Link;
use crate::boxed;

/// The longest time to make a connection, and for a sentinel to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the cluster client sends a command when slots move or a node is gone.
const CLUSTER_ATTEMPTS: u32 = 3;

/// The settings for Redis that are not in its URL.
#[derive(Debug, Clone, Default)]
pub struct RedisAccess {
    /// The certificates (PEM) of the authority that is trusted instead of the public ones.
    pub ca: Option<String>,
    /// The user for the sentinels.
    pub sentinel_user: Option<String>,
    /// The password for the sentinels.
    pub sentinel_password: Option<String>,
}

impl RedisAccess {
    /// The certificates to trust; `None` for the public authorities.
    fn certificates(&self) -> Option<TlsCertificates> {
        let root_cert = Some(self.ca.clone()?.into_bytes());
        Some(TlsCertificates {
            client_tls: None,
            root_cert,
        })
    }

    /// Refuses settings that this URL does not use: their owner may believe that they protect
    /// something.
    fn check(&self, parts: &Parts) -> Result<(), CounterError> {
        if let Some(ca) = &self.ca {
            if parts.node_scheme != "rediss" {
                return Err(CounterError::Ca(
                    "REDIS_URL does not use TLS: begin it with rediss",
                ));
            }
            let mut certificates = CertificateDer::pem_slice_iter(ca.as_bytes());
            if !matches!(certificates.next(), Some(Ok(_))) {
                return Err(CounterError::Ca(
                    "the file has no certificate: name a file with the authority's certificate, \
                     in PEM",
                ));
            }
        }
        if self.sentinel_user.is_some() && self.sentinel_password.is_none() {
            return Err(CounterError::SentinelUser);
        }
        if self.sentinel_password.is_some() && !parts.scheme.ends_with("+sentinel") {
            return Err(CounterError::SentinelPassword);
        }
        Ok(())
    }
}

/// What `REDIS_URL` names.
pub enum Address {
    /// One server.
    Node(Box<Client>),
    /// The primary that sentinels know by a name.
    Sentinel(Box<Sentinels>),
    /// The nodes of a Redis Cluster.
    Cluster(Box<ClusterClient>),
}

/// Sentinels, and the name by which they know a primary.
pub struct Sentinels {
    places: Vec<ConnectionAddr>,
    name: String,
    /// The user, password and database are for the primary.
    primary: ConnectionInfo,
    is_encrypted: bool,
    access: RedisAccess,
}

impl Sentinels {
    /// A new client that has asked no sentinel yet: a client looks up the primary only once.
    fn client(&self) -> Result<SentinelClient, RedisError> {
        let places = self.places.iter().cloned();
        let primary = self.primary.redis_settings();
        let mut client =
            SentinelClientBuilder::new(places, &self.name, SentinelServerType::Master)?
                .set_client_to_redis_tcp_settings(tcp_settings())
                .set_client_to_redis_db(primary.db())
                .set_client_to_redis_protocol(primary.protocol())
                .set_client_to_sentinel_tcp_settings(tcp_settings());
        if let Some(user) = primary.username() {
            client = client.set_client_to_redis_username(user);
        }
        if let Some(password) = primary.password() {
            client = client.set_client_to_redis_password(password);
        }
        if let Some(user) = &self.access.sentinel_user {
            client = client.set_client_to_sentinel_username(user);
        }
        if let Some(password) = &self.access.sentinel_password {
            client = client.set_client_to_sentinel_password(password);
        }
        if self.is_encrypted {
            client = client.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        if let Some(certificates) = self.access.certificates() {
            client = client
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates);
        }
        client.build()
    }

    /// The present primary, as the sentinels say.
    async fn primary(&self) -> Result<Client, RedisError> {
        let mut client = self.client()?;
        let looking = timeout(CONNECT_TIMEOUT, client.async_get_client());
        looking.await.map_err(|_| silence())?
    }
}

/// The parts of a URL: `redis+sentinel://user:password@host:port,host:port/path`.
struct Parts<'a> {
    scheme: &'a str,
    /// `redis` or `rediss`.
    node_scheme: &'static str,
    /// User and password with the `@`; empty if there are none.
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
            node_scheme: if scheme.starts_with("rediss") {
                "rediss"
            } else {
                "redis"
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
    /// Reads a URL. `timeout` limits each call of a connection.
    ///
    /// # Errors
    /// [`CounterError`].
    pub fn parse(url: &str, access: &RedisAccess, timeout: Duration) -> Result<Self, CounterError> {
        let parts = Parts::of(url)?;
        access.check(&parts)?;
        match parts.scheme {
            "redis+sentinel" | "rediss+sentinel" => Self::sentinels(&parts, access),
            "redis+cluster" | "rediss+cluster" => Self::cluster(&parts, access, timeout),
            _ => {
                let client = match access.certificates() {
                    Some(certificates) => Client::build_with_tls(node(url)?, certificates),
                    None => Client::open(node(url)?),
                };
                Ok(Self::Node(Box::new(client.map_err(unreadable)?)))
            }
        }
    }

    fn sentinels(parts: &Parts, access: &RedisAccess) -> Result<Self, CounterError> {
        let (name, database) = parts.path.split_once('/').unwrap_or((parts.path, ""));
        if name.is_empty() {
            let detail = "the name of the primary is missing";
            return Err(CounterError::Url(detail.to_owned()));
        }
        let places = parts.nodes("", "")?;
        let sentinels = Sentinels {
            places: places.iter().map(|place| place.addr().clone()).collect(),
            name: name.to_owned(),
            primary: parts.nodes(parts.user, database)?.swap_remove(0),
            is_encrypted: parts.node_scheme == "rediss",
            access: access.clone(),
        };
        sentinels.client().map_err(unreadable)?;
        Ok(Self::Sentinel(Box::new(sentinels)))
    }

    fn cluster(
        parts: &Parts,
        access: &RedisAccess,
        timeout: Duration,
    ) -> Result<Self, CounterError> {
        if !parts.path.is_empty() {
            let detail = "a cluster has only one database: leave the path out";
            return Err(CounterError::Url(detail.to_owned()));
        }
        let mut client = ClusterClient::builder(parts.nodes(parts.user, "")?)
            .connection_timeout(CONNECT_TIMEOUT)
            .response_timeout(timeout)
            .retries(CLUSTER_ATTEMPTS)
            .min_retry_wait(1)
            .max_retry_wait(20)
            .tcp_settings(tcp_settings());
        if let Some(certificates) = access.certificates() {
            client = client.certs(certificates);
        }
        Ok(Self::Cluster(Box::new(client.build().map_err(unreadable)?)))
    }

    /// Connects. Also returns the place, for logs.
    ///
    /// # Errors
    /// The error of Redis or its client.
    #[boxed]
    pub async fn connect(&self, response_timeout: Duration) -> Result<(Link, String), RedisError> {
        let client = match self {
            Self::Node(client) => Client::clone(client),
            Self::Sentinel(sentinels) => sentinels.primary().await?,
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

    /// The present primary's place, as the sentinels say. `None` without sentinels, and while no
    /// sentinel knows.
    pub async fn present_place(&self) -> Option<String> {
        match self {
            Self::Sentinel(sentinels) => Some(place(&sentinels.primary().await.ok()?)),
            Self::Node(_) | Self::Cluster(_) => None,
        }
    }
}

/// Commands are sent at once, and a path that loses packets is given up.
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
        Address::parse(url, &RedisAccess::default(), Duration::from_millis(100))
    }

    #[test]
    fn sentinels_and_a_name() {
        let url = "redis+sentinel://user:p%40ss@one:26379,two:26380/mymaster/2";
        let Ok(Address::Sentinel(sentinels)) = parse(url) else {
            panic!("{url}")
        };
        assert_eq!(sentinels.name, "mymaster");
        let places: Vec<String> = sentinels.places.iter().map(ToString::to_string).collect();
        assert_eq!(places, ["one:26379", "two:26380"]);
        let primary = sentinels.primary.redis_settings();
        assert_eq!((primary.password(), primary.db()), (Some("p@ss"), 2));
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
