//! The specification, and the pages that explain it.

mod archive;
mod completion;
mod document;
mod first_claim;
mod links;
pub mod pages;
mod problems;
pub mod specification;
mod template;
