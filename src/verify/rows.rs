//! The rows of an export, in a stream of bytes.

use std::io;

#[derive(Debug, PartialEq, Eq)]
pub enum Row {
    /// The column names of CSV.
    Header,
    /// An entry, with its position.
    Entry(u64),
    /// The last line of NDJSON.
    Manifest,
}

impl Row {
    /// Every row begins with its position.
    fn of(bytes: &[u8]) -> Self {
        if bytes.starts_with(b"{\"manifest\"") {
            return Self::Manifest;
        }
        let digits = bytes.iter().skip_while(|byte| !byte.is_ascii_digit());
        let digits = digits.take_while(|byte| byte.is_ascii_digit());
        let digits: String = digits.map(|byte| char::from(*byte)).collect();
        digits.parse().map_or(Self::Header, Self::Entry)
    }
}

/// Cuts bytes into whole rows. A row ends with its line. In CSV, a quoted cell may contain line
/// breaks.
#[derive(Default)]
pub struct RowCutter {
    is_csv: bool,
    is_quoted: bool,
    /// The beginning of the next row.
    begun: Vec<u8>,
}

impl RowCutter {
    pub fn new(is_csv: bool) -> Self {
        Self {
            is_csv,
            ..Self::default()
        }
    }

    /// Passes on each row that ends in these bytes.
    pub fn cut(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(Row, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for byte in bytes {
            self.begun.push(*byte);
            // A quote inside a cell is written twice: the cell continues.
            self.is_quoted ^= self.is_csv && *byte == b'"';
            if *byte == b'\n' && !self.is_quoted {
                take(Row::of(&self.begun), &self.begun)?;
                self.begun.clear();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows come out the same however the bytes come in.
    #[test]
    fn rows_are_cut_anywhere() {
        let csv = b"\"position\",\"reason\"\r\n\"12\",\"a \"\"b\"\"\r\nc\"\r\n\"13\",\"\"\r\n\"14";
        let ndjson = b"{\"position\":12,\"reason\":\"a \\\"b\"}\n{\"manifest\":{}}\n{\"posi";
        for size in 1..csv.len() {
            let cut = |is_csv: bool, text: &[u8]| {
                let mut cutter = RowCutter::new(is_csv);
                let mut rows = Vec::new();
                for bytes in text.chunks(size) {
                    let took = cutter.cut(bytes, |row, bytes| {
                        rows.push((row, bytes.len()));
                        Ok(())
                    });
                    took.expect("memory takes all");
                }
                rows
            };
            let expected = [(Row::Header, 21), (Row::Entry(12), 19), (Row::Entry(13), 9)];
            assert_eq!(cut(true, csv), expected, "{size}");
            assert_eq!(
                cut(false, ndjson),
                [(Row::Entry(12), 33), (Row::Manifest, 16)]
            );
        }
    }
}
