//! A claim: a request to take units of a policy for a subject.

use std::fmt;
use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::{Map, Value};

use super::legible::{self, Illegible};
use super::own_calendar::OwnCalendar;

/// The largest number of units, and the largest `max`: 2^53 − 1. Every JSON implementation keeps
/// integers up to this exactly (RFC 8259, section 6).
pub const UNITS_MAX: u64 = (1 << 53) - 1;

/// The longest hold, in seconds: 30 days.
pub const HOLD_MAX_SECONDS: i64 = 30 * 24 * 60 * 60;

/// The longest subject, in bytes of UTF-8.
pub const SUBJECT_MAX_BYTES: usize = 256;

/// The longest `Idempotency-Key`, in characters.
pub const KEY_MAX_CHARACTERS: usize = 255;

/// The largest metadata, in bytes of compact JSON.
pub const METADATA_MAX_BYTES: usize = 4096;

/// The largest depth of metadata.
pub const METADATA_MAX_DEPTH: usize = 32;

/// A fault of a part of a claim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error("the number of units is invalid; write a whole number from 1 to {UNITS_MAX}")]
    Units,
    #[error("the hold is too short or too long; write 1 to {HOLD_MAX_SECONDS} seconds")]
    HoldTime,
    #[error("the subject has {0} bytes; write 1 to {SUBJECT_MAX_BYTES} bytes of UTF-8")]
    SubjectLength(usize),
    #[error("the subject has the control character U+{:04X}; remove it", *.0 as u32)]
    SubjectControl(char),
    #[error(transparent)]
    SubjectLook(#[from] Illegible),
    #[error("no URL can have the subject {0:?} in its path; write another text, such as an id")]
    SubjectDots(String),
    #[error("the Idempotency-Key has {0} characters; write 1 to {KEY_MAX_CHARACTERS}")]
    KeyLength(usize),
    /// A key that is neither plain visible ASCII nor a quoted string.
    #[error(
        "the Idempotency-Key is invalid; write visible ASCII, bare or as a quoted string (RFC 8941)"
    )]
    KeyCharacter,
    #[error("the metadata has {0} bytes of compact JSON; write at most {METADATA_MAX_BYTES} bytes")]
    MetadataLength(usize),
    #[error("the metadata nests too deep; write at most {METADATA_MAX_DEPTH} levels")]
    MetadataDepth,
    /// Metadata with the character U+0000. PostgreSQL refuses it in JSON.
    #[error("the metadata has U+0000 in a name or a string; remove it")]
    MetadataNul,
    #[error("the metadata has the number {0}, which is not kept exactly; write it as a string")]
    MetadataNumber(String),
    /// Which of the two members counts would depend on the reader.
    #[error("the metadata has the name {0:?} twice in one object; send each name once")]
    MetadataRepeated(String),
}

/// The small number of a key. Entries store it, to tell which key claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyNumber(pub u32);

impl KeyNumber {
    /// The number of the admin key in the settings. This key is not in the ledger.
    pub const OF_SETTINGS: Self = Self(0);
}

/// A number of units: 1 … [`UNITS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Units(u64);

impl Units {
    /// One unit: the default of a claim.
    pub const ONE: Units = Units(1);

    /// # Errors
    /// [`ClaimError::Units`] if the number is out of bounds.
    pub fn new(units: i128) -> Result<Self, ClaimError> {
        match u64::try_from(units) {
            Ok(units @ 1..=UNITS_MAX) => Ok(Self(units)),
            _ => Err(ClaimError::Units),
        }
    }

    pub fn get(self) -> u64 {
        self.0
    }

    /// What is left without some other units; `None` if nothing is.
    pub fn less(self, other: u64) -> Option<Self> {
        self.0.checked_sub(other).filter(|left| *left > 0).map(Self)
    }
}

/// The time until a hold lapses: 1 … [`HOLD_MAX_SECONDS`] seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldTime(TimeDelta);

impl HoldTime {
    /// # Errors
    /// [`ClaimError::HoldTime`] if the number of seconds is out of bounds.
    pub fn new(seconds: i128) -> Result<Self, ClaimError> {
        match i64::try_from(seconds) {
            Ok(seconds @ 1..=HOLD_MAX_SECONDS) => Ok(Self(TimeDelta::seconds(seconds))),
            _ => Err(ClaimError::HoldTime),
        }
    }

    pub fn get(self) -> TimeDelta {
        self.0
    }
}

/// The subject that a policy counts: any string of the caller. `Debug` does not show the text, so
/// that no subject gets into a log.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Subject(Box<str>);

impl Subject {
    /// A subject that a request may write.
    ///
    /// # Errors
    /// The `Subject…` variants of [`ClaimError`].
    pub fn new(text: &str) -> Result<Self, ClaimError> {
        let subject = Self::existing(text)?;
        legible::check(text)?;
        // Clients and proxies take these away from a path (RFC 3986, section 5.2.4), also encoded.
        match text {
            "." | ".." => Err(ClaimError::SubjectDots(text.to_owned())),
            _ => Ok(subject),
        }
    }

    /// A subject that a ledger can have. [`Subject::new`] follows Unicode, so a later version can refuse
    /// what an earlier one took. Everybody can still read, correct and erase such a subject.
    ///
    /// # Errors
    /// [`ClaimError::SubjectLength`] or [`ClaimError::SubjectControl`].
    pub fn existing(text: &str) -> Result<Self, ClaimError> {
        if !(1..=SUBJECT_MAX_BYTES).contains(&text.len()) {
            return Err(ClaimError::SubjectLength(text.len()));
        }
        // Of ASCII each byte is a character: nothing is decoded.
        let is_plain = text.is_ascii() && !text.bytes().any(|byte| byte.is_ascii_control());
        let control = if is_plain {
            None
        } else {
            text.chars().find(|character| character.is_control())
        };
        match control {
            Some(control) => Err(ClaimError::SubjectControl(control)),
            None => Ok(Self(text.into())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Subject(…)")
    }
}

/// The text that a caller repeats to make a retry safe. The key is unique in its policy.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Box<str>);

impl IdempotencyKey {
    /// Reads the header field: a plain text or a quoted string. Both mean the same key
    /// (draft-ietf-httpapi-idempotency-key-header quotes the key; most clients do not).
    ///
    /// # Errors
    /// [`ClaimError::KeyLength`] or [`ClaimError::KeyCharacter`].
    pub fn parse(field: &str) -> Result<Self, ClaimError> {
        let field = field.trim_matches([' ', '\t']);
        let text = match field.strip_prefix('"') {
            Some(rest) => unquote(rest).ok_or(ClaimError::KeyCharacter)?,
            None => field.to_owned(),
        };
        if !text.chars().all(|character| matches!(character, ' '..='~')) {
            return Err(ClaimError::KeyCharacter);
        }
        if !(1..=KEY_MAX_CHARACTERS).contains(&text.len()) {
            return Err(ClaimError::KeyLength(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// The text of the key, without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IdempotencyKey(…)")
    }
}

/// The inside of a quoted string (RFC 8941, section 4.2.5) after its opening quote.
fn unquote(rest: &str) -> Option<String> {
    let mut text = String::with_capacity(rest.len());
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return characters.next().is_none().then_some(text),
            '\\' => match characters.next()? {
                escaped @ ('"' | '\\') => text.push(escaped),
                _ => return None,
            },
            character => text.push(character),
        }
    }
}

/// The metadata of a grant: a JSON object of at most [`METADATA_MAX_BYTES`]. It is stored as
/// compact JSON with sorted names, so that equal objects are equal texts.
#[derive(Clone, PartialEq, Eq)]
pub struct Metadata(Box<str>);

impl Metadata {
    /// # Errors
    /// The `Metadata…` variants of [`ClaimError`].
    pub fn new(object: Map<String, Value>) -> Result<Self, ClaimError> {
        let value = Value::Object(object);
        check_json(&value, METADATA_MAX_DEPTH)?;
        let text = value.to_string();
        if text.len() > METADATA_MAX_BYTES {
            return Err(ClaimError::MetadataLength(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// Metadata from a store: a text that [`Metadata::as_str`] returned.
    pub fn from_stored(text: String) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metadata(…)")
    }
}

/// A top-level member of metadata and its value. The value of a string is the text, the value of a
/// number or bool is its JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataFilter {
    name: String,
    value: String,
}

impl MetadataFilter {
    /// # Errors
    /// The fault of the name or value.
    pub fn new(name: &str, value: &str) -> Result<Self, &'static str> {
        if name.is_empty() || name.contains(['"', '\\', '\0']) || value.contains('\0') {
            return Err(
                "the filter is invalid; write a name without quotation marks and backslashes, and \
                 no U+0000",
            );
        }
        Ok(Self {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn value(&self) -> &str {
        &self.value
    }
}

fn check_json(value: &Value, depth: usize) -> Result<(), ClaimError> {
    if depth == 0 {
        return Err(ClaimError::MetadataDepth);
    }
    let check_text = |text: &str| {
        if text.contains('\0') {
            Err(ClaimError::MetadataNul)
        } else {
            Ok(())
        }
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        Value::String(text) => check_text(text),
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| check_json(item, depth - 1)),
        Value::Object(members) => members.iter().try_for_each(|(name, member)| {
            check_text(name)?;
            check_json(member, depth - 1)
        }),
    }
}

/// A request to take units of a policy for a subject.
#[derive(Debug, Clone)]
pub struct Claim {
    pub subject: Subject,
    pub units: Units,
    /// For a hold: the time until it lapses.
    pub hold: Option<HoldTime>,
    /// The key that makes a retry safe.
    pub key: Option<IdempotencyKey>,
    /// The zone and the anchor of the subject from here on; `None` leaves them as they are.
    pub calendar: Option<Arc<OwnCalendar>>,
    /// The metadata to store with the grant.
    pub metadata: Option<Metadata>,
    /// The API key of the caller.
    pub claimed_by: KeyNumber,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn units_have_bounds() {
        assert_eq!(Units::new(0), Err(ClaimError::Units));
        assert_eq!(Units::new(-1), Err(ClaimError::Units));
        assert_eq!(Units::new(1), Ok(Units::ONE));
        assert_eq!(Units::new(UNITS_MAX.into()).unwrap().get(), UNITS_MAX);
        assert_eq!(
            Units::new(i128::from(UNITS_MAX) + 1),
            Err(ClaimError::Units)
        );
        assert_eq!(Units::new(i128::MAX), Err(ClaimError::Units));
    }

    #[test]
    fn subjects_are_1_to_256_bytes_without_controls() {
        assert_eq!(Subject::new(""), Err(ClaimError::SubjectLength(0)));
        assert!(Subject::new(&"é".repeat(128)).is_ok());
        assert_eq!(
            Subject::new(&"é".repeat(129)),
            Err(ClaimError::SubjectLength(258))
        );
        for control in ['\0', '\n', '\u{7f}', '\u{85}'] {
            assert_eq!(
                Subject::new(&format!("a{control}")),
                Err(ClaimError::SubjectControl(control))
            );
        }
        assert_eq!(
            format!("{:?}", Subject::new("member-42").unwrap()),
            "Subject(…)"
        );
        let look = ClaimError::SubjectLook(Illegible::Hidden('\u{202e}'));
        assert_eq!(Subject::new("ann\u{202e}"), Err(look));
        assert!(Subject::existing("ann\u{202e}").is_ok());
    }

    #[test]
    fn a_key_is_the_same_bare_and_quoted() {
        let bare = IdempotencyKey::parse("order-17").unwrap();
        assert_eq!(IdempotencyKey::parse("\"order-17\"").unwrap(), bare);
        assert_eq!(
            IdempotencyKey::parse(r#""a\"b\\c""#).unwrap().as_str(),
            r#"a"b\c"#
        );
        for wrong in ["\"open", "\"a\"b", r#""a\n""#, "käse", "a\u{1}b"] {
            assert_eq!(
                IdempotencyKey::parse(wrong),
                Err(ClaimError::KeyCharacter),
                "{wrong}"
            );
        }
        assert_eq!(IdempotencyKey::parse(""), Err(ClaimError::KeyLength(0)));
        assert_eq!(IdempotencyKey::parse("\"\""), Err(ClaimError::KeyLength(0)));
        assert!(IdempotencyKey::parse(&"k".repeat(255)).is_ok());
        assert_eq!(
            IdempotencyKey::parse(&"k".repeat(256)),
            Err(ClaimError::KeyLength(256))
        );
    }

    fn metadata(value: Value) -> Result<Metadata, ClaimError> {
        match value {
            Value::Object(object) => Metadata::new(object),
            _ => panic!("not an object"),
        }
    }

    #[test]
    fn equal_metadata_are_equal_texts() {
        let one: Value =
            serde_json::from_str(r#"{ "b": [1, 2], "a": { "y": 1, "x": 2 } }"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"a":{"x":2,"y":1},"b":[1,2]}"#).unwrap();
        assert_eq!(metadata(one), metadata(other));
    }

    #[test]
    fn metadata_has_bounds() {
        let fits = json!({ "a": "x".repeat(METADATA_MAX_BYTES - 8) });
        assert!(metadata(fits).is_ok());
        let long = json!({ "a": "x".repeat(METADATA_MAX_BYTES - 7) });
        assert_eq!(metadata(long), Err(ClaimError::MetadataLength(4097)));
        assert_eq!(metadata(json!({ "a": "\0" })), Err(ClaimError::MetadataNul));
        assert_eq!(metadata(json!({ "\0": 1 })), Err(ClaimError::MetadataNul));
        let deep = (0..METADATA_MAX_DEPTH).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert_eq!(metadata(deep), Err(ClaimError::MetadataDepth));
    }
}
