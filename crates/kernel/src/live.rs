//! Sending without socket buffers: packets are sent as live frames of a test run.
//!
//! A test run with `BPF_F_TEST_XDP_LIVE_FRAMES` makes frames from a pool of pages and executes the
//! program's verdicts for them, 64 at a time (`xdp_test_run_batch`). Towpath's program copies the
//! next packet of a ring into its frame and redirects it to the interface, so packets leave by
//! `ndo_xdp_xmit`, like those of the kernel's own XDP. A copying AF_XDP socket allocates a socket
//! buffer for each packet instead (`xsk_build_skb`), which costs several times as much; but a run
//! costs as much as sending a dozen packets that way, so this is for bursts.
//!
//! There is a ring for each CPU that sends. A run takes packets from the ring of its CPU, with
//! bottom halves off, so each ring has one consumer at a time on any thread; its producer is the
//! holder of its lock. A thread that was moved to another CPU after it filled a ring moves back.
//!
//! The program must be attached somewhere: then the XDP dispatcher has an entry for it
//! (`bpf_prog_change_xdp`), and a run does not wait for RCU to add one.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use towpath_bpf::Errno;

use crate::live_unsafe::Ring;
use crate::map::{object_name, possible_cpus};
use crate::run::F_TEST_XDP_LIVE_FRAMES;
use crate::sys_unsafe::{MapFd, TestRunBuffers, number, prog_test_run};
use crate::uapi::{MapCreate, ProgTestRun};

/// A sender to one interface. Any number of threads may use it.
#[derive(Debug)]
pub struct LiveFrames {
    program: Arc<OwnedFd>,
    maps: Maps,
    /// Rings by CPU.
    rings: Box<[OnceLock<Lane>]>,
}

/// The ring of a CPU, or the error of making it.
type Lane = Result<Mutex<Ring>, Errno>;

/// Result of [`LiveFrames::send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveSent {
    /// Number of packets that were taken, from the first.
    pub taken: usize,
    /// Number of frames that could not be redirected, because the interface is gone. They may be of
    /// an earlier call. An interface that is down, or has no `NETDEV_XDP_ACT_NDO_XMIT`, loses
    /// frames without a report.
    pub refused: u32,
}

impl LiveFrames {
    /// Largest number of packets of a call.
    pub const PACKETS_MAX: usize = Ring::SLOTS as usize;
    /// Size in bytes of the shortest packet: an Ethernet header.
    pub const PACKET_BYTES_MIN: usize = 14;
    /// Size in bytes of the longest packet.
    pub const PACKET_BYTES_MAX: usize = Ring::PACKET_BYTES_MAX;

    pub(crate) fn new(program: &Arc<OwnedFd>, maps: Maps) -> LiveFrames {
        let rings = (0..possible_cpus()).map(|_| OnceLock::new()).collect();
        LiveFrames { program: Arc::clone(program), maps, rings }
    }

    /// Sends copies of packets, of [`LiveFrames::PACKET_BYTES_MIN`] to
    /// [`LiveFrames::PACKET_BYTES_MAX`] bytes, in order. A packet that was taken is sent in this
    /// call or in the next. As with `XDP_REDIRECT`, there is no report of whether the interface had
    /// room for it.
    ///
    /// # Errors
    ///
    /// Fails with `EINVAL` at a packet of another length, which is the first of those not taken;
    /// with `ENOMEM` if there is no memory for a ring; with the error of `BPF_PROG_TEST_RUN` if no
    /// packet could be taken.
    pub fn send(
        &self,
        packets: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<LiveSent, Errno> {
        let cpu = sched_getcpu();
        let ring = self.rings.get(cpu).ok_or(Errno::EINVAL)?;
        let ring = ring.get_or_init(|| self.maps.ring(cpu).map(Mutex::new)).as_ref();
        let mut ring = ring.map_err(|errno| *errno)?.lock();
        let refused = ring.refused();
        let (mut taken, mut outcome) = (0, Ok(()));
        for packet in packets {
            let packet = packet.as_ref();
            if !(Self::PACKET_BYTES_MIN..=Self::PACKET_BYTES_MAX).contains(&packet.len()) {
                outcome = Err(Errno::EINVAL);
                break;
            }
            if !ring.put(packet) {
                break;
            }
            taken += 1;
        }
        ring.publish();
        if let Err(errno) = self.run(&ring, cpu) {
            outcome = outcome.and(Err(errno));
        }
        match outcome {
            Err(errno) if taken == 0 => Err(errno),
            _ => Ok(LiveSent { taken, refused: ring.refused().wrapping_sub(refused) }),
        }
    }

    /// Runs until the ring is empty.
    fn run(&self, ring: &Ring, cpu: usize) -> Result<(), Errno> {
        if ring.waiting() == 0 {
            return Ok(());
        }
        self.run_once(ring)?;
        if ring.waiting() == 0 {
            return Ok(());
        }
        // The run was interrupted by a signal, or took place on another CPU than the ring's.
        let before = sched_getaffinity(None).map_err(|errno| Errno(errno.raw_os_error()))?;
        let mut here = CpuSet::new();
        here.set(cpu);
        sched_setaffinity(None, &here).map_err(|errno| Errno(errno.raw_os_error()))?;
        let result = (0..TRIES).try_for_each(|_| match ring.waiting() {
            0 => Ok(()),
            _ => self.run_once(ring),
        });
        // The previous CPUs are allowed again, unless they were taken away meanwhile.
        let _restored = sched_setaffinity(None, &before);
        result
    }

    fn run_once(&self, ring: &Ring) -> Result<(), Errno> {
        let numbers = ProgTestRun {
            repeat: ring.waiting(),
            flags: F_TEST_XDP_LIVE_FRAMES,
            ..ProgTestRun::default()
        };
        let mut buffers = TestRunBuffers {
            data_in: &FRAME,
            data_out: &mut [],
            context_in: &[],
            context_out: &mut [],
        };
        match prog_test_run(self.program.as_fd(), &mut buffers, &numbers)?.1 {
            None | Some(Errno::EINTR) => Ok(()),
            Some(errno) => Err(errno),
        }
    }
}

/// The maps of the program's sending part.
#[derive(Debug)]
pub(crate) struct Maps {
    /// The interface, as the only entry: so the network namespaces of sending threads don't matter.
    pub(crate) device: MapFd,
    /// Rings by CPU.
    pub(crate) rings: MapFd,
}

impl Maps {
    pub(crate) fn new(ifindex: u32) -> Result<Maps, Errno> {
        let device = MapCreate {
            map_type: MAP_TYPE_DEVMAP,
            key_size: 4,
            value_size: 4,
            max_entries: 1,
            map_name: object_name("towpath_out"),
            ..MapCreate::default()
        };
        let device = MapFd::create(&device, 4)?;
        device.update(&0u32.to_le_bytes(), &ifindex.to_le_bytes(), 0)?;
        let template = Ring::create()?;
        let rings = MapCreate {
            map_type: MAP_TYPE_ARRAY_OF_MAPS,
            key_size: 4,
            value_size: 4,
            max_entries: possible_cpus() as u32,
            inner_map_fd: number(template.as_fd()),
            map_name: object_name("towpath_rings"),
            ..MapCreate::default()
        };
        Ok(Maps { device, rings: MapFd::create(&rings, 4)? })
    }

    fn ring(&self, cpu: usize) -> Result<Ring, Errno> {
        let fd = Ring::create()?;
        let (key, value) = ((cpu as u32).to_le_bytes(), number(fd.as_fd()).to_le_bytes());
        self.rings.update(&key, &value, 0)?;
        Ring::map(fd)
    }
}

/// An empty packet: each frame gets its bytes from a ring.
const FRAME: [u8; 60] = [0; 60];
/// Largest number of attempts: signals may interrupt a run; an uninterrupted one empties the ring.
const TRIES: u32 = 16;
const MAP_TYPE_DEVMAP: u32 = 14;
const MAP_TYPE_ARRAY_OF_MAPS: u32 = 12;
