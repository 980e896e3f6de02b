//! Shared parts of program tests for `towpath test` and pytest: the host and the ports around a
//! program, as tests describe them; and coverage of C lines and branches, as a table, an lcov
//! tracefile and a page.

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
