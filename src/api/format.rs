//! The formats of exports.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    Csv,
    Ndjson,
}

impl ExportFormat {
    pub const ALL: [Self; 2] = [Self::Csv, Self::Ndjson];

    /// The name of the format in the API, and the extension of its files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
        }
    }

    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let found = Self::ALL.into_iter().find(|format| format.as_str() == text);
        found.ok_or("write format=csv or format=ndjson")
    }
}
