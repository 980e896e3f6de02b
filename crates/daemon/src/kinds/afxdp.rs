//! `afxdp`: an interface of the host's that is ours alone (`AF_XDP`).

use std::time::Duration;

use serde::Deserialize;
use towpath_ports::afxdp::{
    Afxdp, Attach, BusyPoll, Mode, Options, PeerOffloads, RxHintsFrom, Transmit,
};

use super::{Comeback, INTERFACE, Kind, NETNS, OptionDoc, no_peer, options};
use crate::problem::Problem;
use crate::state::PortState;

pub(super) static KIND: Kind = Kind {
    name: "afxdp",
    summary: "an interface of the host's, all of whose frames come to us (AF_XDP)",
    options: &[
        INTERFACE,
        NETNS,
        OptionDoc { key: "queues", default: "all", text: "queues to receive from, the first ones" },
        OptionDoc { key: "mode", default: "auto", text: "auto, copy, or zerocopy" },
        OptionDoc { key: "attach", default: "auto", text: "auto, native, or generic" },
        OptionDoc { key: "rx_ring", default: "2048", text: "descriptors, a power of two" },
        OptionDoc { key: "tx_ring", default: "2048", text: "descriptors, a power of two" },
        OptionDoc { key: "fill_ring", default: "512", text: "descriptors, a power of two" },
        OptionDoc { key: "multi_buffer", default: "true", text: "frames of several buffers" },
        OptionDoc { key: "need_wakeup", default: "true", text: "system calls only when needed" },
        OptionDoc {
            key: "transmit",
            default: "auto",
            text: "auto (bursts without socket buffers where the driver can), or socket",
        },
        OptionDoc {
            key: "rx_hints",
            default: "off",
            text: "off, or driver: hash, timestamp and VLAN tag of each frame are the driver's; \
                   frames then leave by the socket",
        },
        OptionDoc {
            key: "peer_offloads",
            default: "leave",
            text: "off: the other end of a veth makes checksums itself while the port is open",
        },
        OptionDoc {
            key: "busy_poll",
            default: "off",
            text: "microseconds a system call looks for frames in the driver",
        },
        OptionDoc {
            key: "busy_poll_budget",
            default: "64",
            text: "frames such a call takes from the driver at most",
        },
    ],
    check,
    open,
    peer: no_peer,
    comeback: Comeback::WithInterface,
    is_shared: false,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    interface: Option<String>,
    netns: Option<String>,
    queues: Option<u32>,
    mode: Option<ModeKey>,
    attach: Option<AttachKey>,
    rx_ring: Option<u32>,
    tx_ring: Option<u32>,
    fill_ring: Option<u32>,
    multi_buffer: Option<bool>,
    need_wakeup: Option<bool>,
    transmit: Option<TransmitKey>,
    rx_hints: Option<RxHintsKey>,
    peer_offloads: Option<PeerOffloadsKey>,
    busy_poll: Option<u32>,
    busy_poll_budget: Option<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ModeKey {
    Auto,
    Copy,
    ZeroCopy,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AttachKey {
    Auto,
    Native,
    Generic,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TransmitKey {
    Auto,
    Socket,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RxHintsKey {
    Off,
    Driver,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PeerOffloadsKey {
    Leave,
    Off,
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
    if keys.queues == Some(0) {
        return Err(Problem::new("queues", "1 or more"));
    }
    if keys.busy_poll_budget.is_some() && keys.busy_poll.is_none() {
        return Err(Problem::new("busy_poll_budget", "only with busy_poll"));
    }
    Ok(())
}

fn open(ports: &[&PortState], patience: Duration) -> super::Opened {
    let port = ports[0];
    let keys: Keys = options(port).map_err(|problem| problem.to_string())?;
    let usual = Options::new(keys.interface.as_deref().unwrap_or(&port.name));
    let busy_poll = keys.busy_poll.map(|microseconds| BusyPoll {
        microseconds,
        budget: keys.busy_poll_budget.unwrap_or(BusyPoll::default().budget),
    });
    let options = Options {
        patience,
        netns: keys.netns,
        queues: keys.queues,
        mode: match keys.mode {
            None | Some(ModeKey::Auto) => Mode::Auto,
            Some(ModeKey::Copy) => Mode::Copy,
            Some(ModeKey::ZeroCopy) => Mode::ZeroCopy,
        },
        attach: match keys.attach {
            None | Some(AttachKey::Auto) => Attach::Auto,
            Some(AttachKey::Native) => Attach::Native,
            Some(AttachKey::Generic) => Attach::Generic,
        },
        rx_ring: keys.rx_ring.unwrap_or(usual.rx_ring),
        tx_ring: keys.tx_ring.unwrap_or(usual.tx_ring),
        fill_ring: keys.fill_ring.unwrap_or(usual.fill_ring),
        multi_buffer: keys.multi_buffer.unwrap_or(usual.multi_buffer),
        need_wakeup: keys.need_wakeup.unwrap_or(usual.need_wakeup),
        transmit: match keys.transmit {
            None | Some(TransmitKey::Auto) => Transmit::Auto,
            Some(TransmitKey::Socket) => Transmit::Socket,
        },
        rx_hints: match keys.rx_hints {
            None | Some(RxHintsKey::Off) => RxHintsFrom::Off,
            Some(RxHintsKey::Driver) => RxHintsFrom::Driver,
        },
        peer_offloads: match keys.peer_offloads {
            None | Some(PeerOffloadsKey::Leave) => PeerOffloads::Leave,
            Some(PeerOffloadsKey::Off) => PeerOffloads::Off,
        },
        busy_poll,
        ..usual
    };
    let afxdp = Afxdp::new(&options).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(afxdp)])
}
