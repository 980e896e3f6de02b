//! `packet`: an interface of the host's, shared with its stack (`AF_PACKET`).

use std::time::Duration;

use serde::Deserialize;
use towpath_ports::packet::{Fanout, Options, Packet};

use super::{Comeback, INTERFACE, Kind, NETNS, OptionDoc, doc, options, within};
use crate::problem::Problem;
use crate::state::PortState;

pub(super) static KIND: Kind = Kind {
    comeback: Comeback::WithInterface,
    is_shared: true,
    ..Kind::new(
        "packet",
        "an interface of the host's, whose stack sees the frames too (AF_PACKET)",
        OPTIONS,
        check,
        open,
    )
};

static OPTIONS: &[OptionDoc] = &[
    INTERFACE,
    NETNS,
    doc("queues", "1", "receive queues, 1 to 256"),
    doc(
        "fanout",
        "hash",
        "how frames are spread over queues: hash, roundrobin, cpu, rollover, random, \
                   queue",
    ),
    doc("ring_bytes", "8388608", "bytes for frames that wait, each queue, 524288 to 1073741824"),
    doc("qdisc_bypass", "true", "send without the interface's queueing discipline"),
    doc("promiscuous", "false", "receive frames for other addresses as well"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    interface: Option<String>,
    netns: Option<String>,
    queues: Option<u32>,
    fanout: Option<Fanout>,
    ring_bytes: Option<u32>,
    qdisc_bypass: Option<bool>,
    #[serde(default)]
    promiscuous: bool,
}

fn check(port: &PortState) -> Result<(), Problem> {
    let keys: Keys = options(port)?;
    within("queues", keys.queues, 1..=256, "1 to 256")?;
    within("ring_bytes", keys.ring_bytes, 512 << 10..=1 << 30, "524288 to 1073741824 bytes")
}

fn open(ports: &[&PortState], _patience: Duration) -> super::Opened {
    let port = ports[0];
    let keys: Keys = options(port)?;
    let usual = Options::new(keys.interface.as_deref().unwrap_or(&port.name));
    let options = Options {
        netns: keys.netns,
        queues: keys.queues.unwrap_or(usual.queues),
        fanout: keys.fanout.unwrap_or(usual.fanout),
        ring_bytes: keys.ring_bytes.unwrap_or(usual.ring_bytes),
        qdisc_bypass: keys.qdisc_bypass.unwrap_or(usual.qdisc_bypass),
        promiscuous: keys.promiscuous,
        ..usual
    };
    let packet = Packet::new(&options).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(packet)])
}
