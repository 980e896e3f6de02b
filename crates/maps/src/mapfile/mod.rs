//! Map contents as JSON: the format of map files, of `[[attach]] maps` and of the API.
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

mod fill;
mod parse;

pub use fill::{Programs, store};
pub use parse::{Filling, Step, Stored, parse, parse_element, parse_text};
