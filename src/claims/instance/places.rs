//! Places for requests in progress, shared between callers.
//!
//! A caller may hold as many places as are free. One caller alone can hold half of them, two
//! callers a third each, and so on. However many places some callers take, other callers find one.
//! (Switches share their buffers in this way: Choudhury and Hahne, "Dynamic queue length thresholds
//! for shared-memory packet switches", 1998.)

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

/// The places. A clone is cheap and shares them.
#[derive(Clone)]
pub struct Places(Arc<Shared>);

struct Shared {
    most: usize,
    state: Mutex<State>,
    /// Notified when all places are free.
    emptied: Notify,
}

struct State {
    free: usize,
    /// How many places were ever taken.
    taken: u64,
    /// Whether a caller may be waiting.
    is_awaited: bool,
    callers: HashMap<Arc<str>, Holder>,
}

#[derive(Default)]
struct Holder {
    held: usize,
    /// The requests that wait for a place, each with a channel for one place.
    waiting: VecDeque<oneshot::Sender<Place>>,
}

/// Places of a caller. They are free again when this value is dropped.
pub struct Place {
    places: Places,
    caller: Arc<str>,
    count: usize,
}

impl Places {
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Shared {
            most,
            state: Mutex::new(State {
                free: most,
                taken: 0,
                is_awaited: false,
                callers: HashMap::default(),
            }),
            emptied: Notify::new(),
        }))
    }

    /// Takes a place, if the caller may have one now.
    pub fn try_take(&self, caller: &Arc<str>) -> Option<Place> {
        self.try_take_many(caller, 1)
    }

    /// Takes several places together, if the caller may have them now. A caller gets at most as
    /// many as it could ever have.
    pub fn try_take_many(&self, caller: &Arc<str>, count: usize) -> Option<Place> {
        let count = count.min(self.0.most.div_ceil(2));
        self.state().take(caller, count)?;
        Some(self.place(caller.clone(), count))
    }

    /// Waits for a place; `None` if the caller gets none before the deadline.
    pub async fn take(&self, caller: &Arc<str>, deadline: Instant) -> Option<Place> {
        let given = {
            let mut state = self.state();
            if state.take(caller, 1).is_some() {
                drop(state);
                return Some(self.place(caller.clone(), 1));
            }
            let (giver, given) = oneshot::channel();
            let holder = state.callers.entry(caller.clone()).or_default();
            holder.waiting.push_back(giver);
            state.is_awaited = true;
            given
        };
        timeout_at(deadline, given).await.ok()?.ok()
    }

    /// How many places were taken since the start.
    pub fn ever_taken(&self) -> u64 {
        self.state().taken
    }

    /// How many places are taken.
    pub fn in_use(&self) -> usize {
        self.0.most - self.state().free
    }

    /// Waits until no place is taken.
    pub async fn emptied(&self) {
        loop {
            let emptied = self.0.emptied.notified();
            if self.in_use() == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn place(&self, caller: Arc<str>, count: usize) -> Place {
        Place {
            places: self.clone(),
            caller,
            count,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, caller: &Arc<str>, count: usize) {
        let mut given = Vec::new();
        let mut state = self.state();
        state.give_back(caller, count);
        while let Some((caller, giver)) = state.next_waiting() {
            given.push((self.place(caller, 1), giver));
        }
        let is_empty = state.free == self.0.most;
        drop(state);
        // A place that no request waits for any more is free again at once.
        for (place, giver) in given {
            drop(giver.send(place));
        }
        if is_empty {
            self.0.emptied.notify_waiters();
        }
    }
}

impl State {
    /// Takes places for a caller, if it may have them.
    fn take(&mut self, caller: &Arc<str>, count: usize) -> Option<()> {
        let held = self.callers.get(caller).map_or(0, |holder| holder.held);
        // The same rule as for one place after the other.
        let last = count.saturating_sub(1);
        if held + last >= self.free.saturating_sub(last) {
            return None;
        }
        self.free -= count;
        self.taken += count as u64;
        match self.callers.get_mut(caller) {
            Some(holder) => holder.held += count,
            None => {
                let holder = Holder {
                    held: count,
                    ..Holder::default()
                };
                self.callers.insert(caller.clone(), holder);
            }
        }
        Some(())
    }

    fn give_back(&mut self, caller: &Arc<str>, count: usize) {
        self.free += count;
        if let Some(holder) = self.callers.get_mut(caller) {
            holder.held -= count;
            if holder.held == 0 && holder.waiting.is_empty() {
                self.callers.remove(caller);
            }
        }
    }

    /// Takes a place for a waiting request: the oldest request of the caller with the fewest
    /// places.
    fn next_waiting(&mut self) -> Option<(Arc<str>, oneshot::Sender<Place>)> {
        if !self.is_awaited {
            return None;
        }
        for holder in self.callers.values_mut() {
            holder.waiting.retain(|giver| !giver.is_closed());
        }
        self.callers
            .retain(|_, holder| holder.held > 0 || !holder.waiting.is_empty());
        let waiting = self
            .callers
            .iter()
            .filter(|(_, holder)| !holder.waiting.is_empty());
        let next = waiting.min_by_key(|(_, holder)| holder.held);
        self.is_awaited = next.is_some();
        let (caller, _) = next?;
        let caller = caller.clone();
        self.take(&caller, 1)?;
        let giver = self.callers.get_mut(&caller)?.waiting.pop_front()?;
        Some((caller, giver))
    }
}

impl Place {
    /// Splits off one place, if any is left.
    pub fn split_off(&mut self) -> Self {
        let count = self.count.min(1);
        self.count -= count;
        self.places.place(self.caller.clone(), count)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.give_back(&self.caller, self.count);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn callers() -> [Arc<str>; 3] {
        ["shop", "app", "desk"].map(Arc::from)
    }

    fn take_all(places: &Places, caller: &Arc<str>) -> Vec<Place> {
        std::iter::from_fn(|| places.try_take(caller)).collect()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn some_are_left_for_others() {
        let places = Places::new(12);
        let [shop, app, desk] = callers();
        let of_shop = take_all(&places, &shop);
        assert_eq!(of_shop.len(), 6);
        let of_app = take_all(&places, &app);
        assert_eq!(of_app.len(), 3);
        assert_eq!(take_all(&places, &desk).len(), 2);
        assert_eq!(places.in_use(), 9);
        drop(of_shop);
        assert_eq!(take_all(&places, &desk).len(), 5);
    }

    #[test]
    fn many_are_taken_together_or_not_at_all() {
        let places = Places::new(8);
        let [shop, app, _] = callers();
        let of_shop = places.try_take_many(&shop, 3);
        assert!(of_shop.is_some());
        assert!(places.try_take_many(&shop, 2).is_none());
        assert!(places.try_take_many(&app, 4).is_none());
        assert_eq!(places.in_use(), 3);
        drop(of_shop);
        // A request for more places than a caller could ever have gets as many as it can have.
        let all = places.try_take_many(&shop, 1000);
        assert_eq!((all.is_some(), places.in_use()), (true, 4));
    }

    #[test]
    fn a_single_place_is_a_place() {
        let places = Places::new(1);
        let [shop, app, _] = callers();
        let place = places.try_take(&shop);
        assert!(place.is_some() && places.try_take(&app).is_none());
        drop(place);
        assert!(places.try_take(&app).is_some());
        assert_eq!(places.in_use(), 0);
    }

    #[tokio::test]
    async fn the_caller_with_the_fewest_is_next() {
        let places = Places::new(4);
        let [shop, app, _] = callers();
        let mut of_shop = take_all(&places, &shop);
        let _of_app = take_all(&places, &app);
        assert_eq!(places.in_use(), 3);
        let waiting = |caller: &Arc<str>| {
            let places = places.clone();
            let caller = caller.clone();
            tokio::spawn(async move { places.take(&caller, soon()).await.map(|_| ()) })
        };
        let shop_waits = waiting(&shop);
        let app_waits = waiting(&app);
        while places
            .state()
            .callers
            .values()
            .any(|holder| holder.waiting.is_empty())
        {
            tokio::task::yield_now().await;
        }
        drop(of_shop.pop());
        assert_eq!(app_waits.await.expect("it ends"), Some(()));
        drop(of_shop);
        assert_eq!(shop_waits.await.expect("it ends"), Some(()));
    }

    #[tokio::test]
    async fn nothing_is_kept_for_who_went_away() {
        let places = Places::new(2);
        let [shop, app, _] = callers();
        let held = places.try_take(&shop);
        assert!(places.take(&shop, Instant::now()).await.is_none());
        assert!(held.is_some());
        drop(held);
        places.emptied().await;
        assert!(places.state().callers.is_empty());
        assert!(places.try_take(&app).is_some());
    }
}
