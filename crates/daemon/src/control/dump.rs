//! Dumps: the frames that taps copy, as a pcapng stream.
//!
//! Interfaces and packet options have the same meaning as in `xdpdump`. Each dump has a thread: a
//! slow reader loses copies, which the stream's statistics blocks count, and delays neither frames
//! nor the API.

use std::collections::HashMap;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use towpath_capture::pcapng::{Direction, Section, Writer};
use towpath_capture::{Error, Interface, Packet, PacketOptions};
use towpath_engine::tap::{Points, Reader, Record, Tap, TapOptions};
use towpath_engine::{Hook, PortId};

use crate::control::Control;
use crate::live::engine_hook;
use crate::model::clock::wall_clock;
use crate::model::state::HookState;

/// Parameters of a dump.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The port's name.
    pub(crate) port: String,
    /// The port's id.
    pub(crate) id: PortId,
    /// Programs to be watched; if there are none, the whole port is.
    pub(crate) programs: Vec<Watched>,
    /// Parameters of the tap.
    pub(crate) options: TapOptions,
    /// Number of frames after which the dump ends.
    pub(crate) count: Option<u64>,
}

/// A program that is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) link: u32,
    pub(crate) name: String,
    pub(crate) hook: HookState,
}

/// Starts a dump and returns its bytes. It ends when the receiver is dropped, after `count` frames,
/// or with its port.
///
/// # Errors
///
/// Fails if the thread cannot be started, or the port is gone.
pub(crate) fn start(control: &Arc<Control>, wanted: &Wanted) -> Result<Receiver<Vec<u8>>, String> {
    let (tap, reader) = Tap::new(wanted.options.clone());
    let mut encoder = Encoder::new(wanted).map_err(|error| error.to_string())?;
    let (sender, receiver) = channel(CHUNKS_MAX);
    // A dump does not keep the daemon alive.
    let weak = Arc::downgrade(control);
    let body = move || {
        // Writing to memory does not fail.
        let _done = pump(&mut encoder, &reader, &sender);
        end(&weak, &reader);
    };
    // The thread starts first, since it ends by itself if the tap is dropped.
    let thread = std::thread::Builder::new().name("dump".to_owned()).spawn(body);
    let _detached = thread.map_err(|error| format!("thread of a dump: {error}"))?;
    let add = |config: &mut towpath_engine::Config| config.add_tap(wanted.id, tap);
    let added = control.read(|inner| inner.live.engine.change(add));
    added.map(|()| receiver).map_err(|error| error.to_string())
}

fn end(control: &Weak<Control>, reader: &Reader) {
    let Some(control) = control.upgrade() else { return };
    let remove = |config: &mut towpath_engine::Config| {
        config.remove_tap(reader);
        Ok(())
    };
    // The removal of a tap does not fail.
    let _removed = control.read(|inner| inner.live.engine.change(remove));
}

fn pump(encoder: &mut Encoder, reader: &Reader, sender: &Sender<Vec<u8>>) -> Result<(), Error> {
    loop {
        let bytes = encoder.take();
        if !bytes.is_empty() && sender.blocking_send(bytes).is_err() {
            return Ok(());
        }
        if encoder.left == 0 {
            return Ok(());
        }
        match reader.recv(PATIENCE) {
            Ok(batch) => {
                for (record, data) in batch.records() {
                    encoder.write(record, data)?;
                }
                encoder.tell_lost(reader.lost())?;
            }
            Err(RecvTimeoutError::Timeout) if sender.is_closed() => return Ok(()),
            Err(RecvTimeoutError::Timeout) => encoder.tell_lost(reader.lost())?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Encodes copied frames as pcapng.
struct Encoder {
    writer: Writer<Vec<u8>>,
    /// Interface numbers by hook, link, and whether the frames have a verdict (exit).
    interfaces: HashMap<(Hook, Option<u32>, bool), u32>,
    /// Number of frames until the dump ends.
    left: u64,
    /// Number of lost copies that the stream has reported.
    lost: u64,
}

impl Encoder {
    fn new(wanted: &Wanted) -> Result<Encoder, Error> {
        let system = rustix::system::uname();
        let text = |it: &std::ffi::CStr| it.to_string_lossy().into_owned();
        let section = Section {
            application: concat!("towpath ", env!("CARGO_PKG_VERSION")).to_owned(),
            hardware: text(system.machine()),
            os: format!("{} {}", text(system.sysname()), text(system.release())),
            comment: String::new(),
        };
        let mut writer = Writer::new(Vec::new(), &section)?;
        let mut interfaces = HashMap::new();
        let snaplen = u32::try_from(wanted.options.snaplen).unwrap_or_default();
        for (hook, link, name) in places(wanted) {
            let Points { entry, exit } = wanted.options.points(hook);
            for (is_wanted, is_exit, at) in [(entry, false, "entry"), (exit, true, "exit")] {
                if is_wanted {
                    let name = format!("{name}{at}");
                    let interface = Interface { snaplen, ..Interface::ethernet(&name) };
                    let number = writer.add_interface(&interface)?;
                    interfaces.insert((hook, link, is_exit), number);
                }
            }
        }
        Ok(Encoder { writer, interfaces, left: wanted.count.unwrap_or(u64::MAX), lost: 0 })
    }

    fn write(&mut self, record: &Record, data: &[u8]) -> Result<(), Error> {
        let verdict = record.verdict.as_ref();
        let Some(&interface) = self.interfaces.get(&(record.hook, record.link, verdict.is_some()))
        else {
            return Ok(());
        };
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        let direction = match record.hook {
            Hook::Rx | Hook::GuestTx => Direction::Inbound,
            Hook::Tx | Hook::Dequeue | Hook::GuestRx => Direction::Outbound,
        };
        let target = verdict.and_then(|verdict| verdict.target.as_ref());
        let comment = target.map(|target| format!("XDP_REDIRECT to {target}"));
        self.writer.write(&Packet {
            data,
            original_len: record.len,
            timestamp_ns: record.timestamp_ns,
            interface,
            link_type: towpath_capture::LINK_TYPE_ETHERNET,
            options: PacketOptions {
                flags: Some(direction as u32),
                packet_id: Some(record.number),
                queue: Some(record.queue),
                xdp_verdict: verdict.map(|verdict| verdict.returned.into()),
                comment: comment.as_deref(),
            },
        })
    }

    /// Writes the number of copies lost so far, if it has changed.
    fn tell_lost(&mut self, lost: u64) -> Result<(), Error> {
        if lost == self.lost {
            return Ok(());
        }
        self.lost = lost;
        self.writer.write_dropped(0, wall_clock().as_nanos() as u64, lost)
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.writer.output_mut())
    }
}

/// Watched hooks and programs, with the names of their interfaces without `entry` or `exit`.
fn places(wanted: &Wanted) -> Vec<(Hook, Option<u32>, String)> {
    let Wanted { port, programs, .. } = wanted;
    if programs.is_empty() {
        let whole = [(Hook::Rx, format!("{port}@")), (Hook::Tx, format!("{port}@tx-"))];
        return whole.into_iter().map(|(hook, name)| (hook, None, name)).collect();
    }
    let named = programs.iter().map(|Watched { link, name, hook }| {
        (engine_hook(*hook), Some(*link), format!("{port}:{name}()@f"))
    });
    named.collect()
}

/// Chunks queued for the API, each with one burst.
const CHUNKS_MAX: usize = 16;
const _: () = assert!(CHUNKS_MAX > 0, "a stream has room for a piece");
/// Interval at which a dump without frames checks whether its receiver is gone.
const PATIENCE: Duration = Duration::from_millis(200);
