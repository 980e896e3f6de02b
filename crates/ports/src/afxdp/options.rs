//! How a port over an interface is set up.

use std::time::Duration;

use serde::Deserialize;

use crate::Error;
use crate::host;

/// Options of a port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Name of the interface, which must be there.
    #[serde(rename = "interface")]
    pub name: String,
    /// The network namespace it is in: a name that `ip netns` knows, or a path.
    pub netns: Option<String>,
    /// Queues to receive from, the first ones; by default all that the interface uses.
    pub queues: Option<u32>,
    /// Copies or not.
    pub mode: Mode,
    /// Where the program that steers frames to us runs.
    pub attach: Attach,
    /// Descriptors in the rx ring, a power of two.
    pub rx_ring: u32,
    /// Descriptors in the tx ring and in the completion ring, a power of two.
    pub tx_ring: u32,
    /// Descriptors in the fill ring, a power of two: the buffers that the kernel has to receive
    /// into.
    pub fill_ring: u32,
    /// Frames of several buffers, both ways (`XDP_USE_SG`). Without, longer ones are lost.
    pub multi_buffer: bool,
    /// The driver says when it needs a system call (`XDP_USE_NEED_WAKEUP`).
    pub need_wakeup: bool,
    /// How frames leave.
    pub transmit: Transmit,
    /// Whether the driver is asked what it knows of each frame.
    pub rx_hints: RxHintsFrom,
    /// Where the interface is an end of a veth: whether the stack at its other end may leave
    /// checksums to the device. AF_XDP passes the packets on without them.
    pub peer_offloads: PeerOffloads,
    /// Our system calls drive the interface's NAPI, on the worker's core: one that finds nothing
    /// looks for frames for so many microseconds. DPDK's and the kernel's examples have 20.
    pub busy_poll: Option<u32>,
    /// Frames such a call takes from the driver at most.
    pub busy_poll_budget: u32,
    /// How long a queue that another socket has is waited for: an old one of ours may be on its way
    /// out. The kernel lets go of a queue in an RCU callback and a work item behind that; a machine
    /// with nothing else to do takes milliseconds for these, a very busy one more than a second.
    #[serde(skip)]
    pub patience: Duration,
}

/// Whether the kernel copies frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Without copies where the driver can.
    #[default]
    Auto,
    /// With copies: any interface.
    Copy,
    /// Without copies, or not at all.
    ZeroCopy,
}

/// Where the kernel's program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// In the driver, or behind it where the driver refuses.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// Behind the driver.
    Generic,
}

/// How frames leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transmit {
    /// By the socket; but where that copies and the interface takes redirected frames
    /// (`NETDEV_XDP_ACT_NDO_XMIT`), bursts of short frames leave as those of the kernel's own XDP
    /// do ([`towpath_kernel::LiveFrames`]), which is several times as fast. What the interface has
    /// no room for is then lost without a count, as with `XDP_REDIRECT`.
    #[default]
    Auto,
    /// By the socket.
    Socket,
}

/// The source of hash, timestamp and VLAN tag of received frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RxHintsFrom {
    /// No hints.
    #[default]
    Off,
    /// The driver, by the kernel's `bpf_xdp_metadata_rx_*`. Then [`Transmit::Auto`] means the
    /// socket: the kernel does not send live frames with a program that is bound to a device.
    Driver,
}

/// Offloads of the stack at the other end of a veth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerOffloads {
    /// As it is: there is a warning when it leaves checksums.
    #[default]
    Leave,
    /// Nothing, as long as the port is open: then as it was.
    Off,
}

/// The usual ones, of no interface yet.
impl Default for Options {
    fn default() -> Options {
        Options::new("")
    }
}

impl Options {
    /// The usual options for an interface: all its queues, the best mode there is.
    pub fn new(name: &str) -> Options {
        Options {
            name: name.to_owned(),
            netns: None,
            queues: None,
            mode: Mode::Auto,
            attach: Attach::Auto,
            rx_ring: 2048,
            tx_ring: 2048,
            // More would not stay in the caches of the core that receives.
            fill_ring: 512,
            multi_buffer: true,
            need_wakeup: true,
            transmit: Transmit::Auto,
            rx_hints: RxHintsFrom::Off,
            peer_offloads: PeerOffloads::Leave,
            busy_poll: None,
            busy_poll_budget: 64,
            patience: Duration::from_secs(3),
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        host::check_name(&self.name)?;
        let refused = |what, value: String, must: String| {
            let interface = self.name.clone();
            Err(Error::Option { interface, what, value, must })
        };
        let rings =
            [("rx_ring", self.rx_ring), ("tx_ring", self.tx_ring), ("fill_ring", self.fill_ring)];
        for (what, size) in rings {
            if !size.is_power_of_two() || !(RING_MIN..=RING_MAX).contains(&size) {
                let must = format!("be a power of two from {RING_MIN} to {RING_MAX}");
                return refused(what, size.to_string(), must);
            }
        }
        if self.mode == Mode::ZeroCopy && self.attach == Attach::Generic {
            let must = "be native or auto, for zero copy".to_owned();
            return refused("attach", "generic".to_owned(), must);
        }
        if self.rx_hints == RxHintsFrom::Driver && self.attach == Attach::Generic {
            let must = "be native or auto, for hints of the driver".to_owned();
            return refused("attach", "generic".to_owned(), must);
        }
        Ok(())
    }
}

/// Less is not a burst.
pub(super) const RING_MIN: u32 = 64;
/// A longer queue would not be emptied in time.
const RING_MAX: u32 = 1 << 16;
const _: () =
    assert!(RING_MIN.is_power_of_two() && RING_MAX.is_power_of_two() && RING_MIN < RING_MAX);
