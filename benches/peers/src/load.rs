//! Sends claims over HTTP as fast as they are answered. Prints one line of JSON: the number of
//! answers, their statuses, and their latencies.
//!
//! Each connection sends its next request after the answer to the last one. When the time is over,
//! it sends nothing more, and waits for the open requests. Therefore the line counts every request
//! that was sent, and the ledger must have exactly the counted grants more.

mod connection;
mod requests;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;
use mio::{Events, Poll};
use serde_json::json;

use connection::{Connection, Progress};
use requests::{Requests, Shape};

/// The longest wait for answers after the time is over.
const PATIENCE: Duration = Duration::from_secs(10);
/// The precision of the histograms: three digits, up to a minute in microseconds.
const LONGEST_MICROSECONDS: u64 = 60_000_000;
const STATUSES: usize = 600;

#[derive(Debug, Clone, Parser)]
struct Arguments {
    /// The servers' addresses: each subject's claims go to them in turn
    #[arg(required = true)]
    addresses: Vec<SocketAddr>,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The most requests that each thread sends
    #[arg(long, default_value_t = u64::MAX)]
    requests: u64,
    #[command(flatten)]
    shape: Shape,
}

/// The measurements of a thread.
struct Seen {
    sent: u64,
    in_time: u64,
    broken: u64,
    lasted: Duration,
    statuses: [u64; STATUSES],
    microseconds: Histogram<u64>,
}

impl Seen {
    fn new() -> Self {
        let microseconds = Histogram::new_with_bounds(1, LONGEST_MICROSECONDS, 3);
        Self {
            sent: 0,
            in_time: 0,
            broken: 0,
            lasted: Duration::ZERO,
            statuses: [0; STATUSES],
            microseconds: microseconds.expect("the bounds are good"),
        }
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.in_time += other.in_time;
        self.broken += other.broken;
        self.lasted = self.lasted.max(other.lasted);
        for (total, more) in self.statuses.iter_mut().zip(other.statuses) {
            *total += more;
        }
        self.microseconds += &other.microseconds;
    }

    fn to_json(&self, seconds: f64) -> serde_json::Value {
        let statuses: serde_json::Map<_, _> = (0..STATUSES)
            .filter(|&status| self.statuses[status] > 0)
            .map(|status| (status.to_string(), self.statuses[status].into()))
            .collect();
        json!({
            "seconds": seconds,
            "lasted_seconds": self.lasted.as_secs_f64(),
            "sent": self.sent,
            "in_time": self.in_time,
            "broken": self.broken,
            "statuses": statuses,
            "p50_us": self.microseconds.value_at_quantile(0.5),
            "p99_us": self.microseconds.value_at_quantile(0.99),
            "p999_us": self.microseconds.value_at_quantile(0.999),
            "max_us": self.microseconds.max(),
        })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let connected = Arc::new(Barrier::new(arguments.threads));
    let threads: Vec<_> = (0..arguments.threads)
        .map(|number| {
            let arguments = arguments.clone();
let connected = connected.clone();
            thread::spawn(move || drive(&arguments, number, &connected))
        })
        .collect();
    let mut all = Seen::new();
    for thread in threads {
        match thread.join().expect("no thread panics") {
            Ok(seen) => all.add(&seen),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{}", all.to_json(arguments.seconds));
    ExitCode::SUCCESS
}

/// Runs one thread's share of the connections to the end. The time begins when all connections
/// exist. With several servers, a connection here is one connection to each server, and uses one at
/// a time.
fn drive(arguments: &Arguments, number: usize, connected: &Barrier) -> std::io::Result<Seen> {
    let addresses = &arguments.addresses;
    let mut requests = Requests::new(&arguments.shape, addresses, number);
    let mut poll = Poll::new()?;
    let mut connections = Vec::new();
    for _ in (number..arguments.connections).step_by(arguments.threads) {
        for &address in addresses {
            let place = connections.len();
            connections.push(Connection::open(address, poll.registry(), place)?);
        }
    }

    connected.wait();
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(arguments.seconds);
    let mut seen = Seen::new();
    let mut under_way = 0_usize;
    let mut left = arguments.requests;
    for to_each in connections.chunks_mut(addresses.len()) {
        if left > 0 {
            left -= 1;
            send(to_each, &mut requests, &mut seen, &mut under_way);
        }
    }
    let mut events = Events::with_capacity(connections.len().max(1));
    while under_way > 0 {
        let patience = (end + PATIENCE).saturating_duration_since(Instant::now());
        if patience.is_zero() {
            seen.broken += under_way as u64;
            break;
        }
        if let Err(error) = poll.poll(&mut events, Some(patience)) {
            if error.kind() == std::io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        for event in &events {
            let connection = &mut connections[event.token().0];
            match connection.read() {
                Progress::Waiting => continue,
                Progress::Broken => {
                    seen.broken += 1;
                    under_way -= 1;
                    continue;
                }
                Progress::Answered { status } => {
                    let now = Instant::now();
                    let microseconds = (now - connection.sent_at).as_micros();
                    let microseconds = u64::try_from(microseconds).unwrap_or(u64::MAX);
                    seen.microseconds.saturating_record(microseconds.max(1));
                    let claims = count(&mut seen, &requests, connection.body(), status);
                    under_way -= 1;
                    if now < end {
                        seen.in_time += claims;
                    }
                    if now < end && left > 0 {
                        left -= 1;
                        let first = event.token().0 / addresses.len() * addresses.len();
                        let to_each = &mut connections[first..][..addresses.len()];
                        send(to_each, &mut requests, &mut seen, &mut under_way);
                    }
                }
            }
        }
    }
    seen.lasted = began.elapsed();
    Ok(seen)
}

fn send(
    to_each: &mut [Connection],
    requests: &mut Requests,
    seen: &mut Seen,
    under_way: &mut usize,
) {
    seen.sent += requests.claims_each();
    let connection = &mut to_each[requests.server()];
    if connection.send(requests.next()) {
        *under_way += 1;
    } else {
        seen.broken += 1;
    }
}

/// Counts the statuses in an answer: its own, or those of a batch's items. Returns how many.
fn count(seen: &mut Seen, requests: &Requests, body: &[u8], status: usize) -> u64 {
    if requests.is_batch() && status == 200 {
        let mut items = 0;
        for status in requests::item_statuses(body) {
            seen.statuses[status] += 1;
            items += 1;
        }
        return items;
    }
    seen.statuses[status.min(STATUSES - 1)] += 1;
    1
}
