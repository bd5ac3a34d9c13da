//! How the application serves: connections, and what holds for every request.

mod application;
mod bounds;
mod connection;
mod credentials;
mod every;
mod kept;
mod request_id;

pub use application::{Application, ServeError, ServeOptions};
