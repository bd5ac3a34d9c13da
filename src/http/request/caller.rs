//! Who sent a request, and whether they may do what it asks. A handler takes a [`Caller`] first,
//! so that it cannot forget to ask, and so that 401 and 403 come before everything else, and a
//! query that the request does not take right after them.

use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpMessage, HttpRequest};

use super::route::segment;
use super::{extractors, query};
use crate::domain::key::{KeyNumber, Role};
use crate::domain::policy::PolicyName;
use crate::engine::{Failure, Principal};
use crate::http::answer::{ApiError, Forbidden};

extractors!(MetricsReader, Public);

/// Whose key a request carries: `None` for a wrong one. A request without a key has no such
/// extension.
#[derive(Clone)]
pub struct Authenticated(pub Result<Option<Principal>, Failure>);

/// Whether `/metrics` is open to all.
#[derive(Clone, Copy)]
pub struct OpenMetrics(pub bool);

/// Anyone who has a valid key whose role `W` names. A key that is confined to policies reaches no
/// further than these, in the way that `P` tells.
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
    /// Who claims, confirms and reverses.
    Claimer = &[Role::Claim, Role::Admin];
    /// Who reads.
    Auditor = &[Role::Audit, Role::Admin];
    /// Who changes something.
    Admin = &[Role::Admin];
    /// Anyone who has a key.
    Anyone = &Role::ALL;
}

/// How a route keeps a confined key to its policies.
pub trait Confinement {
    fn check(principal: &Principal, request: &HttpRequest) -> Result<(), Forbidden>;
}

/// By the `{policy}` in its path. A route without one is about all policies: it is for keys
/// that are not confined.
pub struct InPath;

/// By the parameter `policy` of its query, which a confined key must send.
pub struct InQuery;

/// The handler shows only what is theirs, or calls [`Caller::may_use`] when it knows which
/// policies it is about.
pub struct ByHandler;

impl Confinement for InPath {
    fn check(principal: &Principal, request: &HttpRequest) -> Result<(), Forbidden> {
        if principal.policies.is_none() {
            return Ok(());
        }
        let policy = segment(request, "policy").ok_or(Forbidden::AllPolicies)?;
        check_policy(principal, &policy)
    }
}

impl Confinement for InQuery {
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
    fn check(_: &Principal, _: &HttpRequest) -> Result<(), Forbidden> {
        Ok(())
    }
}

/// What is no policy's name is none that the key is confined to.
fn check_policy(principal: &Principal, name: &str) -> Result<(), Forbidden> {
    match PolicyName::new(name) {
        Ok(name) if principal.may_use(&name) => Ok(()),
        _ => Err(Forbidden::OtherPolicy),
    }
}

impl<W, P> Caller<W, P> {
    /// What stands beside the changes that the caller makes.
    pub fn key(&self) -> Arc<str> {
        self.principal.key.clone()
    }

    /// What entries keep of the caller.
    pub fn key_number(&self) -> KeyNumber {
        self.principal.number
    }

    pub fn policies(&self) -> Option<&[PolicyName]> {
        self.principal.policies.as_deref()
    }

    /// Whether the caller has a role that a part of the request wants.
    pub fn must_be<R: Wanted>(&self) -> Result<(), ApiError> {
        match R::ROLES.contains(&self.principal.role) {
            true => Ok(()),
            false => Err(wrong_role::<R>(&self.principal).into()),
        }
    }

    /// Whether the caller may use a policy that the request's path and query do not name.
    pub fn may_use(&self, policy: &PolicyName) -> Result<(), ApiError> {
        match self.principal.may_use(policy) {
            true => Ok(()),
            false => Err(Forbidden::OtherPolicy.into()),
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

fn authorise<W: Wanted, P: Confinement>(request: &HttpRequest) -> Result<Principal, ApiError> {
    let principal = authenticate(request)?;
    if !W::ROLES.contains(&principal.role) {
        return Err(wrong_role::<W>(&principal).into());
    }
    P::check(&principal, request)?;
    query::check(request)?;
    Ok(principal)
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

/// Anyone who may read the metrics: with any key, or without one where they are open.
pub struct MetricsReader;

impl MetricsReader {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        match request.app_data() {
            Some(OpenMetrics(true)) => query::check(request)?,
            _ => drop(authorise::<Anyone, ByHandler>(request)?),
        }
        Ok(Self)
    }
}

/// Anyone, with or without a key: what an open route takes first.
pub struct Public;

impl Public {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        query::check(request).map(|()| Self)
    }
}
