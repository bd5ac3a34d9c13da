//! One read for many: requests that ask the same question at the same position of the record share
//! a read, its answer, and its place.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::time::Instant;

/// The questions that are being asked.
pub struct SharedReads<Q, T> {
    asked: Mutex<HashMap<Q, Weak<ReadsInTurn<T>>>>,
    /// How many questions there are before those that nobody asks any more are forgotten.
    crowded_at: usize,
}

/// The reads for one question, one at a time. The last one is kept for as long as somebody asks.
struct ReadsInTurn<T> {
    last: tokio::sync::Mutex<Option<(Instant, Arc<T>)>>,
}

impl<Q, T> Default for SharedReads<Q, T> {
    fn default() -> Self {
        Self {
            asked: Mutex::default(),
            crowded_at: 64,
        }
    }
}

impl<Q: Eq + Hash, T> SharedReads<Q, T> {
    /// The result of a read that began after an instant: so it shows everything that was known
    /// then. One of the callers reads, and the others wait for it. A caller that goes away leaves
    /// the reading to the next one.
    ///
    /// # Errors
    /// The error of this caller's own read. Errors are not shared.
    pub async fn read<E>(
        &self,
        question: Q,
        known_at: Instant,
        read: impl Future<Output = Result<T, E>>,
    ) -> Result<Arc<T>, E> {
        let reading = self.reading(question);
        let mut last = reading.last.lock().await;
        if let Some((began_at, found)) = &*last
            && *began_at >= known_at
        {
            return Ok(found.clone());
        }
        // What an older read found is of no use to anybody: free it before the next read.
        *last = None;
        let began_at = Instant::now();
        let found = Arc::new(read.await?);
        *last = Some((began_at, found.clone()));
        Ok(found)
    }

    fn reading(&self, question: Q) -> Arc<ReadsInTurn<T>> {
        let mut asked = self.asked();
        if asked.len() >= self.crowded_at {
            asked.retain(|_, reading| reading.strong_count() > 0);
        }
        let known = asked.entry(question).or_default();
        match known.upgrade() {
            Some(reading) => reading,
            None => {
                let last = tokio::sync::Mutex::default();
                let reading = Arc::new(ReadsInTurn { last });
                *known = Arc::downgrade(&reading);
                reading
            }
        }
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<Q, Weak<ReadsInTurn<T>>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// A read that takes some time, and returns how many reads there were.
    async fn count(reads: &AtomicU32) -> Result<u32, &'static str> {
        sleep(Duration::from_millis(5)).await;
        Ok(reads.fetch_add(1, Ordering::SeqCst) + 1)
    }

    #[tokio::test]
    async fn one_read_serves_all_who_wait() {
        let shared = SharedReads::default();
        let reads = AtomicU32::new(0);
        let known_at = Instant::now();
        let all = join_all((0..2000).map(|_| shared.read("a", known_at, count(&reads)))).await;
        assert!(all.iter().all(|found| **found.as_ref().unwrap() == 1));
        // Whoever comes later, or asks something else, gets a new read.
        let found = shared.read("a", Instant::now(), count(&reads)).await;
        assert_eq!(*found.unwrap(), 2);
        let found = shared.read("b", known_at, count(&reads)).await;
        assert_eq!(*found.unwrap(), 3);
    }

    #[tokio::test]
    async fn who_comes_during_a_read_gets_the_next_one() {
        let shared = SharedReads::default();
        let reads = AtomicU32::new(0);
        let first = shared.read("a", Instant::now(), count(&reads));
        let later = async {
            sleep(Duration::from_millis(1)).await;
            shared.read("a", Instant::now(), count(&reads)).await
        };
        let (first, later) = tokio::join!(first, later);
        assert_eq!((*first.unwrap(), *later.unwrap()), (1, 2));
    }

    #[tokio::test]
    async fn a_reader_that_fails_or_goes_away_leaves_it_to_the_next() {
        let shared = SharedReads::default();
        let reads = AtomicU32::new(0);
        let known_at = Instant::now();
        let failing = shared.read("a", known_at, async { Err("it fails") });
        let gone = timeout(
            Duration::from_millis(1),
            shared.read("a", known_at, count(&reads)),
        );
        let patient = shared.read("a", known_at, count(&reads));
        let (failing, gone, patient) = tokio::join!(failing, gone, patient);
        assert_eq!(failing.unwrap_err(), "it fails");
        assert!(gone.is_err());
        assert_eq!(*patient.unwrap(), 1);
    }

    #[tokio::test]
    async fn nothing_is_kept_for_nobody() {
        let shared = SharedReads::default();
        let found = shared.read(0, Instant::now(), async { Ok::<_, ()>([0; 1000]) });
        let found = Arc::downgrade(&found.await.unwrap());
        assert!(found.upgrade().is_none());
        for question in 1..1000 {
            let found = shared.read(question, Instant::now(), async { Ok::<_, ()>([0; 1000]) });
            found.await.unwrap();
        }
        assert!(shared.asked().len() <= shared.crowded_at);
    }
}
