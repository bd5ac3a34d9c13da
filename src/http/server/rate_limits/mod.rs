//! Envoy's Rate Limit Service, over gRPC: a proxy asks before it lets a request through. Each descriptor of a
//! question is a claim of the gate's key, and the claims of one question are granted together or not at all.

mod connection;
mod keys;
pub mod messages;
mod question;
mod told;

use std::iter::{once, repeat_with};
use std::rc::Rc;
use std::sync::Arc;

use actix_web::ResponseError;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use self::keys::keys;
use self::messages::{RateLimitRequest, RateLimitResponse};
use self::question::{AskedClaim, RateLimitQuestion};
use self::told::{Became, Passed, refused, tell};
use super::connection::Bounds;
use super::request_id::RequestId;
use crate::answer::ApiError;
use crate::request::{GateKey, KeyHeader};
use crate::v1::batches::{Checked, claim_together};
use crate::v1::claims::{Claimed, GrantedClaim, check_claim, decide};
use domain::claim::IdempotencyKey;
use engine::{Engine, Principal, Rehearsal};
use host::chain::Chain;

/// The most looks of a question at once.
const LOOKS_AT_ONCE: usize = 16;
const NO_TEXT: &str = "the subject is no text: let the proxy send UTF-8";

/// The service of one thread.
pub struct RateLimits {
    engine: Arc<Engine>,
    key: GateKey,
    bounds: Bounds,
    /// Cancelled when the server ends.
    ending: CancellationToken,
}

impl RateLimits {
    pub fn new(
        engine: Arc<Engine>,
        key: GateKey,
        bounds: Bounds,
        ending: CancellationToken,
    ) -> Rc<Self> {
        Rc::new(Self {
            engine,
            key,
            bounds,
            ending,
        })
    }

    /// The answer to a question; or why there is none, which the log tells too if the service failed.
    async fn answer(
        &self,
        request: RateLimitRequest,
        id: &RequestId,
    ) -> Result<RateLimitResponse, Status> {
        let answered = self.decided(request, id).await;
        answered.map_err(|error| {
            if error.status_code().is_server_error() && !error.is_told_elsewhere() {
                let _in_span = id.span().enter();
                let cause = Chain(&error).to_string();
                tracing::error!(cause, "a question about a rate limit failed");
            }
            Status::new(grpc_code(&error), error.to_string())
        })
    }

    async fn decided(
        &self,
        request: RateLimitRequest,
        id: &RequestId,
    ) -> Result<RateLimitResponse, ApiError> {
        // 1. Read the settings of the proxy.
        let question = RateLimitQuestion::parse(request).map_err(ApiError::Malformed)?;
        let policies: Vec<_> = question.claims.iter().map(|claim| &claim.policy).collect();
        // 2. Claim, with the rights that the key has now.
        let claimers = policies.iter();
        let claimers = claimers.map(|policy| self.key.claimer_of(&self.engine, policy));
        let claimers = try_join_all(claimers).await?;
        let claimer = claimers.first().ok_or(ApiError::WrongGateKey)?;
        let became = self.decide(&question, claimer).await?;
        // 3. Tell.
        tell(&policies, became, |error| {
            error.json(id.text(), id.trace_id())
        })
    }

    /// The answer to a question that is too large. The user can have made it so.
    fn too_large(most: usize, id: &RequestId) -> RateLimitResponse {
        refused(&ApiError::TooLarge(most), |error| {
            error.json(id.text(), id.trace_id())
        })
    }

    /// What becomes of the claim of each descriptor.
    async fn decide(
        &self,
        question: &RateLimitQuestion,
        claimer: &Principal,
    ) -> Result<Vec<Became>, ApiError> {
        let claims = &question.claims;
        let taking: Vec<_> = claims.iter().filter(|asked| !asked.only_looks()).collect();
        let keys = match keys(question.key.as_deref(), &taking) {
            Ok(keys) => keys,
            // The user can have written it, so it refuses the question, as a wrong subject does.
            Err(error) => {
                let others = repeat_with(|| Err(ApiError::FailedDependency));
                return Ok(once(Err(error)).chain(others).take(claims.len()).collect());
            }
        };
        let taking = taking.into_iter().zip(keys);
        let taking: Vec<Checked> = taking
            .map(|(asked, key)| check(asked, key, claimer))
            .collect();
        // 1. Look where a descriptor only looks. If that is refused, nothing is taken anywhere. A question that was
        //    granted before is granted again, whatever its looks would find now.
        let looks = claims.iter().map(async |asked| {
            let look = asked.only_looks().then(|| self.look(asked, claimer));
            Some(look?.await)
        });
        let mut looks: Vec<Option<Became>> =
            stream::iter(looks).buffered(LOOKS_AT_ONCE).collect().await;
        let may_take = looks.iter().flatten().all(Result::is_ok);
        let mut taken = if may_take {
            self.take(taking, claimer).await?
        } else if question.key.is_some()
            && let Some(before) = self.taken_before(taking, claimer).await
        {
            let now = self.engine.claims.instance.now();
            for look in looks.iter_mut().flatten().filter(|look| look.is_err()) {
                *look = Ok(Passed::without_limits(now));
            }
            before
        } else {
            Vec::new()
        }
        .into_iter();
        // 2. Answer in the order of the descriptors.
        let missing = || Err(ApiError::FailedDependency);
        let became = looks.into_iter();
        let became = became.map(|look| look.or_else(|| taken.next()).unwrap_or_else(missing));
        Ok(became.collect())
    }

    /// Whether one unit would be granted, and what would be left.
    async fn look(&self, asked: &AskedClaim, claimer: &Principal) -> Became {
        self.rehearse(check(asked, None, claimer), claimer).await
    }

    /// What would become of a claim, or what became of it before.
    async fn rehearse(&self, checked: Checked, claimer: &Principal) -> Became {
        let (policy, claim) = checked?;
        let claims = &self.engine.claims;
        let claimed = Claimed::of(&policy, &claim);
        let admission = claims.admit(&claimer.key)?;
        match claims.try_claim(admission, &policy, claim).await? {
            Rehearsal::WouldGrant {
                totals,
                would_deny,
                forecast,
            } => Ok(Passed {
                totals,
                forecast,
                now: claims.instance.now(),
                grant: None,
                bundle: None,
                would_deny,
            }),
            Rehearsal::Ended(foretold) => claimed.tell(*foretold, claims).await.map(passed),
        }
    }

    /// What became of these claims, if all of them were granted before.
    async fn taken_before(&self, taking: Vec<Checked>, claimer: &Principal) -> Option<Vec<Became>> {
        let mut before = Vec::with_capacity(taking.len());
        for checked in taking {
            let became = self.rehearse(checked, claimer).await;
            became.as_ref().ok()?.grant?;
            before.push(became);
        }
        (!before.is_empty()).then_some(before)
    }

    /// Takes the units of all these claims, or of none.
    async fn take(
        &self,
        mut taking: Vec<Checked>,
        claimer: &Principal,
    ) -> Result<Vec<Became>, ApiError> {
        let claims = &self.engine.claims;
        let granted = if taking.len() > 1 {
            claim_together(&claimer.key, taking, false, claims).await?
        } else {
            let Some(one) = taking.pop() else {
                return Ok(Vec::new());
            };
            let decided = async {
                let (policy, claim) = one?;
                decide(claims, &claimer.key, policy, claim).await
            };
            vec![decided.await]
        };
        Ok(granted.into_iter().map(|it| it.map(passed)).collect())
    }
}

fn check(asked: &AskedClaim, key: Option<IdempotencyKey>, claimer: &Principal) -> Checked {
    let body = asked.body();
    let body = body.ok_or_else(|| ApiError::invalid_body("/subject", NO_TEXT))?;
    let (claim, _) = check_claim(body, KeyHeader(key), claimer.number)?;
    Ok((asked.policy.clone(), claim))
}

fn passed(granted: GrantedClaim) -> Passed {
    let grant = granted.answer.grant.as_ref();
    Passed {
        grant: grant.map(|grant| grant.id),
        bundle: grant.and_then(|grant| grant.bundle),
        would_deny: granted.answer.would_deny,
        totals: granted.totals,
        forecast: granted.forecast,
        now: granted.now,
    }
}

/// The code for a question that was not decided.
fn grpc_code(error: &ApiError) -> Code {
    match error {
        ApiError::Malformed(_) => Code::InvalidArgument,
        ApiError::UnknownPolicy(_) => Code::NotFound,
        ApiError::WrongGateKey => Code::PermissionDenied,
        ApiError::ClaimInProgress => Code::Aborted,
        _ => Code::Unavailable,
    }
}
