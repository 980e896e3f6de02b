//! `tap`: a TAP interface of the host, with the daemon at its other end.

use std::time::Duration;

use serde::Deserialize;
use towpath_document::Problem;
use towpath_ports::tap::{Options, Tap};

use super::kind::{INTERFACE, Kind, NETNS, OptionDoc, Reopening, doc, options, within};
use super::mac;
use crate::model::state::PortState;

pub(super) static KIND: Kind = Kind {
    reopening: Reopening::AtOnce,
    ..Kind::new(
        "tap",
        "an interface of the host, whose other end is the port",
        OPTIONS,
        check,
        open,
    )
};

static OPTIONS: &[OptionDoc] = &[
    INTERFACE,
    doc("queues", "1", "queues, 1 to 256"),
    NETNS,
    doc("mac", "the kernel's choice", "Ethernet address of the interface"),
    doc("persist", "false", "keep the interface when the port is removed"),
    doc("offloads", "true", "let the host's stack leave checksums and segmentation to the port"),
];

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
    let keys: Keys = options(&KIND, port)?;
    within("queues", keys.queues, 1..=256, "1 to 256")?;
    mac::parse_or_make(keys.mac.as_deref(), &port.name).map(drop)
}

fn open(ports: &[&PortState], _patience: Duration) -> super::kind::Opened {
    let port = ports[0];
    let keys: Keys = options(&KIND, port)?;
    let usual = Options::new(keys.interface.as_deref().unwrap_or(&port.name));
    let mac = keys.mac.as_deref().map(|mac| mac::parse_or_make(Some(mac), &port.name));
    let options = Options {
        mtu: port.mtu.unwrap_or(usual.mtu),
        mac: mac.transpose()?,
        queues: keys.queues.unwrap_or(usual.queues),
        netns: keys.netns,
        persist: keys.persist,
        offloads: keys.offloads.unwrap_or(usual.offloads),
        ..usual
    };
    let tap = Tap::new(&options).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(tap)])
}
