//! Seals, proofs, and the log in the format that other tools read: checkpoints and tiles of C2SP.

use std::fmt::Display;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::seals::{LatestSeal, SealBody, SealConsistency, SealList};
use crate::domain::reads::ReadKind;
use crate::domain::seal::note::encode_hash;
use crate::domain::seal::proof::LogProof;
use crate::domain::seal::tile::{TILE_WIDTH, TileName};
use crate::engine::{Seal, SealFailure};
use crate::http::answer::{ApiError, HttpAnswer};
use crate::http::request::{
    Auditor, ByHandler, Caller, EngineData, Faults, Page, Query, RevisionPath, parse_position,
    path_id, segment,
};

impl From<Seal> for SealBody {
    fn from(seal: Seal) -> Self {
        Self {
            origin: seal.origin.name,
            size: seal.size,
            note: seal.note,
            sealed_at: seal.sealed_at,
        }
    }
}

/// List the seals, newest first.
///
/// A seal is a signed checkpoint of a Merkle log with one leaf for each entry and each change, by
/// position. Without `PERDIEM_SEAL_KEY_FILE` nothing is sealed, and the answer is `not-sealed`.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/seals", operation_id = "list_seals", tag = "seals",
    responses(
        (status = 200, description = "A page.", body = SealList),
        (status = 409, description = "`not-sealed`: nothing is sealed, or this is not sealed yet."),
    ),
)]
pub async fn list(_caller: Caller<Auditor>, page: Page, engine: EngineData) -> HttpAnswer {
    let found = engine.audit.seals(page.limit, page.cursor()).await?;
    Ok(HttpResponse::Ok().json(SealList::new(
        (found.seals, found.next_cursor),
        SealBody::from,
    )))
}

/// Show the newest seal.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/seals/latest", operation_id = "get_latest_seal", tag = "seals",
    responses(
        (status = 200, description = "The seal.", body = LatestSeal),
        (status = 409, description = "`not-sealed`: nothing is sealed yet."),
    ),
)]
pub async fn latest(_caller: Caller<Auditor>, engine: EngineData) -> HttpAnswer {
    let seal = engine.audit.latest_seal().await?;
    let verifier_key = engine.audit.seal_verifier(&seal.origin.name);
    Ok(HttpResponse::Ok().json(LatestSeal {
        seal: seal.into(),
        verifier_key,
    }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ConsistencyQuery {
    /// The size of the smaller tree: the `size` of a seal of the present log.
    #[param(value_type = u64, minimum = 1, example = 1842)]
    from: String,
    /// The size of the larger tree. Default: the `size` of the newest seal.
    #[param(value_type = Option<u64>, minimum = 1)]
    to: Option<String>,
}

/// Prove that the log only grew from an older seal to a newer one.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/seals/consistency", operation_id = "get_seal_consistency", tag = "seals",
    params(ConsistencyQuery),
    responses(
        (status = 200, description = "The proof.", body = SealConsistency),
        (status = 409, description = "`not-sealed`: nothing is sealed, or this is not sealed yet."),
    ),
)]
pub async fn consistency(
    _caller: Caller<Auditor>,
    query: Query<ConsistencyQuery>,
    engine: EngineData,
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
    let proof = engine.audit.seal_consistency(from, to).await?;
    Ok(HttpResponse::Ok().json(SealConsistency {
        origin: proof.origin,
        from: proof.from,
        to: proof.to,
        hashes: proof.hashes.iter().map(encode_hash).collect(),
    }))
}

/// Prove that a grant is recorded: a `.tlog-proof` (C2SP tlog-proof).
///
/// The extra data of the proof is JSON. It has the `leaf`, and the `salt` and the `private` fields,
/// whose digest is in the leaf. `perdiem verify --proof` checks the proof without a server.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/grants/{id}/proof", operation_id = "prove_grant", tag = "seals",
    responses(
        (status = 200, description = "The proof.", body = String, content_type = "text/plain"),
        (status = 409, description = "`not-sealed`: nothing is sealed, or this grant is not sealed yet."),
    ),
)]
pub async fn proof(
    caller: Caller<Auditor, ByHandler>,
    request: HttpRequest,
    engine: EngineData,
) -> HttpAnswer {
    let id = path_id(&request, "a grant's id")?;
    let grant = engine.claims.grant(id).await?;
    let grant = grant.ok_or(ApiError::NotFound("there is no grant with this id"))?;
    caller.may_use(&grant.policy)?;
    let proof = engine.audit.grant_proof(id).await?;
    let policy = Some(&grant.policy);
    let subject = proof.opened.subject();
    let read = caller.record_read(&engine, ReadKind::Proof, policy, subject.as_deref());
    read.await?;
    Ok(proof_file(&id, &proof))
}

/// Prove that a change was made: a `.tlog-proof` (C2SP tlog-proof).
///
/// The proof has the same form as the proof of a grant. The proof of a change of the kind `day`
/// proves the figures of a policy's local day. A key that is confined to policies is refused.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/changes/{revision}/proof", operation_id = "prove_change", tag = "seals",
    responses(
        (status = 200, description = "The proof.", body = String, content_type = "text/plain"),
        (status = 404, description = "`not-found`: no change has this revision."),
        (status = 409, description = "`not-sealed`: nothing is sealed, or this change is not sealed yet."),
    ),
)]
pub async fn change_proof(
    caller: Caller<Auditor>,
    revision: RevisionPath,
    engine: EngineData,
) -> HttpAnswer {
    let proof = engine.audit.change_proof(revision.0).await?;
    // The subject of an override or a block.
    let subject = proof.opened.subject();
    let read = caller.record_read(&engine, ReadKind::Proof, None, subject.as_deref());
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

/// Show the newest checkpoint (C2SP tlog-tiles).
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/log/checkpoint", operation_id = "get_log_checkpoint", tag = "seals",
    responses(
        (status = 200, description = "The signed checkpoint.", body = String, content_type = "text/plain"),
        (status = 409, description = "`not-sealed`: nothing is sealed yet."),
    ),
)]
pub async fn checkpoint(_caller: Caller<Auditor>, engine: EngineData) -> HttpAnswer {
    let seal = engine.audit.latest_seal().await?;
    Ok(HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .body(seal.note))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "read by the derive")]
pub struct TileInPath {
    /// `<L>/<N>[.p/<W>]`: the level or `entries`, the index in groups of three digits, and the
    /// width of a partial tile. The value contains slashes.
    #[param(
        example = "0/x001/x234/067.p/8",
        pattern = "^(entries|[0-9]|[1-5][0-9]|6[0-3])/(x(00[1-9]|0[1-9][0-9]|[1-9][0-9]{2})/(x[0-9]{3}/){0,4})?[0-9]{3}(\\.p/([1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5]))?$"
    )]
    tile: String,
}

/// Show a tile of hashes, or a bundle of leaves below `entries/` (C2SP tlog-tiles).
///
/// A full tile of a log never changes. Clients may cache it: it has `Cache-Control: private,
/// max-age=31536000, immutable`. A partial tile and the checkpoint have `no-store`. When the
/// checkpoint has another origin, a restart has begun another log at the same paths: delete all
/// cached tiles.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/log/tile/{tile}", operation_id = "get_log_tile", tag = "seals",
    params(TileInPath),
    responses(
        (status = 200, description = "The tile.", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 404, description = "`not-found`: the log has no such tile, or not all of the tile."),
        (status = 409, description = "`not-sealed`: nothing is sealed yet."),
    ),
)]
pub async fn tile(
    _caller: Caller<Auditor>,
    request: HttpRequest,
    engine: EngineData,
) -> HttpAnswer {
    let name = segment(&request, "tile").unwrap_or_default();
    let tile = TileName::parse(&name).ok_or_else(|| {
        ApiError::invalid(
            "tile",
            "write LEVEL/INDEX, such as 0/000 or entries/x001/234.p/8",
        )
    })?;
    let bytes = engine.audit.log_tile(tile).await?;
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
