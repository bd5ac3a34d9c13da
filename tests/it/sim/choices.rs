//! A choice picks one of the events that can happen next.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use perdiem::claims::protocol::lane::Lane;
use perdiem::domain::grant::{Direction, Entry, EntryKind};
use perdiem::domain::limit::per::Per;
use perdiem::domain::window::Length;

use super::Counting;
use super::calls::{Call, Request, Waiting};
use super::clients::{Adjustment, UNITS_MOST, Wish, ZONES};
use super::events::Event;
use super::world::{SUBJECTS, World};

const KEYS: u8 = 3;
/// The units of claims: most claim one.
const CLAIMED: [u64; 3] = [1, 1, UNITS_MOST];
/// The parts of grants that clients give back, with their keys. The same key can be sent for other
/// units, and for another grant.
const PARTS: [(u64, u8); 3] = [(1, KEYS), (1, KEYS + 1), (2, KEYS + 1)];
/// The adjustments of admins. Two have one key and differ, and one has the key of a claim.
const ADJUSTMENTS: [Adjustment; 5] = [
    adjustment(0, Direction::Down, 1, None),
    adjustment(1, Direction::Up, 1, Some(0)),
    adjustment(1, Direction::Up, 2, None),
    Adjustment {
        is_past: true,
        ..adjustment(0, Direction::Down, 1, Some(KEYS + 2))
    },
    Adjustment {
        is_past: true,
        ..adjustment(0, Direction::Up, 2, Some(KEYS + 2))
    },
];
/// The resets of admins: the subject, the limit, and the key. Not every version has the limit.
const RESETS: [(u8, Option<Per>, Option<u8>); 3] = [
    (0, None, None),
    (0, Some(Per::Calendar(Length::Day)), Some(KEYS + 3)),
    (1, None, Some(KEYS + 3)),
];
/// The moves of admins: the subject, the zone, and the key.
const MOVES: [(u8, usize, Option<u8>); 3] =
    [(0, 1, None), (0, 2, Some(KEYS + 4)), (1, 0, Some(KEYS + 4))];
/// The top-ups of admins: the subject, the units, the seconds until the end, and the key.
const TOP_UPS: [(u8, u64, i64, Option<u8>); 3] = [
    (0, 1, 8, None),
    (0, 2, 7_200, Some(KEYS + 5)),
    (1, 1, 7_200, Some(KEYS + 5)),
];
/// The number of open calls at which clients stop sending.
const CALLS_MOST: usize = 10;
const MOMENT: Duration = Duration::from_millis(10);
const SPANS: [Duration; 3] = [
    Duration::from_millis(700),
    Duration::from_millis(1200),
    Duration::from_secs(5),
];

const STEPS: [TimeDelta; 3] = [
    TimeDelta::seconds(90),
    TimeDelta::hours(1),
    TimeDelta::days(40),
];

const fn adjustment(subject: u8, direction: Direction, units: u64, key: Option<u8>) -> Adjustment {
    Adjustment {
        subject,
        direction,
        units,
        is_past: false,
        key,
    }
}

/// The subjects and the keys of the claims of an atomic batch.
type KeyedSubjects = [(u8, Option<u8>); 2];

/// A kind of event. A history can leave out most kinds. Histories with few kinds of events reach
/// more states than histories with all kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Progress,
    Late,
    Claim,
    KeyedClaim,
    Correction,
    Lose,
    Break,
    Crash,
    Redis,
    Restore,
    Moment,
    Span,
    Change,
    BadData,
    /// The ledger is taken as silent; without counted claims, a clock steps.
    Silence,
    Sweep,
}

/// How many of 256 choices select each kind.
const SHARES: [(u16, Kind); 16] = [
    (92, Kind::Progress),
    (12, Kind::Late),
    (26, Kind::Claim),
    (22, Kind::KeyedClaim),
    (18, Kind::Correction),
    (16, Kind::Lose),
    (5, Kind::Break),
    (5, Kind::Crash),
    (8, Kind::Redis),
    (10, Kind::Restore),
    (6, Kind::Moment),
    (12, Kind::Span),
    (6, Kind::Change),
    (6, Kind::BadData),
    (4, Kind::Silence),
    (8, Kind::Sweep),
];

/// With this bit, Redis decides alone in the history. Every history has progress: it needs no bit.
const LEAVES_REDIS_ALONE: u16 = 1 << Kind::Progress as u16;

/// The kinds of events that a history has.
#[derive(Debug, Clone, Copy)]
pub struct Kinds(pub u16);

impl Kinds {
    /// Claims, corrections, changes and sweeps, while time passes: no faults.
    pub const WITHOUT_FAULTS: Self = Self(
        1 << Kind::KeyedClaim as u16
            | 1 << Kind::Correction as u16
            | 1 << Kind::Moment as u16
            | 1 << Kind::Span as u16
            | 1 << Kind::Change as u16
            | 1 << Kind::Sweep as u16,
    );

    fn has(self, kind: Kind) -> bool {
        matches!(kind, Kind::Progress | Kind::Late | Kind::Claim) || self.0 & 1 << kind as u16 != 0
    }

    /// Returns the event that a choice selects, if an event of its kind is possible. The low byte
    /// selects the kind. Therefore a removed choice does not change the kinds of the other choices.
    pub fn pick(self, choice: u16, world: &World) -> Option<Event> {
        let mut place = choice & 0xff;
        let (_, kind) = SHARES.iter().find(|(share, _)| {
            let is_it = place < *share;
            place = place.saturating_sub(*share);
            is_it
        })?;
        let mut possible = if self.has(*kind) {
            world.possible(*kind)
        } else {
            Vec::new()
        };
        if self.0 & LEAVES_REDIS_ALONE != 0 && world.scene.counting != Counting::Never {
            possible.retain(|event| !world.mixes(event));
        }
        let index = usize::from(choice >> 8).checked_rem(possible.len())?;
        Some(possible.swap_remove(index))
    }
}

impl World {
    fn possible(&self, kind: Kind) -> Vec<Event> {
        match kind {
            Kind::Progress => self.progress(),
            Kind::Late => self.calls_where(Event::Effect, |call| call.waiting.is_none()),
            Kind::Claim => [
                self.claims(&[None], false),
                self.batches(&[
                    ([(0, None), (1, None)], false),
                    ([(0, None), (1, None)], true),
                    ([(0, None), (0, None)], false),
                    ([(1, None), (1, None)], false),
                ]),
            ]
            .concat(),
            Kind::KeyedClaim => [
                self.claims(&(0..KEYS).map(Some).collect::<Vec<_>>(), false),
                self.batches(&[
                    ([(0, Some(0)), (1, Some(1))], false),
                    ([(0, None), (1, Some(2))], false),
                ]),
            ]
            .concat(),
            Kind::Correction => self.corrections(),
            Kind::Lose => self.calls_where(Event::Lose, |call| call.waiting.is_some()),
            Kind::Break => self.breaks(),
            Kind::Crash => self.crashes(),
            Kind::Redis => self.redis_faults(),
            Kind::Restore => self.restores(),
            Kind::Moment => vec![Event::Pass(MOMENT, None)],
            Kind::Span => self.spans(),
            Kind::Change => {
                if self.ledger.policies.len() < self.course.len() {
                    vec![Event::Change]
                } else {
                    Vec::new()
                }
            }
            Kind::Sweep => {
                let instances = 0..self.instances.len();
                let sweeps = instances.filter(|index| self.may_sweep(*index));
                sweeps.map(Event::Sweep).collect()
            }
            // Nothing but the ledger refuses an instant. Where Redis decides alone, no clock steps.
            Kind::Silence => match self.scene.counting {
                Counting::Never => self.steps(),
                _ => (0..self.instances.len()).map(Event::Silence).collect(),
            },
            Kind::BadData => {
                let is_look = |call: &Call| {
                    let is_of_lane = matches!(call.waiting, Some(Waiting::Look(..)));
                    is_of_lane && call.request.is_some()
                };
                let garbled = self.calls_where(Event::Garble, is_look);
                // A grant of the queue that the ledger refuses is set aside for an operator.
                let refused = match self.scene.counting {
                    Counting::Never => self.claims(&[None], true),
                    _ => Vec::new(),
                };
                [garbled, refused].concat()
            }
        }
    }

    /// Whether the subjects of the newest version have zones of their own.
    fn has_own_zones(&self) -> bool {
        let newest = self.ledger.policies.len() - 1;
        self.course[newest].has_own_zones
    }

    fn calls_where(&self, event: fn(usize) -> Event, is_it: impl Fn(&Call) -> bool) -> Vec<Event> {
        let calls = self.calls.iter().enumerate();
        let found = calls.filter(|(_, call)| is_it(call));
        found.map(|(index, _)| event(index)).collect()
    }

    /// The events that continue open calls.
    fn progress(&self) -> Vec<Event> {
        let heard = self.calls_where(Event::Hear, |call| call.response.is_some());
        let mut possible = self.calls_where(Event::Effect, |call| {
            call.waiting.is_some() && call.response.is_none()
        });
        possible.extend(heard);
        for (index, instance) in self.instances.iter().enumerate() {
            let waiting = Lane::ALL
                .into_iter()
                .filter(|lane| instance.waits_for(*lane));
            possible.extend(waiting.map(|lane| Event::Begin(index, lane)));
            possible.extend(self.may_drain(index).then_some(Event::Drain(index)));
        }
        // A drain takes many steps. Its steps have twice the weight, so that two drains run at the
        // same time.
        possible.extend(self.calls_where(Event::Effect, |call| {
            call.drains() && call.response.is_none()
        }));
        possible
            .extend(self.calls_where(Event::Hear, |call| call.drains() && call.response.is_some()));
        possible
    }

    fn claims(&self, keys: &[Option<u8>], is_refused: bool) -> Vec<Event> {
        let mut possible = Vec::new();
        if self.calls.len() >= CALLS_MOST {
            return possible;
        }
        for instance in 0..self.instances.len() {
            for subject in 0..SUBJECTS {
                let claims = keys
                    .iter()
                    .flat_map(|key| CLAIMED.map(|units| (*key, units)));
                possible.extend(claims.map(|(key, units)| {
                    let wish = Wish::Claim {
                        subject,
                        key,
                        units,
                        is_hold: false,
                        is_refused,
                        zone: None,
                    };
                    Event::Send(instance, wish)
                }));
                if self.has_own_zones() {
                    possible.extend((0..ZONES.len()).map(|zone| {
                        let wish = Wish::Claim {
                            subject,
                            key: keys[0],
                            units: 1,
                            is_hold: false,
                            is_refused,
                            zone: Some(zone),
                        };
                        Event::Send(instance, wish)
                    }));
                }
            }
        }
        possible
    }

    /// Atomic batches of claims of these subjects, with these keys. Where Redis decides, none is sent:
    /// a batch never goes there.
    fn batches(&self, kinds: &[(KeyedSubjects, bool)]) -> Vec<Event> {
        let mut possible = Vec::new();
        if self.calls.len() >= CALLS_MOST || self.scene.counting != Counting::Never {
            return possible;
        }
        for instance in 0..self.instances.len() {
            for (claims, is_doomed) in kinds {
                let claim = |place: usize| Wish::Claim {
                    subject: claims[place].0,
                    key: claims[place].1,
                    units: CLAIMED[place + 1],
                    is_hold: false,
                    is_refused: false,
                    zone: None,
                };
                let wishes = [claim(0), claim(1)];
                possible.push(Event::SendTogether(instance, wishes, *is_doomed));
            }
        }
        possible
    }

    /// The reversal and the confirmation of a bundle of two grants. Where Redis decides, there are no bundles.
    fn of_bundle(&self, instance: usize, grants: [&Entry; 2]) -> Vec<Event> {
        if self.scene.counting != Counting::Never {
            return Vec::new();
        }
        let [one, other] = grants.map(|grant| Arc::new(grant.clone()));
        let together = |wishes| Event::SendTogether(instance, wishes, false);
        let reversals = [&one, &other].map(|it| Wish::Reversal(it.clone()));
        let confirmations = [one, other].map(|it| Wish::Confirmation(it, None));
        vec![together(reversals), together(confirmations)]
    }

    /// Holds, corrections of the newest grants, adjustments, and resets.
    fn corrections(&self) -> Vec<Event> {
        let mut possible = Vec::new();
        let is_grant = |entry: &&Entry| matches!(entry.kind, EntryKind::Grant { .. });
        let grants = self.ledger.entries.iter().rev().filter(is_grant).take(2);
        for instance in 0..self.instances.len() {
            for (subject, key, units) in [(0, None, 2), (1, None, 1), (0, Some(0), 2)] {
                let hold = Wish::Claim {
                    subject,
                    key,
                    units,
                    is_hold: true,
                    is_refused: false,
                    zone: None,
                };
                possible.push(Event::Send(instance, hold));
            }
            if let [one, other] = grants.clone().collect::<Vec<_>>()[..] {
                possible.extend(self.of_bundle(instance, [one, other]));
            }
            for grant in grants.clone() {
                let grant = Arc::new(grant.clone());
                if grant.held_until().is_some() {
                    for settled in [None, Some(1)] {
                        let confirmation = Wish::Confirmation(grant.clone(), settled);
                        possible.push(Event::Send(instance, confirmation));
                    }
                }
                possible.extend(PARTS.map(|(units, key)| {
                    let part = Wish::Part(grant.clone(), units, key);
                    Event::Send(instance, part)
                }));
                possible.push(Event::Send(instance, Wish::Reversal(grant)));
            }
            possible.extend(
                ADJUSTMENTS.map(|adjustment| Event::Send(instance, Wish::Adjustment(adjustment))),
            );
            possible.extend(RESETS.map(|(subject, per, key)| {
                Event::Send(instance, Wish::Reset { subject, per, key })
            }));
            possible.extend(TOP_UPS.map(|(subject, units, seconds, key)| {
                let wish = Wish::TopUp {
                    subject,
                    units,
                    ends_after: TimeDelta::seconds(seconds),
                    key,
                };
                Event::Send(instance, wish)
            }));
            let is_top_up = |entry: &&Entry| entry.kind == EntryKind::TopUp;
            let given = self.ledger.entries.iter().rev().filter(is_top_up);
            // Few histories have top-ups, so their ends have more weight.
            for given in given.take(1) {
                let ended = Wish::EndTopUp(Arc::new(given.clone()));
                possible.extend([(); 4].map(|()| Event::Send(instance, ended.clone())));
            }
            if self.has_own_zones() {
                possible.extend(MOVES.map(|(subject, zone, key)| {
                    Event::Send(instance, Wish::Move { subject, zone, key })
                }));
            }
        }
        possible
    }

    fn breaks(&self) -> Vec<Event> {
        let is_awaited = |call: &Call| call.waiting.is_some() && call.request.is_some();
        let broken = self.calls_where(Event::Break, is_awaited);
        let repeated = self.calls_where(Event::Repeat, |call| {
            let is_script = matches!(
                call.request,
                Some(Request::Settle(_) | Request::Count(..) | Request::Record(_))
            );
            is_awaited(call) && is_script
        });
        [broken, repeated].concat()
    }

    fn crashes(&self) -> Vec<Event> {
        let is_of_lane =
            |call: &Call| matches!(call.waiting, Some(Waiting::Look(..) | Waiting::Append(..)));
        let mut possible = self.calls_where(Event::Panic, is_of_lane);
        possible.extend((0..self.instances.len()).map(Event::Crash));
        possible
    }

    fn redis_faults(&self) -> Vec<Event> {
        if !self.scene.has_counters {
            return Vec::new();
        }
        let mut possible = vec![Event::CopyRedis, Event::FlushRedis];
        if self.redis_copy.is_some() {
            possible.extend([Event::RollBackRedis, Event::RollBackRedis]);
        }
        possible.extend((0..self.instances.len()).map(Event::Breaker));
        possible
    }

    fn restores(&self) -> Vec<Event> {
        match self.ledger_copy {
            Some(_) => vec![
                Event::CopyLedger,
                Event::RestoreLedger(true),
                Event::RestoreLedger(false),
            ],
            None => vec![Event::CopyLedger],
        }
    }

    /// Clocks that step, and then are right again.
    fn steps(&self) -> Vec<Event> {
        let steps = |index: usize| {
            if self.instances[index].is_off() {
                vec![Event::Step(index, TimeDelta::zero())]
            } else {
                STEPS.map(|by| Event::Step(index, by)).into()
            }
        };
        (0..self.instances.len()).flat_map(steps).collect()
    }

    fn spans(&self) -> Vec<Event> {
        let paused = (0..self.instances.len()).map(Some).chain([None]);
        let spans = paused.flat_map(|paused| SPANS.map(|span| Event::Pass(span, paused)));
        spans.collect()
    }
}
