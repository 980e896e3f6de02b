//! `afxdp`: an interface of the host's that is ours alone (`AF_XDP`).

use std::time::Duration;

use serde::Deserialize;
use towpath_ports::afxdp::{
    Afxdp, Attach, BusyPoll, Mode, Options, PeerOffloads, RxHintsFrom, Transmit,
};

use super::{Comeback, INTERFACE, Kind, NETNS, OptionDoc, doc, options, within};
use crate::problem::Problem;
use crate::state::PortState;

pub(super) static KIND: Kind = Kind {
    comeback: Comeback::WithInterface,
    ..Kind::new(
        "afxdp",
        "an interface of the host's, all of whose frames come to us (AF_XDP)",
        OPTIONS,
        check,
        open,
    )
};

static OPTIONS: &[OptionDoc] = &[
    INTERFACE,
    NETNS,
    doc("queues", "all", "queues to receive from, the first ones"),
    doc("mode", "auto", "auto, copy, or zerocopy"),
    doc("attach", "auto", "auto, native, or generic"),
    doc("rx_ring", "2048", "descriptors, a power of two"),
    doc("tx_ring", "2048", "descriptors, a power of two"),
    doc("fill_ring", "512", "descriptors, a power of two"),
    doc("multi_buffer", "true", "frames of several buffers"),
    doc("need_wakeup", "true", "system calls only when needed"),
    doc("transmit", "auto", "auto (bursts without socket buffers where the driver can), or socket"),
    doc(
        "rx_hints",
        "off",
        "off, or driver: hash, timestamp and VLAN tag of each frame are the driver's; \
                   frames then leave by the socket",
    ),
    doc(
        "peer_offloads",
        "leave",
        "off: the other end of a veth makes checksums itself while the port is open",
    ),
    doc("busy_poll", "off", "microseconds a system call looks for frames in the driver"),
    doc("busy_poll_budget", "64", "frames such a call takes from the driver at most"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    interface: Option<String>,
    netns: Option<String>,
    queues: Option<u32>,
    mode: Mode,
    attach: Attach,
    rx_ring: Option<u32>,
    tx_ring: Option<u32>,
    fill_ring: Option<u32>,
    multi_buffer: Option<bool>,
    need_wakeup: Option<bool>,
    transmit: Transmit,
    rx_hints: RxHintsFrom,
    peer_offloads: PeerOffloads,
    busy_poll: Option<u32>,
    busy_poll_budget: Option<u32>,
}

fn check(port: &PortState) -> Result<(), Problem> {
    let keys: Keys = options(port)?;
    let rings =
        [("rx_ring", keys.rx_ring), ("tx_ring", keys.tx_ring), ("fill_ring", keys.fill_ring)];
    for (name, ring) in rings {
        if ring.is_some_and(|ring| !ring.is_power_of_two() || !(64..=1 << 16).contains(&ring)) {
            return Err(Problem::new(name, "a power of two, 64 to 65536"));
        }
    }
    within("queues", keys.queues, 1..=u32::MAX, "1 or more")?;
    if keys.busy_poll_budget.is_some() && keys.busy_poll.is_none() {
        return Err(Problem::new("busy_poll_budget", "only with busy_poll"));
    }
    Ok(())
}

fn open(ports: &[&PortState], patience: Duration) -> super::Opened {
    let port = ports[0];
    let keys: Keys = options(port)?;
    let usual = Options::new(keys.interface.as_deref().unwrap_or(&port.name));
    let busy_poll = keys.busy_poll.map(|microseconds| BusyPoll {
        microseconds,
        budget: keys.busy_poll_budget.unwrap_or(BusyPoll::default().budget),
    });
    let options = Options {
        patience,
        netns: keys.netns,
        queues: keys.queues,
        mode: keys.mode,
        attach: keys.attach,
        rx_ring: keys.rx_ring.unwrap_or(usual.rx_ring),
        tx_ring: keys.tx_ring.unwrap_or(usual.tx_ring),
        fill_ring: keys.fill_ring.unwrap_or(usual.fill_ring),
        multi_buffer: keys.multi_buffer.unwrap_or(usual.multi_buffer),
        need_wakeup: keys.need_wakeup.unwrap_or(usual.need_wakeup),
        transmit: keys.transmit,
        rx_hints: keys.rx_hints,
        peer_offloads: keys.peer_offloads,
        busy_poll,
        ..usual
    };
    let afxdp = Afxdp::new(&options).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(afxdp)])
}
