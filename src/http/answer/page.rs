//! Pages of lists.

/// Makes the body of a page of items.
macro_rules! page {
    ($(#[$page:meta])+ $name:ident of $item:ident $(#[$cursor:meta])+) => {
        $(#[$page])+
        #[derive(Debug, serde::Serialize, utoipa::ToSchema)]
        pub struct $name {
            items: Vec<$item>,
            $(#[$cursor])+
            next_cursor: Option<String>,
        }

        impl $name {
            /// The answer: the items, and where the next page begins.
            fn answer<T>(
                (found, next_cursor): (Vec<T>, Option<String>),
                item: impl FnMut(T) -> $item,
            ) -> crate::http::answer::HttpAnswer {
                let items = found.into_iter().map(item).collect();
                Ok(actix_web::HttpResponse::Ok().json(Self { items, next_cursor }))
            }
        }
    };
}
pub(crate) use page;
