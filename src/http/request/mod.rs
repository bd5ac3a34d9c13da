//! The parts of a request that handlers take. They are parsed once, here.

mod body;
mod caller;
mod faults;
mod gate_key;
mod header;
mod metadata;
mod path;
mod query;
mod route;
mod span;

use actix_web::web::Data;

use engine::{Audit, Claims, Engine, Record};

pub use body::{Body, FormBytes, FrequentBody, OptionalBody, ReadTime, Then, try_parse_json};
pub use caller::{
    AboutNoPolicy, Admin, Anyone, Auditor, Authenticated, ByHandler, Caller, Claimer, Corrector,
    InQuery, MetricsReader, OpenMetrics, Public, Supporter, Wanted,
};
pub use faults::{Faults, parse_date, parse_effective, parse_instant, parse_position, parse_true};
pub use gate_key::GateKey;
#[cfg(test)]
pub use header::CHANGE_MEANING;
pub use header::{IDEMPOTENCY_KEY_FIELD, IfMatch, IfMatchOrNone, KeyHeader, NeedlessKey};
pub use metadata::MetadataQuery;
pub use path::{
    BundlePath, GrantPath, IdPath, NewPolicyPath, NewSubjectPath, PolicyPath, ReportPath,
    RevisionPath, SubjectPath, TilePath, TopUpPath,
};
pub use query::{DryRun, Page, PageQuery, Query, Reason, is_true};
pub use route::{
    Bounded, Handling, PlacedOperation, Route, Routes, WAIT_MOST, handling, pattern, segment,
};
pub use span::SpanQuery;

/// The handles of the engine. A handler has an argument for each one that it uses.
pub type ClaimsData = Data<Claims>;
pub type RecordData = Data<Record>;
pub type AuditData = Data<Audit>;
pub type AdminData = Data<engine::Admin>;

/// The whole engine, for what an instance says of itself.
pub type EngineData = Data<Engine>;

/// Makes extractors of types that have `of(&HttpRequest) -> Result<Self, ApiError>`. With the type of their
/// parameters they describe themselves too.
macro_rules! extractors {
    ($($name:ty => $parameters:ty),+ $(,)?) => {
        crate::request::extractors!($($name),+);
        $(impl crate::operation::Argument for $name {
            fn describe(operation: &mut crate::operation::Operation) {
                operation.takes::<$parameters>();
            }
        })+
    };
    ($($name:ty),+) => {$(
        impl actix_web::FromRequest for $name {
            type Error = crate::answer::ApiError;
            type Future = std::future::Ready<Result<Self, Self::Error>>;

            fn from_request(
                request: &actix_web::HttpRequest,
                _: &mut actix_web::dev::Payload,
            ) -> Self::Future {
                std::future::ready(Self::of(request))
            }
        }
    )+};
}
use extractors;
