//! An API key: who may do what.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::fault::Fault;
use super::policy::PolicyName;

pub use super::claim::KeyNumber;

/// The longest name, in characters.
pub const NAME_MAX_CHARACTERS: usize = 100;
/// The most policies that a key is confined to.
pub const POLICIES_MOST: usize = 100;

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Claims, confirms, reverses and reads usage: what a product's backend needs.
    Claim,
    /// Reads everything but secrets, and changes nothing.
    Audit,
    /// Everything.
    Admin,
}

/// A text that is no role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the role is unknown; write claim, audit or admin")]
pub struct RoleError;

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Claim, Self::Audit, Self::Admin];

    /// Its name in the HTTP contract and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Audit => "audit",
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

/// What a version of a key says. An admin key is never confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRule {
    /// What it is for, in people's words.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The policies that it is confined to; `None` for all.
    pub policies: Option<Arc<[PolicyName]>>,
    /// From this instant on it is not accepted.
    pub ends_at: Option<DateTime<Utc>>,
    /// Whether it is not accepted any more, for good.
    pub revoked: bool,
}

impl KeyRule {
    /// Whether it is accepted at an instant.
    pub fn is_valid(&self, now: DateTime<Utc>) -> bool {
        !self.revoked && self.ends_at.is_none_or(|end| now < end)
    }

    /// Whether it is an admin's, and nothing will end it. One such key must stay.
    pub fn is_lasting_admin(&self) -> bool {
        self.role == Role::Admin && !self.revoked && self.ends_at.is_none()
    }
}

/// A key, as one of its versions has it. Its secret is kept nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// A UUIDv7.
    pub id: Uuid,
    /// 1, 2, 3 …: every change makes a new one.
    pub version: u32,
    /// What this version says.
    pub rule: KeyRule,
    /// When the key was made.
    pub created_at: DateTime<Utc>,
    /// When this version was made.
    pub changed_at: DateTime<Utc>,
    /// Who made it.
    pub changed_by: String,
    /// Why; a first version may leave it open.
    pub reason: Option<String>,
}

/// A new key as somebody wrote it, before it is checked.
#[derive(Debug, Clone, Default)]
pub struct KeyDraft {
    /// Any text.
    pub name: String,
    /// Any text.
    pub role: String,
    /// Any texts.
    pub policies: Option<Vec<String>>,
    /// See [`KeyRule::ends_at`].
    pub ends_at: Option<DateTime<Utc>>,
}

impl KeyDraft {
    /// Checks the draft of a key that is made now.
    ///
    /// # Errors
    /// Every fault of the draft, not the first one alone.
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
        if let Err(detail) = check_end(self.ends_at, now) {
            faults.push(Fault::new("/ends_at", detail));
        }
        match role {
            Ok(role) if faults.is_empty() => Ok(KeyRule {
                name: self.name,
                role,
                policies,
                ends_at: self.ends_at,
                revoked: false,
            }),
            Ok(_) | Err(_) => Err(faults),
        }
    }
}

fn check_name(name: &str) -> Result<(), String> {
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

/// Checks a new end of a key.
///
/// # Errors
/// What is wrong with it.
pub fn check_end(ends_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Result<(), &'static str> {
    match ends_at.is_none_or(|end| now < end) {
        true => Ok(()),
        false => Err(
            "ends_at is not in the future; write a later instant, or revoke the key to end it now",
        ),
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
            ends_at: None,
        }
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
            ends_at: Some(now),
        };
        assert_eq!(pointers(wrong), ["/name", "/role", "/ends_at"]);
        let many: Vec<String> = (0..=POLICIES_MOST).map(|index| index.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(pointers(draft("claim", Some(&many))), ["/policies"]);
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
