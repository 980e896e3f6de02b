//! Packets of cases: sources of their bytes, and their expected bytes after a run.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value as Json;
use towpath_capture::Reader;
use towpath_document::typed;

use super::headers::Headers;
use super::hex::{self, Pattern};

/// A packet as it is written.
pub(super) enum Source {
    Hex(String),
    Frame(FrameOf),
    Headers(Box<Headers>),
}

/// A frame of a capture.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FrameOf {
    /// Path of the capture, relative to the file of cases.
    file: PathBuf,
    /// Number of the frame, from 1 as in Wireshark.
    #[serde(default = "first")]
    frame: usize,
}

/// Expected packet after a run.
pub(super) enum Expected {
    /// These bytes, some of which may have any value.
    Bytes(Pattern),
    /// The bytes of the packet that was sent.
    Unchanged(Vec<u8>),
}

impl Source {
    pub(super) fn parse(json: &Json) -> Result<Source, String> {
        match json {
            Json::String(text) => Ok(Source::Hex(text.clone())),
            Json::Object(it) if it.contains_key("file") => Ok(Source::Frame(typed(json.clone())?)),
            Json::Object(_) => Ok(Source::Headers(Box::new(typed::<Headers>(json.clone())?))),
            _ => Err("expected hex, { file, frame } or headers".to_owned()),
        }
    }

    /// Bytes of the packet. Files are searched for in `base`.
    pub(super) fn bytes(&self, base: &Path) -> Result<Vec<u8>, String> {
        match self {
            Source::Hex(text) => hex::bytes(text),
            Source::Frame(it) => it.bytes(base),
            Source::Headers(headers) => headers.bytes(),
        }
    }
}

impl FrameOf {
    fn bytes(&self, base: &Path) -> Result<Vec<u8>, String> {
        let path = base.join(&self.file);
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = std::fs::File::open(&path).map_err(|error| said(&error))?;
        let reader = Reader::new(std::io::BufReader::new(file));
        let mut reader = reader.map_err(|error| said(&error))?;
        for number in 1.. {
            let packet = reader.next_packet().map_err(|error| said(&error))?;
            let Some(packet) = packet else {
                return Err(said(&format!("frame {}: it has {}", self.frame, number - 1)));
            };
            if number == self.frame {
                return Ok(packet.data.to_vec());
            }
        }
        Err(said(&"frames count from 1"))
    }
}

impl Expected {
    /// Parses `"unchanged"`, or a packet as for sending, in which `..` in hex stands for any byte.
    pub(super) fn parse(json: &Json, sent: &[u8], base: &Path) -> Result<Expected, String> {
        match Source::parse(json)? {
            Source::Hex(text) if text == "unchanged" => Ok(Expected::Unchanged(sent.to_vec())),
            Source::Hex(text) => hex::pattern(&text).map(Expected::Bytes),
            source => {
                let bytes = source.bytes(base)?;
                Ok(Expected::Bytes(bytes.into_iter().map(Some).collect()))
            }
        }
    }

    /// The expected bytes, with those of `found` where any value is allowed.
    pub(super) fn bytes(&self, found: &[u8]) -> Vec<u8> {
        match self {
            Expected::Unchanged(bytes) => bytes.clone(),
            Expected::Bytes(pattern) => {
                let at = |(index, byte): (usize, &Option<u8>)| {
                    byte.or(found.get(index).copied()).unwrap_or(0)
                };
                pattern.iter().enumerate().map(at).collect()
            }
        }
    }
}

fn first() -> usize {
    1
}
