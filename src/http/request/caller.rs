//! The caller of a request, and the rights of its key. A handler takes a [`Caller`] as its first
//! parameter, so that it cannot forget the check. So 401 and 403 come before all other errors, and
//! the errors of an unknown query parameter come next.

use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use utoipa::IntoResponses;

use super::query::DryRun;
use super::route::segment;
use super::{extractors, header, query};
use crate::answer::{ApiError, Forbidden};
use crate::operation::{Argument, Operation, Reach};
use domain::grant::Note;
use domain::key::{KeyNumber, Role};
use domain::policy::PolicyName;
use domain::reads::{ReadKind, SubjectRead};
use engine::{Authority, Callers, Editor, Engine, Failure, OwnKey, Principal, Record};

extractors!(MetricsReader, Public);

/// The owner of a request's key; `None` for a wrong key. A request without a key has no such
/// extension.
#[derive(Clone)]
pub struct Authenticated(pub Result<Option<Principal>, Failure>);

/// Whether `/metrics` is open to all.
#[derive(Clone, Copy)]
pub struct OpenMetrics(pub bool);

/// A caller whose key is valid and has one of the roles `W`. Where the key is confined to policies,
/// `P` says how the route enforces this.
pub struct Caller<W, P = InPath> {
    principal: Principal,
    rights: PhantomData<(W, P)>,
}

/// The roles that a route is for.
pub trait Wanted {
    const ROLES: &'static [Role];
}

macro_rules! wanted {
    ($($(#[doc = $doc:literal])+ $name:ident = $roles:expr;)+) => {$(
        $(#[doc = $doc])+
        pub struct $name;

        impl Wanted for $name {
            const ROLES: &'static [Role] = $roles;
        }
    )+};
}

wanted! {
    /// Keys that claim.
    Claimer = &[Role::Claim, Role::Admin];
    /// Keys that confirm and reverse.
    Corrector = &[Role::Claim, Role::Support, Role::Admin];
    /// Keys that read.
    Auditor = &[Role::Audit, Role::Support, Role::Admin];
    /// Keys that change what a policy has for one subject.
    Supporter = &[Role::Support, Role::Admin];
    /// Keys that change settings.
    Admin = &[Role::Admin];
    /// All keys.
    Anyone = &Role::ALL;
}

/// How a route keeps a confined key to its policies.
pub trait Confinement {
    const REACH: Reach;

    fn check(principal: &Principal, request: &HttpRequest) -> Result<(), Forbidden>;
}

/// The `{policy}` in the path must be one of the key's. A route without `{policy}` is about all
/// policies: a confined key may not use it.
pub struct InPath;

/// The query parameter `policy` must be one of the key's. A confined key must send it.
pub struct InQuery;

/// The handler filters its answer by the key's policies, or calls [`Caller::may_use`] when it knows
/// the policies of the request.
pub struct ByHandler;

/// The request is not about policies: a confined key may send it too.
pub struct AboutNoPolicy;

impl Confinement for InPath {
    const REACH: Reach = Reach::InPath;

    fn check(principal: &Principal, request: &HttpRequest) -> Result<(), Forbidden> {
        if principal.policies.is_none() {
            return Ok(());
        }
        let policy = segment(request, "policy").ok_or(Forbidden::AllPolicies)?;
        check_policy(principal, &policy)
    }
}

impl Confinement for InQuery {
    const REACH: Reach = Reach::InQuery;

    fn check(principal: &Principal, request: &HttpRequest) -> Result<(), Forbidden> {
        if principal.policies.is_none() {
            return Ok(());
        }
        // A query that cannot be read names no policy.
        let parameters = query::parse(request.query_string()).unwrap_or_default();
        let mut named = parameters.iter().filter(|(name, _)| name == "policy");
        let (_, first) = named.next().ok_or(Forbidden::NoPolicy)?;
        check_policy(principal, first)?;
        named.try_for_each(|(_, other)| check_policy(principal, other))
    }
}

impl Confinement for ByHandler {
    const REACH: Reach = Reach::ByHandler;

    fn check(_: &Principal, _: &HttpRequest) -> Result<(), Forbidden> {
        Ok(())
    }
}

impl Confinement for AboutNoPolicy {
    const REACH: Reach = Reach::Everything;

    fn check(_: &Principal, _: &HttpRequest) -> Result<(), Forbidden> {
        Ok(())
    }
}

/// Invariant: a text that is not a policy's name is never one of the key's policies.
fn check_policy(principal: &Principal, name: &str) -> Result<(), Forbidden> {
    match PolicyName::new(name) {
        Ok(name) if principal.may_use(&name) => Ok(()),
        _ => Err(Forbidden::OtherPolicy),
    }
}

impl<W, P> Caller<W, P> {
    /// The text that changes store as their maker: the caller's key.
    pub fn key(&self) -> Arc<str> {
        self.principal.key.clone()
    }

    /// The caller as the one who corrects something, and why.
    pub fn note(&self, reason: Option<String>) -> Note {
        Note {
            by: self.key(),
            reason,
        }
    }

    /// The caller as the one who changes something.
    pub fn editor(&self, dry_run: DryRun) -> Editor {
        Editor {
            key: self.key(),
            is_dry_run: dry_run.0,
            bounds: self.principal.bounds,
            approves: None,
        }
    }

    /// The number that entries store for the caller's key.
    pub fn key_number(&self) -> KeyNumber {
        self.principal.number
    }

    pub fn policies(&self) -> Option<&[PolicyName]> {
        self.principal.policies.as_deref()
    }

    /// What the caller may know about its own key.
    pub fn own_key(&self, callers: &Callers) -> Result<OwnKey, ApiError> {
        let own = callers.access.own_key(&self.principal);
        own.ok_or(ApiError::KeyLost)
    }

    /// The authority of an answer that lasts.
    pub fn authority(&self, callers: &Arc<Callers>) -> Authority {
        Authority::new(callers, self.principal.clone())
    }

    /// Records that the caller looked at a subject, if the settings say so. A handler whose answer
    /// shows a named subject calls it when the answer is ready. Without a subject the answer shows
    /// nobody.
    pub async fn record_read<'s>(
        &self,
        record: &Record,
        kind: ReadKind,
        policy: Option<&PolicyName>,
        subject: impl Into<Option<&'s str>>,
    ) -> Result<(), ApiError> {
        let Some(subject) = subject.into() else {
            return Ok(());
        };
        let read = SubjectRead {
            kind,
            policy,
            subject,
        };
        Ok(record.record_read(&self.principal.key, read).await?)
    }

    /// Checks that the caller has a role that a part of the request requires.
    pub fn must_be<R: Wanted>(&self) -> Result<(), ApiError> {
        if R::ROLES.contains(&self.principal.role) {
            Ok(())
        } else {
            Err(wrong_role::<R>(&self.principal).into())
        }
    }

    /// Checks that the caller may use a policy that is not named in the path or the query.
    pub fn may_use(&self, policy: &PolicyName) -> Result<(), ApiError> {
        if self.principal.may_use(policy) {
            Ok(())
        } else {
            Err(Forbidden::OtherPolicy.into())
        }
    }
}

impl<W: Wanted, P: Confinement> FromRequest for Caller<W, P> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(authorise::<W, P>(request).map(|principal| Self {
            principal,
            rights: PhantomData,
        }))
    }
}

impl<W: Wanted, P: Confinement> Argument for Caller<W, P> {
    fn describe(operation: &mut Operation) {
        operation.needs_key(W::ROLES, P::REACH);
        operation
            .has_common::<WithAnyKey>()
            .has_common::<WithRights>();
    }
}

/// The problems of every request with a key.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
enum WithAnyKey {
    /// `unauthorized`: no valid key.
    #[response(status = 401)]
    Unauthorized,
    /// `too-many-wrong-keys`: wait for as long as `Retry-After` says.
    #[response(status = 429)]
    TooManyWrongKeys,
}

/// The problems of every request whose key needs a right.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
enum WithRights {
    /// `malformed`: the request is not JSON, has an unknown field or parameter, or a wrong type.
    #[response(status = 400)]
    Malformed,
    /// `forbidden`: the key has another role, or is confined to other policies.
    #[response(status = 403)]
    Forbidden,
    /// `invalid`: wrong values, each with its place; `idempotency-key-reused`: the same key with
    /// another claim.
    #[response(status = 422)]
    Invalid,
    /// `undecided`: the claim could not be decided exactly within the deadline; `unavailable`:
    /// the ledger does not answer; both with `Retry-After`. `read-only`: this instance only reads.
    #[response(status = 503)]
    Unavailable,
}

/// Checks a request's key, its role, its policies, and the names in the query. Each check has its
/// status, and the order of the checks is the order of the statuses in the specification.
fn authorise<W: Wanted, P: Confinement>(request: &HttpRequest) -> Result<Principal, ApiError> {
    // 1. The key is valid: otherwise 401.
    let principal = authenticate(request)?;
    // 2. The key has a role of the route: otherwise 403.
    if !W::ROLES.contains(&principal.role) {
        return Err(wrong_role::<W>(&principal).into());
    }
    // 3. The key is not confined to other policies: otherwise 403.
    P::check(&principal, request)?;
    // 4. The query and the header have only parameters that the request takes: otherwise 400.
    check_names(request)?;
    // 5. A change by an admin is stamped by the clock of the instance. While the clock is off, it is
    //    refused with 503, as claims are.
    let is_of_settings = [Admin::ROLES, Supporter::ROLES].contains(&W::ROLES);
    let is_change = is_of_settings && !request.method().is_safe();
    let engine = request.app_data::<Data<Engine>>();
    if is_change && engine.is_some_and(|engine| engine.instance.clock_is_off()) {
        return Err(ApiError::ClockOff);
    }
    Ok(principal)
}

fn check_names(request: &HttpRequest) -> Result<(), ApiError> {
    query::check(request)?;
    header::check(request)
}

fn wrong_role<W: Wanted>(principal: &Principal) -> Forbidden {
    Forbidden::Role {
        role: principal.role,
        wanted: W::ROLES,
    }
}

fn authenticate(request: &HttpRequest) -> Result<Principal, ApiError> {
    match request.extensions().get::<Authenticated>() {
        None => Err(ApiError::Unauthorized),
        Some(Authenticated(Ok(None))) => Err(ApiError::WrongKey),
        Some(Authenticated(Ok(Some(principal)))) => Ok(principal.clone()),
        Some(Authenticated(Err(failure))) => Err(failure.clone().into()),
    }
}

/// A caller who may read the metrics: with any key, or without one where the metrics are open.
pub struct MetricsReader;

impl MetricsReader {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        match request.app_data() {
            Some(OpenMetrics(true)) => check_names(request)?,
            _ => drop(authorise::<Anyone, AboutNoPolicy>(request)?),
        }
        Ok(Self)
    }
}

impl Argument for MetricsReader {
    fn describe(operation: &mut Operation) {
        operation.needs_key(Anyone::ROLES, AboutNoPolicy::REACH);
        operation.has_common::<WithAnyKey>();
    }
}

/// Any caller, with or without a key. Open routes take it as their first parameter.
pub struct Public;

impl Public {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        check_names(request).map(|()| Self)
    }
}

impl Argument for Public {
    fn describe(operation: &mut Operation) {
        operation.is_open();
    }
}
