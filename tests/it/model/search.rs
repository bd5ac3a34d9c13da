//! The search: every state that a small world can reach.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Display, Write};
use std::hash::{BuildHasher, Hash, RandomState};

/// What can be searched.
pub trait Model {
    /// All that may differ between two moments.
    type State: Clone + Eq + Hash;
    /// One step.
    type Action: Copy;

    /// The state at the beginning.
    fn start(&self) -> Self::State;

    /// The steps that are possible in a state.
    fn actions(&self, state: &Self::State) -> Actions<Self::Action>;

    /// The state after a step.
    ///
    /// # Errors
    /// The promise that the step breaks.
    fn next(&self, state: &Self::State, action: Self::Action) -> Result<Self::State, String>;

    /// Looks at a state in which nothing is under way.
    ///
    /// # Errors
    /// The promise that it breaks.
    fn check_at_rest(&self, state: &Self::State) -> Result<(), String>;

    /// A step in a line, for people.
    fn tell(&self, state: &Self::State, action: Self::Action) -> String;

    /// What a state shows, in a line, for people.
    fn show(&self, state: &Self::State) -> String;
}

/// The steps that are possible in a state.
pub struct Actions<A> {
    /// They go on with what is under way. Without any the state is at rest.
    pub progress: Vec<A>,
    /// They begin something, break something, or let time pass.
    pub events: Vec<A>,
}

impl<A> Default for Actions<A> {
    fn default() -> Self {
        Self {
            progress: Vec::new(),
            events: Vec::new(),
        }
    }
}

/// What a search of all states found.
pub struct Searched {
    /// How many states it reached.
    pub states: usize,
    /// In how many of them nothing was under way.
    pub at_rest: usize,
    /// Whether it reached all that there are.
    pub is_whole: bool,
    /// The shortest way to a broken promise, if there is one.
    pub broken: Option<Broken>,
}

/// A broken promise, and how to break it.
#[derive(Debug)]
pub struct Broken {
    /// Which promise.
    pub promise: String,
    /// The steps, one a line, each with the state after it.
    pub trace: String,
}

impl Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "broken: {}\n{}", self.promise, self.trace)
    }
}

/// Searches every state that can be reached, nearest first, up to so many.
pub fn search<M: Model>(model: &M, most: usize) -> Searched {
    let hashing = RandomState::new();
    // Each state's hash, with the hash of the state that it was reached from.
    let mut reached: HashMap<u64, u64> = HashMap::new();
    let mut waiting = VecDeque::new();
    let start = model.start();
    let first = hashing.hash_one(&start);
    reached.insert(first, first);
    waiting.push_back((first, start));
    let mut searched = Searched {
        states: 1,
        at_rest: 0,
        is_whole: true,
        broken: None,
    };
    while let Some((hash, state)) = waiting.pop_front() {
        let Actions { progress, events } = model.actions(&state);
        let mut broken = None;
        if progress.is_empty() {
            searched.at_rest += 1;
            broken = model.check_at_rest(&state).err().map(|why| (why, None));
        }
        for action in progress.into_iter().chain(events) {
            match model.next(&state, action) {
                Err(why) => broken = broken.or(Some((why, Some(action)))),
                Ok(next) => {
                    let next_hash = hashing.hash_one(&next);
                    if let Entry::Vacant(vacant) = reached.entry(next_hash) {
                        vacant.insert(hash);
                        waiting.push_back((next_hash, next));
                    }
                }
            }
        }
        searched.states = reached.len();
        if let Some((promise, last)) = broken {
            let mut way = way_to(model, &hashing, &reached, hash);
            way.extend(last);
            let trace = tell(model, &way);
            searched.broken = Some(Broken { promise, trace });
            return searched;
        }
        if reached.len() >= most {
            searched.is_whole = waiting.is_empty();
            return searched;
        }
    }
    searched
}

/// The steps to a state, found again by the hashes of the states on the way.
fn way_to<M: Model>(
    model: &M,
    hashing: &RandomState,
    reached: &HashMap<u64, u64>,
    last: u64,
) -> Vec<M::Action> {
    let before = |hash: &u64| reached.get(hash).copied().filter(|before| before != hash);
    let mut hashes: Vec<u64> = std::iter::successors(Some(last), before).collect();
    hashes.pop();
    let mut state = model.start();
    let mut way = Vec::new();
    for hash in hashes.into_iter().rev() {
        let Actions { progress, events } = model.actions(&state);
        let mut actions = progress.into_iter().chain(events);
        let step = actions.find_map(|action| {
            let next = model.next(&state, action).ok()?;
            (hashing.hash_one(&next) == hash).then_some((action, next))
        });
        let (action, next) = step.expect("the search went this way");
        way.push(action);
        state = next;
    }
    way
}

/// The steps for people, each with the state after it, where it shows.
fn tell<M: Model>(model: &M, way: &[M::Action]) -> String {
    let mut state = model.start();
    let mut shown = model.show(&state);
    let mut text = format!("     {shown}\n");
    for (index, action) in way.iter().enumerate() {
        let _ = writeln!(text, "{:3}. {}", index + 1, model.tell(&state, *action));
        let Ok(next) = model.next(&state, *action) else {
            break;
        };
        state = next;
        let now = model.show(&state);
        if now != shown {
            let _ = writeln!(text, "     {now}");
            shown = now;
        }
    }
    text
}
