//! A scene of the story: who does what, and when.

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::cast::Actor;

#[derive(Debug, Clone)]
pub struct Scene {
    pub at: DateTime<Utc>,
    pub by: Actor,
    pub deed: Deed,
}

#[derive(Debug, Clone)]
pub enum Deed {
    /// Somebody gets a key.
    Introduce(Actor),
    Claim(StoryClaim),
    Confirm(Uuid),
    GiveBack(Uuid, &'static str),
    Change(StoryChange),
    Revoke(Actor, &'static str),
    Reconcile,
}

#[derive(Debug, Clone)]
pub struct StoryClaim {
    pub policy: &'static str,
    pub subject: String,
    pub units: i64,
    pub hold_seconds: Option<i64>,
    pub metadata: Value,
    /// What happens to the grant, if it is granted.
    pub then: Option<Sequel>,
}

/// What happens to a grant some time later.
#[derive(Debug, Clone, Copy)]
pub struct Sequel {
    pub after: TimeDelta,
    pub by: Actor,
    /// Why the units are given back; `None` for a confirmation.
    pub reason: Option<&'static str>,
}

impl Sequel {
    /// The scene, for a grant that was made at an instant.
    pub fn scene(self, grant: Uuid, granted_at: DateTime<Utc>) -> Scene {
        let deed = match self.reason {
            Some(reason) => Deed::GiveBack(grant, reason),
            None => Deed::Confirm(grant),
        };
        Scene {
            at: granted_at + self.after,
            by: self.by,
            deed,
        }
    }
}

/// A change, as its request.
#[derive(Debug, Clone)]
pub struct StoryChange {
    pub method: Method,
    pub path: String,
    pub body: Value,
}

impl StoryClaim {
    pub fn body(&self) -> Value {
        let mut body = json!({
            "subject": self.subject,
            "units": self.units,
            "metadata": self.metadata,
        });
        if let (Some(seconds), Some(body)) = (self.hold_seconds, body.as_object_mut()) {
            body.insert("hold_seconds".to_owned(), seconds.into());
        }
        body
    }
}
