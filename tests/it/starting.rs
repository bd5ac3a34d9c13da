//! The state of an instance between its start and its first answer.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};

use perdiem::engine::EngineOptions;
use perdiem::http::{Application, ServeError, ServeOptions};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::support::app::{Ground, Stack, eventually, serve_options};
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::postgres;

/// An instance that has bound its address, and that cannot open its ledger until the proxy permits
/// it.
struct Starting {
    /// A second socket on the address. It keeps the address from other programs. Two sockets may
    /// share an address until one of them listens.
    socket: TcpSocket,
    address: SocketAddr,
    proxy: Proxy,
    start: JoinHandle<Result<Application, ServeError>>,
}

impl Starting {
    async fn on(ground: &Ground) -> Self {
        let proxy = Proxy::before(postgres().port()).await;
        proxy.set(Mode::Hold);
        let database_url = proxy.url(&ground.database_url);
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option");
        socket.bind(anywhere()).expect("a port");
        let address = socket.local_addr().expect("an address");
        let ground = ground.clone();
        let start = async move { build(address, &ground, database_url).await };
        let start = tokio::spawn(start);
        let looks = || async { proxy.connections() > 0 };
        eventually("the instance connects to its ledger", looks).await;
        Self {
            socket,
            address,
            proxy,
            start,
        }
    }
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// An instance without an admin key in its settings.
async fn build(
    address: SocketAddr,
    ground: &Ground,
    database_url: String,
) -> Result<Application, ServeError> {
    let serve = ServeOptions {
        bind: address.to_string(),
        ..serve_options()
    };
    let engine = EngineOptions {
        database_url,
        admin_key: None,
        ..ground.options()
    };
    Application::build(serve, engine).await
}

/// A client that could connect would wait, and would not try another instance.
#[tokio::test]
async fn it_refuses_connections() {
    let ground = Ground::empty(Stack::Postgres);
    let starting = Starting::on(&ground).await;
    let refused = TcpStream::connect(starting.address)
        .await
        .expect_err("the connection is refused");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    starting.proxy.set(Mode::Pass);
    let started = starting.start.await.expect("no panic");
    let _listens = started.expect("the instance starts");
    TcpStream::connect(starting.address)
        .await
        .expect("a connection");
}

/// The secret of the first key is shown once. An instance whose port is in use must not make that
/// key.
#[tokio::test]
async fn one_that_cannot_listen_makes_no_key() {
    let ground = Ground::empty(Stack::Postgres);
    let starting = Starting::on(&ground).await;
    let _other = starting
        .socket
        .listen(1)
        .expect("the other socket listens first");
    starting.proxy.set(Mode::Pass);
    let ended = starting.start.await.expect("no panic");
    assert!(matches!(ended, Err(ServeError::Listen { .. })));
    let started = build(anywhere(), &ground, ground.database_url.clone()).await;
    let started = started.expect("the instance starts");
    assert!(started.first_key().is_some());
}
