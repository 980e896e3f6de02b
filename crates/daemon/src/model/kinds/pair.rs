//! `pair`: two connected ports in this process. Frames sent by one are received by the other.

use std::time::Duration;

use serde::Deserialize;
use towpath_document::Problem;
use towpath_ports::pair::{Options, Pair};

use super::kind::{Kind, OptionDoc, doc, options, within};
use super::mac;
use crate::model::state::PortState;

pub(super) static KIND: Kind = Kind {
    has_peer: true,
    ..Kind::new(
        "pair",
        "one of two connected ports in this process, like a veth",
        OPTIONS,
        check,
        open,
    )
};

static OPTIONS: &[OptionDoc] = &[
    doc("peer", "required", "the other port of the pair"),
    doc("queues", "1", "receive queues, 1 to 64"),
    doc("ring", "1024", "most frames that wait in a queue"),
    doc("mac", "made from the name", "Ethernet address of the port"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    peer: String,
    queues: Option<u32>,
    ring: Option<usize>,
    mac: Option<String>,
}

fn check(port: &PortState) -> Result<(), Problem> {
    let keys: Keys = options(&KIND, port)?;
    if keys.peer == port.name {
        return Err(Problem::new("peer", "a port cannot be its own peer"));
    }
    within("queues", keys.queues, 1..=64, "1 to 64")?;
    within("ring", keys.ring, 1..=RING_MAX, format!("1 to {RING_MAX} frames"))?;
    mac::parse_or_make(keys.mac.as_deref(), &port.name).map(drop)
}

fn open(ports: &[&PortState], _patience: Duration) -> super::kind::Opened {
    let [a, b] = ports else { return Err("a pair needs both of its ports".to_owned()) };
    let (first, second): (Keys, Keys) = (options(&KIND, a)?, options(&KIND, b)?);
    let defaults = Options::default();
    let macs = [
        mac::parse_or_make(first.mac.as_deref(), &a.name)?,
        mac::parse_or_make(second.mac.as_deref(), &b.name)?,
    ];
    let made = Options {
        queues: first.queues.or(second.queues).unwrap_or(defaults.queues),
        ring: first.ring.or(second.ring).unwrap_or(defaults.ring),
        mtu: a.mtu.or(b.mtu).unwrap_or(defaults.mtu),
        macs,
    };
    let (one, other) = Pair::new(made);
    Ok(vec![Box::new(one), Box::new(other)])
}

const RING_MAX: usize = 65536;
const _: () = assert!(RING_MAX.is_power_of_two(), "rings have masks");
