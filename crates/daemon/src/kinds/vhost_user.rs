//! `vhost-user`: a virtual machine's network card.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use towpath_ports::vhost_user::{Mode, Options, QUEUES_MAX, VhostUser};

use super::{Kind, OptionDoc, doc, mac, options, within};
use crate::problem::Problem;
use crate::state::PortState;

pub(super) static KIND: Kind = Kind::new(
    "vhost-user",
    "the network card of a virtual machine (virtio-net), over a socket to its monitor",
    OPTIONS,
    check,
    open,
);

static OPTIONS: &[OptionDoc] = &[
    doc("path", "required", "the socket"),
    doc("mode", "server", "who listens there: server (the port) or client (the monitor)"),
    doc("queues", "1", "pairs of queues offered, 1 to 64"),
    doc("mac", "made from the name", "address of the port"),
    doc("offloads", "true", "checksums and segmentation may be left to the other side"),
    doc("packed", "true", "offer packed rings"),
    doc("mergeable", "true", "offer mergeable buffers: a frame may take several"),
    doc("in_order", "true", "offer to use buffers in order"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    path: PathBuf,
    mode: Option<Mode>,
    queues: Option<u32>,
    mac: Option<String>,
    offloads: Option<bool>,
    packed: Option<bool>,
    mergeable: Option<bool>,
    in_order: Option<bool>,
}

fn check(port: &PortState) -> Result<(), Problem> {
    let keys: Keys = options(port)?;
    let bytes = keys.path.as_os_str().len();
    let said = format!("1 to {PATH_BYTES_MAX} bytes, not {bytes}");
    within("path", Some(bytes), 1..=PATH_BYTES_MAX, said)?;
    within("queues", keys.queues, 1..=QUEUES_MAX, format!("1 to {QUEUES_MAX}"))?;
    mac::parse_or_make(keys.mac.as_deref(), &port.name).map(drop)
}

fn open(ports: &[&PortState], _patience: Duration) -> super::Opened {
    let port = ports[0];
    let keys: Keys = options(port)?;
    let mut made = Options::new(keys.path);
    made.mode = keys.mode.unwrap_or(made.mode);
    made.queues = keys.queues.unwrap_or(made.queues);
    made.mtu = port.mtu.unwrap_or(made.mtu);
    made.mac = mac::parse_or_make(keys.mac.as_deref(), &port.name)?;
    let offer = &mut made.offer;
    offer.offloads = keys.offloads.unwrap_or(offer.offloads);
    offer.packed = keys.packed.unwrap_or(offer.packed);
    offer.mergeable = keys.mergeable.unwrap_or(offer.mergeable);
    offer.in_order = keys.in_order.unwrap_or(offer.in_order);
    let device = VhostUser::new(made).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(device)])
}

/// `sockaddr_un.sun_path` has 108, with a zero behind.
const PATH_BYTES_MAX: usize = 107;
