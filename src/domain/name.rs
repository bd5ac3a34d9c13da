//! Names of policies and of tiers.

/// Whether a text is a name: `[a-z0-9][a-z0-9-]{0,62}`.
pub fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && !text.starts_with('-')
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}
