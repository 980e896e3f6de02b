//! `dump`: frames that arrive at a port and leave it, as text or into a capture.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Serialize;
use towpath_capture::pcapng::Direction;
use towpath_capture::{Error, Packet, Reader, pcap};
use towpath_daemon::client::{Stream, encoded};
use towpath_daemon::run_config::ACTIONS;

use super::client;
use crate::args::{PortArgs, PortDumpArgs, StatusArgs};
use crate::error::CliError;
use crate::output::Output;

/// Shows or captures frames until interrupted.
pub(crate) fn dump(args: &PortDumpArgs, output: &mut Output) -> Result<(), CliError> {
    let Some(port) = args.port.as_ref().or(args.interface.as_ref()) else {
        let port = PortArgs { port: None, daemon: args.daemon.clone() };
        return super::status(&StatusArgs { port, exit_status: false }, output);
    };
    let client = client(&args.daemon)?;
    let stream = client.stream(&path(port, args))?;
    let target = match &args.write {
        Some(path) => Sink::open(path, args.use_pcap)?,
        None => Sink::Text { hex: args.hex },
    };
    let mut dump = Dump { target, frames: 0, output };
    let lost = dump.run(stream, &args.daemon.socket)?;
    let Dump { frames, output, .. } = dump;
    output.note(&format!("{frames} frames captured, {lost} lost because the reader was too slow"));
    Ok(())
}

fn path(port: &str, args: &PortDumpArgs) -> String {
    let lists = [
        ("capture", &args.rx_capture),
        ("tx_capture", &args.tx_capture),
        ("verdict", &args.verdicts),
        ("program", &args.programs),
    ];
    let given = lists.into_iter().filter(|(_, words)| !words.is_empty());
    let mut asked: Vec<String> =
        given.map(|(key, words)| format!("{key}={}", encoded(&words.join(",")))).collect();
    asked.extend(args.snapshot_length.map(|bytes| format!("snaplen={bytes}")));
    asked.extend(args.count.map(|count| format!("count={count}")));
    format!("/v1/ports/{}/dump?{}", encoded(port), asked.join("&"))
}

/// Destination of the frames.
enum Sink {
    /// One line for each frame.
    Text { hex: bool },
    /// The daemon's pcapng stream, as it comes.
    Blocks { path: PathBuf, file: Box<dyn Write> },
    /// A pcap file, which lacks the additional data of pcapng.
    Pcap { path: PathBuf, writer: pcap::Writer<Box<dyn Write>> },
}

struct Dump<'a> {
    target: Sink,
    frames: u64,
    output: &'a mut Output,
}

/// The stream, and the bytes that were read from it since the last whole block.
struct Tee<'a> {
    stream: Stream<'a>,
    block: Rc<RefCell<Vec<u8>>>,
    /// Whether the next read would wait: the destination is flushed before.
    is_drained: Rc<RefCell<bool>>,
}

impl Read for Tee<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.block.borrow_mut().extend_from_slice(&buffer[..count]);
        *self.is_drained.borrow_mut() = self.stream.is_drained();
        Ok(count)
    }
}

impl Sink {
    fn open(path: &Path, use_pcap: bool) -> Result<Sink, CliError> {
        let path = path.to_owned();
        let file: Box<dyn Write> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            let file = File::create(&path);
            Box::new(file.map_err(|source| CliError::File { path: path.clone(), source })?)
        };
        let file: Box<dyn Write> = Box::new(BufWriter::with_capacity(1 << 18, file));
        if !use_pcap {
            return Ok(Sink::Blocks { path, file });
        }
        match pcap::Writer::new(file) {
            Ok(writer) => Ok(Sink::Pcap { path, writer }),
            Err(source) => Err(CliError::Capture { path, source }),
        }
    }

    fn flush(&mut self) -> Result<(), CliError> {
        match self {
            Sink::Text { .. } => Ok(()),
            Sink::Blocks { path, file } => file.flush().map_err(|error| written(path, error)),
            Sink::Pcap { path, writer } => {
                writer.flush().map_err(|source| CliError::Capture { path: path.clone(), source })
            }
        }
    }
}

impl Dump<'_> {
    /// Runs until the end of the stream; gives the number of copies that were lost.
    fn run(&mut self, stream: Stream<'_>, socket: &Path) -> Result<u64, CliError> {
        let (block, is_drained) = (Rc::<RefCell<Vec<u8>>>::default(), Rc::new(RefCell::new(false)));
        let tee = Tee { stream, block: Rc::clone(&block), is_drained: Rc::clone(&is_drained) };
        let broken = |source: Error| {
            CliError::Daemon(format!(
                "the daemon on {}: the dump broke off: {source}",
                socket.display()
            ))
        };
        let mut reader = Reader::new(tee).map_err(broken)?;
        loop {
            let seen = match reader.next_packet() {
                Ok(packet) => packet.map(|packet| self.frame(&packet)).transpose()?,
                // The read was interrupted inside a block, which is left out.
                Err(Error::Truncated { .. }) => {
                    self.flush()?;
                    return Ok(reader.dropped());
                }
                Err(error) => {
                    self.flush()?;
                    return Err(broken(error));
                }
            };
            self.blocks(&block.borrow())?;
            block.borrow_mut().clear();
            match seen {
                None => {
                    self.flush()?;
                    return Ok(reader.dropped());
                }
                Some(Some(mut shown)) => {
                    let interface = reader.interfaces().get(shown.number as usize);
                    shown.interface = interface.map_or_else(String::new, |it| it.name.clone());
                    self.show(&shown)?;
                }
                Some(None) => {}
            }
            if *is_drained.borrow() {
                self.flush()?;
            }
        }
    }

    fn blocks(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        let Sink::Blocks { path, file } = &mut self.target else { return Ok(()) };
        file.write_all(bytes).map_err(|error| written(path, error))
    }

    /// Makes everything so far visible.
    fn flush(&mut self) -> Result<(), CliError> {
        self.target.flush()?;
        self.output.flush()
    }

    /// Takes a frame; gives its text if it is to be shown.
    fn frame(&mut self, packet: &Packet<'_>) -> Result<Option<Shown>, CliError> {
        self.frames += 1;
        match &mut self.target {
            Sink::Text { hex } => return Ok(Some(Shown::new(packet, *hex))),
            Sink::Blocks { .. } => {}
            Sink::Pcap { path, writer } => {
                let done = writer.write(packet.data, packet.original_len, packet.timestamp_ns);
                done.map_err(|source| CliError::Capture { path: path.clone(), source })?;
            }
        }
        Ok(None)
    }

    /// Prints a line in the format of xdpdump.
    fn show(&mut self, shown: &Shown) -> Result<(), CliError> {
        if self.output.json {
            return self.output.json(shown);
        }
        let Shown { interface, time_ns, id, queue, len, captured, direction, .. } = shown;
        let (seconds, ns) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        let verdict = shown.verdict.as_ref().map_or(String::new(), |it| format!("[{it}]"));
        let comment = shown.comment.as_ref().map_or(String::new(), |it| format!(", {it}"));
        self.output.line(&format!(
            "{seconds}.{ns:09}: {interface}{verdict}: packet size {len} bytes, captured {captured}, \
             {direction} queue {queue}, id {id}{comment}",
        ))?;
        let rows = shown.data.iter().flat_map(|data| data.chunks(16)).enumerate();
        rows.map(|(row, bytes)| row_of(row * 16, bytes)).try_for_each(|it| self.output.line(&it))
    }
}

/// Printed properties of a frame.
#[derive(Debug, Serialize)]
struct Shown {
    interface: String,
    #[serde(skip)]
    number: u32,
    time_ns: u64,
    id: u64,
    /// Direction: `rx` or `tx`.
    direction: &'static str,
    queue: u32,
    len: u32,
    captured: usize,
    verdict: Option<String>,
    comment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "in_hex")]
    data: Option<Vec<u8>>,
}

impl Shown {
    fn new(packet: &Packet<'_>, hex: bool) -> Shown {
        Shown {
            interface: String::new(),
            number: packet.interface,
            time_ns: packet.timestamp_ns,
            id: packet.options.packet_id.unwrap_or_default(),
            direction: match packet.options.flags {
                Some(flags) if flags & 3 == Direction::Outbound as u32 => "tx",
                _ => "rx",
            },
            queue: packet.options.queue.unwrap_or_default(),
            len: packet.original_len,
            captured: packet.data.len(),
            verdict: packet.options.xdp_verdict.map(verdict),
            comment: packet.options.comment.map(str::to_owned),
            data: hex.then(|| packet.data.to_vec()),
        }
    }
}

fn in_hex<S: serde::Serializer>(data: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
    let bytes = data.iter().flatten();
    to.serialize_str(&bytes.map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn verdict(returned: u64) -> String {
    let action = usize::try_from(returned).ok().and_then(|it| ACTIONS.get(it));
    action.map_or_else(|| returned.to_string(), |name| format!("XDP_{name}"))
}

/// One row of a hex dump: `0x0010:  45 00 ...  E..`
fn row_of(offset: usize, bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let shown = |&byte: &u8| if byte.is_ascii_graphic() { char::from(byte) } else { '.' };
    let text: String = bytes.iter().map(shown).collect();
    format!("  {offset:#06x}:  {:<47}  {text}", hex.join(" "))
}

fn written(path: &Path, source: io::Error) -> CliError {
    if path == Path::new("-") {
        return CliError::Stdout(source);
    }
    CliError::File { path: path.to_owned(), source }
}
