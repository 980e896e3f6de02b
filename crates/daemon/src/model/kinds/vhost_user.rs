//! `vhost-user`: a virtual machine's network card.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use towpath_ports::vhost_user::{Mode, Options, QUEUES_MAX, VhostUser};

use towpath_document::Problem;
use towpath_host::socket::Access;

use super::kind::{Kind, OptionDoc, SOCKET_PATH_MAX, doc, options, within};
use super::mac;
use crate::model::access::AccessKeys;
use crate::model::state::PortState;

pub(super) static KIND: Kind = Kind::new(
    "vhost-user",
    "the network card of a virtual machine (virtio-net), over a socket to its monitor",
    OPTIONS,
    check,
    open,
);

static OPTIONS: &[OptionDoc] = &[
    doc("path", "required", "path of the vhost-user socket"),
    doc("mode", "server", "side that listens at path: server (the port) or client (the monitor)"),
    doc("socket_mode", "0660", "if the port listens: permissions of the socket, octal"),
    doc(
        "socket_owner",
        "the daemon's",
        "if the port listens: user that owns the socket, by name or number",
    ),
    doc(
        "socket_group",
        "the daemon's",
        "if the port listens: group of the socket, by name or number",
    ),
    doc("queues", "1", "pairs of queues offered, 1 to 64"),
    doc("mac", "made from the name", "Ethernet address of the port"),
    doc("offloads", "true", "let either side leave checksums and segmentation to the other"),
    doc("packed", "true", "offer packed rings"),
    doc("mergeable", "true", "offer mergeable buffers: a frame may take several"),
    doc("in_order", "true", "offer to use buffers in order"),
    doc("queue_reset", "false", "offer resets of single queues, if the monitor passes them on"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    path: PathBuf,
    mode: Option<Mode>,
    socket_mode: Option<String>,
    socket_owner: Option<String>,
    socket_group: Option<String>,
    queues: Option<u32>,
    mac: Option<String>,
    offloads: Option<bool>,
    packed: Option<bool>,
    mergeable: Option<bool>,
    in_order: Option<bool>,
    queue_reset: Option<bool>,
}

impl Keys {
    fn access(&self) -> Result<Access, Problem> {
        let keys = AccessKeys {
            mode: self.socket_mode.as_deref(),
            owner: self.socket_owner.as_deref(),
            group: self.socket_group.as_deref(),
        };
        keys.parse()
    }
}

fn check(port: &PortState) -> Result<(), Problem> {
    let keys: Keys = options(&KIND, port)?;
    let bytes = keys.path.as_os_str().len();
    let said = format!("1 to {SOCKET_PATH_MAX} bytes, not {bytes}");
    within("path", Some(bytes), 1..=SOCKET_PATH_MAX, said)?;
    within("queues", keys.queues, 1..=QUEUES_MAX, format!("1 to {QUEUES_MAX}"))?;
    keys.access()?;
    mac::parse_or_make(keys.mac.as_deref(), &port.name).map(drop)
}

fn open(ports: &[&PortState], _patience: Duration) -> super::kind::Opened {
    let port = ports[0];
    let keys: Keys = options(&KIND, port)?;
    let access = keys.access()?;
    let mut made = Options::new(keys.path);
    made.access = access;
    made.mode = keys.mode.unwrap_or(made.mode);
    made.queues = keys.queues.unwrap_or(made.queues);
    made.mtu = port.mtu.unwrap_or(made.mtu);
    made.mac = mac::parse_or_make(keys.mac.as_deref(), &port.name)?;
    let offer = &mut made.offer;
    offer.offloads = keys.offloads.unwrap_or(offer.offloads);
    offer.packed = keys.packed.unwrap_or(offer.packed);
    offer.mergeable = keys.mergeable.unwrap_or(offer.mergeable);
    offer.in_order = keys.in_order.unwrap_or(offer.in_order);
    offer.queue_reset = keys.queue_reset.unwrap_or(offer.queue_reset);
    let device = VhostUser::new(made).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(device)])
}
