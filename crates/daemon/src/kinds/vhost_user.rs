//! `vhost-user`: a virtual machine's network card.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use towpath_ports::vhost_user::{Mode, Options, QUEUES_MAX, VhostUser};

use super::{Comeback, Kind, OptionDoc, mac, no_peer, options};
use crate::problem::Problem;
use crate::state::PortState;

pub(super) static KIND: Kind = Kind {
    name: "vhost-user",
    summary: "the network card of a virtual machine (virtio-net), over a socket to its monitor",
    options: &[
        OptionDoc { key: "path", default: "required", text: "the socket" },
        OptionDoc {
            key: "mode",
            default: "server",
            text: "who listens there: server (the port) or client (the monitor)",
        },
        OptionDoc { key: "queues", default: "1", text: "pairs of queues offered, 1 to 64" },
        OptionDoc { key: "mac", default: "made from the name", text: "address of the port" },
        OptionDoc {
            key: "offloads",
            default: "true",
            text: "checksums and segmentation may be left to the other side",
        },
        OptionDoc { key: "packed", default: "true", text: "offer packed rings" },
        OptionDoc {
            key: "mergeable",
            default: "true",
            text: "offer mergeable buffers: a frame may take several",
        },
        OptionDoc { key: "in_order", default: "true", text: "offer to use buffers in order" },
    ],
    check,
    open,
    peer: no_peer,
    comeback: Comeback::Never,
    is_shared: false,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    path: PathBuf,
    mode: Option<ModeKey>,
    queues: Option<u32>,
    mac: Option<String>,
    offloads: Option<bool>,
    packed: Option<bool>,
    mergeable: Option<bool>,
    in_order: Option<bool>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ModeKey {
    Server,
    Client,
}

fn check(port: &PortState) -> Result<(), Problem> {
    let keys: Keys = options(port)?;
    let bytes = keys.path.as_os_str().len();
    if !(1..=PATH_BYTES_MAX).contains(&bytes) {
        return Err(Problem::new("path", format!("1 to {PATH_BYTES_MAX} bytes, not {bytes}")));
    }
    if keys.queues.is_some_and(|queues| !(1..=QUEUES_MAX).contains(&queues)) {
        return Err(Problem::new("queues", format!("1 to {QUEUES_MAX}")));
    }
    mac::parse_or_make(keys.mac.as_deref(), &port.name).map(drop)
}

fn open(ports: &[&PortState], _patience: Duration) -> super::Opened {
    let port = ports[0];
    let said = |problem: Problem| problem.to_string();
    let keys: Keys = options(port).map_err(said)?;
    let mut made = Options::new(keys.path);
    made.mode = match keys.mode.unwrap_or(ModeKey::Server) {
        ModeKey::Server => Mode::Server,
        ModeKey::Client => Mode::Client,
    };
    made.queues = keys.queues.unwrap_or(made.queues);
    made.mtu = port.mtu.unwrap_or(made.mtu);
    made.mac = mac::parse_or_make(keys.mac.as_deref(), &port.name).map_err(said)?;
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
