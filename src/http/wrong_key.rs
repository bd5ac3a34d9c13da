//! Answers to wrong keys, which may wait.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, ResponseError};
use tokio::time::sleep;

use super::error::ApiError;
use crate::engine::{Engine, WrongKeyAnswer};

/// Slows down whoever sends wrong keys again and again. The answer waits here, when it is made,
/// so that no other part of the request can overtake it.
pub async fn slow_down(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let response = next.call(request).await?;
    let error = response.response().error();
    let error = error.and_then(|error| error.as_error::<ApiError>());
    let engine = response.request().app_data::<Data<Engine>>();
    if let (Some(ApiError::WrongKey), Some(engine)) = (error, engine) {
        let address = response.request().peer_addr();
        match engine.wrong_key(address.map(|address| address.ip())) {
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
