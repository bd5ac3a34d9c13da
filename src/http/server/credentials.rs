//! The check of a request's key, and slow answers to wrong keys.

use std::rc::Rc;

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use actix_web::web::Data;
use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use tokio::time::sleep;

use super::exchange::Exchange;
use super::in_process::sender;
use super::request_id::RequestId;
use crate::answer::ApiError;
use crate::request::Authenticated;
use engine::{Authority, Engine, WrongKeyAnswer};

const TWO_KEYS: &str = "the request has several Authorization fields: send one";

/// Checks the key of a request once, and slows down anyone who repeats wrong keys.
///
/// Invariant: every request with a key passes here, before its handler and after it. So no handler
/// can run before the key is checked, and no answer to a wrong key can leave early.
pub async fn oversee(
    request: &HttpRequest,
    id: &RequestId,
    answer: impl Future<Output = HttpResponse>,
) -> HttpResponse {
    let Some(engine) = request.app_data::<Data<Engine>>() else {
        return answer.await;
    };
    // 1. Refuse two keys: a proxy before this instance may have read the other one.
    if request.headers().get_all(AUTHORIZATION).nth(1).is_some() {
        return HttpResponse::from_error(ApiError::Malformed(TWO_KEYS.to_owned()));
    }
    // 2. Check the key, and store the result for the extractors. A request without a key stores
    // nothing.
    let mut authority = None;
    if let Some(sender) = sender() {
        request
            .extensions_mut()
            .insert(Authenticated(Ok(Some(sender))));
    } else if let Some(secret) = secret(request.headers()) {
        let authenticated = engine.callers.authenticate(secret).await;
        if let Ok(Some(principal)) = &authenticated {
            authority = Some(Authority::new(&engine.callers, principal.clone()));
        }
        request
            .extensions_mut()
            .insert(Authenticated(authenticated));
    }
    if let Some(exchange) = request.conn_data::<Rc<Exchange>>() {
        exchange.note_key(authority);
    }
    // 3. Let the handler answer. Its extractors refuse a wrong key with `WrongKey`.
    let answer = answer.await;
    // 4. Count the wrong key for the client's address. The count says whether the answer leaves now
    // or after a wait, or is replaced by 429.
    if let Some(ApiError::WrongKey) = ApiError::of(&answer) {
        let address = request.peer_addr();
        let note = || {
            engine
                .callers
                .wrong_key(address.map(|address| address.ip()))
        };
        match id.span().in_scope(note) {
            WrongKeyAnswer::Now => {}
            WrongKeyAnswer::After(wait, _place) => sleep(wait).await,
            WrongKeyAnswer::TooMany(wait) => {
                return HttpResponse::from_error(ApiError::TooManyWrongKeys(wait));
            }
        }
    }
    answer
}

fn secret(headers: &HeaderMap) -> Option<&str> {
    bearer_secret(headers.get(AUTHORIZATION)?.to_str().ok()?)
}

/// The secret in an `Authorization` field.
pub fn bearer_secret(field: &str) -> Option<&str> {
    let (scheme, secret) = field.split_once(' ')?;
    let secret = secret.trim();
    let is_bearer = scheme.eq_ignore_ascii_case("bearer") && !secret.is_empty();
    is_bearer.then_some(secret)
}
