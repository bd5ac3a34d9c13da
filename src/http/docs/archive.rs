//! Files of a ZIP archive, as it holds them: nothing is unpacked here.

/// A file's own bytes, or a gzip stream of them.
pub enum Packed<'a> {
    Stored(&'a [u8]),
    Gzip(Vec<u8>),
}

/// How a gzip stream begins (RFC 1952): deflated, with no name, no time and no known system.
const GZIP: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\xff";

/// The file whose path ends in `path_end`. ZIP and gzip hold the same deflated bytes, CRC-32 and
/// length: only what is around them differs.
///
/// The layout is that of ZIP's specification (APPNOTE.TXT, 4.3). The end of an archive says where
/// its directory is. The directory says where each file is. A file begins with a header.
pub fn find<'a>(archive: &'a [u8], path_end: &str) -> Option<Packed<'a>> {
    let end = archive
        .windows(4)
        .rposition(|bytes| bytes == b"PK\x05\x06")?;
    let mut entry = archive.get(number(archive, end + 16)?..)?;
    while entry.starts_with(b"PK\x01\x02") {
        let path_ends = 46 + short(entry, 28)?;
        if entry.get(46..path_ends)?.ends_with(path_end.as_bytes()) {
            let file = archive.get(number(entry, 42)?..)?;
            let start = 30 + short(file, 26)? + short(file, 28)?;
            let bytes = file.get(start..start + number(entry, 20)?)?;
            return match short(entry, 10)? {
                0 => Some(Packed::Stored(bytes)),
                8 => {
                    let checksum = entry.get(16..20)?;
                    let length = entry.get(24..28)?;
                    Some(Packed::Gzip([GZIP, bytes, checksum, length].concat()))
                }
                _ => None,
            };
        }
        entry = entry.get(path_ends + short(entry, 30)? + short(entry, 32)?..)?;
    }
    None
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    let [low, high] = *bytes.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes([low, high]).into())
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)).ok()
}
