//! What goes before and after the check of a key: fresh knowledge, and slow answers to wrong keys.

use actix_web::Error;
use actix_web::ResponseError;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header;
use actix_web::middleware::Next;
use actix_web::web::Data;
use tokio::time::sleep;

use super::error::ApiError;
use super::extract::engine;
use crate::engine::{Engine, WrongKeyAnswer};

/// Lets nobody in by a key that was revoked a while ago, and slows down whoever sends wrong keys
/// again and again. Both wait here, where no other part of the request can overtake them.
pub async fn oversee(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if request.headers().contains_key(header::AUTHORIZATION)
        && let Some(data) = request.app_data::<Data<Engine>>()
    {
        engine(data).know_keys().await;
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
