//! Forecasts: when a claim would be granted, and when the units of a limit return, if nobody else
//! claims and nobody edits.
//!
//! A forecast walks from event to event: a hold lapses, or the terms change. Between two events time
//! alone moves the totals, and each limit knows when its units return. At each event the rules of the
//! decision itself make the totals, so a forecast is what a decision will be.

use chrono::{DateTime, Utc};

use super::account::{UnitsAsked, Unknown, Verdict, decide, instant_after, refuse, top_ups_at};
use super::account_totals::totals_asked;
use super::claim::Units;
use super::correction::{Hold, HoldChange, lapse, shrink};
use super::course::Course;
use super::grant::{Entry, Line};
use super::identity::AccountId;
use super::limit::per::Per;
use super::limit::total::Total;
use super::own_calendar::OwnCalendar;
use super::past::Past;
use super::policy::Policy;
use super::refusal::{DeniedClaim, Refusal};
use super::shared::{SharedTotal, used_by};

/// The most events of a forecast. What comes later is not foretold.
const STEPS_MOST: u32 = 2000;
/// The most open holds that are read for a forecast.
pub const HOLDS_MOST: usize = 256;

/// When units of a limit return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Returns {
    /// The next instant at which more units are left, or at which the window ends. `None`: never.
    pub more_at: Option<DateTime<Utc>>,
    /// The instant at which all units have returned. `None`: no unit returns.
    pub resets_at: Option<DateTime<Utc>>,
}

impl Returns {
    /// By the limit alone, without holds and changes.
    pub fn of(total: &Total) -> Self {
        Self {
            more_at: total.more_at(),
            resets_at: total.resets_at(),
        }
    }
}

/// What is foretold at an instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forecast {
    /// The earliest instant at which the claim would be granted. `None`: nothing that is known makes
    /// room for it, or no claim was asked about.
    pub fits_at: Option<DateTime<Utc>>,
    /// For the limits that more than time moves.
    pub returns: Vec<(Per, Returns)>,
}

impl Forecast {
    /// The forecast for a claim that some limits have no room for, if only time passes.
    pub fn by_time_alone(denied: &DeniedClaim, units: Units) -> Self {
        let own = denied.lacking().map(|(_, fits_at)| fits_at);
        let shared = denied.shared.iter().filter(|total| !total.fits(units));
        let fits_at = own.chain(shared.map(|total| total.ends_at));
        let fits_at: Option<Vec<_>> = fits_at.collect();
        Self {
            fits_at: fits_at.and_then(|fits_at| fits_at.into_iter().max()),
            returns: Vec::new(),
        }
    }

    /// When the units of a limit return.
    pub fn returns_of(&self, total: &Total) -> Returns {
        let mut returns = self.returns.iter();
        let found = returns.find(|(per, _)| *per == total.per());
        found.map_or_else(|| Returns::of(total), |(_, returns)| *returns)
    }
}

/// A claim whose grant is foretold.
#[derive(Debug, Clone)]
pub struct ClaimAhead {
    pub asked: UnitsAsked,
    /// What is used of the limits that all subjects share, if the claim waits for them.
    pub shared: Box<[SharedTotal]>,
}

impl From<UnitsAsked> for ClaimAhead {
    fn from(asked: UnitsAsked) -> Self {
        Self {
            asked,
            shared: Box::default(),
        }
    }
}

/// The open holds of an account, as far as they were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldsAhead {
    /// In the order of their ends.
    pub holds: Vec<Hold>,
    /// The end of the last open hold, if not all of them were read.
    pub last_ends_at: Option<DateTime<Utc>>,
}

/// What is known of an account besides its last line.
#[derive(Debug, Clone, Default)]
pub struct Foreknown {
    pub past: Past,
    /// The open holds, once they were read.
    pub holds: Option<HoldsAhead>,
    /// Entries up to the last line that the ledger does not have: those of a dry run.
    pub entries: Vec<Entry>,
}

impl Foreknown {
    /// Follows an entry. Invariant: the place of a hold after holds that were not read stays unknown.
    pub fn change(&mut self, change: HoldChange) {
        match (change, &mut self.holds) {
            (HoldChange::Opens(hold), _) => self.open(hold),
            (HoldChange::Shrinks(grant, units), Some(holds)) => {
                shrink(holds.holds.iter_mut(), grant, units);
            }
            (HoldChange::Ends(grant), Some(holds)) => {
                holds.holds.retain(|hold| hold.grant != grant);
            }
            (HoldChange::Shrinks(..) | HoldChange::Ends(_), None) => {}
        }
    }

    fn open(&mut self, hold: Hold) {
        let holds = self.holds.get_or_insert_default();
        let is_unread = |end: &Hold| holds.last_ends_at.is_some() && end.until < hold.until;
        if holds.holds.last().is_some_and(is_unread) {
            holds.last_ends_at = holds.last_ends_at.max(Some(hold.until));
            return;
        }
        let place = holds
            .holds
            .partition_point(|other| other.until <= hold.until);
        holds.holds.insert(place, hold);
    }
}

/// The walk of a forecast.
struct ForecastWalk<'a> {
    course: &'a Course,
    past: Past,
    at: DateTime<Utc>,
    /// The line that a decision at `at` would follow. Its lapses are up to the walk.
    line: Option<Line>,
    holds: std::slice::Iter<'a, Hold>,
    claim: Option<&'a ClaimAhead>,
}

/// What a limit waits for, from an instant on.
struct Awaited {
    at: DateTime<Utc>,
    per: Per,
    used: u64,
    remaining: u64,
    has_window: bool,
    returns: Returns,
}

/// Whether nothing is known that moves some totals but the time that passes.
pub fn is_by_time_alone(
    course: &Course,
    last: Option<&Line>,
    calendar: Option<&OwnCalendar>,
    totals: &[Total],
    at: DateTime<Utc>,
) -> bool {
    let turns = course.policy_at(at).is_some_and(|policy| {
        let turns_at = policy.rule.turns_at(last, calendar, totals, at);
        turns_at.is_some()
    });
    let has_holds = last.is_some_and(|line| line.lapses_at.is_some());
    let has_top_ups = last.is_some_and(|line| line.top_ups.is_some());
    !turns && !has_holds && !has_top_ups && course.next_change(at).is_none()
}

/// Foretells what happens after the `last` line of an account, from `now` on: to a claim for some
/// units, and to the limits. Lapses that are due count as made.
///
/// # Errors
/// [`Unknown`].
pub fn foresee(
    course: &Course,
    last: Option<&Line>,
    known: &Foreknown,
    claim: Option<&ClaimAhead>,
    now: DateTime<Utc>,
) -> Result<Forecast, Unknown> {
    // 1. The state of now, after the lapses that are due.
    let mut walk = ForecastWalk::begin(course, last, known, claim, now)?;
    let mut fits_at = None;
    let mut totals = walk.totals(walk.at)?;
    let waiting = totals.iter().map(|total| Awaited::of(total, walk.at));
    let mut waiting: Vec<Awaited> = waiting.collect();
    for _ in 0..STEPS_MOST {
        let next = walk.next_event(&totals);
        // 2. Until the next event only time passes.
        if let Some(claim) = claim.filter(|_| fits_at.is_none()) {
            fits_at = walk.granted_at(claim, next)?;
        }
        for limit in waiting.iter_mut().filter(|limit| !limit.is_over()) {
            walk.watch(limit, &totals, next)?;
        }
        // 3. The walk ends when everything is foretold, or nothing else is known to happen.
        let is_foretold = claim.is_none() || fits_at.is_some();
        let Some(next) = next.filter(|_| !is_foretold || !waiting.iter().all(Awaited::is_over))
        else {
            break;
        };
        walk.at = next;
        walk.lapse()?;
        totals = walk.totals(next)?;
    }
    // 4. Holds that were not read make room too, at the latest when the last of them ends.
    if let (Some(claim), Some(holds), None) = (claim, &known.holds, fits_at)
        && let Some(ends_at) = holds.last_ends_at
    {
        if holds.holds.len() < HOLDS_MOST {
            return Err(Unknown::Holds);
        }
        let from = ends_at.max(walk.at);
        fits_at = first_open(course, &claim.asked, walk.line.as_ref(), from);
    }
    let returns = waiting.into_iter().map(|limit| (limit.per, limit.returns));
    Ok(Forecast {
        fits_at,
        returns: returns.collect(),
    })
}

/// The first instant from `from` on at which a claim is not refused whatever the account holds.
fn first_open(
    course: &Course,
    asked: &UnitsAsked,
    last: Option<&Line>,
    from: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let is_open = |at: &DateTime<Utc>| {
        let policy = course.policy_at(*at);
        let topped_up = top_ups_at(last, *at).given();
        policy.is_some_and(|policy| refuse(policy, asked, topped_up, *at).is_none())
    };
    let mut instants = std::iter::successors(Some(from), |at| course.next_change(*at));
    instants.find(is_open)
}

impl<'a> ForecastWalk<'a> {
    /// # Errors
    /// [`Unknown`].
    fn begin(
        course: &'a Course,
        last: Option<&Line>,
        known: &'a Foreknown,
        claim: Option<&'a ClaimAhead>,
        now: DateTime<Utc>,
    ) -> Result<Self, Unknown> {
        let lapses_at = last.and_then(|line| line.lapses_at);
        let holds: &[Hold] = match (&known.holds, lapses_at) {
            // Holds that ended before are not open any more.
            (Some(HoldsAhead { holds, .. }), Some(lapses_at)) => {
                &holds[holds.partition_point(|hold| hold.until < lapses_at)..]
            }
            (_, None) => &[],
            (None, Some(_)) => return Err(Unknown::Holds),
        };
        let mut walk = Self {
            course,
            past: known.past.clone().after(&known.entries),
            at: instant_after(last, now),
            line: last.map(|line| Line {
                lapses_at: None,
                ..line.clone()
            }),
            holds: holds.iter(),
            claim,
        };
        walk.lapse()?;
        Ok(walk)
    }

    fn next_hold(&self) -> Option<&'a Hold> {
        self.holds.as_slice().first()
    }

    /// Gives back the units of the holds that have lapsed, each at its end.
    ///
    /// # Errors
    /// [`Unknown`].
    fn lapse(&mut self) -> Result<(), Unknown> {
        while let Some(hold) = self.next_hold().filter(|hold| hold.until <= self.at) {
            self.holds.next();
            let Some(last) = &self.line else { continue };
            let line = lapse(hold, last, &self.past)?;
            let lapse = hold.lapsed(AccountId::OF_NOBODY, line.clone(), 0);
            self.past = std::mem::take(&mut self.past).after(&[lapse]);
            self.line = Some(line);
        }
        Ok(())
    }

    /// What the claim tells of a calendar.
    fn told(&self) -> Option<&'a OwnCalendar> {
        self.claim.and_then(|claim| claim.asked.calendar.as_deref())
    }

    /// The limits that all subjects share and that lack room for the claim now.
    fn lacking_shared(&self) -> Vec<SharedTotal> {
        let claim = self.claim.filter(|claim| !claim.shared.is_empty());
        let (Some(claim), Some(policy)) = (claim, self.policy()) else {
            return Vec::new();
        };
        let mut totals = policy.shared_totals(|key| used_by(&claim.shared, key), self.at);
        totals.retain(|total| !total.fits(claim.asked.units));
        totals
    }

    fn policy(&self) -> Option<&'a Policy> {
        self.course.policy_at(self.at).map(|policy| &**policy)
    }

    /// The totals at an instant before the next event; none if the terms are not known.
    ///
    /// # Errors
    /// [`Unknown`].
    fn totals(&self, at: DateTime<Utc>) -> Result<Vec<Total>, Unknown> {
        match self.policy() {
            Some(policy) => totals_asked(policy, self.told(), self.line.as_ref(), &self.past, at),
            None => Ok(Vec::new()),
        }
    }

    /// The next instant at which more than time moves the totals, which are those of now.
    fn next_event(&self, totals: &[Total]) -> Option<DateTime<Utc>> {
        let lapses_at = self.next_hold().map(|hold| hold.until);
        let changes_at = self.course.next_change(self.at);
        let turns_at = self.policy().and_then(|policy| {
            let rule = &policy.rule;
            rule.turns_at(self.line.as_ref(), self.told(), totals, self.at)
        });
        let shared = self.lacking_shared();
        let share_ends = shared.iter().filter_map(|total| total.ends_at);
        let ends_at = top_ups_at(self.line.as_ref(), self.at).ends_at();
        let events = [lapses_at, changes_at, turns_at, ends_at];
        let events = events.into_iter().flatten().chain(share_ends);
        events.filter(|at| *at > self.at).min()
    }

    /// The first instant before the next event at which a claim would be granted.
    ///
    /// # Errors
    /// [`Unknown`].
    fn granted_at(
        &self,
        claim: &ClaimAhead,
        next: Option<DateTime<Utc>>,
    ) -> Result<Option<DateTime<Utc>>, Unknown> {
        let Some(policy) = self.policy() else {
            return Ok(None);
        };
        if !self.lacking_shared().is_empty() {
            return Ok(None);
        }
        let asked = &claim.asked;
        let mut at = self.at;
        for _ in 0..STEPS_MOST {
            // 1. The rule itself decides.
            let denied = match decide(policy, asked.clone(), self.line.as_ref(), &self.past, at)? {
                Verdict::Granted(_) | Verdict::WouldDeny(_) => return Ok(Some(at)),
                Verdict::Refused(Refusal::Denied(denied)) => denied,
                Verdict::Refused(_) => return Ok(None),
            };
            // 2. Each limit without room tells when it has room.
            let later = Forecast::by_time_alone(&denied, asked.units).fits_at;
            let is_before =
                |later: &DateTime<Utc>| *later > at && next.is_none_or(|next| *later < next);
            match later.filter(is_before) {
                Some(later) => at = later,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Notes what happens to a limit before the next event. `totals` are those of `self.at`.
    ///
    /// # Errors
    /// [`Unknown`].
    fn watch(
        &self,
        limit: &mut Awaited,
        totals: &[Total],
        next: Option<DateTime<Utc>>,
    ) -> Result<(), Unknown> {
        if self.policy().is_none() {
            return Ok(());
        }
        let is_it = |total: &&Total| total.per() == limit.per;
        let present = totals.iter().find(is_it);
        // The first instant of some that is before the next event, and at which something is so.
        let first = |instants: &[Option<DateTime<Utc>>], is_so: &dyn Fn(Option<&Total>) -> bool| {
            if is_so(present) {
                return Ok(Some(self.at));
            }
            let mut instants: Vec<_> = instants.iter().copied().flatten().collect();
            instants.sort_unstable();
            for at in instants {
                let is_before = next.is_none_or(|next| at < next);
                if is_before && is_so(self.totals(at)?.iter().find(is_it)) {
                    return Ok(Some(at));
                }
            }
            Ok(None)
        };
        let resets_at = present.and_then(Total::resets_at);
        let grows_at = present.and_then(|total| total.fits_at(limit.more_units()?));
        let mut returns = limit.returns;
        if returns.more_at.is_none() {
            let fits_at = present.and_then(|total| total.fits_at(Units::ONE));
            let instants = [grows_at, fits_at, resets_at];
            returns.more_at = first(&instants, &|later| limit.has_more(later))?;
        }
        if returns.resets_at.is_none() {
            returns.resets_at = first(&[resets_at], &|later| limit.has_reset(later))?;
        }
        limit.returns = returns;
        Ok(())
    }
}

impl Awaited {
    fn of(total: &Total, at: DateTime<Utc>) -> Self {
        Self {
            at,
            per: total.per(),
            used: total.used(),
            remaining: total.remaining(),
            has_window: total.window().is_some(),
            returns: Returns::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.returns.more_at.is_some() && self.returns.resets_at.is_some()
    }

    fn more_units(&self) -> Option<Units> {
        Units::new(i128::from(self.remaining) + 1).ok()
    }

    /// Whether the window of now has ended in a later total. `None`: the limit exists no more.
    fn has_left_window(&self, later: Option<&Total>) -> bool {
        let window = later.and_then(Total::window);
        self.has_window && window.is_none_or(|window| window.start > self.at)
    }

    /// Whether a later total has more units left, or is in a later window.
    fn has_more(&self, later: Option<&Total>) -> bool {
        later.is_none_or(|later| {
            let left = later.remaining();
            left > self.remaining || left > 0 && self.has_left_window(Some(later))
        })
    }

    /// Whether all units that are used now have returned in a later total. Without used units:
    /// whether the window has ended.
    fn has_reset(&self, later: Option<&Total>) -> bool {
        match self.used {
            0 => self.has_left_window(later),
            _ => later.is_none_or(|later| later.used() == 0),
        }
    }
}
