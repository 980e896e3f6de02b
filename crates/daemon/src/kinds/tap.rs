//! `tap`: an interface of the host's whose other end we are.

use std::time::Duration;

use serde::Deserialize;
use towpath_ports::tap::{Options, Tap};

use super::{Comeback, INTERFACE, Kind, NETNS, OptionDoc, mac, no_peer, options};
use crate::problem::Problem;
use crate::state::PortState;

pub(super) static KIND: Kind = Kind {
    name: "tap",
    summary: "an interface of the host's whose other end this is",
    options: &[
        INTERFACE,
        OptionDoc { key: "queues", default: "1", text: "queues, 1 to 256" },
        NETNS,
        OptionDoc { key: "mac", default: "the kernel's choice", text: "address of the interface" },
        OptionDoc { key: "persist", default: "false", text: "keep it when the port goes" },
        OptionDoc {
            key: "offloads",
            default: "true",
            text: "let the host's stack leave checksums and segmentation to others",
        },
    ],
    check,
    open,
    peer: no_peer,
    comeback: Comeback::AtOnce,
    is_shared: false,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    interface: Option<String>,
    queues: Option<u32>,
    netns: Option<String>,
    mac: Option<String>,
    #[serde(default)]
    persist: bool,
    offloads: Option<bool>,
}

fn check(port: &PortState) -> Result<(), Problem> {
    let keys: Keys = options(port)?;
    if keys.queues.is_some_and(|queues| !(1..=256).contains(&queues)) {
        return Err(Problem::new("queues", "1 to 256"));
    }
    mac::parse_or_make(keys.mac.as_deref(), &port.name).map(drop)
}

fn open(ports: &[&PortState], _patience: Duration) -> super::Opened {
    let port = ports[0];
    let said = |problem: Problem| problem.to_string();
    let keys: Keys = options(port).map_err(said)?;
    let usual = Options::new(keys.interface.as_deref().unwrap_or(&port.name));
    let mac = keys.mac.as_deref().map(|mac| mac::parse_or_make(Some(mac), &port.name));
    let options = Options {
        mtu: port.mtu.unwrap_or(usual.mtu),
        mac: mac.transpose().map_err(said)?,
        queues: keys.queues.unwrap_or(usual.queues),
        netns: keys.netns,
        persist: keys.persist,
        offloads: keys.offloads.unwrap_or(usual.offloads),
        ..usual
    };
    let tap = Tap::new(&options).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(tap)])
}
