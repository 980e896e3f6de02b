//! `pair`: two ports in this process. What one sends arrives at the other.

use std::time::Duration;

use serde::Deserialize;
use towpath_ports::pair::{Options, Pair};

use super::{Comeback, Kind, OptionDoc, mac, options};
use crate::problem::Problem;
use crate::state::PortState;

pub(super) static KIND: Kind = Kind {
    name: "pair",
    summary: "one of two ports that are joined in this process, as veth joins two",
    options: &[
        OptionDoc { key: "peer", default: "required", text: "the other port of the pair" },
        OptionDoc { key: "queues", default: "1", text: "receive queues, 1 to 64" },
        OptionDoc { key: "ring", default: "1024", text: "frames that wait in a queue" },
        OptionDoc { key: "mac", default: "made from the name", text: "its Ethernet address" },
    ],
    check,
    open,
    peer,
    comeback: Comeback::Never,
    is_shared: false,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    peer: String,
    #[serde(default)]
    queues: Option<u32>,
    #[serde(default)]
    ring: Option<usize>,
    #[serde(default)]
    mac: Option<String>,
}

fn check(port: &PortState) -> Result<(), Problem> {
    let keys: Keys = options(port)?;
    if keys.peer == port.name {
        return Err(Problem::new("peer", "a port cannot be its own peer"));
    }
    if keys.queues.is_some_and(|queues| !(1..=64).contains(&queues)) {
        return Err(Problem::new("queues", "1 to 64"));
    }
    if keys.ring.is_some_and(|ring| !(1..=RING_MAX).contains(&ring)) {
        return Err(Problem::new("ring", format!("1 to {RING_MAX} frames")));
    }
    mac::parse_or_make(keys.mac.as_deref(), &port.name)?;
    Ok(())
}

fn peer(port: &PortState) -> Option<&str> {
    port.options.get("peer")?.as_str()
}

fn open(ports: &[&PortState], _patience: Duration) -> super::Opened {
    let [a, b] = ports else { return Err("a pair needs both of its ports".to_owned()) };
    let said = |problem: Problem| problem.to_string();
    let (first, second): (Keys, Keys) = (options(a).map_err(said)?, options(b).map_err(said)?);
    let defaults = Options::default();
    let macs = [
        mac::parse_or_make(first.mac.as_deref(), &a.name).map_err(said)?,
        mac::parse_or_make(second.mac.as_deref(), &b.name).map_err(said)?,
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
