//! Sign-ins: what a browser keeps instead of a key. It is the key's secret, sealed with a key of the ledger. So a cookie
//! alone tells no secret, and who reads the ledger alone cannot make a cookie, because the ledger has only hashes.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use domain::identity::Identity;

/// How long a browser stays signed in.
pub const SIGNED_IN_FOR: TimeDelta = TimeDelta::hours(8);
/// How long somebody may be at the provider of accounts.
pub const ATTEMPT_FOR: TimeDelta = TimeDelta::minutes(15);

pub struct SignIns {
    key: LessSafeKey,
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
        let key = UnboundKey::new(&CHACHA20_POLY1305, &ledger.derived_key(purpose));
        let key = LessSafeKey::new(key.expect("a key of 32 bytes"));
        Self { key, lasts }
    }

    /// Seals a secret, and the instant.
    pub fn seal(&self, secret: &str, now: DateTime<Utc>) -> String {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).expect("the system has randomness");
        let mut sealed = now.timestamp().to_be_bytes().to_vec();
        sealed.extend_from_slice(secret.as_bytes());
        let unique = Nonce::assume_unique_for_key(nonce);
        let done = self
            .key
            .seal_in_place_append_tag(unique, Aad::empty(), &mut sealed);
        done.expect("a secret is short");
        BASE64_URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat())
    }

    /// The secret, if its time is not over.
    pub fn open(&self, text: &str, now: DateTime<Utc>) -> Option<String> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self
            .key
            .open_in_place(nonce, Aad::empty(), &mut sealed)
            .ok()?;
        let (at, secret) = opened.split_first_chunk()?;
        let at = DateTime::from_timestamp(i64::from_be_bytes(*at), 0)?;
        let is_open = at <= now + TimeDelta::minutes(1) && now < at + self.lasts;
        let secret = str::from_utf8(secret).ok()?;
        is_open.then(|| secret.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    #[test]
    fn a_sign_in_lasts_eight_hours() {
        let sign_ins = SignIns::of_keys(&Identity::new(Uuid::nil(), [7; 32]));
        let text = sign_ins.seal("perdiem_secret", at(0));
        assert_eq!(
            sign_ins.open(&text, at(8 * 3600 - 1)).as_deref(),
            Some("perdiem_secret")
        );
        for now in [at(8 * 3600), at(-61)] {
            assert_eq!(sign_ins.open(&text, now), None);
        }
        assert_ne!(text, sign_ins.seal("perdiem_secret", at(0)));
    }

    #[test]
    fn nothing_else_is_a_sign_in() {
        let sign_ins = SignIns::of_keys(&Identity::new(Uuid::nil(), [7; 32]));
        let text = sign_ins.seal("perdiem_secret", at(0));
        let other = SignIns::of_keys(&Identity::new(Uuid::nil(), [8; 32]));
        let attempts = SignIns::of_attempts(&Identity::new(Uuid::nil(), [7; 32]));
        for other in [other, attempts] {
            assert_eq!(other.open(&text, at(0)), None);
        }
        for index in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(sign_ins.open(&changed, at(0)), None, "{index}");
            assert_eq!(sign_ins.open(&text[..index], at(0)), None, "{index}");
        }
    }
}
