//! Pages of lists, and cursors. A cursor says where a list continues. It is opaque, and valid only
//! for the same list of the same ledger.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use domain::identity::Identity;

/// A text that is no cursor of this list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the cursor does not belong to this list; start again without a cursor")]
pub struct InvalidCursor;

const TAG_BYTES: usize = 16;

/// The cursor of a position in a list. The list is described by its name and filters.
pub fn encode(identity: &Identity, list: &str, position: &[u8]) -> String {
    let tag = identity.cursor_tag(position, list);
    URL_SAFE_NO_PAD.encode([position, &tag].concat())
}

/// The position in a cursor.
///
/// # Errors
/// [`InvalidCursor`] for a text that [`encode`] did not return for the same list.
pub fn decode<const N: usize>(
    identity: &Identity,
    list: &str,
    cursor: &str,
) -> Result<[u8; N], InvalidCursor> {
    let position = decode_any(identity, list, cursor)?;
    position.try_into().map_err(|_| InvalidCursor)
}

/// As [`decode`], for a position of any length.
///
/// # Errors
/// [`InvalidCursor`].
pub fn decode_any(identity: &Identity, list: &str, cursor: &str) -> Result<Vec<u8>, InvalidCursor> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| InvalidCursor)?;
    let split = bytes.len().checked_sub(TAG_BYTES).ok_or(InvalidCursor)?;
    let (position, tag) = bytes.split_at(split);
    if identity.cursor_tag(position, list) != *tag {
        return Err(InvalidCursor);
    }
    Ok(position.to_vec())
}

/// Cuts a page that was read with one item too many. Returns its last item if there are more.
pub fn cut_page<T>(items: &mut Vec<T>, limit: u32) -> Option<&T> {
    let limit = limit as usize;
    if items.len() <= limit {
        return None;
    }
    items.truncate(limit);
    items.last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_cursor_is_good_for_its_list_only() {
        let identity = Identity::new(Uuid::nil(), [7; 32]);
        let cursor = encode(&identity, "grants", &[1, 2, 3, 4]);
        assert_eq!(decode(&identity, "grants", &cursor), Ok([1, 2, 3, 4]));
        assert_eq!(
            decode::<4>(&identity, "versions", &cursor),
            Err(InvalidCursor)
        );
        assert_eq!(
            decode::<3>(&identity, "grants", &cursor),
            Err(InvalidCursor)
        );
        let other = Identity::new(Uuid::nil(), [8; 32]);
        assert_eq!(decode::<4>(&other, "grants", &cursor), Err(InvalidCursor));
        for index in 0..cursor.len() {
            let mut tampered = cursor.clone().into_bytes();
            tampered[index] = if tampered[index] == b'A' { b'B' } else { b'A' };
            let tampered = String::from_utf8(tampered).unwrap();
            assert_eq!(
                decode::<4>(&identity, "grants", &tampered),
                Err(InvalidCursor)
            );
        }
        assert_eq!(decode::<4>(&identity, "grants", ""), Err(InvalidCursor));
    }
}
