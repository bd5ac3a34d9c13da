//! The ids of a ledger: keyed hashes of the callers' names, and ordered ids of entries.

use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::claim::{IdempotencyKey, Subject};
use super::policy::PolicyName;

/// The identity of a ledger: a random id and a random secret. Both are created with the ledger and
/// stored in it.
///
/// The id separates the counters of different ledgers in Redis. The secret is the key of the
/// hashes, so that an id reveals nothing about its subject.
#[derive(Clone)]
pub struct Identity {
    pub id: Uuid,
    secret: [u8; 32],
}

/// What is hashed. Invariant: two of these never have the same hash.
#[derive(Clone, Copy)]
enum HashedText {
    Account = 1,
    Key = 2,
    Cursor = 3,
    Bundle = 4,
}

impl Identity {
    pub fn new(id: Uuid, secret: [u8; 32]) -> Self {
        Self { id, secret }
    }

    /// The account of a subject under a policy.
    pub fn account(&self, policy: &PolicyName, subject: &Subject) -> AccountId {
        let hash = self.hash(
            HashedText::Account,
            policy.as_str().as_bytes(),
            subject.as_str(),
        );
        AccountId(Uuid::from_bytes(hash))
    }

    pub fn key(&self, policy: &PolicyName, key: &IdempotencyKey) -> KeyId {
        let hash = self.hash(HashedText::Key, policy.as_str().as_bytes(), key.as_str());
        KeyId(Uuid::from_bytes(hash))
    }

    /// The tag of the bundle with these claims.
    pub fn bundle_tag(&self, claims: &[u8]) -> u64 {
        let hash = self.hash(HashedText::Bundle, claims, "");
        Uuid::from_bytes(hash).as_u64_pair().0
    }

    /// The tag that authenticates the cursor of a list: `position` in the list that `filters`
    /// describe.
    pub fn cursor_tag(&self, position: &[u8], filters: &str) -> [u8; 16] {
        self.hash(HashedText::Cursor, position, filters)
    }

    /// A key for one purpose, the same at every instance on the ledger.
    pub fn derived_key(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, &self.secret)
    }

    fn hash(&self, kind: HashedText, first: &[u8], second: &str) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&[kind as u8]);
        hasher.update(&(first.len() as u64).to_le_bytes());
        hasher.update(first);
        hasher.update(second.as_bytes());
        let mut hash = [0; 16];
        hasher.finalize_xof().fill(&mut hash);
        hash
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Identity({})", self.id)
    }
}

/// The id of an account: a keyed 128-bit hash of policy and subject. It needs no look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub Uuid);

impl AccountId {
    pub const OF_NOBODY: Self = Self(Uuid::nil());
    /// The lowest id.
    pub const FIRST: Self = Self(Uuid::nil());

    /// The next higher id.
    pub fn next(self) -> Option<Self> {
        let next = self.0.as_u128().checked_add(1)?;
        Some(Self(Uuid::from_u128(next)))
    }

    /// The bucket of the account. Redis stores a bucket in one place, and the 256 buckets spread
    /// over the shards of a cluster.
    pub fn bucket(self) -> u8 {
        self.0.as_bytes()[0]
    }
}

/// The id of an `Idempotency-Key` in its policy: a keyed 128-bit hash of both. The text of the key
/// often has personal data, so it is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub Uuid);

/// The id of an entry: a UUIDv7. Its first 60 bits after the version are the instant of the entry,
/// to the microsecond (RFC 9562, section 6.2, method 3). The last 20 bits of the entry's number and
/// random bits follow. Invariant: the order of ids is the order of instants, and within an instant
/// the order of numbers of an account. So a span of time is a span of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub Uuid);

const NUMBER_BITS: u32 = 20;
const RANDOM_BITS: u32 = 42;

impl EntryId {
    /// The id of the entry with a number, at an instant. The low 42 bits of `nonce` differ between
    /// accounts. An instant outside 1970 … 10889 becomes the nearest end.
    pub fn new(at: DateTime<Utc>, number: u64, nonce: u64) -> Self {
        let fraction = u64::from(at.timestamp_subsec_micros() % 1000) * 4096 / 1000;
        let millis = at.timestamp_millis().clamp(0, (1 << 48) - 1) as u64;
        let high = millis << 16 | 0x7000 | fraction;
        let number = number & ((1 << NUMBER_BITS) - 1);
        let nonce = nonce & ((1 << RANDOM_BITS) - 1);
        let low = 0b10 << 62 | number << RANDOM_BITS | nonce;
        Self(Uuid::from_u64_pair(high, low))
    }

    /// The instant, to the microsecond.
    pub fn at(self) -> DateTime<Utc> {
        let (high, _) = self.0.as_u64_pair();
        let micros = ((high & 0xfff) * 1000).div_ceil(4096);
        let millis = DateTime::from_timestamp_millis((high >> 16).cast_signed());
        millis.unwrap_or_default() + TimeDelta::microseconds(micros.cast_signed())
    }

    /// The lowest id of the first microsecond that is not before an instant.
    pub fn first_from(instant: DateTime<Utc>) -> Self {
        let rounded_up = instant.checked_add_signed(TimeDelta::nanoseconds(999));
        Self::first_at(rounded_up.unwrap_or(instant))
    }

    pub fn first_at(at: DateTime<Utc>) -> Self {
        Self::new(at, 0, 0)
    }
}

/// The id of a bundle: a UUIDv7, whose instant is that at which the bundle was decided first. The other 62 bits are its
/// tag. A retry with the same claims has the same tag, and another instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleId(pub Uuid);

impl BundleId {
    /// Two bits of `tag` are lost to the form of a UUID.
    pub fn new(at: DateTime<Utc>, tag: u64) -> Self {
        let instant = EntryId::first_at(at).0.as_u64_pair().0;
        Self(Uuid::from_u64_pair(instant, 0b10 << 62 | tag >> 2))
    }

    /// Whether both ids are of the same claims.
    pub fn has_tag_of(self, other: Self) -> bool {
        self.0.as_u64_pair().1 == other.0.as_u64_pair().1
    }
}

/// Cuts an instant to the microsecond, the precision of every store.
pub fn to_micros(at: DateTime<Utc>) -> DateTime<Utc> {
    at - TimeDelta::nanoseconds(i64::from(at.timestamp_subsec_nanos() % 1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity(secret: u8) -> Identity {
        Identity::new(Uuid::nil(), [secret; 32])
    }

    #[test]
    fn hashes_differ_by_part_kind_and_secret() {
        let name = |text: &str| PolicyName::new(text).unwrap();
        let subject = |text: &str| Subject::new(text).unwrap();
        let here = identity(1);
        let account = here.account(&name("ab"), &subject("c"));
        assert_eq!(account, here.account(&name("ab"), &subject("c")));
        assert_ne!(account, here.account(&name("a"), &subject("bc")));
        assert_ne!(account, identity(2).account(&name("ab"), &subject("c")));
        let key = here.key(&name("ab"), &IdempotencyKey::parse("c").unwrap());
        assert_ne!(account.0, key.0);
    }

    #[test]
    fn the_tag_of_a_bundle_is_that_of_its_claims() {
        let bundle = |seconds, claims: &[u8]| {
            let at = DateTime::from_timestamp(seconds, 0).unwrap();
            BundleId::new(at, identity(1).bundle_tag(claims))
        };
        let first = bundle(1, &[1, 2]);
        assert_eq!(first.0.get_version_num(), 7);
        assert_eq!(first.0.get_variant(), uuid::Variant::RFC4122);
        assert!(first.has_tag_of(bundle(2, &[1, 2])) && first < bundle(2, &[1, 2]));
        for others in [&[2, 1][..], &[1], &[1, 2, 3]] {
            assert!(!first.has_tag_of(bundle(1, others)));
        }
    }

    proptest! {
        #[test]
        fn ids_are_uuidv7_in_the_order_of_instants(
            earlier in 0i64..4_000_000_000_000_000,
            later in 0i64..4_000_000_000_000_000,
            nonces: (u64, u64),
        ) {
            let at = |micros| DateTime::from_timestamp_micros(micros).unwrap();
            let [earlier, later] = [earlier.min(later), earlier.max(later)];
            let first = EntryId::new(at(earlier), 1, nonces.0);
            let second = EntryId::new(at(later), 2, nonces.1);
            prop_assert_eq!(first.0.get_version_num(), 7);
            prop_assert_eq!(first.0.get_variant(), uuid::Variant::RFC4122);
            prop_assert!(first >= EntryId::first_at(at(earlier)));
            prop_assert!(first < second);
            prop_assert_eq!(first.at(), at(earlier));
            if earlier < later {
                prop_assert!(first < EntryId::first_at(at(later)));
            }
        }
    }
}
