//! The console: pages for people who would rather look than read. Every page is made of answers of `/v1` to the key
//! of its reader, so the console shows nothing and changes nothing that the key could not.

mod asking;
mod assets;
mod chart;
mod frame;
mod local;
mod pages;
mod parts;
mod sign_in;
mod site;
mod visit;
mod words;

pub use asking::{Answered, Asking, Server, with};
pub use assets::{Asset, find as find_asset};
pub use sign_in::{SIGN_IN, SIGN_ON, sign_in_page, signed_on_page};
pub use site::{PageAnswer, Request, answer, routes};
pub use visit::{FormFields, Method, Settings};
