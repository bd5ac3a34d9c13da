//! The application: the engine behind a listening server.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::{HttpService, KeepAlive, Request};
use actix_service::{IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, map_config};
use actix_web::dev::{AppConfig, Server, ServiceResponse, fn_service};
use actix_web::web::Data;
use actix_web::{App, Error};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::connection::{Bounds, Connection};
use super::console::{Console, console_routes};
use super::every;
use super::exchange::Exchange;
use super::first_key::FirstKey;
use super::in_process::{InProcess, OwnApplication};
use super::newcomers::Newcomers;
use super::plain_claims::PlainClaims;
use super::read_only::only_reads;
use super::tls::{Tls, TlsFault, TlsFiles};
use crate::request::{OpenMetrics, ReadTime, Routes};
use crate::routes;
use engine::{BuildError, Engine, EngineOptions, KEY_OF_SETTINGS, generate_secret};
use sign_on::{NoCertificates, SignOn, SignOnSettings};

/// The most connections that the system queues before they are accepted.
const BACKLOG: u32 = 1024;
/// How long a client may continue to send a body after its answer. Nobody reads that body.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Why the application could not start. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Tls(#[from] TlsFault),
    #[error(transparent)]
    SignOn(NoCertificates),
    #[error(
        "cannot listen on {address}: {source}; set another address in PERDIEM_BIND, or stop the \
         program that uses it"
    )]
    Listen {
        address: String,
        source: std::io::Error,
    },
    /// Without the file nobody would ever know the key.
    #[error(
        "cannot write the first admin key into the folder {folder}: {source}; start perdiem in a \
         folder that it may write to, or set PERDIEM_ADMIN_KEY_FILE"
    )]
    FirstKey {
        folder: String,
        source: std::io::Error,
    },
}

impl ServeError {
    /// The setting that is wrong; `None` if another try can succeed with the same settings.
    pub fn setting(&self) -> Option<&'static str> {
        match self {
            Self::Build(error) => error.setting(),
            // The other program can end, and the machine can get the address later.
            Self::Listen { source, .. } => match source.kind() {
                ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable => None,
                _ => Some("PERDIEM_BIND"),
            },
            Self::Tls(fault) => Some(fault.setting),
            Self::SignOn(_) => None,
            Self::FirstKey { .. } => Some(KEY_OF_SETTINGS),
        }
    }
}

#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The address and port to listen on; port 0 takes a free port.
    pub bind: String,
    /// The certificate to speak TLS with; `None` without TLS.
    pub tls: Option<TlsFiles>,
    /// The provider whose accounts can sign in to the console; `None` for keys only.
    pub sign_on: Option<SignOnSettings>,
    /// The longest time to finish the requests in progress after the stop.
    pub drain_time: Duration,
    /// The longest time for a request's head to arrive, and again for its body.
    pub request_time: Duration,
    /// The longest idle time of a connection.
    pub idle_time: Duration,
    /// The longest wait for a client that does not read its answer.
    pub stall_time: Duration,
    /// Whether `/metrics` is open to all.
    pub open_metrics: bool,
    /// What the console is like; `None` without a console.
    pub console: Option<console::Settings>,
    /// The folder for a file with the first key of a new ledger. Without it the key is shown.
    pub first_key_folder: Option<PathBuf>,
}

impl ServeOptions {
    fn bounds(&self) -> Bounds {
        Bounds {
            request_time: self.request_time,
            idle_time: self.idle_time,
            stall_time: self.stall_time,
        }
    }
}

/// An application that listens. It serves requests when `run` is called.
pub struct Application {
    engine: Arc<Engine>,
    listener: TcpListener,
    address: SocketAddr,
    first_key: Option<FirstKey>,
    tls: Option<Tls>,
    sign_on: Option<Arc<SignOn>>,
    options: ServeOptions,
    workers: usize,
}

impl Application {
    /// Binds the address, opens the stores, starts the workers and listens. Then it creates the
    /// first key of a new ledger.
    ///
    /// The order matters: a client whose connection is refused goes to another instance, but a
    /// client that could connect would wait for this one. So the listening begins when the stores
    /// are open.
    pub async fn build(options: ServeOptions, engine: EngineOptions) -> Result<Self, ServeError> {
        let listen = |source| ServeError::Listen {
            address: options.bind.clone(),
            source,
        };
        let tls = options.tls.clone().map(Tls::load).transpose()?;
        let sign_on = options.sign_on.clone().map(SignOn::new).transpose();
        let sign_on = sign_on.map_err(ServeError::SignOn)?.map(Arc::new);
        let socket = bind(&options.bind).await.map_err(listen)?;
        let address = socket.local_addr().map_err(listen)?;
        let engine = Engine::build(engine).await?;
        let listener = socket.listen(BACKLOG).and_then(|it| it.into_std());
        let listener = listener.map_err(listen)?;
        let first_key = add_first_key(&engine, &options).await?;
        Ok(Self {
            engine,
            listener,
            address,
            first_key,
            tls,
            sign_on,
            options,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients find the server.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The admin key of a new ledger.
    pub fn first_key(&self) -> Option<&FirstKey> {
        self.first_key.as_ref()
    }

    /// Serves until `stop` ends. Then it takes no new connections, finishes the requests in
    /// progress within the drain time, and closes the stores.
    pub async fn run(self, stop: impl Future<Output = ()>) -> std::io::Result<()> {
        // 1. Collect what every worker shares.
        let data = Data::from(self.engine.clone());
        let read_time = ReadTime(self.options.request_time);
        let open_metrics = OpenMetrics(self.options.open_metrics);
        let bounds = self.options.bounds();
        let time = self.engine.running_time();
        let newcomers = Newcomers::default();
        let is_read_only = self.engine.instance.is_read_only();
        let is_sandbox = self.engine.instance.sandbox_clock().is_some();
        let console_settings = self
            .options
            .console
            .clone()
            .map(|settings| console::Settings {
                is_read_only: settings.is_read_only || is_read_only,
                ..settings
            });
        let sign_on = self.sign_on.clone();
        let has_console = console_settings.is_some();
        let has_plain_claims = !is_read_only && !is_sandbox;
        let engine = self.engine.clone();
        let acceptor = self.tls.as_ref().map(|tls| tls.acceptor.clone());
        let plain_claims = TaskTracker::new();
        let in_progress = plain_claims.clone();
        let builder = Server::build()
            .workers(self.workers)
            .disable_signals()
            .shutdown_timeout(self.options.drain_time.as_secs());
        let ending = builder.graceful_shutdown_signal();
        // 2. Say how a worker serves: a TCP stream becomes a `Connection`, then HTTP/1.1, then
        // `every::answer`.
        let service = move || {
            let mut routes = routes();
            if has_console {
                routes = routes.and(console_routes());
            }
            if is_read_only {
                routes = only_reads(routes);
            }
            routes.is_sandbox = is_sandbox;
            let routes = Rc::new(routes);
            let shared = Handlers {
                engine: data.clone(),
                read_time,
                open_metrics,
                routes,
            };
            let console = console_settings.clone().map(|settings| {
                let own = in_process(shared.clone());
                Console::new(engine.clone(), settings, own, sign_on.clone())
            });
            let app = shared
                .app(console)
                .map_err(|error: Error| error.error_response());
            let ending = ending.clone();
            let decided = in_progress.clone();
            let http = HttpService::build()
                // actix does not know of plain claims: it would give their connections up.
                .graceful_shutdown_signal(move || {
                    let ending = ending.clone();
                    let decided = decided.clone();
                    async move {
                        ending.notified().await;
                        decided.wait().await
                    }
                })
                // The connection sets its own bounds: see `connection.rs`.
                .keep_alive(KeepAlive::Os)
                .client_request_timeout(Duration::ZERO)
                .client_disconnect_timeout(LINGER_TIME)
                .on_connect_ext(|connection: &Connection, data| {
                    data.insert(connection.exchange());
                })
                .h1(map_config(app, |()| AppConfig::default()));
            let time = time.clone();
            let acceptor = acceptor.clone();
            let newcomers = newcomers.clone();
            let plain_claims =
                has_plain_claims.then(|| PlainClaims::new(engine.clone(), in_progress.clone()));
            fn_service(move |io: TcpStream| {
                let address = io.peer_addr().ok();
                let newcomer = address.map(|address| newcomers.enter(address.ip()));
                let exchange = Exchange::new(newcomer);
                let connection = Connection::new(
                    io,
                    acceptor.as_ref(),
                    bounds,
                    &time,
                    exchange,
                    plain_claims.clone(),
                );
                async move { Ok((connection, address)) }
            })
            .and_then(http)
        };
        // 3. Start the workers.
        let server = builder.listen("perdiem", self.listener, service)?.run();
        tracing::info!(address = %self.address, "serving");
        let handle = server.handle();
        // 4. Serve until the stop. Then the server takes no new connections, and finishes the
        // requests in progress.
        let mut deadline = Instant::now();
        let mut server = std::pin::pin!(server);
        let following = async {
            match &self.tls {
                Some(tls) => tls.follow_files().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = &mut server => ended?,
            () = following => {}
            () = stop => {
                deadline = Instant::now() + self.options.drain_time;
                self.engine.begin_ending();
                plain_claims.close();
                let (_, ended) = tokio::join!(handle.stop(true), server);
                ended?;
            }
        }
        // 5. Close the stores, within what is left of the drain time.
        self.engine.close(deadline).await;
        Ok(())
    }
}

/// What the handlers of one thread share.
#[derive(Clone)]
struct Handlers {
    engine: Data<Engine>,
    read_time: ReadTime,
    open_metrics: OpenMetrics,
    routes: Rc<Routes>,
}

impl Handlers {
    /// The handlers behind their routes.
    fn app(
        self,
        console: Option<Rc<Console>>,
    ) -> impl ServiceFactory<
        Request,
        Config = AppConfig,
        Response = ServiceResponse,
        Error = Error,
        InitError = (),
        Future: 'static,
        Service: Service<Request, Response = ServiceResponse, Error = Error, Future: 'static>
                     + 'static,
    > {
        let Self {
            engine,
            read_time,
            open_metrics,
            routes,
        } = self;
        let app = App::new()
            .app_data(Data::from(engine.claims.clone()))
            .app_data(Data::from(engine.record.clone()))
            .app_data(Data::from(engine.audit.clone()))
            .app_data(Data::from(engine.admin.clone()))
            .app_data(engine)
            .app_data(read_time)
            .app_data(open_metrics)
            .app_data(console)
            .default_service(fn_service(move |request| {
                every::answer(routes.clone(), request)
            }));
        app.into_factory()
    }
}

/// The application once more, for requests that its own pages send.
fn in_process(shared: Handlers) -> InProcess {
    InProcess::new(Box::new(move || {
        let app = shared.clone().app(None);
        Box::pin(async move {
            let service = app.new_service(AppConfig::default()).await.ok()?;
            let dispatch: OwnApplication = Rc::new(move |request| {
                let answering = service.call(request);
                Box::pin(async move {
                    match answering.await {
                        Ok(answer) => answer.into_parts().1,
                        Err(error) => error.error_response(),
                    }
                })
            });
            Some(dispatch)
        })
    }))
}

/// Gives a ledger without keys an admin key. If the ledger does not answer, it may have the key: then
/// the file stays.
async fn add_first_key(
    engine: &Engine,
    options: &ServeOptions,
) -> Result<Option<FirstKey>, ServeError> {
    if engine.instance.is_read_only() || !engine.callers.needs_first_key() {
        return Ok(None);
    }
    let secret = generate_secret();
    let folder = options.first_key_folder.as_deref();
    let kept = FirstKey::keep(secret.clone(), folder).map_err(|source| ServeError::FirstKey {
        folder: folder
            .map(|it| it.display().to_string())
            .unwrap_or_default(),
        source,
    })?;
    if engine
        .callers
        .add_first_key(&secret)
        .await
        .map_err(BuildError::Read)?
    {
        Ok(Some(kept))
    } else {
        kept.discard();
        Ok(None)
    }
}

/// A socket on the first address of a name that can be bound.
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
    // Connections of an earlier instance may still be closing. A free port must be nobody else's: with this option
    // the system can give one that another process has taken, and does not listen on yet.
    socket.set_reuseaddr(address.port() != 0)?;
    socket.bind(address)?;
    Ok(socket)
}
