//! A connection to Redis: to one server, or to a cluster's shards.

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, RedisResult, Value, cmd};

/// A connection. Clones are cheap, and share it.
#[derive(Clone)]
pub enum Link {
    /// To one server.
    Node(MultiplexedConnection),
    /// To every shard of a cluster.
    Cluster(ClusterConnection),
}

impl Link {
    /// Sends commands together. The answers are in order.
    ///
    /// One server gets one pipeline. The client of a cluster finds the shard of each command by its
    /// key, follows slots that move, and sends all commands at once.
    ///
    /// # Errors
    /// No command got an answer.
    pub async fn send(&self, commands: Vec<Cmd>) -> RedisResult<Vec<RedisResult<Value>>> {
        match self {
            Self::Node(connection) => {
                let mut pipeline = Pipeline::with_capacity(commands.len());
                for command in commands {
                    pipeline.add_command(command);
                }
                let mut connection = connection.clone();
                pipeline.ignore_errors().query_async(&mut connection).await
            }
            Self::Cluster(connection) => {
                let answers = commands.into_iter().map(|command| {
                    let mut connection = connection.clone();
                    async move { command.query_async(&mut connection).await }
                });
                Ok(join_all(answers).await)
            }
        }
    }

    /// Sends a command to each primary, and returns one answer for each.
    ///
    /// # Errors
    /// A primary does not answer.
    pub async fn ask_primaries<T: FromRedisValue>(&self, command: Cmd) -> RedisResult<Vec<T>> {
        match self {
            Self::Node(connection) => {
                let answer = command.query_async(&mut connection.clone()).await?;
                Ok(vec![answer])
            }
            Self::Cluster(connection) => {
                let all = MultipleNodeRoutingInfo::AllMasters;
                let routing = RoutingInfo::MultiNode((all, None));
                let answers = connection.clone().route_command(command, routing).await?;
                let by_node: Vec<(String, T)> = redis::from_redis_value(answers)?;
                Ok(by_node.into_iter().map(|(_, answer)| answer).collect())
            }
        }
    }

    /// The primaries' addresses.
    ///
    /// # Errors
    /// A primary does not answer.
    pub async fn primaries(&self) -> RedisResult<Vec<String>> {
        let Self::Cluster(connection) = self else {
            return Ok(vec![String::new()]);
        };
        let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let answers = connection.clone().route_command(cmd("PING"), all).await?;
        let by_node: Vec<(String, Value)> = redis::from_redis_value(answers)?;
        Ok(by_node.into_iter().map(|(address, _)| address).collect())
    }

    /// Sends a command to the primary with this address, which [`Link::primaries`] returned.
    ///
    /// # Errors
    /// The primary does not answer, or refuses.
    pub async fn ask_primary(&self, address: &str, command: Cmd) -> RedisResult<Value> {
        match self {
            Self::Node(connection) => command.query_async(&mut connection.clone()).await,
            Self::Cluster(connection) => {
                let (host, port) = address.rsplit_once(':').unwrap_or_default();
                let node = SingleNodeRoutingInfo::ByAddress {
                    host: host.to_owned(),
                    port: port.parse().unwrap_or_default(),
                };
                let routing = RoutingInfo::SingleNode(node);
                connection.clone().route_command(command, routing).await
            }
        }
    }

    /// Whether it leads to a cluster.
    pub fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}

/// The first error among the answers that says something about Redis itself.
pub fn first_failure(
    answers: &RedisResult<Vec<RedisResult<Value>>>,
    is_harmless: impl Fn(&RedisError) -> bool,
) -> Option<&RedisError> {
    match answers {
        Err(error) => Some(error),
        Ok(answers) => answers
            .iter()
            .filter_map(|answer| answer.as_ref().err())
            .find(|error| !is_harmless(error)),
    }
}
