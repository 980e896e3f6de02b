//! `generator`: frames made from templates, at a fixed rate or as fast as the worker takes them.

use std::time::Duration;

use serde::Deserialize;
use towpath_document::Problem;
use towpath_ports::generator::{Field, Generator, Options};

use super::kind::{Kind, OptionDoc, doc, options, within};
use super::mac;
use crate::model::globals::parse_hex;
use crate::model::state::PortState;

pub(super) static KIND: Kind = Kind::new(
    "generator",
    "makes frames from templates; what is sent to it is dropped as by a sink",
    OPTIONS,
    check,
    open,
);

static OPTIONS: &[OptionDoc] = &[
    doc("frames", "a UDP packet", "templates in hex, used in turn"),
    doc(
        "size",
        "60",
        "length in bytes of the UDP packet, without FCS, 60 to 3520, if there are no templates",
    ),
    doc(
        "fields",
        "none",
        "numbers that differ from frame to frame: { offset, width, min, max, change = \
         \"count\" or \"random\", checksum }",
    ),
    doc("rate", "unlimited", "frames a second for each queue"),
    doc("burst", "1", "with rate: frames sent together"),
    doc("count", "unlimited", "frames that each queue makes"),
    doc("queues", "1", "receive queues, 1 to 64"),
    doc("mac", "made from the name", "Ethernet address of the port"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    frames: Vec<String>,
    size: Option<usize>,
    #[serde(default)]
    fields: Vec<Field>,
    rate: Option<u64>,
    burst: Option<u32>,
    count: Option<u64>,
    queues: Option<u32>,
    mac: Option<String>,
}

fn check(port: &PortState) -> Result<(), Problem> {
    generator(port).map(drop)
}

fn open(ports: &[&PortState], _patience: Duration) -> super::kind::Opened {
    let generator = generator(ports[0])?;
    Ok(vec![Box::new(generator)])
}

fn generator(port: &PortState) -> Result<Generator, Problem> {
    let keys: Keys = options(&KIND, port)?;
    let mac = mac::parse_or_make(keys.mac.as_deref(), &port.name)?;
    within("queues", keys.queues, 1..=64, "1 to 64")?;
    within("rate", keys.rate, 1..=u64::MAX, "1 or more frames a second")?;
    within("burst", keys.burst, 1..=u32::MAX, "1 or more frames")?;
    let mut templates = Vec::new();
    for (index, text) in keys.frames.iter().enumerate() {
        let bytes = parse_hex(text);
        let bytes =
            bytes.ok_or_else(|| Problem::new(format!("frames[{index}]"), "no hex bytes"))?;
        templates.push(bytes);
    }
    if templates.is_empty() {
        let size = keys.size.unwrap_or(SIZE_MIN);
        if !(SIZE_MIN..=SIZE_MAX).contains(&size) {
            return Err(Problem::new("size", format!("{SIZE_MIN} to {SIZE_MAX} bytes")));
        }
        templates.push(udp(mac, size));
    } else if keys.size.is_some() {
        return Err(Problem::new("size", "the frames have sizes of their own"));
    }
    let options = Options {
        fields: keys.fields,
        rate: keys.rate,
        burst: keys.burst.unwrap_or(1),
        count: keys.count,
        queues: keys.queues.unwrap_or(1),
        mac,
        templates,
        ..Options::new(Vec::new())
    };
    Generator::new(options).map_err(|error| Problem::new("", error.to_string()))
}

/// A UDP packet from 198.18.0.1 to 198.18.0.2 (RFC 2544's network), port 9 (discard).
fn udp(mac: [u8; 6], size: usize) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 1];
    frame.extend(mac);
    frame.extend([0x08, 0x00]);
    let ip_len = (size - 14) as u16;
    let mut header = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
    header[2..4].copy_from_slice(&ip_len.to_be_bytes());
    let words =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    frame.extend(header);
    frame.extend(9_u16.to_be_bytes());
    frame.extend(9_u16.to_be_bytes());
    frame.extend((ip_len - 20).to_be_bytes());
    // UDP checksum 0: none.
    frame.extend([0, 0]);
    frame.resize(size, 0);
    frame
}

/// The smallest Ethernet frame, in bytes without its FCS.
const SIZE_MIN: usize = 60;
/// The largest frame that fits into one buffer, in bytes.
const SIZE_MAX: usize = 3520;
const _: () = assert!(SIZE_MIN < SIZE_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_packet_has_a_right_header() {
        let frame = udp([2, 0, 0, 0, 0, 9], 60);
        assert_eq!(frame.len(), 60);
        let words = frame[14..34].chunks_exact(2);
        let sum: u32 = words.map(|it| u32::from(u16::from_be_bytes([it[0], it[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
