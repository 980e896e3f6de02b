//! What tests of programs need, whoever runs them (`towpath test`, pytest): what the host and the
//! ports around a program know, as tests say it; and which C lines and branches were reached, as a
//! table, an lcov tracefile and a page.

#![forbid(unsafe_code)]

mod coverage;
mod hints;
mod host;
mod html;
mod lcov;
mod page;
mod watch;

pub use coverage::{Coverage, Row};
pub use hints::Hints;
pub use host::{ConnectionDocument, SocketDocument, why_not_entered};
pub use html::escaped;
pub use watch::{Watch, Way};
