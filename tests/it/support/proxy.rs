//! A proxy that breaks connections as networks do.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// Passes connections to a server, as its mode says.
pub struct Proxy {
    pub port: u16,
    wire: Arc<Wire>,
    task: AbortHandle,
}

/// The proxy's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Nothing listens, and existing connections are reset.
    Refuse,
    /// Connections stay open, and no data passes in either direction.
    Hold,
    /// Requests pass, and answers wait.
    HoldAnswers,
    /// Answers pass this much later.
    Late(Duration),
    /// Requests pass, and answers are dropped.
    Swallow,
    /// One of every `every` answers is dropped and its connection closed. The server has executed
    /// the request, and the client does not know it.
    HangUp {
        every: u64,
    },
}

struct Wire {
    mode: watch::Sender<Mode>,
    server: Mutex<SocketAddr>,
    /// The rule while [`Proxy::cut`] is on.
    every: u64,
    connections: AtomicU64,
    answers: AtomicU64,
    hung_up: AtomicU64,
    /// Connections of an older generation are stranded.
    generation: AtomicU64,
}

impl Proxy {
    pub async fn start(server: SocketAddr, every: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let wire = Arc::new(Wire {
            mode: watch::Sender::new(Mode::Pass),
            server: Mutex::new(server),
            every,
            connections: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            hung_up: AtomicU64::new(0),
            generation: AtomicU64::new(0),
        });
        let task = tokio::spawn(accept(listener, wire.clone()));
        Self {
            port,
            wire,
            task: task.abort_handle(),
        }
    }

    /// A proxy in front of a server on this machine.
    pub async fn before(port: u16) -> Self {
        Self::start((Ipv4Addr::LOCALHOST, port).into(), 1).await
    }

    /// The server's URL, with the proxy's address.
    pub fn url(&self, direct: &str) -> String {
        let port = self.wire.server.lock().expect("no panic").port();
        direct.replace(&format!(":{port}/"), &format!(":{}/", self.port))
    }

    pub fn set(&self, mode: Mode) {
        self.wire.mode.send_replace(mode);
    }

    /// New connections go to another server.
    pub fn lead_to(&self, port: u16) {
        *self.wire.server.lock().expect("no panic") = (Ipv4Addr::LOCALHOST, port).into();
    }

    /// From now on no data passes on existing connections. New connections work.
    pub fn strand(&self) {
        self.wire.generation.fetch_add(1, Ordering::SeqCst);
        // Wakes the connections, so that they notice.
        self.wire.mode.send_modify(|_| {});
    }

    /// Begins or ends the closing of every so many answers' connections.
    pub fn cut(&self, is_on: bool) {
        let every = self.wire.every;
        self.set(if is_on {
            Mode::HangUp { every }
        } else {
            Mode::Pass
        });
    }

    /// How many connections clients have made to the proxy.
    pub fn connections(&self) -> u64 {
        self.wire.connections.load(Ordering::SeqCst)
    }

    /// How many answers were dropped.
    pub fn cuts(&self) -> u64 {
        self.wire.hung_up.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        // Ends the connections too.
        self.set(Mode::Refuse);
    }
}

/// Listens, except while connections are refused.
async fn accept(listener: TcpListener, wire: Arc<Wire>) {
    let address = listener.local_addr().expect("an address");
    let mut listener = Some(listener);
    let mut mode = wire.mode.subscribe();
    loop {
        if *mode.borrow_and_update() == Mode::Refuse {
            listener = None;
        } else if listener.is_none() {
            // Another process can have the port for a moment.
            listener = TcpListener::bind(address).await.ok();
        }
        match &listener {
            Some(open) => tokio::select! {
                accepted = open.accept() => if let Ok((client, _)) = accepted {
                    wire.connections.fetch_add(1, Ordering::SeqCst);
                    let wire = wire.clone();
                    tokio::spawn(async move {
                        // In every case both sides are closed.
                        let _ = pass(client, &wire).await;
                    });
                },
                changed = mode.changed() => if changed.is_err() { return },
            },
            None => {
                let _ = tokio::time::timeout(Duration::from_millis(20), mode.changed()).await;
            }
        }
    }
}

async fn pass(mut client: TcpStream, wire: &Wire) -> std::io::Result<()> {
    let mut mode = wire.mode.subscribe();
    mode.wait_for(|mode| *mode != Mode::Hold)
        .await
        .map_err(std::io::Error::other)?;
    let address = *wire.server.lock().expect("no panic");
    let mut server = TcpStream::connect(address).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut asked = [0; 16_384];
    let mut answered = [0; 65_536];
    let mut has_swallowed = false;
    let mut late = VecDeque::<(Instant, Vec<u8>)>::new();
    let generation = wire.generation.load(Ordering::SeqCst);
    loop {
        let now = *mode.borrow_and_update();
        let is_over = has_swallowed && now != Mode::Swallow;
        if now == Mode::Refuse || is_over {
            client.set_zero_linger()?;
            return server.set_zero_linger();
        }
        let is_stranded = generation != wire.generation.load(Ordering::SeqCst);
        let flows = now != Mode::Hold && !is_stranded;
        let due = late.front().map(|(due, _)| *due);
        tokio::select! {
            changed = mode.changed() => changed.map_err(std::io::Error::other)?,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if flows && due.is_some() => {
                let (_, answer) = late.pop_front().expect("a late answer");
                client.write_all(&answer).await?;
            }
            count = client.read(&mut asked), if flows => match count? {
                0 => return Ok(()),
                count => server.write_all(&asked[..count]).await?,
            },
            count = server.read(&mut answered), if flows && now != Mode::HoldAnswers => {
                let count = count?;
                if count == 0 {
                    return Ok(());
                }
                match now {
                    Mode::Late(by) => {
                        late.push_back((Instant::now() + by, answered[..count].to_vec()));
                        continue;
                    }
                    // An answer never overtakes a late one.
                    Mode::Pass if !late.is_empty() => {
                        late.push_back((Instant::now(), answered[..count].to_vec()));
                        continue;
                    }
                    Mode::Swallow => {
                        has_swallowed = true;
                        continue;
                    }
                    Mode::HangUp { every } => {
                        let number = wire.answers.fetch_add(1, Ordering::SeqCst);
                        if number.is_multiple_of(every) {
                            wire.hung_up.fetch_add(1, Ordering::SeqCst);
                            return Ok(());
                        }
                    }
                    Mode::Pass | Mode::Refuse | Mode::Hold | Mode::HoldAnswers => {}
                }
                client.write_all(&answered[..count]).await?;
            }
        }
    }
}
