//! Captures as ports: the times of replayed frames, the frames that are written, and the end of a
//! replay.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, OFlags};
use towpath_capture::{Reader, pcap as classic};
use towpath_engine::counters::DropReason;
use towpath_engine::{Engine, Mode as Waits, Options as Engines, PortId, PortOptions, UpperName};
use towpath_engine::{Opened, WorkerOptions};
use towpath_ports::pcap::{Options, Pcap, Timing};

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("towpath-pcap-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    /// A capture with a frame at each of these times in milliseconds.
    fn capture(&self, times_ms: &[u64]) -> PathBuf {
        let mut writer = classic::Writer::new(Vec::new()).unwrap();
        for (number, ms) in (0..).zip(times_ms) {
            writer.write(&frame(number), 60, START_NS + ms * 1_000_000).unwrap();
        }
        let path = self.0.join("in.pcap");
        std::fs::write(&path, writer.finish().unwrap()).unwrap();
        path
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let (path, kind) = (self.0.join(name), FileType::Fifo);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, Mode::RUSR | Mode::WUSR, 0).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

fn frame(number: u8) -> [u8; 60] {
    let mut frame = [number; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame
}

/// A capture that is replayed into another one.
struct Replay {
    engine: Engine,
    from: PortId,
    to: PortId,
    output: PathBuf,
    /// The time at which the port was set up.
    start_ns: u64,
}

impl Replay {
    fn start(dir: &Dir, options: Options) -> Replay {
        let worker = WorkerOptions { cpu: None, mode: Waits::Adaptive, ..WorkerOptions::default() };
        let engine = Engine::start(&Engines { workers: vec![worker], frames: 1024 }).unwrap();
        let output = dir.0.join("out.pcapng");
        let written = Options { output: Some(output.clone()), ..Options::default() };
        let to = engine.add_port(PortOptions::new("to"), open(written)).unwrap();
        let start_down = PortOptions { up: false, ..PortOptions::new("from") };
        let from = engine.add_port(start_down, open(options)).unwrap();
        let upper = UpperName::Named("to".to_owned());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        engine
            .change(|config| {
                config.set_upper(from, upper)?;
                config.set_up(from, true)
            })
            .unwrap();
        Replay { engine, from, to, output, start_ns: now.as_nanos() as u64 }
    }

    fn opened<T>(&self, port: PortId, read: impl FnOnce(&Opened) -> T) -> T {
        self.engine.read(|_, snapshot| read(&snapshot.port(port).unwrap().opened))
    }

    fn wait_for(&self, what: &str, done: impl Fn(&Replay) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < Duration::from_secs(20), "still waiting for {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Frames with the nanoseconds after its start at which they were written.
    fn until_its_end(self) -> Vec<(u64, Vec<u8>)> {
        self.wait_for("the end", |it| it.opened(it.from, Opened::is_finished));
        self.written()
    }

    /// The frames that were written, each with the nanoseconds since the start.
    fn written(self) -> Vec<(u64, Vec<u8>)> {
        let Replay { engine, output, start_ns, .. } = self;
        engine.stop();
        assert_eq!(engine.conservation().missing(), 0);
        drop(engine);
        let mut reader = Reader::open(&output).unwrap();
        let mut frames = Vec::new();
        while let Some(packet) = reader.next_packet().unwrap() {
            assert_eq!(packet.options.flags, Some(2), "it was sent");
            assert_eq!(packet.original_len as usize, packet.data.len());
            frames.push((packet.timestamp_ns - start_ns, packet.data.to_vec()));
        }
        frames
    }
}

fn open(options: Options) -> Box<Pcap> {
    Box::new(Pcap::new(options).unwrap())
}

fn replayed(path: &Path, timing: Timing, repeat: bool) -> Options {
    Options { input: Some(path.to_owned()), timing, repeat, ..Options::default() }
}

fn bytes(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    frames.iter().map(|(_, bytes)| bytes[12]).collect()
}

#[test]
fn frames_keep_the_pauses_of_the_capture() {
    let dir = Dir::new("timing");
    let times = [0, 15, 15, 40, 90];
    let options = replayed(&dir.capture(&times), Timing::Original, false);
    let frames = Replay::start(&dir, options).until_its_end();
    assert_eq!(bytes(&frames), [0, 1, 2, 3, 4]);
    assert_eq!(frames[3].1, frame(3), "byte for byte");
    for ((at, _), ms) in frames.iter().zip(times) {
        // On a busy machine any may come late; none may come early.
        let since = Duration::from_nanos(*at) + CLOCKS;
        assert!(since >= Duration::from_millis(ms), "frame of {ms} ms after {since:?}");
    }
}

#[test]
fn frames_come_at_a_rate() {
    let dir = Dir::new("rate");
    // The capture's own pauses do not matter.
    let options = replayed(&dir.capture(&[0; 41]), Timing::Rate(500), false);
    let frames = Replay::start(&dir, options).until_its_end();
    assert_eq!(frames.len(), 41);
    let all = Duration::from_nanos(frames[40].0) + CLOCKS;
    assert!(all >= Duration::from_millis(80), "40 pauses of 2 ms in {all:?}");
}

#[test]
fn a_replay_starts_again_until_its_port_goes() {
    let dir = Dir::new("repeat");
    let options = replayed(&dir.capture(&[0, 3_600_000, 3_600_001]), Timing::Unlimited, true);
    let replay = Replay::start(&dir, options);
    let sent = |it: &Replay| it.opened(it.to, |opened| opened.counters[0].tx_packets.get());
    replay.wait_for("some rounds", |it| sent(it) > 30);
    assert!(!replay.opened(replay.from, Opened::is_finished));
    replay.engine.remove_port(replay.from).unwrap();
    let frames = replay.written();
    let expected: Vec<u8> = [0, 1, 2].iter().copied().cycle().take(frames.len()).collect();
    assert_eq!(bytes(&frames), expected, "in order, round by round");
}

#[test]
fn a_replay_ends_and_says_why() {
    let dir = Dir::new("ends");
    // Nothing in it: there is nothing to start again with.
    let options = replayed(&dir.capture(&[]), Timing::Original, true);
    assert_eq!(Replay::start(&dir, options).until_its_end(), []);

    // One that breaks off: what came before is sent, and the port says where it breaks.
    let path = dir.capture(&[0, 0, 0]);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 10]).unwrap();
    let replay = Replay::start(&dir, replayed(&path, Timing::Unlimited, false));
    replay.wait_for("the error", |it| it.opened(it.from, Opened::failure).is_some());
    let failure = replay.opened(replay.from, Opened::failure).unwrap();
    assert!(failure.contains("in.pcap: ends at offset"), "{failure}");
    assert_eq!(bytes(&replay.written()), [0, 1]);

    // A file that is no capture is refused before anything moves.
    std::fs::write(&path, "no capture").unwrap();
    let error = Pcap::new(replayed(&path, Timing::Unlimited, false)).unwrap_err();
    assert!(error.to_string().contains("not a capture file"), "{error}");
}

#[test]
fn a_full_disk_is_an_error_of_the_port() {
    let dir = Dir::new("full");
    let full = Options { output: Some("/dev/full".into()), ..Options::default() };
    let options = replayed(&dir.capture(&[0, 0, 0]), Timing::Unlimited, true);
    let replay = Replay::start(&dir, options);
    let disk = replay.engine.add_port(PortOptions::new("full"), open(full)).unwrap();
    let upper = UpperName::Named("full".to_owned());
    replay.engine.change(|config| config.set_upper(replay.from, upper)).unwrap();
    replay.wait_for("the error", |it| it.opened(disk, Opened::tx_error).is_some());
    let error = replay.opened(disk, Opened::tx_error).unwrap();
    assert!(error.contains("No space left on device"), "{error}");
    let received = |it: &Replay| it.opened(it.from, |opened| opened.counters[0].rx_packets.get());
    let before = received(&replay);
    replay.wait_for("more frames", |it| received(it) > before + 100);
    replay.engine.stop();
    assert_eq!(replay.engine.conservation().missing(), 0);
}

#[test]
fn a_fifo_is_read_as_it_comes() {
    let dir = Dir::new("fifo-in");
    let capture = std::fs::read(dir.capture(&[0, 0, 0])).unwrap();
    let fifo = dir.fifo("in.fifo");
    let error = Pcap::new(replayed(&fifo, Timing::Unlimited, true)).unwrap_err();
    assert!(error.to_string().contains("start again"), "{error}");
    let replay = Replay::start(&dir, replayed(&fifo, Timing::Unlimited, false));
    let received = |it: &Replay| it.opened(it.from, |opened| opened.counters[0].rx_packets.get());
    // At first no process writes, and then one that is slow. Frames come when they are there.
    let mut writer = std::fs::File::options().write(true).open(&fifo).unwrap();
    writer.write_all(&capture[..capture.len() - 100]).unwrap();
    replay.wait_for("the first frame", |it| received(it) == 1);
    writer.write_all(&capture[capture.len() - 100..]).unwrap();
    replay.wait_for("the others", |it| received(it) == 3);
    assert!(!replay.opened(replay.from, Opened::is_finished), "he may write more");
    drop(writer);
    assert_eq!(bytes(&replay.until_its_end()), [0, 1, 2]);

    // A port with a silent FIFO is closed, and one whose FIFO sends no capture reports it.
    let replay = Replay::start(&dir, replayed(&fifo, Timing::Original, false));
    replay.engine.remove_port(replay.from).unwrap();
    assert_eq!(replay.written(), []);
    let replay = Replay::start(&dir, replayed(&fifo, Timing::Original, false));
    std::fs::write(&fifo, "no capture").unwrap();
    replay.wait_for("the error", |it| it.opened(it.from, Opened::failure).is_some());
    let failure = replay.opened(replay.from, Opened::failure).unwrap();
    assert!(failure.contains("in.fifo: ") && failure.contains("not a capture"), "{failure}");
}

#[test]
fn a_fifo_is_written_as_fast_as_it_is_read() {
    let dir = Dir::new("fifo-out");
    let fifo = dir.fifo("out.fifo");
    let written = || Options { output: Some(fifo.clone()), ..Options::default() };
    let error = Pcap::new(written()).unwrap_err();
    assert!(error.to_string().contains("this FIFO has no reader"), "{error}");

    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let reader = rustix::fs::open(&fifo, flags, Mode::empty()).unwrap();
    let options = replayed(&dir.capture(&[0, 0, 0]), Timing::Unlimited, true);
    let replay = Replay::start(&dir, options);
    let out = replay.engine.add_port(PortOptions::new("out"), open(written())).unwrap();
    let upper = UpperName::Named("out".to_owned());
    replay.engine.change(|config| config.set_upper(replay.from, upper)).unwrap();
    let count = |it: &Replay, reason: DropReason| {
        it.opened(out, |opened| opened.counters[0].tx_drops[reason as usize].get())
    };
    // No process reads from it: frames are dropped, and nothing else stops.
    replay.wait_for("drops", |it| count(it, DropReason::RingFull) > 1000);
    let before = count(&replay, DropReason::RingFull);
    replay.wait_for("more drops", |it| count(it, DropReason::RingFull) > before + 1000);
    // The data in it is a capture without gaps in its records.
    let file = std::fs::File::from(reader);
    rustix::fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
    let mut capture = Reader::new(std::io::BufReader::new(file)).unwrap();
    for _ in 0..20_000 {
        let packet = capture.next_packet().unwrap().unwrap();
        assert_eq!(packet.data, frame(packet.data[12]));
    }
    // The reader goes: an error of the port, as a full disk is.
    drop(capture);
    replay.wait_for("the error", |it| it.opened(out, Opened::tx_error).is_some());
    let error = replay.opened(out, Opened::tx_error).unwrap();
    assert!(error.contains("Broken pipe"), "{error}");
    replay.engine.stop();
    assert_eq!(replay.engine.conservation().missing(), 0);
}

/// When the capture begins: some day in 2023.
const START_NS: u64 = 1_700_000_000_000_000_000;
/// Frames are due by one clock and written by another, which may be set meanwhile.
const CLOCKS: Duration = Duration::from_millis(1);
