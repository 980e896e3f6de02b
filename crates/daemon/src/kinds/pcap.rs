//! `pcap`: replays a capture, and writes what is sent to it into another.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use towpath_ports::pcap::{Options, Pcap, Timing};

use super::{Comeback, Kind, OptionDoc, no_peer, options};
use crate::problem::Problem;
use crate::state::PortState;

pub(super) static KIND: Kind = Kind {
    name: "pcap",
    summary: "replays a capture, and writes what is sent to it into another",
    options: &[
        OptionDoc { key: "in", default: "nothing arrives", text: "capture to replay" },
        OptionDoc { key: "out", default: "it is dropped", text: "capture to write (pcapng)" },
        OptionDoc {
            key: "timing",
            default: "original",
            text: "when frames are replayed: \"original\", or \"unlimited\"",
        },
        OptionDoc { key: "rate", default: "as timing says", text: "frames a second instead" },
        OptionDoc { key: "loop", default: "false", text: "start again at the end" },
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
    r#in: Option<PathBuf>,
    out: Option<PathBuf>,
    timing: Option<TimingKey>,
    rate: Option<u64>,
    #[serde(default)]
    r#loop: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TimingKey {
    Original,
    Unlimited,
}

fn check(port: &PortState) -> Result<(), Problem> {
    let keys: Keys = options(port)?;
    if keys.r#in.is_none() && keys.out.is_none() {
        return Err(Problem::new("in", "name a capture to replay, or one to write with out"));
    }
    if keys.rate == Some(0) {
        return Err(Problem::new("rate", "1 or more frames a second"));
    }
    if keys.rate.is_some() && keys.timing.is_some() {
        return Err(Problem::new("rate", "give the rate or the timing, not both"));
    }
    Ok(())
}

fn open(ports: &[&PortState], _patience: Duration) -> super::Opened {
    let keys: Keys = options(ports[0]).map_err(|problem| problem.to_string())?;
    let timing = match (keys.rate, keys.timing) {
        (Some(rate), _) => Timing::Rate(rate),
        (None, Some(TimingKey::Unlimited)) => Timing::Unlimited,
        (None, _) => Timing::Original,
    };
    let options = Options { input: keys.r#in, output: keys.out, timing, repeat: keys.r#loop };
    let pcap = Pcap::new(options).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(pcap)])
}
