//! Records of passing frames: a capture of a port's frames in both directions, or a line of text
//! for each.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use towpath_capture::pcapng::Direction;
use towpath_xdp::frame::ETH_HLEN;
use towpath_xdp::{Frame, Pool};

use super::{Layer, Stage};
use crate::pcap::{Capture, End, now_ns};
use crate::stream::writer::Outlet;

/// A capture of all frames that pass a port.
#[derive(Debug, Clone)]
pub struct Record {
    capture: Arc<Capture>,
    shown: String,
}

/// A line of text for every frame that passes a port: time, direction, length, addresses, type.
#[derive(Clone)]
pub struct Trace {
    lines: Arc<Mutex<dyn Write + Send>>,
    end: Arc<End>,
    name: Arc<str>,
}

impl Record {
    /// Writes into a file (pcapng), which is replaced if it exists. A FIFO is written as fast as it
    /// is read.
    pub fn create(path: &Path) -> io::Result<Record> {
        let capture = Arc::new(Capture::create(path)?);
        Ok(Record { capture, shown: path.display().to_string() })
    }
}

impl Layer for Record {
    fn rx(&self, _queue: u32) -> Box<dyn Stage> {
        Box::new(Recorder { capture: Arc::clone(&self.capture), direction: Direction::Inbound })
    }

    fn tx(&self, _worker: u32) -> Box<dyn Stage> {
        Box::new(Recorder { capture: Arc::clone(&self.capture), direction: Direction::Outbound })
    }

    fn details(&self) -> (&'static str, String) {
        ("record", format!("{}{}", self.shown, self.capture.end))
    }

    fn failure(&self) -> Option<String> {
        self.capture.end.failure(&format!("record {}", self.shown))
    }
}

struct Recorder {
    capture: Arc<Capture>,
    direction: Direction,
}

impl Stage for Recorder {
    fn pass(&mut self, frames: &mut Vec<Frame>, start: usize, _pool: &mut Pool) {
        // A full disk must not stop the port; the recording ends.
        let written = self.capture.write_all(&frames[start..], self.direction);
        self.capture.end.lose(frames.len() - start - written);
    }
}

impl Trace {
    /// Writes lines about the port called `name` into a file, which is replaced if it exists. A
    /// FIFO is written as fast as it is read.
    pub fn create(name: &str, path: &Path) -> io::Result<Trace> {
        Ok(Trace::new(name, Arc::new(Mutex::new(Outlet::create(path)?))))
    }

    /// Writes lines about the port called `name`.
    pub fn new(name: &str, lines: Arc<Mutex<dyn Write + Send>>) -> Trace {
        Trace { lines, end: Arc::default(), name: name.into() }
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Layer for Trace {
    fn rx(&self, queue: u32) -> Box<dyn Stage> {
        Box::new(Tracer { trace: self.clone(), way: format!("in {queue}"), text: String::new() })
    }

    fn tx(&self, worker: u32) -> Box<dyn Stage> {
        Box::new(Tracer { trace: self.clone(), way: format!("out {worker}"), text: String::new() })
    }

    fn details(&self) -> (&'static str, String) {
        ("trace", format!("on{}", self.end))
    }

    fn failure(&self) -> Option<String> {
        self.end.failure("trace")
    }
}

struct Tracer {
    trace: Trace,
    way: String,
    text: String,
}

impl Stage for Tracer {
    fn pass(&mut self, frames: &mut Vec<Frame>, start: usize, _pool: &mut Pool) {
        let Tracer { trace: Trace { lines, end, name }, way, text } = self;
        let (now, frames) = (now_ns(), &frames[start..]);
        if frames.is_empty() || end.why().is_some() {
            return end.lose(frames.len());
        }
        text.clear();
        for frame in frames {
            let (seconds, micros) = (now / 1_000_000_000, now / 1000 % 1_000_000);
            let mut header = [0; ETH_HLEN];
            frame.copy_from(0, &mut header);
            let (len, what) = (frame.len(), describe(&header));
            // Writing to a `String` cannot fail.
            let _fits = writeln!(text, "{seconds}.{micros:06} {name} {way}: {len} bytes, {what}");
        }
        let mut lines = lines.lock();
        if let Err(error) = lines.write_all(text.as_bytes()) {
            end.lose(frames.len());
            // A slow reader is not an error. A full disk, or a reader that is gone, must not stop
            // the port.
            if error.kind() != io::ErrorKind::WouldBlock {
                end.come(&error);
            }
        }
    }
}

/// Addresses and type of an Ethernet frame.
fn describe(header: &[u8; ETH_HLEN]) -> String {
    let mac = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    let ethertype = u16::from_be_bytes([header[12], header[13]]);
    format!("{} > {}, type {ethertype:#06x}", mac(&header[6..12]), mac(&header[..6]))
}

#[cfg(test)]
mod tests {
    use towpath_xdp::Arena;

    use super::*;

    #[test]
    fn frames_are_written_down_both_ways() {
        let arena = Arena::new(8).unwrap();
        let mut pool = Pool::new(&arena);
        let mut frames = vec![pool.frame(&[0x11; 60]).unwrap().unwrap()];
        let path = std::env::temp_dir().join(format!("towpath-record-{}", std::process::id()));
        let record = Record::create(&path).unwrap();
        record.rx(0).pass(&mut frames, 0, &mut pool);
        record.tx(0).pass(&mut frames, 0, &mut pool);
        drop(record);
        let mut reader = towpath_capture::Reader::open(&path).unwrap();
        let mut flags = Vec::new();
        while let Some(packet) = reader.next_packet().unwrap() {
            assert_eq!(packet.data, [0x11; 60]);
            flags.push(packet.options.flags);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(flags, [Some(1), Some(2)]);

        // Without room the capture ends, and frames pass.
        let record = Record::create(Path::new("/dev/full")).unwrap();
        let mut shown = String::new();
        // It is noticed when a buffer is full.
        for _ in 0..100_000 {
            record.rx(0).pass(&mut frames, 0, &mut pool);
            (_, shown) = record.details();
            if shown.contains("ended") {
                break;
            }
        }
        assert_eq!(frames.len(), 1);
        assert!(shown.contains("No space left"), "{shown}");
        record.rx(0).pass(&mut frames, 0, &mut pool);
        let (_, later) = record.details();
        assert_ne!(shown, later, "what is not written is counted");
        let failure = record.failure().unwrap();
        assert!(failure.starts_with("record /dev/full ended: No space left"), "{failure}");
        assert!(Trace::new("p0", Arc::new(Mutex::new(Vec::new()))).failure().is_none());

        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let trace = Trace::new("p0", Arc::new(Mutex::new(full)));
        for _ in 0..3 {
            trace.tx(0).pass(&mut frames, 0, &mut pool);
        }
        let failure = trace.failure().unwrap();
        assert!(failure.starts_with("trace ended: No space left"), "{failure}");
        assert!(trace.details().1.ends_with("3 frames not written"), "{:?}", trace.details());

        let lines = Arc::new(Mutex::new(Vec::new()));
        Trace::new("p0", lines.clone()).rx(3).pass(&mut frames, 0, &mut pool);
        let text = String::from_utf8(lines.lock().clone()).unwrap();
        let expected = "p0 in 3: 60 bytes, 11:11:11:11:11:11 > 11:11:11:11:11:11, type 0x1111\n";
        assert!(text.ends_with(expected), "{text}");
    }
}
