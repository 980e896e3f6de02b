//! `afxdp`: a host interface used exclusively by Towpath (`AF_XDP`).

use std::time::Duration;

use towpath_document::Problem;
use towpath_ports::afxdp::{Afxdp, Options};

use super::kind::{INTERFACE, Kind, NETNS, OptionDoc, Reopening, doc, interface_options, within};
use crate::model::state::PortState;

pub(super) static KIND: Kind = Kind {
    reopening: Reopening::WithInterface,
    pins_frames: true,
    ..Kind::new(
        "afxdp",
        "an interface of the host, which gives all its frames to Towpath (AF_XDP)",
        OPTIONS,
        check,
        open,
    )
};

static OPTIONS: &[OptionDoc] = &[
    INTERFACE,
    NETNS,
    doc(
        "queues",
        "all",
        "number of queues to receive from, the first ones; the host's stack gets frames of the \
         other queues",
    ),
    doc("mode", "auto", "auto (zero copy if the driver can), copy, or zerocopy"),
    doc("attach", "auto", "auto (native, else generic), native, or generic"),
    doc("rx_ring", "2048", "descriptors, a power of two from 64 to 65536"),
    doc("tx_ring", "2048", "descriptors, a power of two from 64 to 65536"),
    doc("fill_ring", "512", "descriptors, a power of two from 64 to 65536"),
    doc("multi_buffer", "true", "receive and send frames of several buffers"),
    doc("need_wakeup", "true", "make system calls only if the driver asks for one"),
    doc("transmit", "auto", "auto (bursts without socket buffers if the interface can), or socket"),
    doc(
        "rx_hints",
        "off",
        "off, or driver: hash, timestamp and VLAN tag of each frame come from the driver; frames \
         then leave by the socket",
    ),
    doc(
        "peer_offloads",
        "leave",
        "off: the other end of a veth computes checksums itself while the port is open; leave: \
         unchanged",
    ),
    doc("busy_poll", "off", "microseconds for which a system call of the worker polls the driver"),
    doc("busy_poll_budget", "64", "most frames that one such system call takes from the driver"),
];

fn check(port: &PortState) -> Result<(), Problem> {
    let options: Options = interface_options(&KIND, port)?;
    let rings = [
        ("rx_ring", options.rx_ring),
        ("tx_ring", options.tx_ring),
        ("fill_ring", options.fill_ring),
    ];
    for (name, ring) in rings {
        if !ring.is_power_of_two() || !(64..=1 << 16).contains(&ring) {
            return Err(Problem::new(name, "a power of two, 64 to 65536"));
        }
    }
    within("queues", options.queues, 1..=u32::MAX, "1 or more")?;
    let has_budget = port.options.get("busy_poll_budget").is_some_and(|it| !it.is_null());
    if has_budget && options.busy_poll.is_none() {
        return Err(Problem::new("busy_poll_budget", "only with busy_poll"));
    }
    Ok(())
}

fn open(ports: &[&PortState], patience: Duration) -> super::kind::Opened {
    let options = Options { patience, ..interface_options(&KIND, ports[0])? };
    let afxdp = Afxdp::new(&options).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(afxdp)])
}
