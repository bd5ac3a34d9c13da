//! The requests: one block of bytes, of which only digits change from one request to the next.

use std::net::SocketAddr;

use clap::Args;
use memchr::memmem;

const KEY_DIGITS: usize = 9;
const SUBJECT_DIGITS: usize = 9;

/// The form of the claims.
#[derive(Debug, Clone, Args)]
pub struct Shape {
    /// The path to post to
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
    /// The number of subjects that a thread uses in turn
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// How often a thread uses these subjects before it continues with the next ones; 0: for ever
    #[arg(long, default_value_t = 3)]
    times: u64,
    /// Claims in a request; more than 0: a batch, with the policy in each claim
    #[arg(long, default_value_t = 0)]
    batch: usize,
    /// The policy of a batch's claims
    #[arg(long, default_value = "")]
    policy: String,
    /// Spreads the subjects over so many policies, by the digits at the end of `--policy`, in the
    /// place where the path has them
    #[arg(long, default_value_t = 1)]
    policies: u64,
}

/// The places of a claim's digits.
struct Places {
    key: usize,
    subject: usize,
}

/// Makes the requests, one after the other.
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
    /// The requests of one thread. Each request names the first server as its host.
    pub fn new(shape: &Shape, addresses: &[SocketAddr], thread: usize) -> Self {
        // Each placeholder is unique, so that its place is found.
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

    /// The server of the next request. It changes after each round of the subjects.
    pub fn server(&self) -> usize {
        let round = self.claimed / self.count;
let subject = self.claimed % self.count;
        ((round + subject) % self.servers) as usize
    }

    /// Whether a request is a batch.
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

/// The place of the digits at the end of a policy's name, where the name first occurs.
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
