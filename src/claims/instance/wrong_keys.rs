//! Slows down wrong keys. Each wrong key from the same address waits longer for its answer. A valid
//! key never waits, since many clients may share an address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The number of wrong keys that an address may send without a wait.
const FREE: u32 = 10;
/// The time after which an address may send one more.
const EVERY: Duration = Duration::from_secs(6);
/// The first wait. Each next wait is twice as long.
const WAIT_LEAST: Duration = Duration::from_millis(250);
/// The longest wait.
const WAIT_MOST: Duration = Duration::from_secs(4);
/// After this many more wrong keys, the time of an address grows no further.
const OVER_MOST: u32 = 10;
/// The number of addresses that are remembered.
const ADDRESSES_MOST: usize = 10_000;
/// The number of answers that wait at the same time.
const WAITING_MOST: usize = 64;

/// When a wrong key is answered.
#[derive(Debug)]
pub enum WrongKeyAnswer {
    Now,
    /// After a wait. The answer holds one of the places for waiting answers.
    After(Duration, OwnedSemaphorePermit),
    /// At once, and the client should come back later: too many answers wait, or too many addresses
    /// send wrong keys.
    TooMany(Duration),
}

/// What this instance remembers of wrong keys.
pub struct WrongKeys {
    addresses: Mutex<Addresses>,
    waiting: Arc<Semaphore>,
}

impl Default for WrongKeys {
    fn default() -> Self {
        Self {
            addresses: Mutex::new(Addresses::new(ADDRESSES_MOST)),
            waiting: Arc::new(Semaphore::new(WAITING_MOST)),
        }
    }
}

impl WrongKeys {
    /// Notes a wrong key from an address, and returns when to answer. Requests without an address
    /// share one.
    pub fn note(&self, address: Option<IpAddr>) -> WrongKeyAnswer {
        let address = network_of(address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        let addresses = self.addresses.lock();
        let wait = addresses
            .unwrap_or_else(PoisonError::into_inner)
            .note(address, Instant::now());
        let Some(wait) = wait else {
            return WrongKeyAnswer::TooMany(EVERY * FREE);
        };
        if wait == Duration::ZERO {
            return WrongKeyAnswer::Now;
        }
        if wait == WAIT_LEAST {
            tracing::warn!(%address, "wrong keys again and again: their answers are slowed down");
        }
        match self.waiting.clone().try_acquire_owned() {
            Ok(place) => WrongKeyAnswer::After(wait, place),
            Err(_) => WrongKeyAnswer::TooMany(wait),
        }
    }
}

/// The network of a client: the owner of one IPv6 address owns its whole /64.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let prefix = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
    }
}

/// The addresses that sent wrong keys recently. Each address has the instant at which all of its
/// wrong keys are forgiven: [`EVERY`] for each.
struct Addresses {
    even_at: HashMap<IpAddr, Instant>,
    most: usize,
}

impl Addresses {
    fn new(most: usize) -> Self {
        Self {
            even_at: HashMap::new(),
            most,
        }
    }

    /// Notes a wrong key, and returns the wait for its answer; `None` if there is no room for
    /// another address.
    fn note(&mut self, address: IpAddr, now: Instant) -> Option<Duration> {
        if self.even_at.len() >= self.most && !self.even_at.contains_key(&address) {
            self.even_at.retain(|_, even_at| *even_at > now);
            if self.even_at.len() >= self.most {
                return None;
            }
        }
        let even_at = self.even_at.entry(address).or_insert(now);
        let next = (*even_at).max(now) + EVERY;
        *even_at = next.min(now + EVERY * (FREE + OVER_MOST));
        let pending = (*even_at - now).as_millis().div_ceil(EVERY.as_millis());
        let over = u32::try_from(pending)
            .unwrap_or(u32::MAX)
            .saturating_sub(FREE);
        Some(match over {
            0 => Duration::ZERO,
            over => (WAIT_LEAST * (1 << (over - 1).min(16))).min(WAIT_MOST),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    fn millis(wait: Option<Duration>) -> u128 {
        wait.expect("room").as_millis()
    }

    #[test]
    fn waits_grow_with_wrong_keys_and_are_bounded() {
        let mut addresses = Addresses::new(10);
        let now = Instant::now();
        for _ in 0..FREE {
            assert_eq!(millis(addresses.note(address(1), now)), 0);
        }
        let mut waits: Vec<u128> = Vec::new();
        for _ in 0..100 {
            waits.push(millis(addresses.note(address(1), now)));
        }
        assert_eq!(waits[..6], [250, 500, 1000, 2000, 4000, 4000]);
        assert!(waits[6..].iter().all(|wait| *wait == 4000));
        // Each address has its own wait.
        assert_eq!(millis(addresses.note(address(2), now)), 0);
    }

    #[test]
    fn waits_shrink_with_time() {
        let mut addresses = Addresses::new(10);
        let now = Instant::now();
        for _ in 0..1000 {
            addresses.note(address(1), now);
        }
        // After two minutes everything is forgotten.
        let later = now + EVERY * (FREE + OVER_MOST);
        for _ in 0..FREE {
            assert_eq!(millis(addresses.note(address(1), later)), 0);
        }
        assert_eq!(millis(addresses.note(address(1), later)), 250);
        // One wrong key every six seconds never waits.
        let mut at = later + EVERY * 2;
        for _ in 0..100 {
            assert_eq!(millis(addresses.note(address(1), at)), 0);
            at += EVERY;
        }
    }

    #[test]
    fn room_for_addresses_is_bounded_and_comes_back() {
        let mut addresses = Addresses::new(2);
        let now = Instant::now();
        for last in [1, 2, 1, 2] {
            assert_eq!(millis(addresses.note(address(last), now)), 0);
        }
        assert_eq!(addresses.note(address(3), now), None);
        assert_eq!(millis(addresses.note(address(2), now)), 0);
        let later = now + EVERY * 2;
        assert_eq!(millis(addresses.note(address(3), later)), 0);
        assert_eq!(addresses.even_at.len(), 2);
    }

    #[test]
    fn addresses_of_a_network_are_one() {
        let one = |text: &str| network_of(text.parse().expect("an address"));
        assert_eq!(one("2001:db8:1:2:3::4"), one("2001:db8:1:2:ffff::1"));
        assert_ne!(one("2001:db8:1:2::1"), one("2001:db8:1:3::1"));
        assert_eq!(one("::ffff:192.0.2.1"), one("192.0.2.1"));
        assert_ne!(one("192.0.2.1"), one("192.0.2.2"));
    }
}
