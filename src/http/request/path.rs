//! The named segments of a path.

use actix_web::HttpRequest;
use utoipa::IntoParams;
use uuid::Uuid;

use super::extractors;
use super::faults::parse_position;
use super::route::segment;
use crate::answer::ApiError;
use crate::operation::{Argument, Operation};
use domain::claim::{ClaimError, Subject};
use domain::policy::PolicyName;
use domain::seal::tile::TileName;

extractors!(NewPolicyPath);
extractors!(
    PolicyPath => PolicyInPath,
    SubjectPath => SubjectInPath,
    NewSubjectPath => SubjectInPath,
    IdPath => IdInPath,
    GrantPath => IdInPath,
    TopUpPath => IdInPath,
    BundlePath => IdInPath,
    ReportPath => IdInPath,
    RevisionPath => RevisionInPath,
    TilePath => TileInPath,
);

/// A policy in the path, as the specification has it.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "read by the derive")]
struct PolicyInPath {
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$", example = "benefit")]
    policy: String,
}

/// A subject in the path, as the specification has it.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "read by the derive")]
struct SubjectInPath {
    /// 1 to 256 bytes of UTF-8 without control characters. Percent-encode it, also `/`.
    #[param(
        example = "member-42",
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    subject: String,
}

/// An id in the path, as the specification has it.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "read by the derive")]
struct IdInPath {
    #[param(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    id: Uuid,
}

/// The revision of a change in the path, as the specification has it.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "read by the derive")]
struct RevisionInPath {
    #[param(example = 42)]
    revision: u64,
}

/// The name of a tile in the path, as the specification has it.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "read by the derive")]
struct TileInPath {
    /// `<L>/<N>[.p/<W>]`: the level or `entries`, the index in groups of three digits, and the width of a
    /// partial tile. The value contains slashes.
    #[param(
        example = "0/x001/x234/067.p/8",
        pattern = "^(entries|[0-9]|[1-5][0-9]|6[0-3])/(x(00[1-9]|0[1-9][0-9]|[1-9][0-9]{2})/(x[0-9]{3}/){0,4})?[0-9]{3}(\\.p/([1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5]))?$"
    )]
    tile: String,
}

pub struct PolicyPath(pub PolicyName);

impl PolicyPath {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        let name = PolicyName::new(&segment(request, "policy").unwrap_or_default());
        let name = name.map_err(|error| ApiError::invalid("policy", error));
        name.map(Self)
    }
}

/// The policy of a request that creates it if it does not exist.
pub struct NewPolicyPath(pub PolicyName);

impl NewPolicyPath {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        PolicyPath::of(request).map(|path| Self(path.0))
    }
}

impl Argument for NewPolicyPath {
    fn describe(operation: &mut Operation) {
        operation.takes_new::<PolicyInPath>();
    }
}

/// The subject of a view, a deletion or an erasure: one that the ledger can have.
pub struct SubjectPath(pub Subject);

/// The subject of a request that can write its name: one that a claim may have.
pub struct NewSubjectPath(pub Subject);

impl SubjectPath {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        subject_in_path(request, Subject::existing).map(Self)
    }
}

impl NewSubjectPath {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        subject_in_path(request, Subject::new).map(Self)
    }
}

fn subject_in_path(
    request: &HttpRequest,
    parse: fn(&str) -> Result<Subject, ClaimError>,
) -> Result<Subject, ApiError> {
    // actix replaces bytes that are not UTF-8 by U+FFFD, which would be another subject.
    let path = percent_encoding::percent_decode_str(request.uri().path());
    if path.decode_utf8().is_err() {
        let detail = "write the subject as percent-encoded UTF-8";
        return Err(ApiError::invalid("subject", detail));
    }
    let subject = parse(&segment(request, "subject").unwrap_or_default());
    subject.map_err(|error| ApiError::invalid("subject", error))
}

macro_rules! ids {
    ($($name:ident: $what:literal;)+) => {$(
        pub struct $name(pub Uuid);

        impl $name {
            fn of(request: &HttpRequest) -> Result<Self, ApiError> {
                let id = Uuid::parse_str(&segment(request, "id").unwrap_or_default());
                let help = concat!($what, " is a UUID: copy it from an answer");
                id.map(Self).map_err(|_| ApiError::invalid("id", help))
            }
        }
    )+};
}

ids! {
    IdPath: "an id";
    GrantPath: "a grant's id";
    TopUpPath: "a top-up's id";
    BundlePath: "a bundle's id";
    ReportPath: "a report's id";
}

pub struct RevisionPath(pub u64);

impl RevisionPath {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        let text = segment(request, "revision").unwrap_or_default();
        let revision = parse_position(&text);
        let revision = revision
            .map_err(|_| ApiError::invalid("revision", "write a whole number, such as 1842"));
        revision.map(Self)
    }
}

pub struct TilePath(pub TileName);

impl TilePath {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        let tile = TileName::parse(&segment(request, "tile").unwrap_or_default());
        let help = "write LEVEL/INDEX, such as 0/000 or entries/x001/234.p/8";
        tile.map(Self)
            .ok_or_else(|| ApiError::invalid("tile", help))
    }
}
