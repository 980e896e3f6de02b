//! Map contents as JSON: `--map-init` puts them in, `--dump-maps` shows them, in one format, so
//! that the maps after one run can be the first contents of the next. The format is
//! [`towpath_maps::mapfile`]'s.

mod contents;
mod fill;
mod serial;
mod show;

pub(crate) use contents::{Contents, check_names};
pub(crate) use fill::{fill, fill_from, read};
pub(crate) use towpath_maps::mapfile::{Filling, Step, Stored};
