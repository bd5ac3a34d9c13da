//! The hosts of a URL of PostgreSQL. One of them serves: the first that takes writes, or for sessions that only
//! read the first that answers.

use std::io::{self, ErrorKind};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use sqlx::{Connection, Executor, Row, raw_sql};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::OpenError;
use super::url_parameters::only_known;

/// The longest wait for a host, while others may serve. A claim waits longer.
const HOST_TIMEOUT: Duration = Duration::from_secs(1);

/// The hosts of one URL, shared by all sessions that begin there.
#[derive(Debug)]
pub struct Hosts {
    /// One or more, in the order of the URL.
    options: Vec<PgConnectOptions>,
    /// The index of the one that served last.
    current: AtomicUsize,
    moved: Arc<Moved>,
    /// The id of the ledger, once it is known.
    ledger: OnceLock<Uuid>,
    /// The pools that make their connections themselves.
    pools: Mutex<Vec<PgPool>>,
}

/// When another host began to serve.
#[derive(Debug, Default)]
pub struct Moved(Mutex<Option<Instant>>);

impl Moved {
    /// Whether a connection of this age may be to a host that served before.
    pub fn is_before(&self, age: Duration) -> bool {
        let at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| at.elapsed() < age)
    }
}

impl Hosts {
    /// # Errors
    /// [`OpenError::InvalidUrl`].
    pub fn of(url: &str) -> Result<Self, OpenError> {
        let url = only_known(url).map_err(OpenError::InvalidUrl)?;
        let urls = each_host(&url).map_err(OpenError::InvalidUrl)?;
        let options = urls.iter().map(|url| {
            let options = PgConnectOptions::from_str(url)
                .map_err(|error| OpenError::InvalidUrl(error.to_string()))?
                .application_name("perdiem")
                // A pooler need not know this one. The binary form of numbers does not depend on it.
                .extra_float_digits(None);
            Ok(options)
        });
        Ok(Self {
            options: options.collect::<Result<_, OpenError>>()?,
            current: AtomicUsize::new(0),
            moved: Arc::default(),
            ledger: OnceLock::new(),
            pools: Mutex::default(),
        })
    }

    /// The hosts with their ports, and the database, without credentials.
    pub fn place(&self) -> String {
        let places: Vec<String> = self.options.iter().map(place).collect();
        let of = &self.options[0];
        let database = of.get_database().unwrap_or(of.get_username());
        format!("{}/{database}", places.join(","))
    }

    /// Whether there is a choice.
    pub fn are_several(&self) -> bool {
        self.options.len() > 1
    }

    /// Whether a new connection to a standby is passed over. At the start a single host says itself what it is;
    /// later its address may lead to another server, for example in the middle of a fail-over.
    pub fn must_write(&self, may_be_standby: bool) -> bool {
        !may_be_standby && (self.are_several() || self.ledger.get().is_some())
    }

    /// The options of the host that served last.
    pub fn current(&self) -> PgConnectOptions {
        self.options[self.current.load(Ordering::Acquire)].clone()
    }

    /// Says which ledger it is. A host with another one never serves.
    pub fn know(&self, ledger: Uuid) {
        // Only the first opening knows.
        let _ = self.ledger.set(ledger);
    }

    pub fn moved(&self) -> Arc<Moved> {
        self.moved.clone()
    }

    /// Lets a pool follow: it makes its connections to the host that serves.
    pub fn lead(&self, pool: &PgPool) {
        if self.are_several() {
            self.pools().push(pool.clone());
        }
    }

    /// Makes a connection to the host that serves: the one that served last, or else the first of the others.
    ///
    /// # Errors
    /// Those of all hosts in one text. While a host may be about to serve, the error is as if it refused
    /// connections.
    pub async fn connect(&self, may_be_standby: bool) -> Result<PgConnection, sqlx::Error> {
        let current = self.current.load(Ordering::Acquire);
        if !self.are_several() {
            let mut connection = PgConnection::connect_with(&self.options[current]).await?;
            if self.must_write(may_be_standby) {
                takes_writes(&mut connection).await?;
            }
            return Ok(connection);
        }
        let failed = match self.attempt(current, may_be_standby).await {
            Ok(connection) => return Ok(connection),
            Err(error) => (current, error),
        };
        let others = (0..self.options.len()).filter(|index| *index != current);
        let attempts = others.map(async |index| (index, self.attempt(index, may_be_standby).await));
        let mut errors = vec![failed];
        for (index, attempted) in join_all(attempts).await {
            match attempted {
                Ok(connection) => {
                    self.move_to(index);
                    return Ok(connection);
                }
                Err(error) => errors.push((index, error)),
            }
        }
        Err(self.of_all(errors))
    }

    /// Finds the host that serves.
    ///
    /// # Errors
    /// As [`Hosts::connect`].
    pub async fn look(&self, may_be_standby: bool) -> Result<(), sqlx::Error> {
        if self.are_several() {
            drop(self.connect(may_be_standby).await?);
        }
        Ok(())
    }

    async fn attempt(
        &self,
        index: usize,
        may_be_standby: bool,
    ) -> Result<PgConnection, sqlx::Error> {
        let attempt = async {
            let mut connection = PgConnection::connect_with(&self.options[index]).await?;
            if !may_be_standby {
                takes_writes(&mut connection).await?;
            }
            if let Some(ledger) = self.ledger.get() {
                has_ledger(&mut connection, *ledger).await?;
            }
            Ok(connection)
        };
        match timeout(HOST_TIMEOUT, attempt).await {
            Ok(attempted) => attempted,
            Err(elapsed) => Err(sqlx::Error::Io(elapsed.into())),
        }
    }

    fn move_to(&self, index: usize) {
        let before = self.current.swap(index, Ordering::AcqRel);
        if before == index {
            return;
        }
        let options = &self.options[index];
        tracing::warn!(
            before = place(&self.options[before]),
            now = place(options),
            "another host serves the ledger now"
        );
        *self.moved.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        for pool in &*self.pools() {
            pool.set_connect_options(options.clone());
        }
    }

    /// One error for all hosts. A wrong password or database stays what it is.
    fn of_all(&self, errors: Vec<(usize, sqlx::Error)>) -> sqlx::Error {
        let texts = errors.iter().map(|(index, error)| {
            let place = place(&self.options[*index]);
            match error {
                sqlx::Error::Io(error) => format!("{place}: {error}"),
                error => format!("{place}: {error}"),
            }
        });
        let texts: Vec<String> = texts.collect();
        let is_lasting = |error: &sqlx::Error| {
            let is_passing =
                |error: &dyn sqlx::error::DatabaseError| error.is_transient_in_connect_phase();
            !matches!(error, sqlx::Error::Io(_))
                && !error.as_database_error().is_some_and(is_passing)
        };
        let mut errors = errors.into_iter().map(|(_, error)| error);
        match errors.find(is_lasting) {
            Some(error) => error,
            None => sqlx::Error::Io(io::Error::new(
                ErrorKind::ConnectionRefused,
                texts.join("; "),
            )),
        }
    }

    fn pools(&self) -> MutexGuard<'_, Vec<PgPool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Errors
/// The server is a standby, or does not answer.
pub async fn takes_writes(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    // Without a prepared statement: it is used once.
    let asked = connection.fetch_one(raw_sql("SELECT pg_is_in_recovery()"));
    if asked.await?.try_get(0)? {
        return Err(passed_over("this server is a standby"));
    }
    Ok(())
}

/// # Errors
/// The database has another ledger or none, or does not answer.
async fn has_ledger(connection: &mut PgConnection, ledger: Uuid) -> Result<(), sqlx::Error> {
    let asked = connection.fetch_one(raw_sql("SELECT id::text FROM ledger"));
    let own: String = asked.await?.try_get(0)?;
    if own.parse() != Ok(ledger) {
        return Err(passed_over("this server has another ledger"));
    }
    Ok(())
}

/// The error of a host that does not serve now.
fn passed_over(why: &str) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(ErrorKind::ConnectionRefused, why))
}

fn place(options: &PgConnectOptions) -> String {
    format!("{}:{}", options.get_host(), options.get_port())
}

/// A URL for each host of a URL, as libpq divides it: `h1:5432,h2:5433`, or lists in `host` and `port`.
///
/// # Errors
/// There are more or fewer ports than hosts.
fn each_host(url: &str) -> Result<Vec<String>, String> {
    let (start, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let (path, parameters) = match rest.split_once('?') {
        Some((path, parameters)) => (path, Some(parameters)),
        None => (rest, None),
    };
    let lists = |name: &str| {
        let named = parameters
            .unwrap_or_default()
            .split('&')
            .filter_map(|it| it.split_once('='));
        let mut named = named.filter(|(of, _)| *of == name);
        named.next_back().map(|(_, value)| {
            let value = value.replace("%2C", ",").replace("%2c", ",");
            value.split(',').map(str::to_owned).collect::<Vec<_>>()
        })
    };
    let of_authority: Vec<&str> = hosts.split(',').collect();
    let of_parameters = ["host", "hostaddr", "port"].map(|name| (name, lists(name)));
    let counts = of_parameters
        .iter()
        .filter_map(|(_, list)| Some(list.as_ref()?.len()));
    let count = counts.chain([of_authority.len()]).max().unwrap_or(1);
    if count == 1 {
        return Ok(vec![url.to_owned()]);
    }
    let fits = |length: usize| length == 1 || length == count;
    let mut lengths = of_parameters
        .iter()
        .filter_map(|(_, list)| Some(list.as_ref()?.len()));
    if !fits(of_authority.len()) || !lengths.all(fits) {
        let [of_hosts, _, of_ports] = &of_parameters;
        let listed = |(_, list): &(_, Option<Vec<String>>)| list.as_ref().map_or(0, Vec::len);
        return Err(format!(
            "it names {} hosts and {} ports: write one port, or a port for each of them",
            listed(of_hosts).max(of_authority.len()),
            listed(of_ports)
        ));
    }
    let nth = |index: usize| {
        let host = of_authority[index.min(of_authority.len() - 1)];
        let kept = parameters
            .unwrap_or_default()
            .split('&')
            .filter(|parameter| {
                let name = parameter.split('=').next().unwrap_or_default();
                !parameter.is_empty() && !of_parameters.iter().any(|(of, _)| *of == name)
            });
        let own = of_parameters.iter().filter_map(|(name, list)| {
            let list = list.as_ref()?;
            Some(format!("{name}={}", list[index.min(list.len() - 1)]))
        });
        let parameters: Vec<String> = kept.map(str::to_owned).chain(own).collect();
        format!("{start}://{user}{host}{path}?{}", parameters.join("&"))
    };
    Ok((0..count).map(nth).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_divided_as_libpq_divides_it() {
        let divided = |url| each_host(url).unwrap();
        for url in [
            "postgres://u:p@h/d",
            "postgres://h:5432/d?sslmode=require",
            "postgres:///d?host=/run/postgresql",
            "postgres://u:a,b@h/d",
        ] {
            assert_eq!(divided(url), [url]);
        }
        assert_eq!(
            divided("postgres://u:p@h1:5432,h2:5433,[::1]/d?sslmode=require"),
            [
                "postgres://u:p@h1:5432/d?sslmode=require",
                "postgres://u:p@h2:5433/d?sslmode=require",
                "postgres://u:p@[::1]/d?sslmode=require",
            ]
        );
        for url in [
            "postgres://u@/d?host=h1,h2&port=1,2",
            "postgres://u@/d?host=h1%2Ch2&port=1%2c2",
        ] {
            let expected = [
                "postgres://u@/d?host=h1&port=1",
                "postgres://u@/d?host=h2&port=2",
            ];
            assert_eq!(divided(url), expected);
        }
        let one_port = [
            "postgres:///d?host=h1&port=7",
            "postgres:///d?host=h2&port=7",
        ];
        assert_eq!(divided("postgres:///d?host=h1,h2&port=7"), one_port);
        let fault = each_host("postgres:///d?host=h1,h2,h3&port=1,2").unwrap_err();
        assert!(fault.contains("3 hosts and 2 ports"), "{fault}");
    }

    #[test]
    fn hosts_are_told_without_credentials() {
        let hosts = Hosts::of("postgres://u:secret@h1:1,h2/d").unwrap();
        assert_eq!(hosts.place(), "h1:1,h2:5432/d");
    }

    #[test]
    fn only_older_connections_are_of_before() {
        let moved = Moved::default();
        assert!(!moved.is_before(Duration::from_secs(9)));
        *moved.0.lock().unwrap() = Some(Instant::now());
        assert!(moved.is_before(Duration::from_secs(9)));
        assert!(!moved.is_before(Duration::ZERO));
    }
}
