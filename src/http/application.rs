//! The application: the engine behind a listening server.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_web::middleware::from_fn;
use actix_web::web::{Data, PayloadConfig};
use actix_web::{App, HttpServer};
use tokio::net::{TcpSocket, lookup_host};
use tokio::time::Instant;

use super::extract::BODY_MAX_BYTES;
use super::{credentials, request_id, routes};
use crate::engine::{BuildError, Engine, EngineOptions};

/// How many connections the system keeps until they are taken.
const BACKLOG: u32 = 1024;

/// Why the application could not be built. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The engine could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; stop whatever uses it, or name another address in \
         PERDIEM_BIND"
    )]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// How an application serves.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where to listen; port 0 takes a free one.
    pub bind: String,
    /// How long what is in flight may take to end after the stop.
    pub drain_time: Duration,
    /// How long a request's head may take to arrive, and its body again.
    pub request_time: Duration,
    /// How long a connection may be idle.
    pub idle_time: Duration,
    /// Whether `/metrics` is open to all.
    pub open_metrics: bool,
}

/// An application that listens, and serves once it is run.
pub struct Application {
    engine: Arc<Engine>,
    listener: TcpListener,
    address: SocketAddr,
    new_secret: Option<String>,
    options: ServeOptions,
    workers: usize,
}

impl Application {
    /// Takes the address, opens the stores, starts the workers and listens; then a new ledger
    /// is given its first key.
    ///
    /// It does not listen before: a client that is refused goes to another instance, and one
    /// that could connect would wait for this one.
    ///
    /// # Errors
    /// [`ServeError`], each with what to do.
    pub async fn build(options: ServeOptions, engine: EngineOptions) -> Result<Self, ServeError> {
        let listen = |source| ServeError::Listen {
            address: options.bind.clone(),
            source,
        };
        let socket = bind(&options.bind).await.map_err(listen)?;
        let address = socket.local_addr().map_err(listen)?;
        let engine = Engine::build(engine).await?;
        let listener = socket.listen(BACKLOG).and_then(|it| it.into_std());
        let listener = listener.map_err(listen)?;
        let new_secret = engine.add_first_key().await?;
        Ok(Self {
            engine,
            listener,
            address,
            new_secret,
            options,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The secret of the admin key that a new ledger was given. It is shown nowhere else.
    pub fn new_secret(&self) -> Option<&str> {
        self.new_secret.as_deref()
    }

    /// Serves until `stop` says so: then it takes no new connections, finishes what is in
    /// flight, within the drain time, and closes the stores.
    ///
    /// # Errors
    /// What the server could not do.
    pub async fn run(self, stop: impl Future<Output = ()>) -> std::io::Result<()> {
        let data = Data::from(self.engine.clone());
        let options = Data::new(self.options.clone());
        let server = HttpServer::new(move || {
            App::new()
                .app_data(data.clone())
                .app_data(options.clone())
                .app_data(PayloadConfig::new(BODY_MAX_BYTES))
                .wrap(from_fn(credentials::oversee))
                .wrap(from_fn(request_id::identify))
                .configure(routes)
        })
        .workers(self.workers)
        .disable_signals()
        .keep_alive(self.options.idle_time)
        .client_request_timeout(self.options.request_time)
        .shutdown_timeout(self.options.drain_time.as_secs())
        .listen(self.listener)?
        .run();
        tracing::info!(address = %self.address, "serving");
        let handle = server.handle();
        let mut deadline = Instant::now();
        let mut server = std::pin::pin!(server);
        tokio::select! {
            ended = &mut server => ended?,
            () = stop => {
                deadline = Instant::now() + self.options.drain_time;
                let (_, ended) = tokio::join!(handle.stop(true), server);
                ended?;
            }
        }
        self.engine.close(deadline).await;
        Ok(())
    }
}

/// A socket on the first of a name's addresses that can be had.
async fn bind(address: &str) -> std::io::Result<TcpSocket> {
    let mut bound = Err(ErrorKind::AddrNotAvailable.into());
    for address in lookup_host(address).await? {
        bound = bind_to(address);
        if bound.is_ok() {
            break;
        }
    }
    bound
}

fn bind_to(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Connections of the instance before may linger.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
