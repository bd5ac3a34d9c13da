//! How the application serves: connections, and what holds for every request.

mod application;
mod connection;
mod every;

pub use application::{Application, ServeError, ServeOptions};
