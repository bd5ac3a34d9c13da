//! How a listener serves: a TCP stream becomes a [`Connection`], then HTTP/1.1, then the handlers.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::{HttpService, KeepAlive};
use actix_service::{IntoServiceFactory, ServiceFactory, ServiceFactoryExt, map_config};
use actix_web::dev::{AppConfig, ServiceRequest, ServiceResponse, fn_service};
use actix_web::{App, Error};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::connection::{Bounds, Connection};
use super::exchange::Exchange;
use super::newcomers::Newcomers;
use super::plain_claims::PlainClaims;
use host::running::RunningTime;

/// How long a client may continue to send a body after its answer. Nobody reads that body.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// What the workers of a listener share.
#[derive(Clone)]
pub struct Listening {
    pub bounds: Bounds,
    pub time: Arc<RunningTime>,
    pub newcomers: Newcomers,
    /// The plain claims in progress. It is closed when the server ends.
    pub in_progress: TaskTracker,
}

/// The handlers of an [`App`]: its type has no other name.
pub trait AppHandlers:
    ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse,
        Error = Error,
        InitError = (),
    > + 'static
{
}

impl<T> AppHandlers for T where
    T: ServiceFactory<
            ServiceRequest,
            Config = (),
            Response = ServiceResponse,
            Error = Error,
            InitError = (),
        > + 'static
{
}

impl Listening {
    /// The service of one listener in one worker.
    pub fn serve<T: AppHandlers>(
        &self,
        app: App<T>,
        acceptor: Option<TlsAcceptor>,
        plain_claims: Option<Rc<PlainClaims>>,
    ) -> impl ServiceFactory<TcpStream, Config = (), InitError = (), Response = ()> + use<T> {
        let app = app.into_factory();
        let app = app.map_err(|error: Error| error.error_response());
        let in_progress = self.in_progress.clone();
        let http = HttpService::build()
            // actix does not know of plain claims: it would give their connections up.
            .graceful_shutdown_signal(move || {
                let in_progress = in_progress.clone();
                async move { in_progress.wait().await }
            })
            // The connection sets its own bounds: see `connection.rs`.
            .keep_alive(KeepAlive::Os)
            .client_request_timeout(Duration::ZERO)
            .client_disconnect_timeout(LINGER_TIME)
            .on_connect_ext(|connection: &Connection, data| {
                data.insert(connection.exchange());
            })
            .h1(map_config(app, |()| AppConfig::default()));
        let Self {
            bounds,
            time,
            newcomers,
            ..
        } = self.clone();
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
    }
}
