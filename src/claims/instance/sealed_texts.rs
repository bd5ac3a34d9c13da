//! Texts that only instances on one ledger can make and read: an instant and a content, sealed with a key of the
//! ledger. Anyone who has one can pass it on, and nothing has to store it.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use domain::identity::Identity;

/// How far the clock of the instance that sealed a text may be ahead.
const CLOCKS_DIFFER: TimeDelta = TimeDelta::minutes(1);

pub struct SealedTexts(LessSafeKey);

impl SealedTexts {
    /// Those of one purpose, of all instances on a ledger.
    pub fn of(ledger: &Identity, purpose: &str) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &ledger.derived_key(purpose));
        Self(LessSafeKey::new(key.expect("a key of 32 bytes")))
    }

    /// Seals a content, and the instant to the second.
    pub fn seal(&self, content: &[u8], at: DateTime<Utc>) -> String {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).expect("the system has randomness");
        let mut sealed = at.timestamp().to_be_bytes().to_vec();
        sealed.extend_from_slice(content);
        let unique = Nonce::assume_unique_for_key(nonce);
        let done = self
            .0
            .seal_in_place_append_tag(unique, Aad::empty(), &mut sealed);
        done.expect("a content is short");
        BASE64_URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat())
    }

    /// When a text was sealed, and its content. `None` for every other text, and for one from the future.
    pub fn open(&self, text: &str, now: DateTime<Utc>) -> Option<(DateTime<Utc>, Vec<u8>)> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self
            .0
            .open_in_place(nonce, Aad::empty(), &mut sealed)
            .ok()?;
        let (at, content) = opened.split_first_chunk()?;
        let at = DateTime::from_timestamp(i64::from_be_bytes(*at), 0)?;
        (at <= now + CLOCKS_DIFFER).then(|| (at, content.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const PURPOSE: &str = "perdiem 2026-11-28 tests";

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn of_ledger(secret: u8) -> Identity {
        Identity::new(Uuid::nil(), [secret; 32])
    }

    #[test]
    fn a_text_has_its_instant_and_its_content() {
        let texts = SealedTexts::of(&of_ledger(7), PURPOSE);
        let text = texts.seal(b"content", at(60));
        let opened = Some((at(60), b"content".to_vec()));
        assert_eq!(texts.open(&text, at(0)), opened);
        assert_eq!(texts.open(&text, at(1_000_000)), opened);
        assert_eq!(texts.open(&text, at(-1)), None);
        assert_ne!(text, texts.seal(b"content", at(60)));
    }

    #[test]
    fn no_other_text_is_opened() {
        let texts = SealedTexts::of(&of_ledger(7), PURPOSE);
        let text = texts.seal(b"content", at(0));
        for others in [
            SealedTexts::of(&of_ledger(8), PURPOSE),
            SealedTexts::of(&of_ledger(7), "another purpose"),
        ] {
            assert_eq!(others.open(&text, at(0)), None);
        }
        for index in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(texts.open(&changed, at(0)), None, "{index}");
            assert_eq!(texts.open(&text[..index], at(0)), None, "{index}");
        }
    }
}
