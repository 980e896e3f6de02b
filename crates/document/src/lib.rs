//! Documents of users: configurations, cases, tables, also through the API. It is checked as JSON;
//! what is wrong is named by its path ([`Problem`]), and a [`Document`] knows each path's line.

#![forbid(unsafe_code)]

mod file;
mod problem;
mod time;
mod toml;
mod typed;

pub use self::toml::{Document, Position};
pub use file::unreadable;
pub use problem::Problem;
pub use time::parse_duration;
pub use typed::{parse, typed};
