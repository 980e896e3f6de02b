//! `generator`: frames made from templates, at a rate or as fast as they are taken.

use std::time::Duration;

use serde::Deserialize;
use towpath_ports::generator::{Change, Field, Generator, Options};

use super::{Comeback, Kind, OptionDoc, mac, no_peer, options};
use crate::globals::parse_hex;
use crate::problem::Problem;
use crate::state::PortState;

pub(super) static KIND: Kind = Kind {
    name: "generator",
    summary: "makes frames from templates; what is sent to it is dropped as by a sink",
    options: &[
        OptionDoc {
            key: "frames",
            default: "a UDP packet",
            text: "templates in hex, used in turn",
        },
        OptionDoc {
            key: "size",
            default: "60",
            text: "bytes of the UDP packet, without FCS, 60 to 3520, when there are no templates",
        },
        OptionDoc {
            key: "fields",
            default: "none",
            text: "numbers that differ from frame to frame: { offset, width, min, max, change = \
                   \"count\" or \"random\", checksum }",
        },
        OptionDoc { key: "rate", default: "unlimited", text: "frames a second and queue" },
        OptionDoc { key: "burst", default: "1", text: "frames sent together at a rate" },
        OptionDoc { key: "count", default: "for ever", text: "frames a queue makes" },
        OptionDoc { key: "queues", default: "1", text: "receive queues, 1 to 64" },
        OptionDoc { key: "mac", default: "made from the name", text: "its Ethernet address" },
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
    #[serde(default)]
    frames: Vec<String>,
    size: Option<usize>,
    #[serde(default)]
    fields: Vec<FieldKeys>,
    rate: Option<u64>,
    burst: Option<u32>,
    count: Option<u64>,
    queues: Option<u32>,
    mac: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldKeys {
    offset: usize,
    width: u8,
    #[serde(default)]
    min: u64,
    max: u64,
    #[serde(default)]
    change: ChangeKey,
    checksum: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChangeKey {
    #[default]
    Count,
    Random,
}

fn check(port: &PortState) -> Result<(), Problem> {
    generator(port).map(drop)
}

fn open(ports: &[&PortState], _patience: Duration) -> super::Opened {
    let generator = generator(ports[0]).map_err(|problem| problem.to_string())?;
    Ok(vec![Box::new(generator)])
}

fn generator(port: &PortState) -> Result<Generator, Problem> {
    let keys: Keys = options(port)?;
    let mac = mac::parse_or_make(keys.mac.as_deref(), &port.name)?;
    if keys.queues.is_some_and(|queues| !(1..=64).contains(&queues)) {
        return Err(Problem::new("queues", "1 to 64"));
    }
    if keys.rate == Some(0) {
        return Err(Problem::new("rate", "1 or more frames a second"));
    }
    if keys.burst == Some(0) {
        return Err(Problem::new("burst", "1 or more frames"));
    }
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
    let field = |keys: &FieldKeys| Field {
        offset: keys.offset,
        width: keys.width,
        min: keys.min,
        max: keys.max,
        change: match keys.change {
            ChangeKey::Count => Change::Count,
            ChangeKey::Random => Change::Random,
        },
        checksum: keys.checksum,
    };
    let options = Options {
        fields: keys.fields.iter().map(field).collect(),
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
    // No checksum.
    frame.extend([0, 0]);
    frame.resize(size, 0);
    frame
}

/// The smallest Ethernet frame, without its checksum.
const SIZE_MIN: usize = 60;
/// What fits into one buffer.
const SIZE_MAX: usize = 3520;

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
