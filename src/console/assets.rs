//! The files of the console. Their addresses have a hash of their bytes, so browsers may keep them for ever.

use std::sync::LazyLock;

pub struct Asset {
    name: &'static str,
    ending: &'static str,
    pub content_type: &'static str,
    pub text: &'static str,
    hash: LazyLock<String>,
}

pub static STYLE: Asset = Asset {
    name: "console",
    ending: "css",
    content_type: "text/css; charset=utf-8",
    text: include_str!("console.css"),
    hash: LazyLock::new(|| hash(include_str!("console.css"))),
};

pub static SCRIPT: Asset = Asset {
    name: "console",
    ending: "js",
    content_type: "text/javascript; charset=utf-8",
    text: include_str!("console.js"),
    hash: LazyLock::new(|| hash(include_str!("console.js"))),
};

impl Asset {
    /// The address, such as `/console/a/console.3f2a7b01.css`.
    pub fn target(&self) -> String {
        let Self { name, ending, .. } = self;
        format!("/console/a/{name}.{}.{ending}", *self.hash)
    }
}

/// The asset at an address.
pub fn find(path: &str) -> Option<&'static Asset> {
    [&STYLE, &SCRIPT]
        .into_iter()
        .find(|asset| asset.target() == path)
}

fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_are_small_and_are_found_by_their_addresses() {
        assert!(STYLE.text.len() <= 10 * 1024, "{}", STYLE.text.len());
        assert!(SCRIPT.text.len() <= 3 * 1024, "{}", SCRIPT.text.len());
        for asset in [&STYLE, &SCRIPT] {
            assert!(find(&asset.target()).is_some());
        }
        assert!(find("/console/a/console.00000000.css").is_none());
    }
}
