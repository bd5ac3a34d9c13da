//! Pages of lists.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A page of any list, whose items are as they came.
#[derive(Debug, Serialize, Deserialize)]
pub struct AnyPage {
    pub items: Vec<Value>,
    pub next_cursor: Option<String>,
}

/// Where the next page of a list begins, in the specification.
pub enum NextCursor {}

impl PartialSchema for NextCursor {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
            .description(Some(
                "The `cursor` of the next page; null on the last page. It stays valid while the list grows.",
            ))
            .into()
    }
}

impl ToSchema for NextCursor {}

/// Makes the body of a page of items.
macro_rules! page {
    ($name:ident of $item:ident) => {
        #[derive(Debug, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
        pub struct $name {
            pub items: Vec<$item>,
            #[schema(value_type = crate::page::NextCursor, required = false)]
            pub next_cursor: Option<String>,
        }

        impl $name {
            /// The items, and where the next page begins.
            pub fn new<T>(
                (found, next_cursor): (Vec<T>, Option<String>),
                item: impl FnMut(T) -> $item,
            ) -> Self {
                let items = found.into_iter().map(item).collect();
                Self { items, next_cursor }
            }
        }
    };
}
pub(crate) use page;
