//! The specification, and the pages that explain it.

mod archive;
mod document;
mod first_claim;
pub mod pages;
mod problems;
pub mod rights;
mod sharing;
pub mod specification;
mod template;
