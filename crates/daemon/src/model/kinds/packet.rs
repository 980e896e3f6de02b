//! `packet`: a host interface shared with the host's network stack (`AF_PACKET`).

use std::time::Duration;

use towpath_document::Problem;
use towpath_ports::packet::{Options, Packet};

use super::kind::{INTERFACE, Kind, NETNS, OptionDoc, Reopening, doc, interface_options, within};
use crate::model::state::PortState;

pub(super) static KIND: Kind = Kind {
    reopening: Reopening::WithInterface,
    is_shared: true,
    ..Kind::new(
        "packet",
        "an interface of the host, whose stack also sees the frames (AF_PACKET)",
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
    doc("ring_bytes", "8388608", "bytes of each queue for waiting frames, 524288 to 1073741824"),
    doc("qdisc_bypass", "true", "send without the interface's queueing discipline"),
    doc("promiscuous", "false", "receive frames for other addresses as well"),
];

fn check(port: &PortState) -> Result<(), Problem> {
    let options: Options = interface_options(&KIND, port)?;
    within("queues", Some(options.queues), 1..=256, "1 to 256")?;
    let said = "524288 to 1073741824 bytes";
    within("ring_bytes", Some(options.ring_bytes), 512 << 10..=1 << 30, said)
}

fn open(ports: &[&PortState], _patience: Duration) -> super::kind::Opened {
    let packet =
        Packet::new(&interface_options(&KIND, ports[0])?).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(packet)])
}
