//! Connections that have not shown a valid key. They are few, in all and of each address, and the
//! oldest ones are closed for new ones. A client with a key shows it with its first request, so its
//! connection is none of the oldest, however many others come.
//!
//! A connection without a request costs little, so there may be more of them: the clients of one
//! proxy may all connect at once. A connection whose requests have no key can cost the buffers of an
//! answer.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;

use futures_util::task::AtomicWaker;

use engine::network_of;

/// The most connections that have sent no request, in all and from one address (IPv6: from one /64).
const SILENT_MOST: Most = Most {
    in_all: 8192,
    of_address: 4096,
};
/// The most connections whose requests had no valid key.
const SERVED_MOST: Most = Most {
    in_all: 1024,
    of_address: 256,
};

#[derive(Debug, Clone, Copy)]
struct Most {
    in_all: usize,
    of_address: usize,
}

/// All connections without a key, shared by the workers of the server.
#[derive(Clone)]
pub struct Newcomers(Arc<Mutex<Crowds>>);

struct Crowds {
    /// The number of the next connection.
    next: u64,
    silent: Crowd,
    served: Crowd,
}

/// Connections of one kind.
struct Crowd {
    most: Most,
    count: usize,
    /// The connections of each address, oldest first.
    addresses: HashMap<IpAddr, BTreeMap<u64, Arc<Notice>>>,
}

/// Tells a connection to close.
#[derive(Default)]
struct Notice {
    is_given: AtomicBool,
    waker: AtomicWaker,
}

/// A connection without a key. Dropped when the connection shows a key or ends.
pub struct Newcomer {
    newcomers: Newcomers,
    address: IpAddr,
    number: u64,
    notice: Arc<Notice>,
}

impl Default for Newcomers {
    fn default() -> Self {
        Self::new(SILENT_MOST, SERVED_MOST)
    }
}

impl Newcomers {
    fn new(silent: Most, served: Most) -> Self {
        Self(Arc::new(Mutex::new(Crowds {
            next: 0,
            silent: Crowd::new(silent),
            served: Crowd::new(served),
        })))
    }

    /// Lets a connection in. Another one must leave for it if there are too many.
    pub fn enter(&self, address: IpAddr) -> Newcomer {
        let address = network_of(address);
        let notice = Arc::<Notice>::default();
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let leaving = state.silent.add(address, number, notice.clone());
        drop(state);
        give(leaving);
        Newcomer {
            newcomers: self.clone(),
            address,
            number,
            notice,
        }
    }

    fn state(&self) -> MutexGuard<'_, Crowds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crowd {
    fn new(most: Most) -> Self {
        Self {
            most,
            count: 0,
            addresses: HashMap::new(),
        }
    }

    /// Adds a connection. Returns the notice of the one that must leave for it.
    fn add(&mut self, address: IpAddr, number: u64, notice: Arc<Notice>) -> Option<Arc<Notice>> {
        let of_address = self.addresses.get(&address).map_or(0, BTreeMap::len);
        let leaving = if of_address >= self.most.of_address {
            self.take_oldest(address)
        } else if self.count >= self.most.in_all {
            // An address with few connections loses none to an address with many.
            let by_count = |(address, of_it): (&IpAddr, &BTreeMap<_, _>)| (of_it.len(), *address);
            let crowded = self.addresses.iter().map(by_count).max();
            crowded.and_then(|(_, address)| self.take_oldest(address))
        } else {
            None
        };
        self.count += 1;
        let of_address = self.addresses.entry(address).or_default();
        of_address.insert(number, notice);
        leaving
    }

    fn take_oldest(&mut self, address: IpAddr) -> Option<Arc<Notice>> {
        let (number, _) = self.addresses.get(&address)?.first_key_value()?;
        self.take(address, *number)
    }

    fn take(&mut self, address: IpAddr, number: u64) -> Option<Arc<Notice>> {
        let of_address = self.addresses.get_mut(&address)?;
        let removed = of_address.remove(&number)?;
        if of_address.is_empty() {
            self.addresses.remove(&address);
        }
        self.count -= 1;
        Some(removed)
    }
}

fn give(notice: Option<Arc<Notice>>) {
    if let Some(notice) = notice {
        notice.is_given.store(true, Ordering::Release);
        notice.waker.wake();
    }
}

impl Newcomer {
    /// Notes a request without a valid key.
    pub fn is_served(&self) {
        let mut state = self.newcomers.state();
        let silent = state.silent.take(self.address, self.number);
        let leaving = silent.and_then(|notice| state.served.add(self.address, self.number, notice));
        drop(state);
        give(leaving);
    }

    /// Whether the connection must close for another one. Wakes the task when it must.
    pub fn must_leave(&self, context: &mut Context<'_>) -> bool {
        self.notice.waker.register(context.waker());
        self.notice.is_given.load(Ordering::Acquire)
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        let mut state = self.newcomers.state();
        if state.silent.take(self.address, self.number).is_none() {
            state.served.take(self.address, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    const NEVER: Most = Most {
        in_all: usize::MAX,
        of_address: usize::MAX,
    };

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn left(of: &[Newcomer]) -> Vec<u64> {
        let mut context = Context::from_waker(Waker::noop());
        let leaving = of.iter().filter(|it| it.must_leave(&mut context));
        leaving.map(|it| it.number).collect()
    }

    #[test]
    fn the_oldest_of_an_address_leaves() {
        let most = Most {
            in_all: 10,
            of_address: 3,
        };
        let newcomers = Newcomers::new(most, NEVER);
        let mut of_one: Vec<_> = (0..3).map(|_| newcomers.enter(address(1))).collect();
        let other = newcomers.enter(address(2));
        assert!(left(&of_one).is_empty());
        of_one.extend((0..2).map(|_| newcomers.enter(address(1))));
        assert_eq!(left(&of_one), [0, 1]);
        assert!(left(&[other]).is_empty());
        // A connection that ended, or showed a key, gives its place to another one.
        of_one.pop();
        of_one.push(newcomers.enter(address(1)));
        assert_eq!(left(&of_one), [0, 1]);
    }

    #[test]
    fn the_address_with_the_most_makes_room_for_others() {
        let most = Most {
            in_all: 5,
            of_address: 4,
        };
        let newcomers = Newcomers::new(most, NEVER);
        let of_many: Vec<_> = (0..4).map(|_| newcomers.enter(address(1))).collect();
        let of_few: Vec<_> = (2..5).map(|last| newcomers.enter(address(last))).collect();
        assert_eq!(left(&of_many), [0, 1]);
        assert!(left(&of_few).is_empty());
        drop((of_many, of_few));
        let state = newcomers.state();
        let crowd = &state.silent;
        assert_eq!((crowd.count, crowd.addresses.len()), (0, 0));
    }

    #[test]
    fn a_connection_without_a_request_costs_no_other_one_its_place() {
        let most = Most {
            in_all: 4,
            of_address: 2,
        };
        let newcomers = Newcomers::new(NEVER, most);
        let silent: Vec<_> = (0..9).map(|_| newcomers.enter(address(1))).collect();
        silent[5..8].iter().for_each(Newcomer::is_served);
        silent[5..8].iter().for_each(Newcomer::is_served);
        assert_eq!(left(&silent), [5]);
        drop(silent);
        let state = newcomers.state();
        assert_eq!((state.silent.count, state.served.count), (0, 0));
    }
}
