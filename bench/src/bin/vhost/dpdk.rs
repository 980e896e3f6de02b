//! A guest of DPDK's (`net_virtio_user`) at our port, and at DPDK's (`net_vhost`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use towpath_bench::testpmd::Testpmd;
use towpath_bench::{attach, load, rate};
use towpath_engine::{Engine, Mode, Options, PortId, PortOptions, UpperName, WorkerOptions};
use towpath_ports::generator::{self, Generator};
use towpath_ports::sink::Sink;
use towpath_ports::vhost_user::{self, VhostUser};
use towpath_workload::small;

/// What frames do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The guest sends, the host drops.
    FromGuest,
    /// The host sends, the guest drops.
    ToGuest,
    /// The guest sends back what comes, and so does the host with addresses swapped.
    Swap,
}

/// One thing to measure.
#[derive(Debug)]
pub(crate) struct Case {
    way: Way,
    packed: bool,
    bytes: usize,
}

impl Case {
    pub(crate) fn name(&self) -> String {
        let way = match self.way {
            Way::FromGuest => "guest to host",
            Way::ToGuest => "host to guest",
            Way::Swap => "macswap",
        };
        let format = if self.packed { "packed" } else { "split" };
        format!("{way}, {format}, {} B", self.bytes)
    }

    /// Starts the guest, on a core of its own.
    fn guest(&self, path: &std::path::Path) -> anyhow::Result<Testpmd> {
        let packed = u8::from(self.packed);
        let device = format!(
            "net_virtio_user0,path={},queues=1,queue_size=256,packed_vq={packed}",
            path.display()
        );
        let forward = match self.way {
            Way::FromGuest => "--forward-mode=txonly",
            Way::ToGuest => "--forward-mode=rxonly",
            Way::Swap => "--forward-mode=io",
        };
        let length = format!("--txpkts={}", self.bytes);
        let mut guest = Testpmd::start(GUEST_CPU, &[device], &[forward, &length])?;
        guest.say(if self.way == Way::Swap { "start tx_first 2" } else { "start" })?;
        std::thread::sleep(SETTLE);
        Ok(guest)
    }
}

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for packed in [false, true] {
        for bytes in [64, 1500] {
            for way in [Way::FromGuest, Way::ToGuest, Way::Swap] {
                cases.push(Case { way, packed, bytes });
            }
        }
    }
    cases
}

/// Frames a second with our port.
pub(crate) fn towpath(case: &Case, window: Duration) -> anyhow::Result<f64> {
    let worker =
        WorkerOptions { cpu: Some(HOST_CPU), mode: Mode::Busy, ..WorkerOptions::default() };
    let engine = Engine::start(&Options { workers: vec![worker], frames: 8192 })?;
    let path = socket();
    let device = VhostUser::new(vhost_user::Options::new(&path))?;
    let vm = engine.add_port(PortOptions::new("vm"), Box::new(device))?;
    let watched = set_up(case, &engine, vm)?;
    let mut guest = case.guest(&path)?;
    let rate = match watched {
        Some(port) => rate(&engine, port, window),
        None => received(&mut guest, window)?,
    };
    drop(guest);
    engine.stop();
    let conservation = engine.conservation();
    anyhow::ensure!(conservation.missing() == 0, "frames are missing: {conservation:?}");
    Ok(rate)
}

/// Gives the port whose received frames are counted; without one, those of the guest are.
fn set_up(case: &Case, engine: &Engine, vm: PortId) -> anyhow::Result<Option<PortId>> {
    let program = match case.way {
        Way::FromGuest => small::returns(1),
        Way::ToGuest => small::returns(2),
        Way::Swap => small::reflect(),
    };
    let programs = [load(program, 1)?];
    if case.way != Way::ToGuest {
        engine.change(|config| attach(config, vm, &programs, 1, 0))?;
        return Ok(Some(vm));
    }
    let packet = vec![0x5a; case.bytes];
    let source = Generator::new(generator::Options::new(packet))?;
    let source = engine.add_port(PortOptions::new("gen"), Box::new(source))?;
    engine.change(|config| {
        config.set_upper(source, UpperName::Named("vm".to_owned()))?;
        attach(config, source, &programs, 1, 0)
    })?;
    Ok(None)
}

/// Frames a second with DPDK's.
pub(crate) fn net_vhost(case: &Case, window: Duration) -> anyhow::Result<f64> {
    let path = socket();
    let device = format!("net_vhost0,iface={},queues=1", path.display());
    let forward = match case.way {
        Way::FromGuest => "--forward-mode=rxonly",
        Way::ToGuest => "--forward-mode=txonly",
        Way::Swap => "--forward-mode=macswap",
    };
    let length = format!("--txpkts={}", case.bytes);
    let mut host = Testpmd::start(HOST_CPU, &[device], &[forward, &length])?;
    host.say("start")?;
    let mut guest = case.guest(&path)?;
    let watched = if case.way == Way::ToGuest { &mut guest } else { &mut host };
    let rate = received(watched, window);
    drop(guest);
    drop(host);
    let _gone = std::fs::remove_file(&path);
    rate
}

/// Frames a second that a worker makes and sends nowhere, a program run on each.
pub(crate) fn made_here(bytes: usize, window: Duration) -> anyhow::Result<f64> {
    let worker =
        WorkerOptions { cpu: Some(HOST_CPU), mode: Mode::Busy, ..WorkerOptions::default() };
    let engine = Engine::start(&Options { workers: vec![worker], frames: 8192 })?;
    engine.add_port(PortOptions::new("sink"), Box::new(Sink))?;
    let source = Generator::new(generator::Options::new(vec![0x5a; bytes]))?;
    let source = engine.add_port(PortOptions::new("gen"), Box::new(source))?;
    let programs = [load(small::returns(2), 1)?];
    engine.change(|config| {
        config.set_upper(source, UpperName::Named("sink".to_owned()))?;
        attach(config, source, &programs, 1, 0)
    })?;
    std::thread::sleep(SETTLE);
    let rate = rate(&engine, source, window);
    engine.stop();
    Ok(rate)
}

/// Frames a second that testpmd makes (`txonly`) and sends nowhere (`net_null`).
pub(crate) fn made_there(bytes: usize, window: Duration) -> anyhow::Result<f64> {
    let length = format!("--txpkts={bytes}");
    let options = ["--forward-mode=txonly", &length];
    let mut testpmd = Testpmd::start(HOST_CPU, &["net_null0".to_owned()], &options)?;
    testpmd.say("start")?;
    std::thread::sleep(SETTLE);
    let (before, start) = (testpmd.packets()?.1, Instant::now());
    std::thread::sleep(window);
    let after = testpmd.packets()?.1;
    Ok((after - before) as f64 / start.elapsed().as_secs_f64())
}

/// Frames a second that a testpmd's port receives.
fn received(testpmd: &mut Testpmd, window: Duration) -> anyhow::Result<f64> {
    let before = testpmd.received()?;
    let start = Instant::now();
    std::thread::sleep(window);
    let after = testpmd.received()?;
    Ok((after - before) as f64 / start.elapsed().as_secs_f64())
}

fn socket() -> PathBuf {
    std::env::temp_dir().join(format!("towpath-bench-vhost-{}", std::process::id()))
}

const GUEST_CPU: usize = 0;
const HOST_CPU: usize = 1;
const SETTLE: Duration = Duration::from_millis(500);
