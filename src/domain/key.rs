//! An API key: who may do what.

use std::fmt;
use std::str::FromStr;

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
#[error("a role is claim, audit or admin")]
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
}
