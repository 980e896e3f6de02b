//! Map contents as JSON: `--map-init` puts them in, `--dump-maps` shows them, in one format, so
//! that what a run left behind can be the beginning of the next.
//!
//! ```text
//! { "counters": [ {"key": 0, "value": {"packets": 1, "bytes": 60}}, ... ],
//!   "limits":   { "10": 1000, "20": 2000 },         keys as object keys, when they are numbers
//!   "table":    [ 7, 8, 9 ],                        arrays, queues and stacks: values in a row
//!   "per_cpu":  [ {"key": 0, "values": [ {"cpu": 0, "value": 5} ]} ],
//!   "jumps":    [ {"key": 0, "value": "program"} ],
//!   "tx_ports": [ {"key": 0, "value": {"ifindex": 3, "prog": "egress"}} ],
//!   "tenants":  [ {"key": 7, "value": [ {"key": 1, "value": 2} ]} ] }    inner maps
//! ```
//!
//! Keys and values are typed through BTF; `"hex:0a0b"` says the bytes themselves.

mod contents;
mod fill;
mod parse;
mod serial;
mod show;
mod typed;

pub(crate) use contents::{Contents, check_names};
pub(crate) use fill::{fill, read};
pub(crate) use parse::{Filling, Step, Stored};
