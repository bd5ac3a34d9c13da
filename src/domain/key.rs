//! API keys, their roles and rules.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::claim::UNITS_MAX;
use super::fault::Fault;
use super::policy::PolicyName;

pub use super::claim::KeyNumber;

/// The longest name of a key, in characters.
pub const NAME_MAX_CHARACTERS: usize = 100;
/// The largest number of policies that a key can be limited to.
pub const POLICIES_MOST: usize = 100;

/// The permissions of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Claims, confirmations, reversals and reads of usage: the needs of the backend of a product.
    Claim,
    /// Reads everything except secrets, and changes nothing.
    Audit,
    /// Reads as `Audit` does, confirms and reverses, and puts overrides, tiers and blocks within its bounds.
    Support,
    Admin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the role is unknown; write claim, audit, support or admin")]
pub struct RoleError;

impl Role {
    pub const ALL: [Self; 4] = [Self::Claim, Self::Audit, Self::Support, Self::Admin];

    /// The name in the HTTP contract and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Audit => "audit",
            Self::Support => "support",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or(RoleError)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// How far a support key may go with overrides, tiers and blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupportBounds {
    /// The largest `max` of an override, and of a tier that it puts a subject into.
    pub max: u64,
    /// For how many days an override, a tier or a block may last.
    pub days: u16,
}

/// The most days of [`SupportBounds`].
pub const BOUND_DAYS_MOST: u16 = 400;

impl SupportBounds {
    /// Bounds that a key may have.
    pub fn new(max: u64, days: u16) -> Option<Self> {
        let fits = (1..=UNITS_MAX).contains(&max) && (1..=BOUND_DAYS_MOST).contains(&days);
        fits.then_some(Self { max, days })
    }

    /// Whether an exception that ends then stays within the bounds.
    pub fn reach(&self, until: Option<DateTime<Utc>>, now: DateTime<Utc>) -> bool {
        until.is_some_and(|until| until <= now + TimeDelta::days(self.days.into()))
    }
}

/// The content of a version of a key. An admin key is never limited to policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRule {
    /// A name for people.
    pub name: String,
    pub role: Role,
    /// The policies that the key is limited to; `None` for all.
    pub policies: Option<Arc<[PolicyName]>>,
    /// The bounds of a support key. Every other key has none.
    pub bounds: Option<SupportBounds>,
    /// From this instant on the key is not accepted.
    pub ends_at: Option<DateTime<Utc>>,
    /// Whether the key was revoked. A revoked key stays revoked.
    pub revoked: bool,
}

impl KeyRule {
    /// Whether the key is accepted at an instant.
    pub fn is_valid(&self, now: DateTime<Utc>) -> bool {
        !self.revoked && self.ends_at.is_none_or(|end| now < end)
    }

    /// Whether this is an admin key that is not revoked and has no end. One such key must always
    /// exist.
    pub fn is_lasting_admin(&self) -> bool {
        self.role == Role::Admin && !self.revoked && self.ends_at.is_none()
    }
}

/// A version of a key. The secret of the key is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// A UUIDv7.
    pub id: Uuid,
    /// 1, 2, 3 …: every change creates a new version.
    pub version: u32,
    pub rule: KeyRule,
    pub created_at: DateTime<Utc>,
    pub changed_at: DateTime<Utc>,
    pub changed_by: String,
    /// The reason; optional for a first version.
    pub reason: Option<String>,
}

impl Key {
    /// The next version.
    pub fn changed(&self, rule: KeyRule, reason: String, by: &str, now: DateTime<Utc>) -> Self {
        Self {
            version: self.version + 1,
            rule,
            changed_at: now,
            changed_by: by.to_owned(),
            reason: Some(reason),
            ..*self
        }
    }
}

/// A key, and when it was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedKey {
    pub key: Key,
    /// The last day, in UTC, on which a request was authenticated with the key; `None` if there is no such
    /// day.
    pub last_used_on: Option<NaiveDate>,
}

/// How long a key that was replaced still works, if nobody says.
pub const KEEP_DEFAULT: TimeDelta = TimeDelta::days(1);
/// The longest time for which a key that was replaced still works, in seconds: 365 days.
pub const KEEP_SECONDS_MOST: u32 = 31_536_000;

/// Checks for how many seconds a key that is replaced still works.
///
/// # Errors
/// The fault of the number.
pub fn check_keep(seconds: i128) -> Result<TimeDelta, String> {
    let seconds = u32::try_from(seconds).ok();
    let seconds = seconds.filter(|seconds| *seconds <= KEEP_SECONDS_MOST);
    let keep = seconds.map(|seconds| TimeDelta::seconds(seconds.into()));
    keep.ok_or_else(|| format!("write 0 to {KEEP_SECONDS_MOST} seconds"))
}

/// A new key as a client wrote it, before it is checked.
#[derive(Debug, Clone, Default)]
pub struct KeyDraft {
    pub name: String,
    pub role: String,
    pub policies: Option<Vec<String>>,
    /// The `max` and the days of [`SupportBounds`].
    pub bounds: Option<(i128, i128)>,
    /// See [`KeyRule::ends_at`].
    pub ends_at: Option<DateTime<Utc>>,
}

impl KeyDraft {
    /// Checks the draft of a key that is created now.
    ///
    /// # Errors
    /// All faults of the draft.
    pub fn check(self, now: DateTime<Utc>) -> Result<KeyRule, Vec<Fault>> {
        let mut faults = Vec::new();
        if let Err(detail) = check_name(&self.name) {
            faults.push(Fault::new("/name", detail));
        }
        let role = self.role.parse::<Role>();
        if let Err(error) = role {
            faults.push(Fault::new("/role", error));
        }
        let policies = self
            .policies
            .map(|names| check_policies(&names, role.ok(), &mut faults));
        let bounds = check_bounds(self.bounds, role.ok(), &mut faults);
        if let Err(detail) = check_end(self.ends_at, now) {
            faults.push(Fault::new("/ends_at", detail));
        }
        match role {
            Ok(role) if faults.is_empty() => Ok(KeyRule {
                name: self.name,
                role,
                policies,
                bounds,
                ends_at: self.ends_at,
                revoked: false,
            }),
            Ok(_) | Err(_) => Err(faults),
        }
    }
}

/// Checks the name of a key.
///
/// # Errors
/// The fault of the name.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.chars().any(char::is_control) {
        return Err("the name has a control character; remove it".to_owned());
    }
    match name.chars().count() {
        1..=NAME_MAX_CHARACTERS => Ok(()),
        _ => Err(format!(
            "the name is empty or too long; write 1 to {NAME_MAX_CHARACTERS} characters"
        )),
    }
}

fn check_policies(
    names: &[String],
    role: Option<Role>,
    faults: &mut Vec<Fault>,
) -> Arc<[PolicyName]> {
    if role == Some(Role::Admin) {
        let detail = "an admin key cannot be limited to policies; leave out policies";
        faults.push(Fault::new("/policies", detail));
    }
    if !(1..=POLICIES_MOST).contains(&names.len()) {
        let detail = format!(
            "the list is empty or too long; name 1 to {POLICIES_MOST} policies, or leave out policies \
             to allow all"
        );
        faults.push(Fault::new("/policies", detail));
    }
    let mut policies = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match PolicyName::new(name) {
            Err(error) => faults.push(Fault::new(format!("/policies/{index}"), error)),
            Ok(name) if policies.contains(&name) => {
                let detail = "the list names this policy twice; name it once";
                faults.push(Fault::new(format!("/policies/{index}"), detail));
            }
            Ok(name) => policies.push(name),
        }
    }
    policies.into()
}

fn check_bounds(
    bounds: Option<(i128, i128)>,
    role: Option<Role>,
    faults: &mut Vec<Fault>,
) -> Option<SupportBounds> {
    let (max, days) = match (bounds, role) {
        (None, Some(Role::Support)) => {
            let detail = "a support key needs bounds: write the max and the days of its overrides";
            faults.push(Fault::new("/bounds", detail));
            return None;
        }
        (None, _) => return None,
        (Some(_), Some(Role::Claim | Role::Audit | Role::Admin)) => {
            let detail = "only a support key has bounds: leave them out, or write the role support";
            faults.push(Fault::new("/bounds", detail));
            return None;
        }
        (Some(bounds), Some(Role::Support) | None) => bounds,
    };
    let of_max = u64::try_from(max)
        .ok()
        .filter(|max| (1..=UNITS_MAX).contains(max));
    if of_max.is_none() {
        let detail = format!("write a max between 1 and {UNITS_MAX}");
        faults.push(Fault::new("/bounds/max", detail));
    }
    let of_days = u16::try_from(days).ok();
    let of_days = of_days.filter(|days| (1..=BOUND_DAYS_MOST).contains(days));
    if of_days.is_none() {
        let detail = format!("write 1 to {BOUND_DAYS_MOST} days");
        faults.push(Fault::new("/bounds/days", detail));
    }
    Some(SupportBounds {
        max: of_max?,
        days: of_days?,
    })
}

/// Checks a new end of a key.
///
/// # Errors
/// The fault of the end.
pub fn check_end(ends_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Result<(), &'static str> {
    if ends_at.is_none_or(|end| now < end) {
        Ok(())
    } else {
        Err("ends_at is not in the future; write a later instant, or revoke the key to end it now")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_names() {
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        for wrong in ["", "Admin", "admin ", "root"] {
            assert_eq!(wrong.parse::<Role>(), Err(RoleError));
        }
    }

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn draft(role: &str, policies: Option<&[&str]>) -> KeyDraft {
        KeyDraft {
            name: "shop".to_owned(),
            role: role.to_owned(),
            policies: policies.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            bounds: None,
            ends_at: None,
        }
    }

    #[test]
    fn only_a_support_key_has_bounds() {
        let now = at("2026-11-21T00:00:00Z");
        let pointers = |role: &str, bounds: Option<(i128, i128)>| {
            let draft = KeyDraft {
                bounds,
                ..draft(role, None)
            };
            let faults = draft.check(now).err().unwrap_or_default();
            let pointers = faults.into_iter().map(|fault| fault.pointer);
            pointers.collect::<Vec<_>>()
        };
        assert_eq!(pointers("support", Some((10, 7))), [""; 0]);
        assert_eq!(pointers("support", None), ["/bounds"]);
        for role in ["claim", "audit", "admin"] {
            assert_eq!(pointers(role, Some((10, 7))), ["/bounds"]);
        }
        assert_eq!(pointers("support", Some((0, 7))), ["/bounds/max"]);
        let both = ["/bounds/max", "/bounds/days"];
        assert_eq!(pointers("support", Some((i128::MAX, 401))), both);
        assert_eq!(pointers("support", Some((-1, 0))), both);
    }

    #[test]
    fn bounds_end() {
        let now = at("2026-11-21T00:00:00Z");
        let bounds = SupportBounds { max: 10, days: 7 };
        assert!(bounds.reach(Some(at("2026-11-28T00:00:00Z")), now));
        assert!(!bounds.reach(Some(at("2026-11-28T00:00:00.000001Z")), now));
        assert!(!bounds.reach(None, now));
    }

    #[test]
    fn drafts_are_checked_whole() {
        let now = at("2026-11-21T00:00:00Z");
        let rule = draft("claim", Some(&["b", "a"])).check(now).unwrap();
        assert_eq!(rule.role, Role::Claim);
        assert_eq!(rule.policies.unwrap().len(), 2);
        assert!(draft("admin", None).check(now).unwrap().is_lasting_admin());
        let pointers = |draft: KeyDraft| {
            let faults = draft.check(now).unwrap_err();
            faults
                .into_iter()
                .map(|fault| fault.pointer)
                .collect::<Vec<_>>()
        };
        assert_eq!(pointers(draft("admin", Some(&["a"]))), ["/policies"]);
        assert_eq!(pointers(draft("audit", Some(&[]))), ["/policies"]);
        assert_eq!(
            pointers(draft("audit", Some(&["a", "A", "a"]))),
            ["/policies/1", "/policies/2"]
        );
        let wrong = KeyDraft {
            name: "a\nb".to_owned(),
            role: "root".to_owned(),
            policies: None,
            bounds: None,
            ends_at: Some(now),
        };
        assert_eq!(pointers(wrong), ["/name", "/role", "/ends_at"]);
        let many: Vec<String> = (0..=POLICIES_MOST).map(|index| index.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(pointers(draft("claim", Some(&many))), ["/policies"]);
    }

    #[test]
    fn a_replaced_key_is_kept_for_a_year_at_most() {
        assert_eq!(check_keep(0), Ok(TimeDelta::zero()));
        assert_eq!(check_keep(86_400), Ok(KEEP_DEFAULT));
        assert_eq!(check_keep(31_536_000), Ok(TimeDelta::days(365)));
        for wrong in [-1, 31_536_001, i128::MAX] {
            assert!(check_keep(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_ends_at_its_end() {
        let now = at("2026-11-21T00:00:00Z");
        let mut rule = draft("admin", None).check(now).unwrap();
        assert!(rule.is_valid(now));
        rule.ends_at = Some(at("2026-11-22T00:00:00Z"));
        assert!(!rule.is_lasting_admin());
        assert!(rule.is_valid(at("2026-11-21T23:59:59.999999Z")));
        assert!(!rule.is_valid(at("2026-11-22T00:00:00Z")));
        rule.ends_at = None;
        rule.revoked = true;
        assert!(!rule.is_valid(now) && !rule.is_lasting_admin());
    }
}
