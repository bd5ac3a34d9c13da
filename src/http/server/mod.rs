//! How the application serves: connections, and what holds for every request.

mod application;
mod bounds;
mod connection;
mod every;
mod request_id;

pub use application::{Application, ServeError, ServeOptions};
pub use bounds::Bounded;
pub use request_id::RequestId;
