//! Signed notes and checkpoints (signed-note and tlog-checkpoint of C2SP), with Ed25519.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::leaf::{Hash, hex};

/// The type of Ed25519 signatures in notes.
const ED25519_TYPE: u8 = 1;
/// The start of the file of a secret key.
const SECRET: &str = "PRIVATE+KEY+";
/// The largest note in bytes. A checkpoint has 200 bytes, and each more signature a few hundred.
pub const NOTE_MAX_BYTES: usize = 64 * 1024;

/// Why a note, a checkpoint or a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("this is not a signed note: it has no signature after an empty line")]
    NoNote,
    #[error("this is not a checkpoint: it has no line with {0}")]
    NoCheckpoint(&'static str),
    #[error(
        "this is not a key; write NAME+HASH+BASE64 for a public key, or \
         PRIVATE+KEY+NAME+HASH+BASE64 for a secret key"
    )]
    NoKey,
    #[error("the key is damaged: its hash does not match its name and its bytes")]
    DamagedKey,
    #[error("the name of the key is invalid; write 1 to 100 characters without spaces and pluses")]
    KeyName,
    #[error("the seal is from {origin}, but the key is for {key}")]
    OtherOrigin { origin: String, key: String },
    #[error("it is not signed by the key {0}: another key signed it, or it was changed")]
    NotSigned(String),
}

/// A public key with its name: `NAME+HASH+BASE64`. The key is for the origin with this name, and
/// for origins below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    public: [u8; 32],
}

impl VerifierKey {
    /// # Errors
    /// [`NoteError`].
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let (name, bytes) = parse_key(text.trim())?;
        let public = bytes.try_into().map_err(|_| NoteError::NoKey)?;
        let key = Self { name, public };
        if key.to_string() == text.trim() {
            Ok(key)
        } else {
            Err(NoteError::DamagedKey)
        }
    }

    /// The same key with another name.
    fn named(&self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self.clone()
        }
    }

    fn id(&self) -> [u8; 4] {
        key_id(&self.name, &self.public)
    }

    /// Whether the key is for an origin.
    fn is_for(&self, origin: &str) -> bool {
        let below = origin.strip_prefix(&self.name);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&[ED25519_TYPE][..], &self.public].concat();
        let name = &self.name;
        let id = hex(&self.id());
        write!(formatter, "{name}+{id}+{}", STANDARD.encode(bytes))
    }
}

fn key_id(name: &str, public: &[u8; 32]) -> [u8; 4] {
    let hasher = Sha256::new_with_prefix(name.as_bytes());
    let hash: Hash = hasher
        .chain_update([b'\n', ED25519_TYPE])
        .chain_update(public)
        .finalize()
        .into();
    [hash[0], hash[1], hash[2], hash[3]]
}

/// The name and the bytes of `NAME+HASH+BASE64`.
fn parse_key(text: &str) -> Result<(String, Vec<u8>), NoteError> {
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(_), Some(bytes)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(NoteError::NoKey);
    };
    check_name(name)?;
    let bytes = STANDARD.decode(bytes).map_err(|_| NoteError::NoKey)?;
    match bytes.split_first() {
        Some((&ED25519_TYPE, bytes)) => Ok((name.to_owned(), bytes.to_vec())),
        _ => Err(NoteError::NoKey),
    }
}

fn check_name(name: &str) -> Result<(), NoteError> {
    let is_plain = |it: char| !it.is_whitespace() && !it.is_control() && it != '+';
    if (1..=100).contains(&name.chars().count()) && name.chars().all(is_plain) {
        Ok(())
    } else {
        Err(NoteError::KeyName)
    }
}

/// The secret key that signs checkpoints. Its name is the first part of the origins.
pub struct SealKey {
    name: String,
    seed: [u8; 32],
    pair: Ed25519KeyPair,
}

impl SealKey {
    /// A key from 32 random bytes.
    ///
    /// # Errors
    /// [`NoteError::KeyName`].
    pub fn new(name: &str, seed: [u8; 32]) -> Result<Self, NoteError> {
        check_name(name)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| NoteError::NoKey)?;
        let name = name.to_owned();
        Ok(Self { name, seed, pair })
    }

    /// The key in the text of a file.
    ///
    /// # Errors
    /// [`NoteError`].
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let text = text.trim();
        let (name, seed) = parse_key(text.strip_prefix(SECRET).ok_or(NoteError::NoKey)?)?;
        let seed = seed.try_into().map_err(|_| NoteError::NoKey)?;
        let key = Self::new(&name, seed)?;
        if key.secret() == text {
            Ok(key)
        } else {
            Err(NoteError::DamagedKey)
        }
    }

    /// The text of the file of the key.
    pub fn secret(&self) -> String {
        let bytes = [&[ED25519_TYPE][..], &self.seed].concat();
        let name = &self.name;
        let id = hex(&self.verifier().id());
        format!("{SECRET}{name}+{id}+{}", STANDARD.encode(bytes))
    }

    /// The public key, which checks the signatures of this key.
    pub fn verifier(&self) -> VerifierKey {
        let mut public = [0; 32];
        public.copy_from_slice(self.pair.public_key().as_ref());
        VerifierKey {
            name: self.name.clone(),
            public,
        }
    }

    /// The public key for checkpoints with an origin.
    pub fn verifier_of(&self, origin: &str) -> VerifierKey {
        self.verifier().named(origin)
    }

    /// The origin of the log of a ledger. `begun` tells the logs after restarts apart.
    pub fn origin(&self, ledger: Uuid, begun: Option<i64>) -> String {
        match begun {
            None => format!("{}/{ledger}", self.name),
            Some(begun) => format!("{}/{ledger}/{begun}", self.name),
        }
    }

    /// Whether the name of the key is the name of an origin.
    pub fn is_for(&self, origin: &str) -> bool {
        self.verifier().is_for(origin)
    }

    /// A signed checkpoint.
    pub fn sign(&self, origin: &str, size: u64, root: &Hash) -> String {
        let text = format!("{origin}\n{size}\n{}\n", STANDARD.encode(root));
        let signature = self.pair.sign(text.as_bytes());
        let id = self.verifier_of(origin).id();
        let signature = [&id, signature.as_ref()].concat();
        format!("{text}\n— {origin} {}\n", STANDARD.encode(signature))
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SealKey({})", self.name)
    }
}

/// The ledger and the log that an origin names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogName {
    pub ledger: Uuid,
    /// The start of a log after a restart, in seconds since 1970; 0 for the first log.
    pub begun: i64,
}

impl LogName {
    /// Reads an origin in the form of [`SealKey::origin`]; `None` for an origin of another program.
    pub fn parse(origin: &str) -> Option<Self> {
        let (before, last) = origin.rsplit_once('/')?;
        if let Ok(ledger) = Uuid::try_parse(last) {
            return Some(Self { ledger, begun: 0 });
        }
        let begun = last.parse().ok().filter(|begun| *begun > 0)?;
        let ledger = Uuid::try_parse(before.rsplit_once('/')?.1).ok()?;
        Some(Self { ledger, begun })
    }
}

/// A checkpoint: the origin, size and root of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    pub origin: String,
    pub size: u64,
    pub root: Hash,
    /// The whole note.
    pub note: String,
}

impl Checkpoint {
    /// Reads a note. Its signatures are not checked.
    ///
    /// # Errors
    /// [`NoteError`].
    pub fn parse(note: &str) -> Result<Self, NoteError> {
        let (text, _) = parts(note)?;
        let mut lines = text.lines();
        let origin = lines.next().filter(|line| !line.is_empty());
        let origin = origin.ok_or(NoteError::NoCheckpoint("an origin"))?;
        let size = lines.next().and_then(|line| {
            let size: u64 = line.parse().ok()?;
            (size.to_string() == line).then_some(size)
        });
        let root = lines.next().and_then(decode_hash);
        Ok(Self {
            origin: origin.to_owned(),
            size: size.ok_or(NoteError::NoCheckpoint("a size"))?,
            root: root.ok_or(NoteError::NoCheckpoint("a root"))?,
            note: note.to_owned(),
        })
    }

    /// Checks that the key signed the checkpoint.
    ///
    /// # Errors
    /// [`NoteError`].
    pub fn check(&self, key: &VerifierKey) -> Result<(), NoteError> {
        if !key.is_for(&self.origin) {
            return Err(NoteError::OtherOrigin {
                origin: self.origin.clone(),
                key: key.name.clone(),
            });
        }
        let (text, signatures) = parts(&self.note)?;
        let key = key.named(&self.origin);
        let public = UnparsedPublicKey::new(&ED25519, key.public);
        let is_signed = signatures.lines().any(|line| {
            let signature = line
                .strip_prefix("— ")
                .and_then(|line| line.split_once(' '));
            let Some((name, signature)) = signature else {
                return false;
            };
            let bytes = STANDARD.decode(signature).unwrap_or_default();
            name == key.name
                && bytes
                    .strip_prefix(&key.id())
                    .is_some_and(|signature| public.verify(text.as_bytes(), signature).is_ok())
        });
        if is_signed {
            Ok(())
        } else {
            Err(NoteError::NotSigned(key.to_string()))
        }
    }
}

/// The text of a note, and its signatures.
fn parts(note: &str) -> Result<(&str, &str), NoteError> {
    let is_plain = note.chars().all(|it| it == '\n' || it >= ' ');
    let end = note
        .rfind("\n\n")
        .filter(|_| is_plain && note.len() <= NOTE_MAX_BYTES);
    let (text, signatures) = note.split_at(end.ok_or(NoteError::NoNote)? + 1);
    let signatures = &signatures[1..];
    let is_line = |line: &str| line.starts_with("— ") && line.ends_with('\n');
    if !signatures.is_empty() && signatures.split_inclusive('\n').all(is_line) {
        Ok((text, signatures))
    } else {
        Err(NoteError::NoNote)
    }
}

/// A hash in Base64.
pub fn encode_hash(hash: &Hash) -> String {
    STANDARD.encode(hash)
}

/// The hash of a text in Base64.
pub fn decode_hash(text: &str) -> Option<Hash> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SealKey {
        SealKey::new(name, [7; 32]).unwrap()
    }

    #[test]
    fn keys_come_back_as_they_were() {
        let seal_key = key("perdiem");
        let secret = seal_key.secret();
        assert!(secret.starts_with("PRIVATE+KEY+perdiem+"));
        let again = SealKey::parse(&format!("{secret}\n")).unwrap();
        assert_eq!(again.secret(), secret);
        let public = seal_key.verifier().to_string();
        assert_eq!(VerifierKey::parse(&public).unwrap(), seal_key.verifier());
        let error = VerifierKey::parse(&public.replacen("perdiem", "other", 1));
        assert_eq!(error, Err(NoteError::DamagedKey));
        for text in ["", "a", "a+b+c", "PRIVATE+KEY+a+b+c", &public] {
            assert!(SealKey::parse(text).is_err(), "{text}");
        }
        for name in ["", "a b", "a+b", "a\nb"] {
            assert_eq!(SealKey::new(name, [0; 32]).err(), Some(NoteError::KeyName));
        }
    }

    #[test]
    fn an_origin_names_its_ledger_and_its_log() {
        let ledger = Uuid::from_u128(7);
        for name in ["perdiem", "example.com/quotas"] {
            for begun in [None, Some(1_763_715_600)] {
                let origin = key(name).origin(ledger, begun);
                let begun = begun.unwrap_or(0);
                assert_eq!(LogName::parse(&origin), Some(LogName { ledger, begun }));
            }
        }
        for origin in [
            "",
            "perdiem",
            "go.sum database tree",
            "perdiem/7",
            "perdiem/x/-1",
        ] {
            assert_eq!(LogName::parse(origin), None, "{origin}");
        }
    }

    /// The note of the specification. Its key is from the documentation of Go.
    #[test]
    fn a_note_of_another_program_is_signed() {
        let public = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        let key = VerifierKey::parse(public).unwrap();
        let text = "If you think cryptography is the answer to your problem,\n\
                    then you don't know what your problem is.\n";
        let signature = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=";
        let note = Checkpoint {
            origin: "PeterNeumann".to_owned(),
            size: 0,
            root: [0; 32],
            note: format!("{text}\n— PeterNeumann {signature}\n"),
        };
        assert_eq!(note.check(&key), Ok(()));
    }

    #[test]
    fn a_checkpoint_with_a_changed_byte_is_not_signed() {
        let key = key("perdiem");
        let note = key.sign("perdiem/1", 5, &[3; 32]);
        let checkpoint = Checkpoint::parse(&note).unwrap();
        let origin = checkpoint.origin.as_str();
        let size = checkpoint.size;
        assert_eq!((origin, size, checkpoint.root), ("perdiem/1", 5, [3; 32]));
        assert_eq!(checkpoint.check(&key.verifier()), Ok(()));
        assert_eq!(checkpoint.check(&key.verifier_of("perdiem/1")), Ok(()));
        let other = key.verifier_of("perdiem/2");
        assert!(matches!(
            checkpoint.check(&other),
            Err(NoteError::OtherOrigin { .. })
        ));
        let another = SealKey::new("perdiem", [8; 32]).unwrap().verifier();
        assert!(matches!(
            checkpoint.check(&another),
            Err(NoteError::NotSigned(_))
        ));
        for index in 0..note.len() {
            let mut bytes = note.clone().into_bytes();
            bytes[index] ^= 1;
            let Ok(changed) = String::from_utf8(bytes) else {
                continue;
            };
            let checked = Checkpoint::parse(&changed).and_then(|it| it.check(&key.verifier()));
            assert!(checked.is_err(), "{index}: {changed}");
        }
        for text in [
            "",
            "\n\n",
            "a\n1\n",
            "a\n01\nAA==\n\n— a b\n",
            "a\nb\n\n— a b\n",
        ] {
            assert!(Checkpoint::parse(text).is_err(), "{text:?}");
        }
    }
}
