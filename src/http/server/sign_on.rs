//! Signing in to the console with the account of a company. Each person gets a key of their own, so that changes are
//! theirs and an admin can lock them out. The key ends when the browser is signed out.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, TimeDelta, Utc};

use super::console::{Console, answer_page, cookie, cookie_of, is_own_page, see_other, set_cookie};
use domain::key::KeyRule;
use engine::{ATTEMPT_FOR, KeyError, SIGNED_IN_FOR};
use host::chain::Chain;
use host::clock::wall_clock;
use sign_on::{Attempt, RoleOfGroup, SignOn, SignOnError};

/// What the browser keeps while its owner is at the provider.
const ATTEMPT: &str = "perdiem_sign_on";
const NOT_BEGUN: &str =
    "This sign-in was not begun in this browser, or it took longer than 15 minutes. Begin again.";
const NOT_SIGNED_IN: &str =
    "The provider of accounts did not sign you in. Begin again, or ask an admin.";
const LOCKED_OUT: &str = "An admin has revoked your access. Ask an admin to create a key for you.";
const LAST_ADMIN: &str = "Your groups give you another role, but yours is the last admin key without an end. Create another admin key \
                          first.";
const NOT_NOW: &str = "This is not available now. Try again.";

impl Console {
    /// Sends the browser to the provider.
    pub async fn begin_sign_on(&self, sign_on: &SignOn, request: &HttpRequest) -> HttpResponse {
        let query = console::FormFields::read(request.query_string().as_bytes());
        let to = query.get("to");
        match sign_on.begin(to).await {
            Ok((target, attempt)) => {
                let text = serde_json::to_string(&attempt).expect("texts are written as JSON");
                let sealed = self
                    .engine
                    .callers
                    .access
                    .attempts
                    .seal(&text, self.engine.instance.now());
                let mut answer = see_other(&target);
                keep_attempt(request, &mut answer, &sealed, ATTEMPT_FOR);
                answer
            }
            Err(error) => self.refuse(&error, to),
        }
    }

    /// Takes the browser back from the provider.
    pub async fn finish_sign_on(&self, sign_on: &SignOn, request: &HttpRequest) -> HttpResponse {
        let query = console::FormFields::read(request.query_string().as_bytes());
        // 1. Is it the browser that began?
        let access = &self.engine.callers.access;
        let now = self.engine.instance.now();
        let attempt = access.attempts.open(cookie_of(request, ATTEMPT), now);
        let attempt = attempt.and_then(|text| serde_json::from_str::<Attempt>(&text).ok());
        let Some(attempt) = attempt.filter(|attempt| attempt.state == query.get("state")) else {
            return self.sign_in(StatusCode::BAD_REQUEST, "", Some(NOT_BEGUN));
        };
        let to = &attempt.to;
        if query.get("code").is_empty() {
            return self.sign_in(StatusCode::FORBIDDEN, to, Some(NOT_SIGNED_IN));
        }
        // 2. Who is it?
        let person = match sign_on
            .finish(&attempt, query.get("code"), wall_clock())
            .await
        {
            Ok(person) => person,
            Err(error) => return self.refuse(&error, to),
        };
        // 3. Their key.
        let bits = person.seed;
        let Some(role) = person.role else {
            let reason = format!("has no role any more at {}", person.issuer);
            if let Err(error) = self.engine.admin.end_kept_key(bits, reason).await {
                tracing::warn!(error = %Chain(&error), "the key of somebody without a role was not ended");
            }
            let says = format!(
                "{} has no role here: ask an admin for a group that has one.",
                person.name
            );
            return self.sign_in(StatusCode::FORBIDDEN, to, Some(&says));
        };
        let reason = format!("signed in with {}", person.issuer);
        let rule = rule_of(person.name, role, now + SIGNED_IN_FOR);
        let secret = match self.engine.admin.keep_key(bits, rule, reason).await {
            Ok(Ok(secret)) => secret,
            Ok(Err(KeyError::Revoked)) => {
                return self.sign_in(StatusCode::FORBIDDEN, to, Some(LOCKED_OUT));
            }
            Ok(Err(KeyError::LastAdmin)) => {
                return self.sign_in(StatusCode::FORBIDDEN, to, Some(LAST_ADMIN));
            }
            Ok(Err(_)) => return self.sign_in(StatusCode::SERVICE_UNAVAILABLE, to, Some(NOT_NOW)),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "nobody can sign in with an account now");
                return self.sign_in(StatusCode::SERVICE_UNAVAILABLE, to, Some(NOT_NOW));
            }
        };
        // 4. Signed in.
        let to = if is_own_page(to) { to } else { "/console" };
        let mut answer = answer_page(200, console::signed_on_page(&self.settings, to));
        set_cookie(&mut answer, &self.session(request, &secret));
        keep_attempt(request, &mut answer, "", TimeDelta::zero());
        answer
    }

    fn refuse(&self, error: &SignOnError, to: &str) -> HttpResponse {
        let status = match error {
            SignOnError::TooMany => StatusCode::SERVICE_UNAVAILABLE,
            SignOnError::Provider(_) | SignOnError::Token(_) => {
                tracing::warn!(error = %Chain(error), "somebody could not sign in with an account");
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        self.sign_in(status, to, Some(&error.to_string()))
    }
}

/// The browser comes back from another site, so this cookie must come with it.
fn keep_attempt(request: &HttpRequest, answer: &mut HttpResponse, text: &str, life: TimeDelta) {
    let kept = cookie(request, ATTEMPT, text, life);
    set_cookie(answer, &format!("{kept}; SameSite=Lax"));
}

fn rule_of(name: String, role: RoleOfGroup, ends_at: DateTime<Utc>) -> KeyRule {
    KeyRule {
        name,
        role: role.role,
        policies: None,
        bounds: role.bounds,
        ends_at: Some(ends_at),
        revoked: false,
    }
}
