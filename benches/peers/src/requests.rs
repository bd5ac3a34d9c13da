//! The requests. They are one block of bytes; only some digits change from one request to the next.

use std::net::SocketAddr;

use clap::Args;
use memchr::memmem;

const KEY_DIGITS: usize = 9;
const SUBJECT_DIGITS: usize = 9;

/// What the requests claim, and for which subjects.
#[derive(Debug, Clone, Args)]
pub struct Shape {
    /// The path of the requests
    #[arg(long)]
    path: String,
    /// The secret of the bearer key
    #[arg(long)]
    secret: String,
    /// The prefix of the idempotency keys
    #[arg(long)]
    keys: String,
    /// The prefix of the subjects
    #[arg(long)]
    subjects: String,
    /// How many subjects a thread claims for in turn
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// How often a thread repeats these subjects before it takes the next ones; 0: it never takes others
    #[arg(long, default_value_t = 3)]
    times: u64,
    /// How many claims a batch has, each with the policy; 0: no batches
    #[arg(long, default_value_t = 0)]
    batch: usize,
    /// The policy of the claims in a batch
    #[arg(long, default_value = "")]
    policy: String,
    /// How many policies the subjects use. The policies differ by the digits at the end of `--policy`,
    /// which the path contains
    #[arg(long, default_value_t = 1)]
    policies: u64,
}

/// The places of a claim's digits.
struct Places {
    key: usize,
    subject: usize,
}

/// Makes one request after another.
pub struct Requests {
    bytes: Vec<u8>,
    places: Vec<Places>,
    count: u64,
    times: u64,
    claimed: u64,
    is_batch: bool,
    /// The place of the digits of the path's policy.
    policy: Option<std::ops::Range<usize>>,
    policies: u64,
    servers: u64,
}

impl Requests {
    /// The requests of one thread. All requests name the first server as their host.
    pub fn new(shape: &Shape, addresses: &[SocketAddr], thread: usize) -> Self {
        // A key and a subject always differ, so a search finds each at its own place.
        let key = format!("{}.{thread}.{}", shape.keys, "0".repeat(KEY_DIGITS));
        let subject = format!("{}-{thread}-{}", shape.subjects, "0".repeat(SUBJECT_DIGITS));
        let is_batch = shape.batch > 0;
        let mut head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\n",
            shape.path, addresses[0], shape.secret
        );
        let body = if is_batch {
            let claim = format!(
                r#"{{"policy":"{}","subject":"{subject}","idempotency_key":"{key}"}}"#,
                shape.policy
            );
            format!(r#"{{"claims":[{}]}}"#, vec![claim; shape.batch].join(","))
        } else {
            head += &format!("Idempotency-Key: {key}\r\n");
            format!(r#"{{"subject":"{subject}"}}"#)
        };
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        let bytes = (head + &body).into_bytes();
        let ends = |name: &str, digits: usize| -> Vec<usize> {
            memmem::find_iter(&bytes, name.as_bytes())
                .map(|begin| begin + name.len() - digits)
                .collect()
        };
        let places = ends(&key, KEY_DIGITS)
            .into_iter()
            .zip(ends(&subject, SUBJECT_DIGITS))
            .map(|(key, subject)| Places { key, subject })
            .collect();
        let policy = (shape.policies > 1).then(|| policy_digits(&bytes, &shape.policy));
        Self {
            bytes,
            places,
            count: shape.count,
            times: shape.times,
            claimed: 0,
            is_batch,
            policy: policy.flatten(),
            policies: shape.policies,
            servers: addresses.len() as u64,
        }
    }

    /// The server for the next request. Each repetition of the subjects uses another server.
    pub fn server(&self) -> usize {
        let (round, subject) = (self.claimed / self.count, self.claimed % self.count);
        ((round + subject) % self.servers) as usize
    }

    pub fn is_batch(&self) -> bool {
        self.is_batch
    }

    /// How many claims a request has.
    pub fn claims_each(&self) -> u64 {
        self.places.len() as u64
    }

    /// The next request. Each claim has its own key.
    pub fn next(&mut self) -> &[u8] {
        for places in &self.places {
            let round = self.claimed % self.count;
            let block = match self.times {
                0 => 0,
                times => self.claimed / (self.count * times),
            };
            let subject = round + block * self.count;
            write_digits(&mut self.bytes[places.key..][..KEY_DIGITS], self.claimed);
            write_digits(&mut self.bytes[places.subject..][..SUBJECT_DIGITS], subject);
            if let Some(digits) = &self.policy {
                write_digits(&mut self.bytes[digits.clone()], subject % self.policies);
            }
            self.claimed += 1;
        }
        &self.bytes
    }
}

/// The place of the digits at the end of a policy's name, where the name occurs first.
fn policy_digits(bytes: &[u8], name: &str) -> Option<std::ops::Range<usize>> {
    let end = memmem::find(bytes, name.as_bytes())? + name.len();
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    Some(end - digits..end)
}

fn write_digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The statuses of a batch's items.
pub fn item_statuses(body: &[u8]) -> impl Iterator<Item = usize> {
    const NAME: &[u8] = b"\"status\":";
    memmem::find_iter(body, NAME).filter_map(|begin| {
        let digits = body.get(begin + NAME.len()..)?.get(..3)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    })
}
