//! Rows, read by the names of their columns.

/// Declares the type of a row, whose fields are columns. A field after `..` is a row of its own,
/// whose columns are among them.
///
/// `#[derive(sqlx::FromRow)]` would do the same. But for sqlx's macros sqlx and its drivers are
/// compiled a second time, as parts of the compiler.
macro_rules! row {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $(.. $inner:ident: $inner_row:ty,)?
            $($field_visibility:vis $field:ident: $kind:ty,)*
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($inner: $inner_row,)?
            $($field_visibility $field: $kind,)*
        }

        impl<'r, R: sqlx::Row> sqlx::FromRow<'r, R> for $name
        where
            for<'c> &'c str: sqlx::ColumnIndex<R>,
            $($inner_row: sqlx::FromRow<'r, R>,)?
            $($kind: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,)*
        {
            fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
                Ok(Self {
                    $($inner: <$inner_row as sqlx::FromRow<'r, R>>::from_row(row)?,)?
                    $($field: row.try_get(stringify!($field))?,)*
                })
            }
        }
    };
}

pub(in crate::ledger) use row;
