//! The page at `/docs`, for a person who sees perdiem for the first time: a first claim in the
//! reader's language, the frequent problems, and links to the rest.

use std::sync::LazyLock;

use actix_web::web::Bytes;

use super::problems;
use super::template::Html;
use crate::http::answer::problem::{
    CLAIM_IN_PROGRESS, FORBIDDEN, IDEMPOTENCY_KEY_REUSED, INVALID, MALFORMED, QUOTA_EXCEEDED,
    UNAUTHORIZED, UNAVAILABLE, UNDECIDED, UNKNOWN_POLICY,
};

/// The problems that a newcomer meets first, in the order of their status.
const FREQUENT: [&str; 10] = [
    MALFORMED.name,
    UNAUTHORIZED.name,
    FORBIDDEN.name,
    UNKNOWN_POLICY.name,
    CLAIM_IN_PROGRESS.name,
    INVALID.name,
    IDEMPOTENCY_KEY_REUSED.name,
    QUOTA_EXCEEDED.name,
    UNDECIDED.name,
    UNAVAILABLE.name,
];

/// The address in the examples. The page's script replaces it by the address in the browser.
/// The server does not know the address that its clients use, and a `Host` field may be forged.
const DEFAULT_ADDRESS: &str = "http://127.0.0.1:8080";

macro_rules! examples {
    ($($file:literal),+ $(,)?) => {
        [$(($file, Html::text(include_str!(concat!("examples/", $file)).trim_end()))),+]
    };
}

pub static PAGE: LazyLock<Bytes> = LazyLock::new(|| {
    // `scripts/check-examples` runs each of them as the page shows it.
    let mut parts = Vec::from(examples![
        "put.sh",
        "put.txt",
        "claim_once.sh",
        "claim_once.txt",
        "usage.sh",
        "usage.txt",
        "claim.sh",
        "claims.sh",
        "claims.txt",
        "program.txt",
        "first.py",
        "first.mts",
        "first.go",
        "First.java",
    ]);
    parts.push(("address", Html::text(DEFAULT_ADDRESS)));
    parts.push((
        "problems",
        problems::sections(|kind| FREQUENT.contains(&kind.name)),
    ));
    let page = Html::fill(include_str!("first_claim.html"), &parts);
    page.into_string().into()
});
