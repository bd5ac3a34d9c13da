//! The leaves of the log, made from the stored rows alone: for the sealer, for proofs, and for the
//! check of the ledger.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::acts::ActKind;
use super::record::dropped_leaves;
use crate::boxed;
use crate::encoding::{
    CROSSED, ERASED, OVER, PROVISIONAL, WOULD_DENY, decode_crossed, kind_of_number,
};
use crate::query::{Session, Statement, Texts, query};
use crate::row::StoredRow;
use crate::{AuditTables, LedgerError};
use domain::identity::EntryId;
use domain::record::RecordPlace;
use domain::seal::leaf::{
    Hash, LeafFields, LeafId, LeafKind, LeafSource, PrivatePart, StoredLeaf, act_private_json,
    entry_private_json, override_private_json, pseudonym,
};

/// Entries after ($1, $2) and up to ($3, $4), each with everything that its leaf needs.
const ENTRIES: &str = "SELECT e.xact, e.account, e.number, e.at, e.units, p.name AS policy,
        e.policy_version, e.claimed_by, e.kind, e.flags, e.id, e.key, e.lapses_at, e.totals, e.metadata,
        d.of_grant, d.held_until, d.made_by, d.reason, d.per, d.bundle, a.blind,
        COALESCE(a.subject, (
            SELECT na.subject FROM erasing_accounts AS na
            WHERE na.account = e.account AND na.step = 1
        )) AS subject,
        ea.pseudonym, el.private,
        el.private IS NOT NULL AND (e.metadata IS NOT NULL OR d.reason IS NOT NULL
            OR a.subject IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM erasing_accounts AS ra
                WHERE ra.account = e.account AND ra.step = 1
            )) AS has_texts,
        COALESCE(d.id <> e.id OR d.kind <> e.kind, false) AS has_other_details,
        COALESCE(a.policy <> e.policy, false) AS has_other_policy
    FROM entries AS e
    LEFT JOIN accounts AS a ON a.id = e.account
    LEFT JOIN policies AS p ON p.id = e.policy
    LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
    LEFT JOIN erased_accounts AS ea ON ea.account = e.account
    LEFT JOIN erased_leaves AS el ON el.id = e.id
    WHERE e.xact >= $1 AND (e.xact, e.id) > ($1, $2)
        AND e.xact <= $3 AND (e.xact, e.id) <= ($3, $4)
    ORDER BY e.xact, e.id";

// The changes of each table after ($1, $2) and up to ($3, $4).
const POLICIES: &str = "SELECT v.xact, v.revision, v.changed_at, v.changed_by, v.reason, p.name,
        v.version, v.rule, v.archived, v.effective_at
    FROM policy_versions AS v LEFT JOIN policies AS p ON p.id = v.policy
    WHERE (v.xact, v.revision) > ($1, $2) AND (v.xact, v.revision) <= ($3, $4)
    ORDER BY v.xact, v.revision";
const KEYS: &str =
    "SELECT v.xact, v.revision, v.changed_at, v.changed_by, v.reason, v.key, k.number,
        k.secret_hash, k.created_at, v.version, v.name, v.role, v.policies, v.bounds, v.ends_at, v.revoked
    FROM key_versions AS v LEFT JOIN keys AS k ON k.id = v.key
    WHERE (v.xact, v.revision) > ($1, $2) AND (v.xact, v.revision) <= ($3, $4)
    ORDER BY v.xact, v.revision";
const OVERRIDES: Texts = Texts {
    postgres: "SELECT v.xact, v.revision, v.changed_at, v.changed_by, v.reason, v.account, p.name,
            o.subject, o.blind, v.version, v.limits, v.until, el.private
        FROM override_versions AS v
        LEFT JOIN overrides AS o ON o.account = v.account
        LEFT JOIN policies AS p ON p.id = o.policy
        LEFT JOIN erased_leaves AS el ON el.id = lpad(to_hex(v.revision), 32, '0')::uuid
        WHERE (v.xact, v.revision) > ($1, $2) AND (v.xact, v.revision) <= ($3, $4)
        ORDER BY v.xact, v.revision",
    sqlite: "SELECT v.xact, v.revision, v.changed_at, v.changed_by, v.reason, v.account, p.name,
            o.subject, o.blind, v.version, v.limits, v.until, el.private
        FROM override_versions AS v
        LEFT JOIN overrides AS o ON o.account = v.account
        LEFT JOIN policies AS p ON p.id = o.policy
        LEFT JOIN erased_leaves AS el ON el.id = unhex(printf('%032x', v.revision))
        WHERE (v.xact, v.revision) > ($1, $2) AND (v.xact, v.revision) <= ($3, $4)
        ORDER BY v.xact, v.revision",
};
const ACTS: Texts = Texts {
    postgres: "SELECT v.xact, v.revision, v.changed_at, v.changed_by, v.reason, v.kind, v.about,
            v.blind, el.private
        FROM acts AS v
        LEFT JOIN erased_leaves AS el ON el.id = lpad(to_hex(v.revision), 32, '0')::uuid
        WHERE (v.xact, v.revision) > ($1, $2) AND (v.xact, v.revision) <= ($3, $4)
        ORDER BY v.xact, v.revision",
    sqlite: "SELECT v.xact, v.revision, v.changed_at, v.changed_by, v.reason, v.kind, v.about,
            v.blind, el.private
        FROM acts AS v
        LEFT JOIN erased_leaves AS el ON el.id = unhex(printf('%032x', v.revision))
        WHERE (v.xact, v.revision) > ($1, $2) AND (v.xact, v.revision) <= ($3, $4)
        ORDER BY v.xact, v.revision",
};

/// Whether there is more than entries: changes, or dropped entries after ($1, $5) and up to
/// ($3, $6).
const HAS_OTHERS: &str = "SELECT EXISTS (
        SELECT 1 FROM change_rows
        WHERE (xact, revision) > ($1, $2) AND (xact, revision) <= ($3, $4)
    ) OR EXISTS (
        SELECT 1 FROM dropped_entries
        WHERE xact >= $1 AND (xact, id) > ($1, $5) AND xact <= $3 AND (xact, id) <= ($3, $6)
    )";

/// The flags that an entry can have.
const FLAGS: i64 = (PROVISIONAL | OVER | WOULD_DENY | ERASED | CROSSED) as i64;

/// The private part of a leaf. Its texts may be erased.
fn private_part(
    row: &StoredRow<'_>,
    id: LeafId,
    has_texts: bool,
    json: impl FnOnce() -> Result<String, LedgerError>,
) -> Result<PrivatePart, LedgerError> {
    // A stored digest beside texts that were not erased is ignored: otherwise it could hide a
    // change of the texts.
    let erased = row.get::<Option<Hash>>("private")?;
    if let Some(digest) = erased.filter(|_| !has_texts) {
        return Ok(PrivatePart::Erased(digest));
    }
    let blind: Option<Uuid> = row.get("blind")?;
    Ok(PrivatePart::new(blind.unwrap_or_default(), id, json()?))
}

fn decode_entry(row: &StoredRow<'_>) -> Result<LeafSource, LedgerError> {
    let id: Uuid = row.get("id")?;
    let account: Uuid = row.get("account")?;
    let number: i64 = row.get("number")?;
    let blind: Option<Uuid> = row.get("blind")?;
    let erased: Option<Hash> = row.get("pseudonym")?;
    let private = private_part(row, LeafId(id), row.get("has_texts")?, || {
        let metadata: Option<String> = row.get("metadata")?;
        let reason: Option<String> = row.get("reason")?;
        let subject: Option<String> = row.get("subject")?;
        Ok(entry_private_json(
            account,
            row.get("key")?,
            metadata.as_deref(),
            reason.as_deref(),
            subject.as_deref(),
        ))
    })?;
    let policy: Option<String> = row.get("policy")?;
    let flags: i64 = row.get("flags")?;
    let contradiction = if row.get("has_other_details")? {
        Some("its details have the id or the kind of another entry")
    } else if row.get("has_other_policy")? {
        Some("its account is of another policy")
    } else if flags & !FLAGS != 0 {
        Some("it has a flag that no entry has")
    } else {
        None
    };
    let mut fields = LeafFields::default();
    fields
        .id("id", id)
        .number("number", number)
        .instant("at", row.get("at")?)
        .text("policy", policy.unwrap_or_default())
        .number("version", row.get("policy_version")?)
        .number("units", row.get("units")?)
        .text("kind", kind_of_number(row.get("kind")?)?.facts().word);
    for (name, bit) in [
        ("provisional", PROVISIONAL),
        ("over", OVER),
        ("would_deny", WOULD_DENY),
    ] {
        if flags & i64::from(bit) != 0 {
            fields.flag(name, true);
        }
    }
    let crossed = i16::try_from(flags & FLAGS).map(decode_crossed);
    let crossed = crossed.unwrap_or_default();
    if !crossed.is_empty() {
        fields.text("crossed", crossed.to_string());
    }
    fields
        .text("totals", row.get::<String>("totals")?)
        .perhaps("of_grant", row.get("of_grant")?, LeafFields::id)
        .perhaps("held_until", row.get("held_until")?, LeafFields::instant)
        .perhaps("lapses_at", row.get("lapses_at")?, LeafFields::instant)
        .perhaps("claimed_by", row.get("claimed_by")?, LeafFields::number)
        .perhaps(
            "made_by",
            row.get::<Option<String>>("made_by")?,
            LeafFields::text,
        )
        .perhaps("per", row.get::<Option<String>>("per")?, LeafFields::text)
        .perhaps("bundle", row.get("bundle")?, LeafFields::id);
    Ok(LeafSource {
        place: RecordPlace {
            xact: row.get("xact")?,
            id: EntryId(id),
            revision: 0,
        },
        id: LeafId(id),
        kind: LeafKind::Entry,
        pseudonym: Some(erased.unwrap_or_else(|| pseudonym(blind.unwrap_or_default()))),
        private: Some(private),
        fields,
        contradiction,
    })
}

/// The fields that all changes have.
struct ChangeRow {
    place: RecordPlace,
    id: LeafId,
    fields: LeafFields,
}

impl ChangeRow {
    fn decode(row: &StoredRow<'_>) -> Result<Self, LedgerError> {
        let revision: u64 = row.get("revision")?;
        let mut fields = LeafFields::default();
        fields
            .number("revision", revision.cast_signed())
            .instant("changed_at", row.get("changed_at")?)
            .text("changed_by", row.get::<String>("changed_by")?);
        Ok(Self {
            place: RecordPlace {
                xact: row.get("xact")?,
                id: RecordPlace::OF_CHANGES,
                revision,
            },
            id: LeafId::of_change(revision),
            fields,
        })
    }

    fn source(self, kind: LeafKind, private: Option<PrivatePart>) -> LeafSource {
        LeafSource {
            place: self.place,
            id: self.id,
            kind,
            pseudonym: None,
            private,
            fields: self.fields,
            contradiction: None,
        }
    }
}

fn decode_policy(row: &StoredRow<'_>) -> Result<LeafSource, LedgerError> {
    let mut change = ChangeRow::decode(row)?;
    change
        .fields
        .perhaps(
            "reason",
            row.get::<Option<String>>("reason")?,
            LeafFields::text,
        )
        .perhaps(
            "policy",
            row.get::<Option<String>>("name")?,
            LeafFields::text,
        )
        .number("version", row.get("version")?)
        .instant("effective_at", row.get("effective_at")?)
        .flag("archived", row.get("archived")?)
        .text("rule", row.get::<String>("rule")?);
    Ok(change.source(LeafKind::Policy, None))
}

fn decode_key(row: &StoredRow<'_>) -> Result<LeafSource, LedgerError> {
    let mut change = ChangeRow::decode(row)?;
    let secret: Option<Vec<u8>> = row.get("secret_hash")?;
    let secret: Hash = Sha256::digest(secret.unwrap_or_default()).into();
    change
        .fields
        .perhaps(
            "reason",
            row.get::<Option<String>>("reason")?,
            LeafFields::text,
        )
        .id("key", row.get("key")?)
        .perhaps("number", row.get("number")?, LeafFields::number)
        .perhaps("created_at", row.get("created_at")?, LeafFields::instant)
        .hash("secret", &secret)
        .number("version", row.get("version")?)
        .text("name", row.get::<String>("name")?)
        .text("role", row.get::<String>("role")?)
        .perhaps(
            "policies",
            row.get::<Option<String>>("policies")?,
            LeafFields::text,
        )
        .perhaps(
            "bounds",
            row.get::<Option<String>>("bounds")?,
            LeafFields::text,
        )
        .perhaps("ends_at", row.get("ends_at")?, LeafFields::instant)
        .flag("revoked", row.get("revoked")?);
    Ok(change.source(LeafKind::Key, None))
}

fn decode_override(row: &StoredRow<'_>) -> Result<LeafSource, LedgerError> {
    let mut change = ChangeRow::decode(row)?;
    change
        .fields
        .perhaps(
            "policy",
            row.get::<Option<String>>("name")?,
            LeafFields::text,
        )
        .number("version", row.get("version")?)
        .perhaps(
            "limits",
            row.get::<Option<String>>("limits")?,
            LeafFields::text,
        )
        .perhaps("until", row.get("until")?, LeafFields::instant);
    let private = private_part(row, change.id, false, || {
        let reason: Option<String> = row.get("reason")?;
        let subject: Option<String> = row.get("subject")?;
        let account = row.get("account")?;
        Ok(override_private_json(
            account,
            reason.as_deref(),
            subject.as_deref(),
        ))
    })?;
    Ok(change.source(LeafKind::Override, Some(private)))
}

fn decode_act(row: &StoredRow<'_>) -> Result<LeafSource, LedgerError> {
    let mut change = ChangeRow::decode(row)?;
    let kind: String = row.get("kind")?;
    let about: String = row.get("about")?;
    change.fields.text("kind", &kind);
    // The figures of a day name no subject, so this act has no private part.
    if kind == ActKind::Day.as_str() {
        change.fields.text("about", &about).perhaps(
            "reason",
            row.get::<Option<String>>("reason")?,
            LeafFields::text,
        );
        return Ok(change.source(LeafKind::Act, None));
    }
    let private = private_part(row, change.id, false, || {
        let reason: Option<String> = row.get("reason")?;
        Ok(act_private_json(&about, reason.as_deref()))
    })?;
    Ok(change.source(LeafKind::Act, Some(private)))
}

/// The values of a statement for changes after a place and up to another.
fn changes_between(texts: impl Into<Texts>, after: RecordPlace, up_to: RecordPlace) -> Statement {
    query(texts)
        .bind(after.xact)
        .bind(after.revision)
        .bind(up_to.xact)
        .bind(up_to.revision)
}

impl AuditTables {
    /// The leaves of all entries and changes after a place and up to another, in order.
    #[boxed]
    pub async fn leaves(
        &self,
        after: RecordPlace,
        up_to: RecordPlace,
    ) -> Result<Vec<StoredLeaf>, LedgerError> {
        leaves(&mut self.ledger.reads().await?.lend(), after, up_to).await
    }

    /// As [`AuditTables::leaves`], for the sealer.
    #[boxed]
    pub async fn leaves_to_seal(
        &self,
        after: RecordPlace,
        up_to: RecordPlace,
    ) -> Result<Vec<StoredLeaf>, LedgerError> {
        leaves(&mut self.ledger.own().await?.lend(), after, up_to).await
    }
}

async fn leaves(
    session: &mut Session<'_>,
    after: RecordPlace,
    up_to: RecordPlace,
) -> Result<Vec<StoredLeaf>, LedgerError> {
    let entries = query(ENTRIES)
        .bind(after.xact)
        .bind(after.id)
        .bind(up_to.xact)
        .bind(up_to.id);
    let found = session.many(entries, decode_entry).await?;
    let mut leaves: Vec<StoredLeaf> = found.into_iter().map(StoredLeaf::Whole).collect();
    // Most spans have entries alone. One question saves five.
    let others = changes_between(HAS_OTHERS, after, up_to);
    let others = others.bind(after.id).bind(up_to.id);
    if session.one(others).await? {
        leaves.extend(others_between(session, after, up_to).await?);
    }
    // An entry that is dropped during this read is in the list twice; its first reading has the
    // data.
    leaves.sort_by_key(StoredLeaf::place);
    leaves.dedup_by_key(|leaf| leaf.place());
    Ok(leaves)
}

/// The leaves that are not entries.
async fn others_between(
    session: &mut Session<'_>,
    after: RecordPlace,
    up_to: RecordPlace,
) -> Result<Vec<StoredLeaf>, LedgerError> {
    let mut found = Vec::new();
    for (texts, decode) in [
        (
            Texts::from(POLICIES),
            decode_policy as fn(&StoredRow<'_>) -> _,
        ),
        (KEYS.into(), decode_key),
        (OVERRIDES, decode_override),
        (ACTS, decode_act),
    ] {
        let changes = changes_between(texts, after, up_to);
        found.extend(session.all(changes, decode).await?);
    }
    let mut leaves: Vec<StoredLeaf> = found.into_iter().map(StoredLeaf::Whole).collect();
    let dropped = dropped_leaves(session, after, up_to, i32::MAX as u32).await?;
    leaves.extend(dropped.into_iter().map(StoredLeaf::Dropped));
    Ok(leaves)
}
