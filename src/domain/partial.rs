//! Which units of a grant a reversal gives back, and which a confirmation leaves used.

use super::claim::Units;
use super::grant::{Entry, Follower, Followers};
use super::refusal::CorrectionRefusal;

/// The most partial reversals of a grant: everybody who looks at the grant reads them.
pub const PARTS_MOST: u32 = 100;

/// What a confirmation does with the units of a hold that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirming<'a> {
    /// The same was done before.
    Before(&'a Follower),
    /// Some stay used, and the others are given back.
    Settle {
        settled: Units,
        returned: Option<Units>,
    },
}

/// What a reversal gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reversing<'a> {
    /// The same was done before.
    Before(&'a Follower),
    /// These units of the grant are given back, and others are left.
    Part(Units),
    /// All units that are left are given back.
    Rest(Units),
}

/// Checks a reversal of some units, or of all that are left.
///
/// # Errors
/// [`CorrectionRefusal::GivenBack`], [`CorrectionRefusal::Reversed`],
/// [`CorrectionRefusal::FewerLeft`], [`CorrectionRefusal::TooManyParts`] or
/// [`CorrectionRefusal::ErasedInParts`].
pub fn check_reversal<'a>(
    grant: &Entry,
    followers: &'a Followers,
    asked: Option<Units>,
) -> Result<Reversing<'a>, CorrectionRefusal> {
    if let Some(lapsed_at) = followers.lapsed_at(grant) {
        return Err(CorrectionRefusal::GivenBack(lapsed_at));
    }
    if let Some(closing) = &followers.closing {
        return match asked {
            None => Ok(Reversing::Before(closing)),
            Some(_) => Err(CorrectionRefusal::Reversed(closing.at)),
        };
    }
    let left = followers.left(grant);
    let left = left.ok_or(CorrectionRefusal::FewerLeft(0))?;
    match asked {
        Some(_) if grant.is_erased => Err(CorrectionRefusal::ErasedInParts),
        Some(asked) if asked > left => Err(CorrectionRefusal::FewerLeft(left.get())),
        Some(asked) if asked < left && followers.parts >= PARTS_MOST => {
            Err(CorrectionRefusal::TooManyParts)
        }
        Some(asked) if asked < left => Ok(Reversing::Part(asked)),
        Some(_) | None => Ok(Reversing::Rest(left)),
    }
}

/// Checks a confirmation of some units, or of all that are left.
///
/// # Errors
/// [`CorrectionRefusal::NotAHold`], [`CorrectionRefusal::Reversed`],
/// [`CorrectionRefusal::Lapsed`], [`CorrectionRefusal::FewerLeft`] or
/// [`CorrectionRefusal::ConfirmedOther`].
pub fn check_confirmation<'a>(
    grant: &Entry,
    followers: &'a Followers,
    asked: Option<Units>,
) -> Result<Confirming<'a>, CorrectionRefusal> {
    if grant.held_until().is_none() {
        return Err(CorrectionRefusal::NotAHold);
    }
    if let Some(lapsed_at) = followers.lapsed_at(grant) {
        return Err(CorrectionRefusal::Lapsed(lapsed_at));
    }
    if let Some(closing) = &followers.closing {
        return Err(CorrectionRefusal::Reversed(closing.at));
    }
    if let Some(confirmation) = &followers.confirmation {
        return match asked {
            Some(asked) if asked != confirmation.units => {
                Err(CorrectionRefusal::ConfirmedOther(confirmation.units))
            }
            Some(_) | None => Ok(Confirming::Before(confirmation)),
        };
    }
    let left = followers.left(grant);
    let left = left.ok_or(CorrectionRefusal::FewerLeft(0))?;
    let settled = asked.unwrap_or(left);
    if settled > left {
        Err(CorrectionRefusal::FewerLeft(left.get()))
    } else {
        Ok(Confirming::Settle {
            settled,
            returned: left.less(settled.get()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chrono::{DateTime, TimeDelta, Utc};
    use uuid::Uuid;

    use super::*;
    use crate::account::{Verdict, decide};
    use crate::grant::{EntryKind, GrantEnd};
    use crate::identity::{AccountId, EntryId};
    use crate::past::Past;
    use crate::samples;
    use crate::work::Task;

    fn noon() -> DateTime<Utc> {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }

    fn grant(held_until: Option<DateTime<Utc>>) -> Entry {
        let policy = Arc::new(samples::policy(1, "UTC", &[(9, "day")]));
        let Ok(Verdict::Granted(line)) =
            decide(&policy, Units::ONE, None, &Past::default(), noon())
        else {
            panic!()
        };
        let work = samples::work(Task::Claim(None), policy, AccountId(Uuid::nil()));
        Entry {
            kind: EntryKind::Grant { held_until },
            ..work.entry(line)
        }
    }

    fn follower(kind: EntryKind) -> Option<Follower> {
        Some(Follower {
            id: EntryId::new(noon(), 2, 0),
            kind,
            units: Units::ONE,
            at: noon(),
            note: None,
        })
    }

    #[test]
    fn what_a_correction_finds() {
        let of = grant(None).id;
        let none = || Followers::default();
        let confirmed = || Followers {
            confirmation: follower(EntryKind::Confirmation { of }),
            ..none()
        };
        let reversed = |before: Followers| Followers {
            closing: follower(EntryKind::Reversal { of }),
            ..before
        };
        let lapsed = || Followers {
            closing: follower(EntryKind::Lapse { of }),
            ..none()
        };
        let whole = grant(None);
        for before in [none(), confirmed()] {
            let rest = check_reversal(&whole, &before, None);
            assert_eq!(rest, Ok(Reversing::Rest(whole.units)));
            let followers = reversed(before);
            let before = Reversing::Before(followers.closing.as_ref().unwrap());
            assert_eq!(check_reversal(&whole, &followers, None), Ok(before));
        }
        let given_back = CorrectionRefusal::GivenBack(noon());
        assert_eq!(check_reversal(&whole, &lapsed(), None), Err(given_back));

        let hold = grant(Some(noon()));
        let settle = Confirming::Settle {
            settled: hold.units,
            returned: None,
        };
        assert_eq!(check_confirmation(&hold, &none(), None), Ok(settle));
        let followers = confirmed();
        let before = Confirming::Before(followers.confirmation.as_ref().unwrap());
        assert_eq!(check_confirmation(&hold, &followers, None), Ok(before));
        for before in [none(), confirmed()] {
            let refusal = CorrectionRefusal::Reversed(noon());
            let followers = reversed(before);
            assert_eq!(check_confirmation(&hold, &followers, None), Err(refusal));
        }
        let refusal = CorrectionRefusal::Lapsed(noon());
        assert_eq!(check_confirmation(&hold, &lapsed(), None), Err(refusal));
        // A lapse that was recorded later.
        let mut late = lapsed();
        late.closing.as_mut().unwrap().at += TimeDelta::hours(3);
        let refusal = CorrectionRefusal::Lapsed(noon());
        assert_eq!(check_confirmation(&hold, &late, None), Err(refusal));
        let refusal = CorrectionRefusal::GivenBack(noon());
        assert_eq!(check_reversal(&hold, &late, None), Err(refusal));
        let end = late.end_of(&hold, noon());
        assert_eq!(end, Some(GrantEnd::Lapsed(noon())));
        for followers in [none(), reversed(none())] {
            let refused = check_confirmation(&grant(None), &followers, None);
            assert_eq!(refused, Err(CorrectionRefusal::NotAHold));
        }
    }

    #[test]
    fn a_grant_is_given_back_in_parts() {
        let units = |units: i128| Units::new(units).unwrap();
        let grant = Entry {
            units: units(8),
            ..grant(Some(noon()))
        };
        let followers = |returned, parts| Followers {
            returned,
            parts,
            ..Followers::default()
        };
        let reverse = |returned, asked: Option<i128>| {
            let followers = followers(returned, 1);
            match check_reversal(&grant, &followers, asked.map(units))? {
                Reversing::Part(units) => Ok((units.get(), true)),
                Reversing::Rest(units) => Ok((units.get(), false)),
                Reversing::Before(_) => panic!(),
            }
        };
        assert_eq!(reverse(0, Some(3)), Ok((3, true)));
        assert_eq!(reverse(3, None), Ok((5, false)));
        assert_eq!(reverse(3, Some(5)), Ok((5, false)));
        assert_eq!(reverse(3, Some(6)), Err(CorrectionRefusal::FewerLeft(5)));
        let many = followers(3, PARTS_MOST);
        let refused = check_reversal(&grant, &many, Some(units(1)));
        assert_eq!(refused, Err(CorrectionRefusal::TooManyParts));
        let erased = Entry {
            is_erased: true,
            ..grant.clone()
        };
        let one = followers(3, 1);
        let refused = check_reversal(&erased, &one, Some(units(5)));
        assert_eq!(refused, Err(CorrectionRefusal::ErasedInParts));
        // Parts without an entry that closes the grant never give back more.
        let all = followers(8, 2);
        assert_eq!(
            check_reversal(&grant, &all, None),
            Err(CorrectionRefusal::FewerLeft(0))
        );
        let rest = check_reversal(&grant, &many, Some(units(5)));
        assert_eq!(rest, Ok(Reversing::Rest(units(5))));

        let one = followers(2, 1);
        let confirm = |asked: Option<i128>| check_confirmation(&grant, &one, asked.map(units));
        let settle = |settled, returned: Option<i128>| Confirming::Settle {
            settled: units(settled),
            returned: returned.map(units),
        };
        assert_eq!(confirm(None), Ok(settle(6, None)));
        assert_eq!(confirm(Some(1)), Ok(settle(1, Some(5))));
        assert_eq!(confirm(Some(7)), Err(CorrectionRefusal::FewerLeft(6)));
    }
}
