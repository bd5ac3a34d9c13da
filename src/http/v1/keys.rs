//! API keys.

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use chrono::{DateTime, TimeDelta, Utc};

use crate::answer::{ApiError, HttpAnswer, changed, versioned};
use crate::operation::{ID, describe};
use crate::request::{
    AboutNoPolicy, Admin, AdminData, Anyone, Auditor, Body, Caller, DryRun, Faults, IdPath,
    IfMatch, Page, Reason, RecordData, Then,
};
use api::keys::{
    BoundsAnswer, CreatedKey, KeyAnswer, KeyBody, KeyEndBody, KeyList, KeyReplacementAnswer,
    KeyReplacementBody, ListedKey, OwnKeyAnswer,
};
use api::problem::InvalidPart;
use api::strict::Object;
use domain::identity::to_micros;
use domain::key::{KEEP_DEFAULT, Key, KeyDraft, KeyRule, check_end, check_keep};
use domain::policy::check_reason;
use engine::{KeyReplacement, OwnKey};

fn check_new(body: KeyBody, now: DateTime<Utc>) -> Result<(KeyRule, Option<String>), ApiError> {
    let mut faults = Faults::default();
    let ends_at = faults.body_instant("/ends_at", body.ends_at.as_ref());
    faults.reason(body.reason.as_ref());
    let draft = KeyDraft {
        name: body.name,
        role: body.role,
        policies: body.policies,
        bounds: body
            .bounds
            .map(|Object(bounds)| (bounds.max.0, bounds.days.0)),
        ends_at: ends_at.map(to_micros),
    };
    let rule = faults.draft(draft.check(now));
    Ok((faults.or(rule)?, body.reason))
}

fn check_new_end(
    body: KeyEndBody,
    now: DateTime<Utc>,
) -> Result<(Option<DateTime<Utc>>, String), ApiError> {
    let mut faults = Faults::default();
    let ends_at = faults.body_instant("/ends_at", body.ends_at.as_ref());
    let ends_at = ends_at.map(to_micros);
    if let Err(detail) = check_end(ends_at, now) {
        faults.add(InvalidPart::body("/ends_at", detail));
    }
    let reason = body.reason.ok_or(REASON_NEEDED.to_owned());
    let reason = reason.and_then(|reason| check_reason(&reason).map(|()| reason));
    let reason = faults.body("/reason", reason);
    faults.or(reason.map(|reason| (ends_at, reason)))
}

fn check_replacement(body: KeyReplacementBody) -> Result<(TimeDelta, String), ApiError> {
    let mut faults = Faults::default();
    let keep = body.keep_seconds.map(|seconds| check_keep(seconds.0));
    let keep = faults.body("/keep_seconds", keep.unwrap_or(Ok(KEEP_DEFAULT)));
    faults.reason(Some(&body.reason));
    faults.or(keep.map(|keep| (keep, body.reason)))
}

const REASON_NEEDED: &str = "the reason is missing: write why the key gets another end";

describe! {
    /// Create a key.
    ///
    /// Only this answer has the key's secret: the service stores a hash of it. The key works at once, at every
    /// instance.
    POST: "create_key" of "keys", |it| it
        .json::<CreatedKey>(201, "The key with its secret.")
        .header::<String>("Location", "The URL of the key.").etag()
}
pub async fn post(caller: Caller<Admin>, body: Body<KeyBody>, admin: AdminData) -> HttpAnswer {
    let (rule, reason) = check_new(body.0, admin.instance.now())?;
    let (key, secret) = admin.create_key(rule, reason, caller.key()).await??;
    Ok(versioned(StatusCode::CREATED, key.version)
        .insert_header((header::LOCATION, format!("/v1/keys/{}", key.id)))
        .json(CreatedKey {
            key: key.into(),
            secret,
        }))
}

describe! {
    /// List the keys, newest first.
    ///
    /// Revoked keys are listed too.
    LIST: "list_keys" of "keys", |it| it
        .json::<KeyList>(200, "A page.")
        .is_about_nobody()
}
pub async fn list(_caller: Caller<Auditor>, page: Page, admin: AdminData) -> HttpAnswer {
    let found = admin.keys(page.limit, page.cursor()).await?;
    Ok(HttpResponse::Ok().json(KeyList::new(found, ListedKey::from)))
}

fn own_key_answer(key: OwnKey) -> OwnKeyAnswer {
    let policies = key.policies.as_deref();
    OwnKeyAnswer {
        id: key.id,
        policies: policies.map(|names| names.iter().map(ToString::to_string).collect()),
        name: key.name,
        role: key.role.as_str().into(),
        bounds: key.bounds.map(BoundsAnswer::from),
        ends_at: key.ends_at,
    }
}

describe! {
    /// Show the key of this request: its name, its rights and its end.
    ///
    /// Every valid key may ask, also one that is confined to policies.
    OWN: "get_own_key" of "keys", |it| it
        .json::<OwnKeyAnswer>(200, "The key of this request.")
        .is_about_nobody()
}
pub async fn own(caller: Caller<Anyone, AboutNoPolicy>, record: RecordData) -> HttpAnswer {
    let key = caller.own_key(&record.callers)?;
    Ok(HttpResponse::Ok().json(own_key_answer(key)))
}

describe! {
    /// Show a key, without its secret. The ETag is its version.
    ///
    /// A revoked key is shown too.
    GET: "get_key" of "keys", |it| it
        .json::<ListedKey>(200, "The key.").etag()
        .is_about_nobody()
        .follows("create_key", 201, ID)
}
pub async fn get(_caller: Caller<Auditor>, id: IdPath, admin: AdminData) -> HttpAnswer {
    let key = admin.key(id.0).await?;
    let key = key.ok_or(ApiError::NotFound("there is no key with this id"))?;
    let mut response = versioned(StatusCode::OK, key.key.version);
    Ok(response.json(ListedKey::from(key)))
}

fn rendered(key: Key, is_dry_run: bool) -> HttpResponse {
    changed(StatusCode::OK, key.version, is_dry_run).json(KeyAnswer::from(key))
}

describe! {
    /// Set, change or remove the end of a key.
    ///
    /// A key that already has this end is not changed.
    PATCH: "end_key" of "keys", |it| it
        .json::<KeyAnswer>(200, "The key; or the result of a dry run.").etag()
        .problem(409, "`last-admin-key`: this is the last admin key without an end; `key-revoked`: \
            a revoked key cannot be changed.")
        .follows("create_key", 201, ID)
}
pub async fn patch(
    caller: Caller<Admin>,
    dry_run: DryRun,
    Then(body, (id, IfMatch(precondition))): Then<Body<KeyEndBody>, (IdPath, IfMatch)>,
    admin: AdminData,
) -> HttpAnswer {
    let (ends_at, reason) = check_new_end(body.0, admin.instance.now())?;
    let editor = caller.editor(dry_run);
    let is_dry_run = editor.is_dry_run;
    let ended = admin.end_key(id.0, ends_at, reason, precondition, editor);
    Ok(rendered(ended.await??, is_dry_run))
}

describe! {
    /// Replace a key: make a new key with the same rights, and end the old one.
    ///
    /// The new key has the name, the rights and the end of the old one, which works for `keep_seconds` longer,
    /// but not longer than before. Only this answer has the new key's secret, and every request makes another
    /// key: if the answer is lost, replace the newest key with this name.
    REPLACE: "replace_key" of "keys", |it| it
        .json::<KeyReplacementAnswer>(201, "The new key with its secret, and the old key.")
        .header::<String>("Location", "The URL of the new key.").etag()
        .json::<KeyReplacementAnswer>(200, "The result of a dry run, without a secret.")
        .problem(409, "`key-revoked`: a revoked key cannot be changed; `key-ended`: a key that has \
            ended cannot be replaced.")
        .follows("create_key", 201, ID)
}
pub async fn replace(
    caller: Caller<Admin>,
    dry_run: DryRun,
    Then(body, (id, IfMatch(precondition))): Then<Body<KeyReplacementBody>, (IdPath, IfMatch)>,
    admin: AdminData,
) -> HttpAnswer {
    let (keep, reason) = check_replacement(body.0)?;
    let editor = caller.editor(dry_run);
    let is_dry_run = editor.is_dry_run;
    let replaced = admin.replace_key(id.0, keep, reason, precondition, editor);
    let (KeyReplacement { replaced, key }, secret) = replaced.await??;
    let mut response = changed(StatusCode::CREATED, key.version, is_dry_run);
    if !is_dry_run {
        response.insert_header((header::LOCATION, format!("/v1/keys/{}", key.id)));
    }
    Ok(response.json(KeyReplacementAnswer {
        key: key.into(),
        secret: (!is_dry_run).then_some(secret),
        replaced: replaced.into(),
    }))
}

describe! {
    /// Revoke a key: it is never accepted again.
    ///
    /// A key that is already revoked is not changed.
    REVOKE: "revoke_key" of "keys", |it| it
        .json::<KeyAnswer>(200, "The key, revoked; or the result of a dry run.").etag()
        .problem(409, "`last-admin-key`: this is the last admin key without an end.")
        .follows("create_key", 201, ID)
}
pub async fn revoke(
    caller: Caller<Admin>,
    id: IdPath,
    IfMatch(precondition): IfMatch,
    reason: Reason,
    dry_run: DryRun,
    admin: AdminData,
) -> HttpAnswer {
    let editor = caller.editor(dry_run);
    let is_dry_run = editor.is_dry_run;
    let revoked = admin.revoke_key(id.0, reason.0, precondition, editor);
    Ok(rendered(revoked.await??, is_dry_run))
}
