//! The server: connections, and the steps that every request takes.

mod application;
mod bounds;
mod connection;
mod console;
mod credentials;
mod every;
mod exchange;
mod first_key;
mod gate;
mod in_process;
mod intake;
mod kept;
mod listening;
mod newcomers;
mod plain_claims;
mod plain_head;
mod rate_limits;
mod read_only;
mod request_id;
mod sign_on;
mod tls;
mod wire;
mod written;

pub use application::{Application, ServeError, ServeOptions};
pub use first_key::FirstKey;
pub use gate::GateOptions;
pub use rate_limits::messages as rate_limit_messages;
pub use tls::TlsFiles;
