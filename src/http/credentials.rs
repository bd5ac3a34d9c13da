//! Whose key a request carries, and slow answers to wrong keys.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpMessage, ResponseError};
use tokio::time::sleep;

use super::error::ApiError;
use crate::engine::{Engine, Failure, Principal, WrongKeyAnswer};

/// Whose key a request carries: `None` for a wrong one. A request without a key has no such
/// extension.
#[derive(Clone)]
pub struct Authenticated(pub Result<Option<Principal>, Failure>);

/// Finds out whose key a request carries, once, and slows down anyone who sends wrong keys again
/// and again. Both wait here, where no other part of the request can overtake them.
pub async fn oversee(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if let Some(secret) = bearer_secret(request.headers())
        && let Some(data) = request.app_data::<Data<Engine>>()
    {
        let authenticated = Authenticated(data.authenticate(secret).await);
        request.extensions_mut().insert(authenticated);
    }
    let response = next.call(request).await?;
    let error = response.response().error();
    let error = error.and_then(|error| error.as_error::<ApiError>());
    let data = response.request().app_data::<Data<Engine>>();
    if let (Some(ApiError::WrongKey), Some(data)) = (error, data) {
        let address = response.request().peer_addr();
        match data.wrong_key(address.map(|address| address.ip())) {
            WrongKeyAnswer::Now => {}
            WrongKeyAnswer::After(wait, _place) => sleep(wait).await,
            WrongKeyAnswer::TooMany(wait) => {
                let refused = ApiError::TooManyWrongKeys(wait).error_response();
                return Ok(response.into_response(refused).map_into_right_body());
            }
        }
    }
    Ok(response.map_into_left_body())
}

fn bearer_secret(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let secret = secret.trim();
    let is_bearer = scheme.eq_ignore_ascii_case("bearer") && !secret.is_empty();
    is_bearer.then_some(secret)
}
