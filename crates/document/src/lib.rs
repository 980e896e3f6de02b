//! Documents of users: configurations, cases, tables, also through the API. Documents are checked
//! as JSON; a mistake is reported by its path ([`Problem`]), and a [`Document`] knows the line of
//! each path.

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
