//! Options of an `afxdp` port.

use std::time::Duration;

use serde::Deserialize;

use crate::Error;
use crate::host;

/// Options of a port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Name of the interface, which must exist.
    #[serde(rename = "interface")]
    pub name: String,
    /// The network namespace it is in: a name that `ip netns` knows, or a path.
    pub netns: Option<String>,
    /// Number of queues to receive from, starting with queue 0; by default all that the interface
    /// uses.
    pub queues: Option<u32>,
    /// Whether the kernel copies frames.
    pub mode: Mode,
    /// Where the program that steers frames to the sockets runs.
    pub attach: Attach,
    /// Descriptors in the rx ring, a power of two.
    pub rx_ring: u32,
    /// Descriptors in the tx ring and in the completion ring, a power of two.
    pub tx_ring: u32,
    /// Descriptors in the fill ring, a power of two: the number of buffers that the kernel has to
    /// receive into.
    pub fill_ring: u32,
    /// Frames of several buffers, in both directions (`XDP_USE_SG`). Without it, longer frames are
    /// lost.
    pub multi_buffer: bool,
    /// The driver signals when it needs a system call (`XDP_USE_NEED_WAKEUP`).
    pub need_wakeup: bool,
    /// How frames leave.
    pub transmit: Transmit,
    /// Source of RX hints.
    pub rx_hints: RxHintsFrom,
    /// For a veth: whether the stack at its peer may leave checksums to the device. AF_XDP passes
    /// such packets on without checksums.
    pub peer_offloads: PeerOffloads,
    /// Busy polling: system calls of the worker drive the interface's NAPI on the worker's core,
    /// and a call that finds nothing polls for this number of microseconds. DPDK and the kernel's
    /// examples use 20.
    pub busy_poll: Option<u32>,
    /// Most frames that such a call takes from the driver.
    pub busy_poll_budget: u32,
    /// Longest wait for a queue that another socket holds, such as an old socket of this port that
    /// is being closed. The kernel releases a queue in an RCU callback and a work item after that;
    /// an idle machine takes milliseconds for these, a very busy one more than a second.
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
    /// Without copies; the port can't be opened if the driver does not support this.
    ZeroCopy,
}

/// Where the kernel's program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// In the driver (native), or generic if the driver refuses.
    #[default]
    Auto,
    /// In the driver (native XDP).
    Native,
    /// Behind the driver (generic XDP).
    Generic,
}

/// How frames leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transmit {
    /// By the socket. If the socket copies and the interface takes redirected frames
    /// (`NETDEV_XDP_ACT_NDO_XMIT`), bursts of short frames leave like those of the kernel's own XDP
    /// ([`towpath_kernel::LiveFrames`]), which is several times as fast. Frames beyond the
    /// interface's room are then lost without a count, as with `XDP_REDIRECT`.
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
    /// Unchanged; a warning is given if the peer leaves checksums to the device.
    #[default]
    Leave,
    /// Switched off while the port is open, and restored afterwards.
    Off,
}

/// Default options, without an interface name.
impl Default for Options {
    fn default() -> Options {
        Options::new("")
    }
}

impl Options {
    /// Default options for an interface: all its queues, and the best mode available.
    pub fn new(name: &str) -> Options {
        Options {
            name: name.to_owned(),
            netns: None,
            queues: None,
            mode: Mode::Auto,
            attach: Attach::Auto,
            rx_ring: 2048,
            tx_ring: 2048,
            // More buffers would not fit the caches of the receiving core.
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

/// Smallest ring: one burst.
pub(super) const RING_MIN: u32 = 64;
/// Largest ring; a longer queue would not be emptied in time.
const RING_MAX: u32 = 1 << 16;
const _: () =
    assert!(RING_MIN.is_power_of_two() && RING_MAX.is_power_of_two() && RING_MIN < RING_MAX);
