//! A proxy that hangs up in the midst of answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// Passes connections on to a server. While it is told to, it swallows every so many of the
/// server's answers and hangs up instead: what was asked is done, and nobody is told.
pub struct Proxy {
    pub port: u16,
    cuts: Arc<Cuts>,
    task: AbortHandle,
}

struct Cuts {
    is_on: AtomicBool,
    every: u64,
    answers: AtomicU64,
    done: AtomicU64,
}

impl Proxy {
    pub async fn start(server: SocketAddr, every: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let cuts = Arc::new(Cuts {
            is_on: AtomicBool::new(false),
            every,
            answers: AtomicU64::new(0),
            done: AtomicU64::new(0),
        });
        let of_task = cuts.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let cuts = of_task.clone();
                tokio::spawn(async move {
                    // However it ends, both sides hang up.
                    let _ = pass(client, server, &cuts).await;
                });
            }
        });
        Self {
            port,
            cuts,
            task: task.abort_handle(),
        }
    }

    /// Begins to cut, or ends it.
    pub fn cut(&self, is_on: bool) {
        self.cuts.is_on.store(is_on, Ordering::SeqCst);
    }

    /// How many answers were swallowed.
    pub fn cuts(&self) -> u64 {
        self.cuts.done.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut client: TcpStream, server: SocketAddr, cuts: &Cuts) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let (mut asked, mut answered) = ([0; 65_536], [0; 65_536]);
    loop {
        tokio::select! {
            count = client.read(&mut asked) => match count? {
                0 => return Ok(()),
                count => server.write_all(&asked[..count]).await?,
            },
            count = server.read(&mut answered) => {
                let count = count?;
                if count == 0 {
                    return Ok(());
                }
                let number = cuts.answers.fetch_add(1, Ordering::SeqCst);
                if cuts.is_on.load(Ordering::SeqCst) && number.is_multiple_of(cuts.every) {
                    cuts.done.fetch_add(1, Ordering::SeqCst);
                    return Ok(());
                }
                client.write_all(&answered[..count]).await?;
            }
        }
    }
}
