//! `packet`: an interface of the host's, shared with its stack (`AF_PACKET`).

use std::time::Duration;

use serde::Deserialize;
use towpath_ports::packet::{Fanout, Options, Packet};

use super::{Comeback, INTERFACE, Kind, NETNS, OptionDoc, no_peer, options};
use crate::problem::Problem;
use crate::state::PortState;

pub(super) static KIND: Kind = Kind {
    name: "packet",
    summary: "an interface of the host's, whose stack sees the frames too (AF_PACKET)",
    options: &[
        INTERFACE,
        NETNS,
        OptionDoc { key: "queues", default: "1", text: "receive queues, 1 to 256" },
        OptionDoc {
            key: "fanout",
            default: "hash",
            text: "how frames are spread over queues: hash, roundrobin, cpu, rollover, random, \
                   queue",
        },
        OptionDoc {
            key: "ring_bytes",
            default: "8388608",
            text: "bytes for frames that wait, each queue, 524288 to 1073741824",
        },
        OptionDoc {
            key: "qdisc_bypass",
            default: "true",
            text: "send without the interface's queueing discipline",
        },
        OptionDoc {
            key: "promiscuous",
            default: "false",
            text: "receive frames for other addresses as well",
        },
    ],
    check,
    open,
    peer: no_peer,
    comeback: Comeback::WithInterface,
    is_shared: true,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    interface: Option<String>,
    netns: Option<String>,
    queues: Option<u32>,
    fanout: Option<FanoutKey>,
    ring_bytes: Option<u32>,
    qdisc_bypass: Option<bool>,
    #[serde(default)]
    promiscuous: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FanoutKey {
    Hash,
    RoundRobin,
    Cpu,
    Rollover,
    Random,
    Queue,
}

fn check(port: &PortState) -> Result<(), Problem> {
    let keys: Keys = options(port)?;
    if keys.queues.is_some_and(|queues| !(1..=256).contains(&queues)) {
        return Err(Problem::new("queues", "1 to 256"));
    }
    if keys.ring_bytes.is_some_and(|bytes| !(512 << 10..=1 << 30).contains(&bytes)) {
        return Err(Problem::new("ring_bytes", "524288 to 1073741824 bytes"));
    }
    Ok(())
}

fn open(ports: &[&PortState], _patience: Duration) -> super::Opened {
    let port = ports[0];
    let keys: Keys = options(port).map_err(|problem| problem.to_string())?;
    let usual = Options::new(keys.interface.as_deref().unwrap_or(&port.name));
    let fanout = keys.fanout.map(|fanout| match fanout {
        FanoutKey::Hash => Fanout::Hash,
        FanoutKey::RoundRobin => Fanout::RoundRobin,
        FanoutKey::Cpu => Fanout::Cpu,
        FanoutKey::Rollover => Fanout::Rollover,
        FanoutKey::Random => Fanout::Random,
        FanoutKey::Queue => Fanout::Queue,
    });
    let options = Options {
        netns: keys.netns,
        queues: keys.queues.unwrap_or(usual.queues),
        fanout: fanout.unwrap_or(usual.fanout),
        ring_bytes: keys.ring_bytes.unwrap_or(usual.ring_bytes),
        qdisc_bypass: keys.qdisc_bypass.unwrap_or(usual.qdisc_bypass),
        promiscuous: keys.promiscuous,
        ..usual
    };
    let packet = Packet::new(&options).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(packet)])
}
