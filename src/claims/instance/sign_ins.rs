//! Sign-ins: what a browser keeps instead of a key. It is the key's secret, sealed with a key of the ledger. So a cookie
//! alone tells no secret, and who reads the ledger alone cannot make a cookie, because the ledger has only hashes.

use chrono::{DateTime, TimeDelta, Utc};

use super::sealed_texts::SealedTexts;
use domain::identity::Identity;

/// How long a browser stays signed in.
pub const SIGNED_IN_FOR: TimeDelta = TimeDelta::hours(8);
/// How long somebody may be at the provider of accounts.
pub const ATTEMPT_FOR: TimeDelta = TimeDelta::minutes(15);

pub struct SignIns {
    texts: SealedTexts,
    /// How long what is sealed can be opened.
    lasts: TimeDelta,
}

impl SignIns {
    /// Those with a key, of all instances on a ledger.
    pub fn of_keys(ledger: &Identity) -> Self {
        Self::of(ledger, "perdiem 2026-11-28 sign-ins", SIGNED_IN_FOR)
    }

    /// Those with an account that are not finished.
    pub fn of_attempts(ledger: &Identity) -> Self {
        Self::of(
            ledger,
            "perdiem 2026-11-28 attempts of sign-ins",
            ATTEMPT_FOR,
        )
    }

    fn of(ledger: &Identity, purpose: &str, lasts: TimeDelta) -> Self {
        let texts = SealedTexts::of(ledger, purpose);
        Self { texts, lasts }
    }

    /// Seals a secret, and the instant.
    pub fn seal(&self, secret: &str, now: DateTime<Utc>) -> String {
        self.texts.seal(secret.as_bytes(), now)
    }

    /// The secret, if its time is not over.
    pub fn open(&self, text: &str, now: DateTime<Utc>) -> Option<String> {
        let (at, secret) = self.texts.open(text, now)?;
        let secret = String::from_utf8(secret).ok()?;
        (now < at + self.lasts).then_some(secret)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_sign_in_lasts_eight_hours() {
        let at = |seconds| DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
        let sign_ins = SignIns::of_keys(&Identity::new(Uuid::nil(), [7; 32]));
        let text = sign_ins.seal("perdiem_secret", at(0));
        assert_eq!(
            sign_ins.open(&text, at(8 * 3600 - 1)).as_deref(),
            Some("perdiem_secret")
        );
        for now in [at(8 * 3600), at(-61)] {
            assert_eq!(sign_ins.open(&text, now), None);
        }
        let attempts = SignIns::of_attempts(&Identity::new(Uuid::nil(), [7; 32]));
        assert_eq!(attempts.open(&text, at(0)), None);
    }
}
