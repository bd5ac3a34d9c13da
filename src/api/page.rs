//! Pages of lists.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A page of any list, whose items are as they came.
#[derive(Debug, Serialize, Deserialize)]
pub struct AnyPage {
    pub items: Vec<Value>,
    pub next_cursor: Option<String>,
}

/// Makes the body of a page of items.
macro_rules! page {
    ($(#[$page:meta])+ $name:ident of $item:ident $(#[$cursor:meta])+) => {
        $(#[$page])+
        #[derive(Debug, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
        pub struct $name {
            pub items: Vec<$item>,
            $(#[$cursor])+
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
