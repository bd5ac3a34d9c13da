//! The specification, and the pages that explain it.

mod archive;
mod completion;
mod links;
pub mod pages;
mod problems;
pub mod specification;
