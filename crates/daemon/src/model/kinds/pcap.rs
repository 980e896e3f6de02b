//! `pcap`: replays a capture file, and writes transmitted frames to another one.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use towpath_document::Problem;
use towpath_ports::pcap::{Options, Pcap, Timing};

use super::kind::{Kind, OptionDoc, doc, options, within};
use crate::model::state::PortState;

pub(super) static KIND: Kind = Kind::new(
    "pcap",
    "replays a capture, and writes what is sent to it into another",
    OPTIONS,
    check,
    open,
);

static OPTIONS: &[OptionDoc] = &[
    doc("in", "nothing arrives", "capture to replay"),
    doc("out", "frames are dropped", "capture to write (pcapng)"),
    doc(
        "timing",
        "original",
        "when frames are replayed: \"original\" (as in the capture), or \"unlimited\"",
    ),
    doc("rate", "none", "frames a second, instead of timing"),
    doc("loop", "false", "start again at the end of the capture"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    r#in: Option<PathBuf>,
    out: Option<PathBuf>,
    timing: Option<Timing>,
    rate: Option<u64>,
    #[serde(default)]
    r#loop: bool,
}

fn check(port: &PortState) -> Result<(), Problem> {
    let keys: Keys = options(&KIND, port)?;
    if keys.r#in.is_none() && keys.out.is_none() {
        return Err(Problem::new("in", "name a capture to replay, or one to write with out"));
    }
    within("rate", keys.rate, 1..=u64::MAX, "1 or more frames a second")?;
    if keys.rate.is_some() && keys.timing.is_some() {
        return Err(Problem::new("rate", "give the rate or the timing, not both"));
    }
    Ok(())
}

fn open(ports: &[&PortState], _patience: Duration) -> super::kind::Opened {
    let keys: Keys = options(&KIND, ports[0])?;
    let timing = keys.rate.map(Timing::Rate).or(keys.timing).unwrap_or_default();
    let options = Options { input: keys.r#in, output: keys.out, timing, repeat: keys.r#loop };
    let pcap = Pcap::new(options).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(pcap)])
}
