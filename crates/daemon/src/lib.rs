//! The daemon: what is wanted, what there is, and the ways to ask for both.
//!
//! ```text
//! doors     API, metrics, page, signals      translate, and know HTTP
//! control   turns, saved state, history      bring both together
//! live      engine, devices, objects, files  what there is
//! model     states, documents, messages      what is wanted: plain data
//! ```
//!
//! Each floor uses only those below it (`scripts/circles.py`). A [`state::State`] says what is
//! wanted and nothing else: it can come from a file, from the API or from anywhere. [`live::Live`]
//! makes the engine so, touching only what differs, and says what it could not do; the rest goes
//! on.

#![forbid(unsafe_code)]

mod control;
mod doors;
pub mod live;
mod model;

pub use control::file::Loaded;
pub use control::{Control, dry_run, file, saved};
pub use doors::daemon::up;
pub use doors::{api, client, code};
pub use live::news::News;
pub use model::settings::{Options, SOCKET, Settings};
pub use model::state::State;
pub use model::{authors, failure, globals, kinds, natural, refusal, run_config, state};
