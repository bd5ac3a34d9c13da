//! Leaves: what the log has of each entry and change. A leaf is a line of JSON. Personal data is in
//! a leaf only as digests: the log stays valid after an erasure, and nobody can test a guess.

use chrono::{DateTime, SecondsFormat, Utc};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::identity::EntryId;
use crate::policy::PolicyId;
use crate::record::RecordPlace;

/// A SHA-256 hash.
pub type Hash = [u8; 32];

/// The id that the salt of a private part is computed from, together with `blind`: the id of an
/// entry, or 8 zeros and the revision of a change, the highest byte first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeafId(pub Uuid);

impl LeafId {
    pub fn of_change(revision: u64) -> Self {
        Self(Uuid::from_u64_pair(0, revision))
    }
}

impl From<EntryId> for LeafId {
    fn from(entry: EntryId) -> Self {
        Self(entry.0)
    }
}

/// The name of an account in leaves: SHA-256 of the 15 bytes `perdiem account` and the 16 bytes of
/// `blind`.
pub fn pseudonym(blind: Uuid) -> Hash {
    let hasher = Sha256::new_with_prefix(b"perdiem account");
    hasher.chain_update(blind.as_bytes()).finalize().into()
}

/// The salt of a private part: SHA-256 of the 12 bytes `perdiem salt`, the 16 bytes of `blind` and
/// the 16 bytes of the id of the leaf.
pub fn salt(blind: Uuid, id: LeafId) -> Hash {
    let hasher = Sha256::new_with_prefix(b"perdiem salt");
    let hasher = hasher.chain_update(blind.as_bytes());
    hasher.chain_update(id.0.as_bytes()).finalize().into()
}

/// The digest of a private part: SHA-256 of the 32 bytes of the salt and the JSON of the fields, as
/// [`private_json`] writes it.
pub fn private_digest(salt: &Hash, fields: &str) -> Hash {
    let hasher = Sha256::new_with_prefix(salt);
    hasher.chain_update(fields.as_bytes()).finalize().into()
}

/// Private fields as one JSON object without spaces, in the given order, which is the order of
/// their names. A field without a value is null. Values are texts, as the ledger stores them.
pub fn private_json(fields: &[(&str, Option<&str>)]) -> String {
    let mut json = String::with_capacity(128);
    for (name, value) in fields {
        json.push(if json.is_empty() { '{' } else { ',' });
        push_text(&mut json, name);
        json.push(':');
        match value {
            Some(value) => push_text(&mut json, value),
            None => json.push_str("null"),
        }
    }
    json.push('}');
    json
}

/// The private fields of an entry: its account, the keyed hash of its idempotency key, its metadata
/// (JSON as a text), its reason and its subject.
pub fn entry_private_json(
    account: Uuid,
    key: Option<Uuid>,
    metadata: Option<&str>,
    reason: Option<&str>,
    subject: Option<&str>,
) -> String {
    let mut account_text = [0; 36];
    let mut key_text = [0; 36];
    let account: &str = account.hyphenated().encode_lower(&mut account_text);
    let key = key.map(|key| &*key.hyphenated().encode_lower(&mut key_text));
    private_json(&[
        ("account", Some(account)),
        ("key", key),
        ("metadata", metadata),
        ("reason", reason),
        ("subject", subject),
    ])
}

/// The private fields of a version of an override.
pub fn override_private_json(account: Uuid, reason: Option<&str>, subject: Option<&str>) -> String {
    let account = account.to_string();
    private_json(&[
        ("account", Some(&account)),
        ("reason", reason),
        ("subject", subject),
    ])
}

pub fn act_private_json(about: &str, reason: Option<&str>) -> String {
    private_json(&[("about", Some(about)), ("reason", reason)])
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrivatePart {
    Kept {
        salt: Hash,
        fields: String,
    },
    /// The texts were erased; their digest was kept.
    Erased(Hash),
}

impl PrivatePart {
    pub fn new(blind: Uuid, id: LeafId, fields: String) -> Self {
        let salt = salt(blind, id);
        Self::Kept { salt, fields }
    }

    pub fn digest(&self) -> Hash {
        match self {
            Self::Kept { salt, fields } => private_digest(salt, fields),
            Self::Erased(digest) => *digest,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafKind {
    Entry,
    Policy,
    Key,
    Override,
    Act,
}

impl LeafKind {
    /// The value of `type` in a leaf.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Policy => "policy",
            Self::Key => "key",
            Self::Override => "override",
            Self::Act => "act",
        }
    }
}

/// The public fields of a leaf, in order. A field without a value is omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeafFields(String);

impl LeafFields {
    pub fn text(&mut self, name: &'static str, value: impl AsRef<str>) -> &mut Self {
        self.name(name);
        push_text(&mut self.0, value.as_ref());
        self
    }

    pub fn number(&mut self, name: &'static str, value: i64) -> &mut Self {
        self.name(name);
        self.0.push_str(itoa::Buffer::new().format(value));
        self
    }

    pub fn flag(&mut self, name: &'static str, value: bool) -> &mut Self {
        self.name(name);
        self.0.push_str(if value { "true" } else { "false" });
        self
    }

    /// An instant to the microsecond, in UTC: `2026-11-03T04:05:06.000007Z`.
    pub fn instant(&mut self, name: &'static str, value: DateTime<Utc>) -> &mut Self {
        self.text(name, value.to_rfc3339_opts(SecondsFormat::Micros, true))
    }

    pub fn id(&mut self, name: &'static str, value: Uuid) -> &mut Self {
        let mut text = [0; 36];
        self.text(name, value.hyphenated().encode_lower(&mut text))
    }

    pub fn hash(&mut self, name: &'static str, value: &Hash) -> &mut Self {
        self.name(name);
        self.0.push('"');
        push_hex(&mut self.0, value);
        self.0.push('"');
        self
    }

    /// Adds a field if it has a value.
    pub fn perhaps<T>(
        &mut self,
        name: &'static str,
        value: Option<T>,
        add: impl for<'a> FnOnce(&'a mut Self, &'static str, T) -> &'a mut Self,
    ) -> &mut Self {
        match value {
            Some(value) => add(self, name, value),
            None => self,
        }
    }

    fn name(&mut self, name: &'static str) {
        self.0.push_str(",\"");
        self.0.push_str(name);
        self.0.push_str("\":");
    }
}

/// An entry or change with the data of its rows: a leaf without its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafSource {
    pub place: RecordPlace,
    pub id: LeafId,
    pub kind: LeafKind,
    /// For data of an account.
    pub pseudonym: Option<Hash>,
    pub private: Option<PrivatePart>,
    pub fields: LeafFields,
    /// A contradiction between its rows that is in no leaf.
    pub contradiction: Option<&'static str>,
}

impl LeafSource {
    /// The text of the leaf. The log has its hash.
    pub fn line(&self, position: u64, recorded_at: DateTime<Utc>) -> String {
        let mut head = LeafFields(String::with_capacity(640));
        head.0.push_str("{\"v\":1");
        head.number("position", position.cast_signed())
            .instant("recorded_at", recorded_at)
            .text("type", self.kind.as_str())
            .perhaps("account", self.pseudonym.as_ref(), LeafFields::hash);
        if let Some(private) = &self.private {
            head.hash("private", &private.digest());
        }
        let mut line = head.0;
        line.push_str(&self.fields.0);
        line.push('}');
        line
    }

    /// The name of the entry or change, for people.
    pub fn name(&self) -> String {
        match self.kind {
            LeafKind::Entry => format!("the entry {}", self.id.0),
            kind => {
                let (_, revision) = self.id.0.as_u64_pair();
                format!("the change {revision} ({})", kind.as_str())
            }
        }
    }
}

/// The leaf as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredLeaf {
    Whole(LeafSource),
    /// The leaf of an entry that was archived and dropped: only the log has its hash.
    Dropped(DroppedLeaf),
}

/// What is left of a dropped entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedLeaf {
    pub place: RecordPlace,
    pub policy: PolicyId,
    /// The revision of the cut that dropped it.
    pub cut: u64,
}

impl StoredLeaf {
    pub fn place(&self) -> RecordPlace {
        match self {
            Self::Whole(source) => source.place,
            Self::Dropped(dropped) => dropped.place,
        }
    }
}

/// Writes a text as JSON: `"`, `\` and control characters are escaped, nothing else.
fn push_text(json: &mut String, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        json.push_str(&serde_json::json!(text).to_string());
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    push_hex(&mut text, bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_what_the_documents_say() {
        let blind = Uuid::from_u64_pair(0x0011_2233_4455_6677, 0x8899_aabb_ccdd_eeff);
        let digest = |bytes: &[u8]| -> Hash { Sha256::digest(bytes).into() };
        let account = [b"perdiem account".as_slice(), blind.as_bytes()].concat();
        assert_eq!(pseudonym(blind), digest(&account));
        let id = LeafId::of_change(7);
        assert_eq!(
            id.0.as_bytes(),
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]
        );
        let salted = [
            b"perdiem salt".as_slice(),
            blind.as_bytes(),
            id.0.as_bytes(),
        ]
        .concat();
        assert_eq!(salt(blind, id), digest(&salted));
        let private = PrivatePart::new(blind, id, act_private_json("{}", Some("a \"b\"\n")));
        let json = r#"{"about":"{}","reason":"a \"b\"\n"}"#;
        let kept = [digest(&salted).as_slice(), json.as_bytes()].concat();
        assert_eq!(private.digest(), digest(&kept));
        assert_eq!(
            PrivatePart::Erased(private.digest()).digest(),
            private.digest()
        );
    }

    #[test]
    fn a_leaf_is_one_line_of_json() {
        let mut fields = LeafFields::default();
        fields
            .text("policy", "a\tb")
            .number("units", -1)
            .flag("archived", false)
            .perhaps("of_grant", None, LeafFields::id);
        let source = LeafSource {
            place: RecordPlace::FIRST,
            id: LeafId::of_change(3),
            kind: LeafKind::Act,
            pseudonym: None,
            private: Some(PrivatePart::Erased([0xab; 32])),
            fields,
            contradiction: None,
        };
        let private = "ab".repeat(32);
        assert_eq!(
            source.line(5, DateTime::UNIX_EPOCH),
            format!(
                "{{\"v\":1,\"position\":5,\"recorded_at\":\"1970-01-01T00:00:00.000000Z\",\
                 \"type\":\"act\",\"private\":\"{private}\",\"policy\":\"a\\tb\",\"units\":-1,\
                 \"archived\":false}}"
            )
        );
        assert_eq!(source.name(), "the change 3 (act)");
    }
}
