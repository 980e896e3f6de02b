//! One `BPF_PROG_TEST_RUN`: of an XDP program on a packet, or of a program that users call.

use std::os::fd::AsFd as _;

use towpath_bpf::Errno;

use crate::program::KernelProgram;
use crate::sys_unsafe::{self, TestRunBuffers};
use crate::uapi::ProgTestRun;

/// Input of a test run.
#[derive(Debug, Clone)]
pub struct TestRun<'a> {
    /// Metadata followed by the packet; at least 14 bytes of packet.
    pub data: &'a [u8],
    /// Number of bytes of metadata at the start of `data`: 0..=216, a multiple of 4.
    pub meta_bytes: u32,
    /// Receiving port; 0 leaves it to the kernel (`lo`, 1).
    pub ingress_ifindex: u32,
    /// Receiving queue; the port must have it.
    pub rx_queue_index: u32,
    /// Number of runs; a repeated run gets the packet as the previous run left it.
    pub repeat: u32,
    /// `BPF_F_TEST_XDP_LIVE_FRAMES`: verdicts are executed for real, and no packet is returned.
    pub live_frames: bool,
    /// Number of frames of a batch, with `live_frames`; 0 for the kernel's 64.
    pub batch_size: u32,
}

impl<'a> TestRun<'a> {
    /// One run on a packet, with the kernel's defaults for everything else.
    pub fn new(data: &'a [u8]) -> Self {
        TestRun {
            data,
            meta_bytes: 0,
            ingress_ifindex: 0,
            rx_queue_index: 0,
            repeat: 1,
            live_frames: false,
            batch_size: 0,
        }
    }
}

/// `struct xdp_md` as the kernel reads and writes it in a test run: `data_meta`, `data` and
/// `data_end` are offsets into the data buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XdpMd {
    /// Offset of the packet: the number of bytes of metadata.
    pub data: u32,
    /// Offset of the packet's end.
    pub data_end: u32,
    /// Offset of the metadata.
    pub data_meta: u32,
    /// Receiving port.
    pub ingress_ifindex: u32,
    /// Receiving queue.
    pub rx_queue_index: u32,
    /// Sending port.
    pub egress_ifindex: u32,
}

/// Result of a test run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestRunResult {
    /// The program's return value.
    pub retval: u32,
    /// Metadata followed by the packet as the program left them; empty with live frames.
    pub data: Vec<u8>,
    /// Positions of metadata and packet in `data`.
    pub context: XdpMd,
    /// Average duration of one run, in nanoseconds.
    pub duration_ns: u32,
}

/// Reason why a run did not happen.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The kernel refuses the packet or the parameters.
    #[error(
        "BPF_PROG_TEST_RUN on {bytes} bytes ({meta_bytes} of them metadata): {errno}; a packet has \
         at least 14 bytes, and more than about 3,500 only if the program handles frags"
    )]
    Refused {
        /// Number of bytes of the input.
        bytes: usize,
        /// Number of bytes of metadata among them.
        meta_bytes: u32,
        /// Error number of the kernel.
        errno: Errno,
    },
}

impl KernelProgram {
    /// Runs the program once (or `repeat` times) on a packet.
    pub fn test_run(&self, run: &TestRun<'_>) -> Result<TestRunResult, RunError> {
        let refused =
            |errno| RunError::Refused { bytes: run.data.len(), meta_bytes: run.meta_bytes, errno };
        let context = XdpMd {
            data: run.meta_bytes,
            data_end: u32::try_from(run.data.len()).ok().ok_or_else(|| refused(Errno::E2BIG))?,
            ingress_ifindex: run.ingress_ifindex,
            rx_queue_index: run.rx_queue_index,
            ..XdpMd::default()
        };
        let context_in = context.to_bytes();
        let (mut data, mut context_out) = (Vec::new(), Vec::new());
        if !run.live_frames {
            data = vec![0; run.data.len() + GROWTH_BYTES_MAX];
            context_out = vec![0; XDP_MD_BYTES];
        }
        let numbers = ProgTestRun {
            repeat: run.repeat,
            flags: if run.live_frames { F_TEST_XDP_LIVE_FRAMES } else { 0 },
            batch_size: run.batch_size,
            ..ProgTestRun::default()
        };
        let mut buffers = TestRunBuffers {
            data_in: run.data,
            data_out: &mut data,
            context_in: &context_in,
            context_out: &mut context_out,
        };
        let (result, errno) =
            sys_unsafe::prog_test_run(self.as_fd(), &mut buffers, &numbers).map_err(refused)?;
        if let Some(errno) = errno {
            return Err(refused(errno));
        }
        if run.live_frames {
            data.clear();
        } else {
            data.truncate(result.data_size_out as usize);
        }
        Ok(TestRunResult {
            retval: result.retval,
            data,
            context: XdpMd::from_bytes(&context_out),
            duration_ns: result.duration,
        })
    }
}

impl KernelProgram {
    /// Calls a program in section `syscall` on a context, which it may change; returns its result.
    ///
    /// # Errors
    ///
    /// Fails with the kernel's error number, e.g. `EINVAL` if the program accesses more bytes.
    pub fn call(&self, context: &mut [u8]) -> Result<u32, Errno> {
        sys_unsafe::prog_call(self.as_fd(), context)
    }
}

impl XdpMd {
    fn to_bytes(self) -> [u8; XDP_MD_BYTES] {
        let words = [
            self.data,
            self.data_end,
            self.data_meta,
            self.ingress_ifindex,
            self.rx_queue_index,
            self.egress_ifindex,
        ];
        let mut bytes = [0; XDP_MD_BYTES];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let word = |index: usize| {
            let at = bytes.get(index * 4..index * 4 + 4);
            at.and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        XdpMd {
            data: word(0),
            data_end: word(1),
            data_meta: word(2),
            ingress_ifindex: word(3),
            rx_queue_index: word(4),
            egress_ifindex: word(5),
        }
    }
}

/// Size of `struct xdp_md`, in bytes.
const XDP_MD_BYTES: usize = 24;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`.
pub(crate) const F_TEST_XDP_LIVE_FRAMES: u32 = 2;
/// Largest growth of a packet in a run, in bytes: headroom, and tailroom of the last buffer.
const GROWTH_BYTES_MAX: usize = 8192;
