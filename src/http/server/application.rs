//! The application: the engine behind a listening server.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_service::{IntoServiceFactory, Service, ServiceFactory};
use actix_web::App;
use actix_web::dev::{AppConfig, Server, fn_service};
use actix_web::web::Data;
use futures_util::future::{BoxFuture, FutureExt, LocalBoxFuture};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::Bounds;
use super::console::{Console, console_routes};
use super::every;
use super::first_key::FirstKey;
use super::gate::{Gate, GateOptions, gate_app};
use super::in_process::{InProcess, OwnApplication};
use super::listening::{AppHandlers, Listening};
use super::newcomers::Newcomers;
use super::plain_claims::PlainClaims;
use super::rate_limits::RateLimits;
use super::read_only::only_reads;
use super::tls::{Tls, TlsFault, TlsFiles};
use crate::request::{GateKey, OpenMetrics, ReadTime, Routes};
use crate::routes;
use engine::{BuildError, Engine, EngineOptions, KEY_OF_SETTINGS, generate_secret};
use sign_on::{NoCertificates, SignOn, SignOnSettings};

/// The most connections that the system queues before they are accepted.
const BACKLOG: u32 = 1024;
/// The setting with the address of the gate.
const GATE_BIND: &str = "PERDIEM_GATE_BIND";
/// The setting with the address of the rate limit service.
const GATE_GRPC_BIND: &str = "PERDIEM_GATE_GRPC_BIND";

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
        "cannot listen on {address}: {source}; set another address in {setting}, or stop the \
         program that uses it"
    )]
    Listen {
        setting: &'static str,
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
            Self::Listen {
                setting, source, ..
            } => match source.kind() {
                ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable => None,
                _ => Some(setting),
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
    /// Where proxies ask before they let a request through; `None` without a gate.
    pub gate: Option<GateOptions>,
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
    gate: Option<TcpListener>,
    rate_limits: Option<TcpListener>,
    gate_key: GateKey,
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
    pub fn build(
        options: ServeOptions,
        engine: EngineOptions,
    ) -> BoxFuture<'static, Result<Self, ServeError>> {
        // The boxes here and below keep the code of the server in this crate.
        Box::pin(Self::built(options, engine))
    }

    async fn built(options: ServeOptions, engine: EngineOptions) -> Result<Self, ServeError> {
        let tls = options.tls.clone().map(Tls::load).transpose()?;
        let sign_on = options.sign_on.clone().map(SignOn::new).transpose();
        let sign_on = sign_on.map_err(ServeError::SignOn)?.map(Arc::new);
        let socket = BoundSocket::to("PERDIEM_BIND", &options.bind).await?;
        let address = socket.address;
        let of_gate = options.gate.as_ref();
        let bind = of_gate.and_then(|gate| gate.bind.as_deref());
        let gate = BoundSocket::to_some(GATE_BIND, bind).await?;
        let bind = of_gate.and_then(|gate| gate.grpc_bind.as_deref());
        let rate_limits = BoundSocket::to_some(GATE_GRPC_BIND, bind).await?;
        let engine = Engine::build(engine).await?;
        let listener = socket.listen()?;
        let gate = gate.map(BoundSocket::listen).transpose()?;
        let rate_limits = rate_limits.map(BoundSocket::listen).transpose()?;
        let gate_key = GateKey::new(options.gate.as_ref().map(|gate| gate.key.clone()));
        if let Some(trouble) = gate_key.trouble(&engine).await {
            tracing::warn!("{trouble}");
        }
        let first_key = add_first_key(&engine, &options).await?;
        Ok(Self {
            engine,
            listener,
            address,
            gate,
            rate_limits,
            gate_key,
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

    /// Where proxies find the gate, if there is one.
    pub fn gate_url(&self) -> Option<String> {
        let address = self.gate.as_ref()?.local_addr().ok()?;
        Some(format!("http://{address}/gate"))
    }

    /// Where proxies find the rate limit service, if there is one.
    pub fn rate_limits(&self) -> Option<SocketAddr> {
        self.rate_limits.as_ref()?.local_addr().ok()
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
    pub fn run(self, stop: LocalBoxFuture<'_, ()>) -> LocalBoxFuture<'_, std::io::Result<()>> {
        Box::pin(self.serve(stop))
    }

    async fn serve(self, stop: LocalBoxFuture<'_, ()>) -> std::io::Result<()> {
        // 1. Collect what every worker shares.
        let data = Data::from(self.engine.clone());
        let read_time = ReadTime(self.options.request_time);
        let open_metrics = OpenMetrics(self.options.open_metrics);
        let gate_key = self.gate_key.clone();
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
        let plain_claims = TaskTracker::new();
        let in_progress = plain_claims.clone();
        let mut builder = Server::build()
            .workers(self.workers)
            .disable_signals()
            .shutdown_timeout(self.options.drain_time.as_secs());
        let listening = Listening {
            bounds: self.options.bounds(),
            time: self.engine.running_time(),
            newcomers: Newcomers::default(),
            in_progress: plain_claims.clone(),
        };
        let handlers = move || {
            let mut routes = routes();
            if has_console {
                routes = routes.and(console_routes());
            }
            if is_read_only {
                routes = only_reads(routes);
            }
            routes.is_sandbox = is_sandbox;
            Handlers {
                engine: data.clone(),
                read_time,
                open_metrics,
                gate_key: gate_key.clone(),
                routes: Rc::new(routes),
            }
        };
        // 2. Say how a worker serves the gate, if there is one.
        if let Some(listener) = self.gate {
            let engine = self.engine.clone();
            let key = self.gate_key.clone();
            let handlers = handlers.clone();
            // Connections of strangers to the other port do not cut those of proxies.
            let listening = Listening {
                newcomers: Newcomers::default(),
                ..listening.clone()
            };
            let service = move || {
                let own = in_process(handlers());
                let gate = Gate::new(engine.clone(), key.clone(), own);
                listening.serve(gate_app(gate), None, None)
            };
            builder = builder.listen("gate", listener, service)?;
        }
        // 3. Say the same for the rate limit service.
        let ending = CancellationToken::new();
        if let Some(listener) = self.rate_limits {
            let engine = self.engine.clone();
            let key = self.gate_key.clone();
            let bounds = self.options.bounds();
            let ending = ending.clone();
            let service = move || {
                let own = RateLimits::new(engine.clone(), key.clone(), bounds, ending.clone());
                fn_service(move |io: TcpStream| own.clone().serve(io).map(Ok::<(), ()>))
            };
            builder = builder.listen("rate limits", listener, service)?;
        }
        // 4. Say how a worker serves everything else.
        let acceptor = self.tls.as_ref().map(|tls| tls.acceptor.clone());
        let service = move || {
            let shared = handlers();
            let console = console_settings.clone().map(|settings| {
                let own = in_process(shared.clone());
                Console::new(engine.clone(), settings, own, sign_on.clone())
            });
            let plain_claims =
                has_plain_claims.then(|| PlainClaims::new(engine.clone(), in_progress.clone()));
            listening.serve(shared.app(console), acceptor.clone(), plain_claims)
        };
        // 5. Start the workers.
        let server = builder.listen("perdiem", self.listener, service)?.run();
        tracing::info!(address = %self.address, "serving");
        let handle = server.handle();
        // 6. Serve until the stop. Then the server takes no new connections, and finishes the
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
                ending.cancel();
                let (_, ended) = tokio::join!(handle.stop(true), server);
                ended?;
            }
        }
        // 7. Close the stores, within what is left of the drain time.
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
    gate_key: GateKey,
    routes: Rc<Routes>,
}

impl Handlers {
    /// The handlers behind their routes.
    fn app(self, console: Option<Rc<Console>>) -> App<impl AppHandlers> {
        let Self {
            engine,
            read_time,
            open_metrics,
            gate_key,
            routes,
        } = self;
        App::new()
            .app_data(Data::from(engine.claims.clone()))
            .app_data(Data::from(engine.record.clone()))
            .app_data(Data::from(engine.audit.clone()))
            .app_data(Data::from(engine.admin.clone()))
            .app_data(engine)
            .app_data(read_time)
            .app_data(open_metrics)
            .app_data(gate_key)
            .app_data(console)
            .default_service(fn_service(move |request| {
                every::answer(routes.clone(), request)
            }))
    }
}

/// The application once more, for requests that its own pages send.
fn in_process(shared: Handlers) -> InProcess {
    InProcess::new(Box::new(move || {
        let app = shared.clone().app(None).into_factory();
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

/// A socket that has its address, and does not listen yet.
struct BoundSocket {
    /// The setting that names the address.
    setting: &'static str,
    socket: TcpSocket,
    address: SocketAddr,
}

impl BoundSocket {
    /// A socket on the first address of a name that can be bound.
    async fn to(setting: &'static str, named: &str) -> Result<Self, ServeError> {
        let bound = async {
            let mut bound = Err(ErrorKind::AddrNotAvailable.into());
            for address in lookup_host(named).await? {
                bound = bind_to(address);
                if bound.is_ok() {
                    break;
                }
            }
            let socket = bound?;
            let address = socket.local_addr()?;
            Ok(Self {
                setting,
                socket,
                address,
            })
        };
        bound.await.map_err(|source| ServeError::Listen {
            setting,
            address: named.to_owned(),
            source,
        })
    }

    /// As [`BoundSocket::to`], if there is a name.
    async fn to_some(
        setting: &'static str,
        named: Option<&str>,
    ) -> Result<Option<Self>, ServeError> {
        match named {
            None => Ok(None),
            Some(named) => Self::to(setting, named).await.map(Some),
        }
    }

    fn listen(self) -> Result<TcpListener, ServeError> {
        let listener = self.socket.listen(BACKLOG);
        let listener = listener.and_then(tokio::net::TcpListener::into_std);
        listener.map_err(|source| ServeError::Listen {
            setting: self.setting,
            address: self.address.to_string(),
            source,
        })
    }
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
