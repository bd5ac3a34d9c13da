//! Tiles: the hashes and the leaves of the tree, in pieces of 256 (tlog-tiles of C2SP).

use super::leaf::Hash;

/// The number of hashes or leaves in a full tile.
pub const TILE_WIDTH: u64 = 256;
/// The largest number of parts in the index of a tile. Each part has three digits.
const PARTS_MOST: usize = 6;

/// Hashes of one tile that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileRow {
    pub level: u8,
    /// The index of the first hash in the level.
    pub first: u64,
    pub hashes: Vec<Hash>,
}

/// The content of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TileLevel {
    Hashes(u8),
    /// The leaves themselves.
    Entries,
}

/// The name of a tile and its number of hashes: the path `<L>/<N>[.p/<W>]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileName {
    pub level: TileLevel,
    pub index: u64,
    /// 1 to 256.
    pub width: u64,
}

impl TileName {
    /// The tile with a path; `None` if the text is not a path of a tile.
    pub fn parse(path: &str) -> Option<Self> {
        let (level, rest) = path.split_once('/')?;
        let level = match level {
            "entries" => TileLevel::Entries,
            level => TileLevel::Hashes(number(level).filter(|level| *level < 64)? as u8),
        };
        let (index, width) = match rest.split_once(".p/") {
            Some((index, width)) => {
                let width = number(width).filter(|width| (1..TILE_WIDTH).contains(width))?;
                (index, width)
            }
            None => (rest, TILE_WIDTH),
        };
        let parts: Vec<&str> = index.split('/').collect();
        let (last, others) = parts.split_last()?;
        if parts.len() > PARTS_MOST || others.first().is_some_and(|part| *part == "x000") {
            return None;
        }
        let mut index = group(last)?;
        let mut unit = 1;
        for part in others.iter().rev() {
            unit *= 1000;
            index += group(part.strip_prefix('x')?)? * unit;
        }
        Some(Self {
            level,
            index,
            width,
        })
    }
}

/// A decimal number without leading zeros.
fn number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = text == "0" || !text.starts_with('0');
    text.parse().ok().filter(|_| is_number && is_short)
}

/// A part of an index: three digits.
fn group(text: &str) -> Option<u64> {
    let is_group = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_tiles() {
        let tile = |level, index, width| {
            Some(TileName {
                level,
                index,
                width,
            })
        };
        let hashes = TileLevel::Hashes;
        assert_eq!(TileName::parse("0/000"), tile(hashes(0), 0, 256));
        assert_eq!(
            TileName::parse("2/x001/x234/067.p/9"),
            tile(hashes(2), 1_234_067, 9)
        );
        assert_eq!(
            TileName::parse("entries/255.p/255"),
            tile(TileLevel::Entries, 255, 255)
        );
        for text in [
            "",
            "0",
            "0/",
            "00/000",
            "64/000",
            "0/1",
            "0/0000",
            "0/001/002",
            "0/x000/001",
            "0/x001",
            "0/000.p/0",
            "0/000.p/256",
            "0/000.p/01",
            "data/000",
            "+0/000",
            "0/+00",
            "0/x001/x001/x001/x001/x001/x001/001",
        ] {
            assert_eq!(TileName::parse(text), None, "{text}");
        }
    }
}
