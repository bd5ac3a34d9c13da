//! The ledger stores corrections, and refuses invalid ones from every writer.

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::account::{Unknown, Verdict, decide};
use perdiem::domain::claim::Units;
use perdiem::domain::correction::{
    Hold, HoldChange, Holds, adjust, carry_on, give_back, move_calendar,
};
use perdiem::domain::grant::{Direction, Entry, EntryKind, Line, Note};
use perdiem::domain::identity::EntryId;
use perdiem::domain::own_calendar::{CalendarOwner, OwnCalendar};
use perdiem::domain::past::Past;
use perdiem::domain::reset::reset;
use perdiem::domain::top_up::Returned;
use perdiem::domain::topping_up::{end_top_up, top_up};
use perdiem::domain::warning::Levels;
use perdiem::domain::zone::Zone;
use perdiem::ledger::{Draft, LedgerError, Look};
use uuid::Uuid;

use crate::support::app::Stack;
use crate::support::books::Books;
use crate::support::desk::{Desk, on_every_store};

on_every_store!(
    a_grant_is_closed_once,
    a_later_entry_that_closes_again_undoes_the_batch,
    a_first_lapse_that_is_not_the_assumed_one_is_refused,
    entries_come_back_as_they_were,
    open_holds_are_told_as_of_a_line,
    holds_far_ahead_are_told_as_an_instant,
);

const PLAIN: EntryKind = EntryKind::Grant { held_until: None };
const UP: EntryKind = EntryKind::Adjustment(Direction::Up);
const DOWN: EntryKind = EntryKind::Adjustment(Direction::Down);
/// Grants of so many units get the mark of an observing policy.
const MARKED: u64 = 7;

/// An account's entries, in order.
struct Statement {
    desk: Desk,
    last: Option<Line>,
}

impl Statement {
    async fn open(stack: Stack) -> Self {
        Self {
            desk: Desk::open(stack).await,
            last: None,
        }
    }

    /// The instant in the last line at which the first hold lapses.
    fn told(&self) -> Option<DateTime<Utc>> {
        self.last.as_ref()?.lapses_at
    }

    /// The next entry, by the domain's rule, with the given first lapse.
    async fn next(&self, kind: EntryKind, units: u64, lapses_at: Option<DateTime<Utc>>) -> Entry {
        let policy = &self.desk.policy;
        let now = self.desk.now;
        let after = self.last.as_ref();
        let account = self.desk.account("a");
        let units = Units::new(units.into()).expect("units");
        let mut past = Past::default();
        let mut line = loop {
            let line = match kind {
                EntryKind::Grant { .. } => match decide(policy, units, after, &past, now) {
                    Ok(Verdict::Granted(line) | Verdict::WouldDeny(line)) => Ok(line),
                    Ok(Verdict::Refused(refusal)) => panic!("{refusal:?}"),
                    Err(unknown) => Err(unknown),
                },
                EntryKind::Confirmation { .. } => carry_on(policy, after, &past, now),
                EntryKind::Reversal { of }
                | EntryKind::PartialReversal { of }
                | EntryKind::Lapse { of } => {
                    let returned = Returned::new(of, None, 0, units);
                    give_back(policy, &returned, after, &past, now)
                }
                EntryKind::TopUp => {
                    let until = now + TimeDelta::days(1);
                    let given = top_up(policy, until, after, &past, now);
                    given.map(|line| line.expect("the policy takes top-ups"))
                }
                EntryKind::TopUpReversal { of } => {
                    let ended = end_top_up(policy, of, after, &past, now);
                    ended.map(|ended| ended.expect("a unit is left").0)
                }
                EntryKind::Adjustment(direction) => {
                    let adjusted = adjust(policy, units, direction, now, after, &past, now);
                    adjusted.map(|line| line.expect("the adjustment is allowed"))
                }
                EntryKind::Calendar => {
                    let asked = OwnCalendar {
                        zone: Zone::parse("Asia/Tokyo").ok(),
                        anchor: "2026-01-31".parse().ok(),
                    };
                    let moved = move_calendar(policy, Some(&asked), after, &past, now);
                    moved.map(|line| line.expect("the policy takes calendars"))
                }
                EntryKind::Reset { per } => {
                    let reset = reset(policy, per, after, &past, now);
                    reset.map(|line| line.expect("something is used"))
                }
            };
            match line {
                Ok(line) => break line,
                Err(Unknown::Past(wanted)) => {
                    let more = self
                        .desk
                        .ledger
                        .claims()
                        .past(account, after, &wanted)
                        .await;
                    past.extend(more.expect("the past"));
                }
                Err(unknown) => panic!("{unknown:?}"),
            }
        };
        line.lapses_at = lapses_at;
        let is_grant = matches!(kind, EntryKind::Grant { .. });
        let until = line.at + TimeDelta::days(1);
        let mut entry = Entry {
            account,
            id: EntryId::new(line.at, line.number, Uuid::new_v4().as_u64_pair().1),
            kind,
            units,
            key: None,
            metadata: None,
            provisional: None,
            would_deny: is_grant && units.get() == MARKED,
            crossed: Levels::of_bits(if units.get() == MARKED {
                0b1001_0001
            } else {
                0
            }),
            bundle: None,
            is_erased: false,
            claimed_by: None,
            note: (!is_grant).then(|| Note {
                by: "a key".into(),
                reason: Some("a test".to_owned()),
            }),
            line,
        };
        if kind == EntryKind::TopUp {
            entry.add_top_up(until);
        }
        entry
    }

    fn draft(&self, entries: Vec<Entry>) -> Draft {
        let draft = self.desk.draft("a", None, 1);
        Draft {
            after: self.last.clone(),
            entries,
            ..draft
        }
    }

    /// Appends an entry, and returns its id.
    async fn enter(
        &mut self,
        kind: EntryKind,
        units: u64,
        lapses_at: Option<DateTime<Utc>>,
    ) -> EntryId {
        let entry = self.next(kind, units, lapses_at).await;
        let id = entry.id;
        self.last = Some(self.desk.append(self.draft(vec![entry])).await);
        id
    }

    /// Appends a hold that is the first to lapse.
    async fn hold(&mut self, seconds: i64) -> EntryId {
        let until = self.desk.now + TimeDelta::seconds(seconds);
        let first = self.told().map_or(until, |told| told.min(until));
        let kind = EntryKind::Grant {
            held_until: Some(until),
        };
        self.enter(kind, 1, Some(first)).await
    }

    /// The open holds as of a line, at an instant.
    async fn holds(&self, line: &Line, at: DateTime<Utc>) -> Holds {
        let holds = self
            .desk
            .ledger
            .claims()
            .holds(self.desk.account("a"), line, at, u32::MAX)
            .await;
        holds.expect("holds")
    }
}

/// This also holds for forged drafts that no rule would make.
async fn a_grant_is_closed_once(stack: Stack) {
    let mut statement = Statement::open(stack).await;
    let first = statement.hold(60).await;
    let second = statement.hold(60).await;
    let confirmation = EntryKind::Confirmation { of: first };
    let until = statement.desk.now + TimeDelta::seconds(60);
    statement.enter(confirmation, 1, Some(until)).await;
    let reversal = EntryKind::Reversal { of: first };
    statement.enter(reversal, 1, Some(until)).await;
    statement.desk.advance(TimeDelta::seconds(60));
    let lapse = EntryKind::Lapse { of: second };
    statement.enter(lapse, 1, None).await;
    for (number, kind) in [
        confirmation,
        reversal,
        EntryKind::Lapse { of: first },
        EntryKind::Reversal { of: second },
        lapse,
    ]
    .into_iter()
    .enumerate()
    {
        let forged = statement.next(kind, 1, None).await;
        // The other drafts of the batch are committed.
        let other = format!("other-{number}");
        let batch = [
            statement.draft(vec![forged]),
            statement.desk.draft(&other, None, 1),
        ];
        let appended = statement.desk.try_append(&batch).await;
        let appended = appended.expect("an answer");
        assert_eq!(
            appended,
            [statement.desk.account(&other)].into(),
            "{kind:?}"
        );
    }
    assert_eq!(statement.desk.last("a").await, statement.last);
    assert_eq!(statement.desk.entries("a").await, 2);
}

async fn a_later_entry_that_closes_again_undoes_the_batch(stack: Stack) {
    let mut statement = Statement::open(stack).await;
    let grant = statement.enter(PLAIN, 1, None).await;
    let reversal = EntryKind::Reversal { of: grant };
    let first = statement.next(reversal, 1, None).await;
    let twice = {
        let mut second = first.clone();
        second.id = EntryId::new(first.line.at, 3, 17);
        second.line.number += 1;
        second
    };
    let batch = [
        statement.draft(vec![first.clone(), twice]),
        statement.desk.draft("b", None, 1),
    ];
    let result = statement.desk.try_append(&batch).await;
    assert!(matches!(result, Err(LedgerError::Conflict)), "{result:?}");
    assert_eq!(statement.desk.last("b").await, None);
    assert_eq!(statement.desk.last("a").await, statement.last);
    statement.desk.append(statement.draft(vec![first])).await;
}

/// A decision that did not know the hold that lapses first is refused.
async fn a_first_lapse_that_is_not_the_assumed_one_is_refused(stack: Stack) {
    let mut statement = Statement::open(stack).await;
    let hold = statement.hold(60).await;
    let told = statement.told();
    let microsecond = TimeDelta::microseconds(1);
    for other in [
        None,
        told.map(|at| at + microsecond),
        told.map(|at| at - microsecond),
    ] {
        let mut draft = statement.draft(vec![statement.next(PLAIN, 1, told).await]);
        if let Some(after) = &mut draft.after {
            after.lapses_at = other;
        }
        statement.desk.refuses(draft).await;
    }
    let reversal = EntryKind::Reversal { of: hold };
    statement.enter(reversal, 1, None).await;
    let mut draft = statement.draft(vec![statement.next(PLAIN, 1, None).await]);
    if let Some(after) = &mut draft.after {
        after.lapses_at = told;
    }
    statement.desk.refuses(draft).await;
    assert_eq!(statement.desk.entries("a").await, 1);
}

async fn entries_come_back_as_they_were(stack: Stack) {
    let mut statement = Statement::open(stack).await;
    statement.desk.policy.rule.calendar_owner = CalendarOwner::Subject;
    let hold = statement.hold(60).await;
    let until = statement.told();
    // A grant that an observing policy would have denied.
    let marked = statement.enter(PLAIN, MARKED, until).await;
    statement
        .enter(EntryKind::Confirmation { of: hold }, 1, None)
        .await;
    statement.desk.advance(TimeDelta::seconds(1));
    statement
        .enter(EntryKind::Reversal { of: hold }, 1, None)
        .await;
    statement.enter(UP, 5, None).await;
    statement.enter(DOWN, 2, None).await;
    statement.enter(EntryKind::Calendar, 1, None).await;
    let given = statement.enter(EntryKind::TopUp, 3, None).await;
    let ended = EntryKind::TopUpReversal { of: given };
    statement.enter(ended, 3, None).await;
    let account = statement.desk.account("a");
    // There is no audit here, because no observing policy made the mark.
    let books = Books::open(&statement.desk.ground).await;
    let mut expected = books.entries().await.remove(&account).expect("an account");
    assert_eq!(expected.len(), 9);
    assert_eq!(expected[7].topped_up_units(), 0);
    assert_eq!(expected[7].top_up().map(|it| it.left), Some(3));
    assert_eq!(expected[8].kind, EntryKind::TopUpReversal { of: given });
    assert_eq!(expected[8].line.top_ups, None);
    assert_eq!(expected[6].kind, EntryKind::Calendar);
    let calendars = expected.iter().filter(|it| it.line.calendar.is_some());
    assert_eq!(calendars.count(), 3);
    assert_eq!(expected[0].held_until(), until);
    assert_eq!(expected[1].id, marked);
    assert!(expected[1].would_deny && !expected[0].would_deny);
    let note = expected[2].note.clone().expect("a note");
    assert_eq!(
        (&*note.by, note.reason.as_deref()),
        ("a key", Some("a test"))
    );
    expected.reverse();
    let page = async |before: u64, limit| {
        let page = statement
            .desk
            .ledger
            .record()
            .entries(account, before, limit)
            .await;
        page.expect("entries")
    };
    assert_eq!(page(i64::MAX.cast_unsigned(), 100).await, expected);
    assert_eq!(page(4, 2).await, expected[6..8]);
    assert_eq!(page(1, 2).await, []);
    // The end of the hold is found by the hold's id.
    let look = Look {
        followers_of: vec![hold],
        ..Look::default()
    };
    let mut seen = statement
        .desk
        .ledger
        .claims()
        .look(&look)
        .await
        .expect("a look");
    seen.entries.sort_by_key(|entry| entry.line.number);
    assert_eq!(seen.entries, [expected[6].clone(), expected[5].clone()]);
    let grant = statement
        .desk
        .ledger
        .claims()
        .grant(hold)
        .await
        .expect("an answer");
    let followers = grant.expect("a grant").followers;
    let ids = [followers.confirmation, followers.closing].map(|found| found.map(|found| found.id));
    assert_eq!(ids, [Some(expected[6].id), Some(expected[5].id)]);
}

async fn open_holds_are_told_as_of_a_line(stack: Stack) {
    let mut statement = Statement::open(stack).await;
    let now = statement.desk.now;
    let [first, second] = [statement.hold(60).await, statement.hold(30).await];
    let third = statement.hold(90).await;
    let before = statement.last.clone().expect("a line");
    statement.enter(PLAIN, 1, before.lapses_at).await;
    let next = Some(now + TimeDelta::seconds(60));
    statement
        .enter(EntryKind::Confirmation { of: second }, 1, next)
        .await;
    statement
        .enter(EntryKind::Reversal { of: third }, 1, next)
        .await;
    let last = statement.last.clone().expect("a line");
    let ids = |holds: Vec<Hold>| holds.iter().map(|hold| hold.grant).collect::<Vec<_>>();
    let told = async |line: &Line, seconds| {
        let at = now + TimeDelta::seconds(seconds);
        let holds = statement.holds(line, at).await;
        (ids(holds.lapsed.into()), ids(holds.next))
    };
    assert_eq!(told(&last, 59).await, (vec![], vec![first]));
    assert_eq!(told(&last, 60).await, (vec![first], vec![]));
    // As of the line before, no grant was confirmed or reversed.
    let all = vec![second, first, third];
    assert_eq!(told(&before, 0).await, (vec![], all));
    assert_eq!(told(&before, 60).await, (vec![second, first], vec![third]));
    // A line without holds causes no read.
    let line = Line {
        lapses_at: None,
        calendar: None,
        ..before.clone()
    };
    assert_eq!(told(&line, 60).await, (vec![], vec![]));
    // The answer contains nothing of another account.
    let other = statement
        .desk
        .ledger
        .claims()
        .holds(statement.desk.account("b"), &before, now, u32::MAX)
        .await;
    assert_eq!(other.expect("holds"), Holds::default());
}

/// Not all of so many holds are read at once. For the others, the answer has the earliest possible
/// lapse.
async fn holds_far_ahead_are_told_as_an_instant(stack: Stack) {
    let mut statement = Statement::open(stack).await;
    let now = statement.desk.now;
    for seconds in 1..=100 {
        statement.hold(seconds).await;
    }
    let line = statement.last.clone().expect("a line");
    let mut holds = statement.holds(&line, now + TimeDelta::seconds(10)).await;
    assert_eq!((holds.lapsed.len(), holds.next.len()), (10, 64));
    let last = now + TimeDelta::seconds(74);
    assert_eq!(holds.beyond, Some(last));
    assert_eq!(holds.lapses_at(), line.lapses_at);
    holds.lapsed.clear();
    for hold in holds.next.clone() {
        holds.change(HoldChange::Ends(hold.grant));
    }
    // Never later than the first lapse of the holds that were not read.
    assert_eq!(holds.lapses_at(), Some(last));
}
