//! Two veths, and frames made by the kernel.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{CpuSet, sched_setaffinity};
use towpath_bpf::program::Linked;
use towpath_kernel::{AttachMode, Kernel, KernelProgram, TestRun, XdpLink};
use towpath_workload::small;

/// The core of the sender.
const SENDER_CPU: usize = 0;
/// The core of who receives in user space.
pub const WORKER_CPU: usize = 1;

/// near ~ far and out ~ end, up, in the namespace of this thread. They go when this is dropped.
pub struct World {
    /// The kernel's programs and maps.
    pub kernel: Kernel,
    bytes: usize,
}

impl World {
    /// New veths, and frames of so many bytes.
    pub fn new(bytes: usize) -> anyhow::Result<World> {
        // What the stack sends on its own is not wanted.
        let _no_ipv6 = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        for (one, other) in [("near", "far"), ("out", "end")] {
            ip(&format!("link add {one} type veth peer name {other}"))?;
            ip(&format!("link set {one} up"))?;
            ip(&format!("link set {other} up"))?;
        }
        // Redirected frames are taken on behalf of an end with NAPI: with a program, or with GRO.
        let gro = Command::new("ethtool").args(["-K", "near", "gro", "on"]).status();
        ensure!(gro.is_ok_and(|status| status.success()), "ethtool -K near gro on");
        let kernel = Kernel::open()?;
        Ok(World { kernel, bytes })
    }

    /// Loads a program with maps of its own.
    pub fn load(&self, linked: &Linked) -> anyhow::Result<KernelProgram> {
        let maps = self.kernel.load_maps(&linked.maps)?;
        Ok(self.kernel.load(linked, &maps)?)
    }

    /// Attaches a program of the kernel's.
    pub fn attach(
        &self,
        interface: &str,
        linked: &Linked,
        mode: AttachMode,
    ) -> anyhow::Result<XdpLink> {
        let program = self.load(linked)?;
        let index = index(interface)?;
        let attached = program.attach(index, mode);
        attached.map_err(|errno| anyhow::anyhow!("attach to {interface}: {errno}"))
    }

    /// Starts to send out of `far`.
    pub fn sender(&self) -> anyhow::Result<Sender> {
        let program = self.load(&small::redirect(index("far")?))?;
        let packet = packet(self.bytes);
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("sender".to_owned()).spawn(move || {
            pin(SENDER_CPU);
            while !told.load(Ordering::Relaxed) {
                // Setting up a run takes as long as sending a hundred thousand frames.
                let run = TestRun { repeat: 1 << 20, live_frames: true, ..TestRun::new(&packet) };
                if program.test_run(&run).is_err() {
                    break;
                }
            }
        })?;
        Ok(Sender { stop, thread: Some(thread) })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for end in ["near", "out"] {
            let _gone = ip(&format!("link del {end}"));
        }
    }
}

/// Sends until dropped.
pub struct Sender {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// How fast a number grows, in a window after a while to settle.
pub fn rate(window: Duration, number: impl Fn() -> anyhow::Result<u64>) -> anyhow::Result<f64> {
    std::thread::sleep(Duration::from_millis(200));
    let (start, before) = (Instant::now(), number()?);
    std::thread::sleep(window);
    let count = number()? - before;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// Frames that an interface received, its programs' included.
pub fn received(interface: &str) -> anyhow::Result<u64> {
    received_in(&std::fs::read_to_string("/proc/thread-self/net/dev")?, interface)
}

/// Frames that an interface received, in a table of `/proc/net/dev`.
pub(crate) fn received_in(table: &str, interface: &str) -> anyhow::Result<u64> {
    let prefix = format!("{interface}:");
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(&prefix));
    let packets = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(packets.with_context(|| format!("no counters of {interface}"))?.parse()?)
}

/// The ifindex of an interface.
pub fn index(interface: &str) -> anyhow::Result<u32> {
    let asked = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(name_to_index(&asked, interface)?)
}

/// Keeps the calling thread on one core.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _one_core_only = sched_setaffinity(None, &set);
}

fn ip(arguments: &str) -> anyhow::Result<()> {
    let status = Command::new("ip").args(arguments.split(' ')).status()?;
    ensure!(status.success(), "ip {arguments}: {status}");
    Ok(())
}

/// UDP from 10.0.0.1 to 10.0.0.2.
fn packet(bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; bytes.max(60)];
    let len = (packet.len() - 14) as u16;
    packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    packet[14] = 0x45;
    packet[16..18].copy_from_slice(&len.to_be_bytes());
    packet[22] = 64;
    packet[23] = 17;
    packet[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet
}
