//! The names of the API keys that made something. An answer has their ids.

use std::collections::HashMap;

use uuid::Uuid;

use super::ServerArgs;
use super::keys::all_keys;
use super::refusal::Refused;

/// Names by ids. Several keys can have the same name, so the id is shown too.
pub struct KeyNames(HashMap<Uuid, String>);

impl KeyNames {
    /// The names of makers of changes, as answers have them. The keys are listed only if one of the makers is a
    /// key. A key that is confined to policies may not list them, and sees ids.
    pub async fn of(
        server: &ServerArgs,
        makers: impl IntoIterator<Item = &str>,
    ) -> anyhow::Result<Self> {
        let is_key = |maker: &str| maker.parse::<Uuid>().is_ok();
        if !makers.into_iter().any(is_key) {
            return Ok(Self(HashMap::new()));
        }
        let keys = match all_keys(server).await {
            Ok(keys) => keys,
            Err(error) if is_forbidden(&error) => Vec::new(),
            Err(error) => return Err(error),
        };
        let names = keys.into_iter().map(|it| (it.key.id, it.key.name));
        Ok(Self(names.collect()))
    }

    /// A maker, such as `shop (0198c0de-…)`, or `PERDIEM_ADMIN_KEY`.
    pub fn show(&self, maker: &str) -> String {
        let name = maker.parse().ok().and_then(|id: Uuid| self.0.get(&id));
        name.map_or_else(|| maker.to_owned(), |name| format!("{name} ({maker})"))
    }
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    refused.is_some_and(|refused| refused.code() == "forbidden")
}
