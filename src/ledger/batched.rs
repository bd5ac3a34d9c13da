//! SQLite statements on rows of values.

/// A statement on rows of values, prepared in two widths. Unused rows are NULL, and each statement
/// leaves them out.
pub struct Batched {
    pub few: &'static str,
    pub many: &'static str,
}

/// The number of rows of the narrow statement.
const ROWS_FEW: usize = 8;
/// The number of rows of the wide statement.
pub const ROWS_MOST: usize = 64;

impl Batched {
    /// The statement for this many rows, at most [`ROWS_MOST`].
    pub fn of(&self, rows: usize) -> &'static str {
        match Self::width(rows) {
            ROWS_FEW => self.few,
            _ => self.many,
        }
    }

    /// How many rows the statement for this many rows has.
    pub fn width(rows: usize) -> usize {
        if rows <= ROWS_FEW {
            ROWS_FEW
        } else {
            ROWS_MOST
        }
    }
}

macro_rules! eight {
    ($row:expr) => {
        concat!(
            $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row
        )
    };
}

macro_rules! sixty_four {
    ($row:expr) => {
        $crate::batched::eight!($crate::batched::eight!($row))
    };
}

/// A statement made of rows between two parts, or of a macro that takes a macro that repeats rows.
macro_rules! batched {
    ($before:expr, $row:literal, $after:expr) => {
        $crate::batched::Batched {
            few: concat!($before, $crate::batched::eight!($row), $after),
            many: concat!($before, $crate::batched::sixty_four!($row), $after),
        }
    };
    ($statement:ident) => {
        $crate::batched::Batched {
            few: $statement!(eight),
            many: $statement!(sixty_four),
        }
    };
}

pub(crate) use {batched, eight, sixty_four};
