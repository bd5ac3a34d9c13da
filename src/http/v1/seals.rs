//! Seals, proofs, and the log in the format that other tools read: checkpoints and tiles of C2SP.

use std::fmt::Display;

use actix_web::HttpResponse;
use actix_web::http::header;
use serde::Deserialize;
use utoipa::{IntoParams, PartialSchema};

use crate::answer::{ApiError, HttpAnswer};
use crate::operation::describe;
use crate::request::{
    AuditData, Auditor, ByHandler, Caller, Faults, GrantPath, Page, Query, RecordData,
    RevisionPath, TilePath, parse_position,
};
use api::seals::{LatestSeal, SealBody, SealConsistency, SealList};
use domain::reads::ReadKind;
use domain::seal::note::encode_hash;
use domain::seal::proof::LogProof;
use domain::seal::tile::TILE_WIDTH;
use engine::{Seal, SealFailure};

fn seal_body(seal: Seal) -> SealBody {
    SealBody {
        origin: seal.origin.name,
        size: seal.size,
        note: seal.note,
        sealed_at: seal.sealed_at,
    }
}

describe! {
    /// List the seals, newest first.
    ///
    /// A seal is a signed checkpoint of a Merkle log with one leaf for each entry and each change, by position.
    LIST: "list_seals" of "seals", |it| it
        .json::<SealList>(200, "A page.")
        .problem(409, "`not-sealed`: nothing is sealed, or this is not sealed yet.")
        .is_about_nobody()
}
pub async fn list(_caller: Caller<Auditor>, page: Page, audit: AuditData) -> HttpAnswer {
    let found = audit.seals(page.limit, page.cursor()).await?;
    Ok(HttpResponse::Ok().json(SealList::new((found.seals, found.next_cursor), seal_body)))
}

describe! {
    /// Show the newest seal.
    ///
    /// It is made within seconds of what it covers, so a recent entry may not be sealed yet.
    LATEST: "get_latest_seal" of "seals", |it| it
        .json::<LatestSeal>(200, "The seal.")
        .problem(409, "`not-sealed`: nothing is sealed yet.")
        .is_about_nobody()
}
pub async fn latest(_caller: Caller<Auditor>, audit: AuditData) -> HttpAnswer {
    let seal = audit.latest_seal().await?;
    let verifier_key = audit.seal_verifier(&seal.origin.name);
    Ok(HttpResponse::Ok().json(LatestSeal {
        seal: seal_body(seal),
        verifier_key,
    }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ConsistencyQuery {
    /// The `size` of a seal of the present log.
    #[param(value_type = u64, minimum = 1, example = 1842)]
    from: String,
    /// The `size` of a later seal. Default: that of the newest seal.
    #[param(value_type = Option<u64>, minimum = 1)]
    to: Option<String>,
}

describe! {
    /// Prove that the log only grew from an older seal to a newer one.
    ///
    /// Compare the hashes of the proof with the two seals that you have kept: then nothing that the older one
    /// covers was changed or removed.
    CONSISTENCY: "get_seal_consistency" of "seals", |it| it
        .json::<SealConsistency>(200, "The proof.")
        .problem(409, "`not-sealed`: nothing is sealed, or this is not sealed yet.")
        .is_about_nobody()
}
pub async fn consistency(
    _caller: Caller<Auditor>,
    query: Query<ConsistencyQuery>,
    audit: AuditData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let size = |text: &str| match parse_position(text) {
        Ok(0) => Err("write a size above 0: an empty log proves nothing"),
        parsed => parsed,
    };
    let from = faults.parameter("from", Some(&query.0.from), size);
    let to = faults.parameter("to", query.0.to.as_ref(), size);
    let from = faults.or(from)?;
    if to.is_some_and(|to| to < from) {
        return Err(ApiError::invalid(
            "to",
            "write a size that is not below `from`",
        ));
    }
    let proof = audit.seal_consistency(from, to).await?;
    Ok(HttpResponse::Ok().json(SealConsistency {
        origin: proof.origin,
        from: proof.from,
        to: proof.to,
        hashes: proof.hashes.iter().map(encode_hash).collect(),
    }))
}

describe! {
    /// Prove that a grant is recorded: a `.tlog-proof` (C2SP tlog-proof).
    ///
    /// Its extra data is JSON: the `leaf`, and the `salt` and the `private` fields, whose digest is in the
    /// leaf. `perdiem verify --proof` checks it without a server.
    PROOF: "prove_grant" of "seals", |it| it
        .text(200, "The proof.", &["text/plain"])
        .problem(409, "`not-sealed`: nothing is sealed, or this grant is not sealed yet.")
        .needs_entries()
}
pub async fn proof(
    caller: Caller<Auditor, ByHandler>,
    id: GrantPath,
    audit: AuditData,
    record: RecordData,
) -> HttpAnswer {
    let id = id.0;
    let grant = record.claims.grant(id).await?;
    let grant = grant.ok_or(ApiError::NotFound("there is no grant with this id"))?;
    caller.may_use(&grant.policy)?;
    let proof = audit.grant_proof(id).await?;
    let policy = Some(&grant.policy);
    let subject = proof.opened.subject();
    let read = caller.record_read(&record, ReadKind::Proof, policy, subject.as_deref());
    read.await?;
    Ok(proof_file(&id, &proof))
}

describe! {
    /// Prove that a change was made: a `.tlog-proof` (C2SP tlog-proof).
    ///
    /// The proof of a change of the kind `day` proves the figures of a policy's local day. A key that is
    /// confined to policies is refused.
    CHANGE_PROOF: "prove_change" of "seals", |it| it
        .text(200, "The proof.", &["text/plain"])
        .problem(409, "`not-sealed`: nothing is sealed, or this change is not sealed yet.")
}
pub async fn change_proof(
    caller: Caller<Auditor>,
    revision: RevisionPath,
    audit: AuditData,
    record: RecordData,
) -> HttpAnswer {
    let proof = audit.change_proof(revision.0).await?;
    // The subject of an exception.
    let subject = proof.opened.subject();
    let read = caller.record_read(&record, ReadKind::Proof, None, subject.as_deref());
    read.await?;
    Ok(proof_file(&revision.0, &proof))
}

fn proof_file(name: &impl Display, proof: &LogProof) -> HttpResponse {
    let name = format!("attachment; filename=\"{name}.tlog-proof\"");
    HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .insert_header((header::CONTENT_DISPOSITION, name))
        .body(proof.to_string())
}

describe! {
    /// Show the newest checkpoint (C2SP tlog-tiles).
    ///
    /// It is the newest seal as a signed note, which witnesses and monitors of transparency logs read.
    CHECKPOINT: "get_log_checkpoint" of "seals", |it| it
        .text(200, "The signed checkpoint.", &["text/plain"])
        .problem(409, "`not-sealed`: nothing is sealed yet.")
        .is_about_nobody()
}
pub async fn checkpoint(_caller: Caller<Auditor>, audit: AuditData) -> HttpAnswer {
    let seal = audit.latest_seal().await?;
    Ok(HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .body(seal.note))
}

describe! {
    /// Show a tile of hashes, or a bundle of leaves below `entries/` (C2SP tlog-tiles).
    ///
    /// A full tile of a log never changes, so its `Cache-Control` is `private, max-age=31536000, immutable`; a
    /// partial tile and the checkpoint have `no-store`. When the checkpoint has another origin, a restart has
    /// begun another log at the same paths: delete all cached tiles.
    TILE: "get_log_tile" of "seals", |it| it
        .content(200, "The tile.", Vec::<u8>::schema(), &["application/octet-stream"])
        .problem(404, "`not-found`: the log has no such tile, or not all of the tile.")
        .problem(409, "`not-sealed`: nothing is sealed yet.")
        .is_about_nobody()
        .needs_entries()
}
pub async fn tile(
    _caller: Caller<Auditor>,
    TilePath(tile): TilePath,
    audit: AuditData,
) -> HttpAnswer {
    let bytes = audit.log_tile(tile).await?;
    let mut answer = HttpResponse::Ok();
    // A partial tile is replaced when it is full. An answer that requires a key is private.
    if tile.width == TILE_WIDTH {
        answer.insert_header((
            header::CACHE_CONTROL,
            "private, max-age=31536000, immutable",
        ));
    }
    Ok(answer.content_type("application/octet-stream").body(bytes))
}

impl From<SealFailure> for ApiError {
    fn from(failure: SealFailure) -> Self {
        match failure {
            SealFailure::Cursor(error) => error.into(),
            SealFailure::Failure(failure) => failure.into(),
            SealFailure::Unknown => Self::NotFound("the log has nothing with this name or number"),
            SealFailure::Off | SealFailure::NotYet | SealFailure::Beyond(_) => {
                Self::NotSealed(failure.to_string())
            }
        }
    }
}
