//! The names of the keys that made something.

use std::collections::BTreeMap;

use maud::Markup;
use uuid::Uuid;

use crate::asking::path;
use crate::parts::maker;
use crate::visit::Visit;
use api::keys::ListedKey;

pub struct Makers(BTreeMap<String, String>);

impl Makers {
    /// Asks for the names of some makers, each once. A maker without a name is shown as it is recorded.
    pub async fn of<'m>(visit: &Visit<'_>, makers: impl IntoIterator<Item = &'m str>) -> Self {
        let mut names = BTreeMap::new();
        for by in makers {
            if names.contains_key(by) || Uuid::try_parse(by).is_err() {
                continue;
            }
            if let Ok(found) = visit
                .asker
                .get::<ListedKey>(path(&["v1", "keys", by]))
                .await
            {
                names.insert(by.to_owned(), found.key.name);
            }
        }
        Self(names)
    }

    pub fn show(&self, by: &str) -> Markup {
        maker(by, self.0.get(by).map(String::as_str))
    }
}
