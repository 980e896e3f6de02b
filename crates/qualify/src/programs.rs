//! Checks of programs on a device's frames, through an engine.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::ClockId;
use towpath_bpf::program::Linked;
use towpath_engine::counters::{DropReason, PortCounters};
use towpath_engine::port::{Rx, Tx};
use towpath_engine::{
    Engine, Hook, Link, Options, PortId, PortOptions, Snapshot, UpperName, WorkerOptions,
};
use towpath_ports::pair::{self, Pair};
use towpath_workload::small;
use towpath_xdp::{Arena, Frame, LoadOptions, Pool, Program, now_ns, tai_now};

use crate::checks::{NONE_ARRIVE, UNSEEN, fails, untried};
use crate::packets::{self, Packet, VERDICT, is_ours};
use crate::socket::{App, LAUNCH_TIME};
use crate::{Far, Feature, Maker, Outcome, PATIENCE, Purpose, Setup};

/// Tries one of the features that are about programs.
pub(crate) fn try_feature(maker: &dyn Maker, feature: Feature) -> io::Result<Outcome> {
    match feature {
        Feature::Basic => basic(maker),
        Feature::Redirect => redirect(maker),
        Feature::NdoXmit => ndo_xmit(maker),
        _ => linear(maker),
    }
}

/// The device as a port of an engine, and another port that the test controls.
struct Rig {
    engine: Engine,
    dut: PortId,
    probe: PortId,
    probe_rx: Box<dyn Rx>,
    probe_tx: Box<dyn Tx>,
    pool: Pool,
    far: Far,
    receives: bool,
}

impl Rig {
    fn new(maker: &dyn Maker, mtu: u32, arrivals: &[Vec<u8>]) -> io::Result<Rig> {
        let purpose = Purpose { mtu, arrivals: arrivals.to_vec() };
        let Setup { device, mut far } = maker.make(&purpose)?;
        let receives = device.queues() > 0;
        let workers = vec![WorkerOptions::default()];
        let engine = Engine::start(&Options { workers, frames: 8192 }).map_err(io::Error::other)?;
        let (near, end) = Pair::new(pair::Options { mtu: 65535, ..pair::Options::default() });
        let add = |name: &str, ifindex, device| {
            let options = PortOptions { ifindex: Some(ifindex), ..PortOptions::new(name) };
            engine.add_port(options, device).map_err(io::Error::other)
        };
        let probe = add("probe", PROBE, Box::new(near) as _)?;
        let arena: &Arc<Arena> = engine.arena();
        let (probe_rx, probe_tx) = {
            use towpath_engine::port::Device as _;
            (end.open_rx(0, arena)?, end.open_tx(0, arena)?)
        };
        let pool = Pool::new(arena);
        // Last, since a device that has its frames itself begins at once.
        let up = PortOptions { up: false, ifindex: Some(DUT), ..PortOptions::new("dut") };
        let dut = engine.add_port(up, device).map_err(io::Error::other)?;
        let slot =
            |snapshot: &Snapshot| snapshot.port(dut).is_some_and(|it| it.opened.device.link());
        far.come(|| engine.read(|_, snapshot| slot(snapshot)))?;
        Ok(Rig { engine, dut, probe, probe_rx, probe_tx, pool, far, receives })
    }

    /// Attaches a program to the frames that arrive at a port, then lets frames flow.
    fn attach(&self, port: PortId, program: Linked) -> io::Result<Program> {
        let load = LoadOptions { workers: 1, ..LoadOptions::default() };
        let program = Program::from_linked(program, &load).map_err(io::Error::other)?;
        let link = Link::new(program.clone(), 1, 1);
        let upper = UpperName::Named("probe".to_owned());
        self.engine
            .change(|config| {
                config.set_links(port, Hook::Rx, vec![link])?;
                if port == self.dut {
                    config.set_upper(port, upper)?;
                }
                config.set_up(self.dut, true)
            })
            .map_err(io::Error::other)?;
        Ok(program)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.far.send(&Packet::plain(bytes.to_vec()), None)
    }

    /// Sends a packet to the other port.
    fn probe_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let frame = self.pool.frame(bytes).map_err(io::Error::other)?;
        let mut frames: Vec<Frame> = frame.into_iter().collect();
        self.probe_tx.transmit(&mut frames, &mut self.pool)
    }

    /// Packets that came out of the other port, at least `count` unless it takes too long.
    fn probed(&mut self, count: usize) -> io::Result<Vec<Vec<u8>>> {
        let start = Instant::now();
        let mut got = Vec::new();
        while got.len() < count && start.elapsed() < PATIENCE {
            let mut frames = Vec::new();
            if self.probe_rx.receive(&mut self.pool, &mut frames, 64)? == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            got.extend(frames.iter().map(|frame| frame.to_vec()).filter(|bytes| is_ours(bytes)));
            self.pool.give_all(&mut frames);
        }
        Ok(got)
    }

    fn count(&self, port: PortId, what: impl Fn(&PortCounters) -> u64) -> u64 {
        self.engine.read(|_, snapshot| {
            let port = snapshot.port(port);
            port.map_or(0, |port| port.opened.counters.iter().map(what).sum())
        })
    }

    /// Waits until a number is reached; returns whether it was.
    fn reaches(&self, port: PortId, wanted: u64, what: impl Fn(&PortCounters) -> u64) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.count(port, &what) >= wanted {
                return true;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        false
    }
}

/// One packet for each verdict: aborted, dropped, passed and sent back.
fn basic(maker: &dyn Maker) -> io::Result<Outcome> {
    let sent: Vec<Vec<u8>> = (0..4).map(|verdict| packets::udp(1, verdict, 100)).collect();
    let mut rig = Rig::new(maker, 1500, &sent)?;
    if !rig.receives {
        return untried(NONE_ARRIVE);
    }
    rig.attach(rig.dut, small::returns_byte(VERDICT as i32))?;
    sent.iter().try_for_each(|packet| rig.send(packet))?;
    if rig.probed(1)? != sent[2..3] {
        return fails("XDP_PASS: it did not pass");
    }
    let dropped = |why: DropReason| move |it: &PortCounters| it.drops[why as usize].get();
    if !rig.reaches(rig.dut, 1, dropped(DropReason::Aborted)) {
        return fails("XDP_ABORTED: it was not dropped");
    }
    if !rig.reaches(rig.dut, 1, dropped(DropReason::Verdict)) {
        return fails("XDP_DROP: it was not dropped");
    }
    if !rig.far.sees() {
        let is_sent = rig.reaches(rig.dut, 1, |it| it.tx_packets.get());
        return if is_sent { Ok(Outcome::Works) } else { fails("XDP_TX: it was not sent") };
    }
    let back = rig.far.receive(1, || ())?;
    match back.iter().any(|got| got.packet.bytes == sent[3]) {
        true => Ok(Outcome::Works),
        false => fails("XDP_TX: it did not come back"),
    }
}

fn redirect(maker: &dyn Maker) -> io::Result<Outcome> {
    let sent = packets::udp(1, 0, 100);
    let mut rig = Rig::new(maker, 1500, std::slice::from_ref(&sent))?;
    if !rig.receives {
        return untried(NONE_ARRIVE);
    }
    rig.attach(rig.dut, small::redirect(PROBE))?;
    rig.send(&sent)?;
    match rig.probed(1)? == [sent] {
        true => Ok(Outcome::Works),
        false => fails("the packet did not leave by the other port"),
    }
}

fn ndo_xmit(maker: &dyn Maker) -> io::Result<Outcome> {
    let mut rig = Rig::new(maker, 1500, &[packets::udp(9, 0, 64)])?;
    rig.attach(rig.probe, small::redirect(DUT))?;
    let sent = packets::udp(1, 0, 100);
    rig.probe_send(&sent)?;
    if !rig.reaches(rig.dut, 1, |it| it.tx_packets.get()) {
        return fails("it does not take the frame");
    }
    if !rig.far.sees() {
        return Ok(Outcome::Works);
    }
    match rig.far.receive(1, || ())?.iter().any(|got| got.packet.bytes == sent) {
        true => Ok(Outcome::Works),
        false => fails("the packet did not leave"),
    }
}

/// A program learns when the frame that it redirected was sent.
pub(crate) fn tx_timestamp(maker: &dyn Maker) -> io::Result<Outcome> {
    let mut rig = Rig::new(maker, 1500, &[packets::udp(9, 0, 64)])?;
    let program = rig.attach(rig.probe, small::redirect_and_tell(DUT, COOKIE as i32))?;
    let ring = program.maps().by_name("sent").and_then(|map| map.ringbuf());
    let ring = ring.ok_or_else(|| io::Error::other("the program has no ring"))?;
    let (before, start) = (tai_now(), Instant::now());
    rig.probe_send(&packets::udp(1, 0, 100))?;
    let record = loop {
        match ring.read() {
            Some(record) => break record,
            None if start.elapsed() > PATIENCE => return fails("a program is told nothing"),
            None => std::thread::sleep(Duration::from_micros(200)),
        }
    };
    let word = |at: usize| record[at..].first_chunk().map(|word| u64::from_ne_bytes(*word));
    match (word(0), word(8)) {
        (Some(COOKIE), Some(at)) if (before..=tai_now()).contains(&at) => Ok(Outcome::Works),
        told => fails(format!("a program is told {told:?}")),
    }
}

/// A program without frags support reads a byte far behind the first buffer.
fn linear(maker: &dyn Maker) -> io::Result<Outcome> {
    let mut sent = packets::udp(1, 0, LONG);
    sent[FAR_BYTE] = 2;
    let mut rig = Rig::new(maker, 9000, std::slice::from_ref(&sent))?;
    if !rig.receives {
        return untried(NONE_ARRIVE);
    }
    let program = Linked { has_frags: false, ..small::returns_byte(FAR_BYTE as i32) };
    rig.attach(rig.dut, program)?;
    rig.send(&sent)?;
    match rig.probed(1)? == [sent] {
        true => Ok(Outcome::Works),
        false => fails("the program did not see the whole frame"),
    }
}

/// A frame that is longer than the MTU and a VLAN tag does not leave.
pub(crate) fn refuses_longer(maker: &dyn Maker, mtu: u32) -> io::Result<Outcome> {
    let mut rig = Rig::new(maker, mtu, &[packets::udp(9, 0, 64)])?;
    let mtu = rig.engine.read(|_, snapshot| snapshot.port(rig.dut).map_or(mtu, |port| port.mtu));
    if mtu > 65_000 {
        return Ok(Outcome::Works);
    }
    rig.attach(rig.probe, small::redirect(DUT))?;
    rig.probe_send(&packets::udp(1, 0, mtu as usize + 14 + 4 + 1))?;
    let too_long = |it: &PortCounters| it.tx_drops[DropReason::TooLong as usize].get();
    match rig.reaches(rig.dut, 1, too_long) {
        true => Ok(Outcome::Works),
        false => fails("it takes a frame that is longer than its MTU"),
    }
}

/// A packet that a socket sends with a launch time does not come out earlier.
pub(crate) fn launch_time(maker: &dyn Maker) -> io::Result<Outcome> {
    let mut rig = Rig::new(maker, 1500, &[packets::udp(9, 0, 64)])?;
    if !rig.far.sees() {
        return untried(UNSEEN);
    }
    rig.engine.change(|config| config.set_up(rig.dut, true)).map_err(io::Error::other)?;
    let (mut app, sent) = (App::new()?, packets::udp(2, 0, 100));
    let start = Instant::now();
    app.put(&sent, LAUNCH_TIME, monotonic_ns() + LAUNCH_DELAY.as_nanos() as u64)?;
    let socket = Arc::clone(&app.socket);
    rig.engine.change(|config| config.add_socket(socket)).map_err(io::Error::other)?;
    match &rig.far.receive(1, || ())?[..] {
        [got] if got.at.duration_since(start) >= LAUNCH_DELAY => Ok(Outcome::Works),
        [_] => fails("it does not wait"),
        _ => fails("the packet did not leave"),
    }
}

fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}

const LAUNCH_DELAY: Duration = Duration::from_millis(20);
pub(crate) const DUT: u32 = 2001;
const PROBE: u32 = 2002;
const COOKIE: u64 = 77;
/// Two buffers and more.
const LONG: usize = 8900;
const FAR_BYTE: usize = 8000;
