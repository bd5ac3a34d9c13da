//! What a database says of itself, read without a change: for `perdiem doctor`, also before the first start.

mod file_facts;
mod server_facts;

pub use file_facts::FileFacts;
pub use server_facts::{ClientLimits, RoleFacts, ServerFacts, VacuumFacts};

use host::clock::Clock;

use crate::OpenError;
use crate::boxed;

/// What a store says of itself.
pub enum Checkup {
    Postgres(Box<ServerFacts>),
    Sqlite(FileFacts),
}

impl Checkup {
    /// Asks the store of a URL. It answers within seconds, or the error says that it does not. `reads_only` is
    /// whether the instance will only read.
    ///
    /// # Errors
    /// [`OpenError`]; each says what to do.
    #[boxed]
    pub async fn of(url: &str, reads_only: bool, clock: &Clock) -> Result<Self, OpenError> {
        match url.split_once(':') {
            Some(("postgres" | "postgresql", _)) => {
                let facts = ServerFacts::read(url, reads_only, clock).await?;
                Ok(Self::Postgres(Box::new(facts)))
            }
            Some(("sqlite", _)) => Ok(Self::Sqlite(FileFacts::read(url).await?)),
            Some(_) | None => Err(OpenError::UnknownUrl),
        }
    }
}
