//! Who acts in the story: the keys, with their names and roles.

use serde_json::{Value, json};

/// Somebody with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// The first key of the ledger.
    Admin,
    Mei,
    Jonas,
    Helpdesk,
    Auditor,
    Shop,
    Login,
    Gateway,
    /// Revoked in the course of the story.
    Till,
}

impl Actor {
    /// Everybody who gets a key from the first admin.
    pub const NEW: [Self; 8] = [
        Self::Mei,
        Self::Jonas,
        Self::Helpdesk,
        Self::Auditor,
        Self::Shop,
        Self::Login,
        Self::Gateway,
        Self::Till,
    ];

    /// The body of the request for the key.
    pub fn key(self) -> Value {
        match self {
            Self::Admin => json!({ "name": "admin", "role": "admin" }),
            Self::Mei => json!({ "name": "mei", "role": "admin", "reason": "on call in Shanghai" }),
            Self::Jonas => json!({ "name": "jonas", "role": "admin", "reason": "campaigns" }),
            Self::Helpdesk => json!({
                "name": "helpdesk",
                "role": "support",
                "bounds": { "max": 10, "days": 7 },
                "reason": "answers members",
            }),
            Self::Auditor => json!({ "name": "revision", "role": "audit", "reason": "reads only" }),
            Self::Shop => of_backend("shop", &["benefit", "coupon"]),
            Self::Login => of_backend("login", &["otp"]),
            Self::Gateway => of_backend("gateway", &["partner-api"]),
            Self::Till => of_backend("till", &["coupon"]),
        }
    }
}

fn of_backend(name: &str, policies: &[&str]) -> Value {
    json!({ "name": name, "role": "claim", "policies": policies, "reason": "a backend" })
}
