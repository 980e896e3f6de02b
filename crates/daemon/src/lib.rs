//! The daemon: the wanted state, the actual state, and interfaces to both.
//!
//! ```text
//! doors     API, metrics, page, signals      translate, and know HTTP
//! control   turns, saved state, history      bring both together
//! live      engine, devices, objects, files  the actual state
//! model     states, documents, messages      the wanted state: plain data
//! ```
//!
//! Each layer uses only those below it (`scripts/circles.py`). A [`state::State`] describes only
//! what is wanted, from any source: a file, the API, or another program. [`live::Live`] reconciles
//! the engine with it: only differences are changed, and parts that fail are reported and do not
//! affect the rest.

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
