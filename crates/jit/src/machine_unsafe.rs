//! State shared by compiled code and its surroundings: one structure per run, laid out for machine
//! code.

use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

use crate::xir::CtxField;

/// The state compiled code works on.
///
/// Compiled code reads `packet`, `index`, `worker` and `stop`, and writes redirects and what tail
/// calls change; its batch entry writes `packet` and `index`. Everything else belongs to the
/// runtime.
#[derive(Debug)]
#[repr(C)]
pub struct Machine {
    /// The running frame.
    pub packet: *const Packet,
    /// Its number in the burst.
    pub index: u32,
    /// Number of the running worker: index into per-CPU maps.
    pub worker: u32,
    /// Not 0 when the run has to end now; looked at behind each call that may say so, and once a
    /// round by loops that call anything else.
    pub stop: u32,
    /// Where the frames of the burst are redirected to: a cell for each.
    pub redirects: *mut RedirectCell,
    /// Number of the burst, which makes a cell count.
    pub burst: u32,
    /// Value of r1 at the start: the address that stands for `struct xdp_md`.
    pub ctx: u64,
    /// Value of r10 in the entry function.
    pub stack_top: u64,
    /// What is left of a run's time, where it is limited; below 0 when it is used up.
    pub budget: i64,
    /// Number of the helper that is called, where that is charged for; with the highest bit set, of
    /// the kfunc.
    pub callee: u32,
    /// Tail calls that the frame's run has made.
    pub tail_calls: u32,
    /// The program that runs, when a tail call led to it; null while it is the burst's own.
    pub target: *const TailCallTarget,
    /// The value of `bpf_jiffies64`, after its first call; 0 before.
    pub jiffies: u64,
    /// Number of the run, to end it by ([`crate::interrupt`]).
    pub run: u64,
    /// The run that is to end, as that one says.
    pub asked: *const AtomicU64,
    /// The runtime's own state.
    pub runtime: *mut c_void,
}

/// What compiled code reads of a program that tail calls lead to: the start of the runtime's own
/// record of it. A target that was found may be used until the frame's run is over.
#[derive(Debug)]
#[repr(C)]
pub struct TailCallTarget {
    /// Address to jump to: [`crate::Program::entry`], or that of a [`crate::Bridge`].
    pub entry: AtomicU64,
}

/// What compiled code reads of a frame: the start of the runtime's own record of it, so that
/// nothing is copied for a run, and what helpers change (`bpf_xdp_adjust_head`, ...) is seen at
/// once.
#[derive(Debug)]
#[repr(C)]
pub struct Packet {
    /// Address of the buffer with the packet's linear part; the same for all of a run.
    pub buffer: u64,
    /// The runtime's own.
    pub owner: [u64; 2],
    /// Offset of the first metadata byte in the buffer.
    pub data_meta: u32,
    /// Offset of the first packet byte.
    pub data: u32,
    /// Offset of what follows the last linear packet byte.
    pub data_end: u32,
    /// `xdp_md.ingress_ifindex`
    pub ingress_ifindex: u32,
    /// `xdp_md.rx_queue_index`
    pub rx_queue_index: u32,
    /// The runtime's own.
    pub frag_size: u32,
    /// `xdp_md.egress_ifindex`
    pub egress_ifindex: u32,
    /// Bytes of the packet behind its linear part.
    pub frags_len: u32,
}

/// Where a frame's last redirect call led.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct RedirectCell {
    /// The burst in which it was written; the cell means nothing in another.
    pub burst: u32,
    /// What `words` are: one of the constants, or a number of the runtime's own.
    pub kind: u32,
    /// As `kind` says.
    pub words: [u32; 4],
}

impl RedirectCell {
    /// No burst has this number: the frame goes nowhere.
    pub const NO_BURST: u32 = 0;
    /// To an interface; the first word is its number, the others are 0.
    pub const INTERFACE: u32 = 0;
    /// To an entry of a map: the map's number in the program, the key, both words of the entry.
    pub const ENTRY: u32 = 1;
    /// To all entries of a map: its number, and 1 when where the frame came from is left out; the
    /// others are 0.
    pub const BROADCAST: u32 = 2;
}

impl RedirectCell {
    /// What the text form of XIR calls a kind.
    pub(crate) fn kind_name(kind: u32) -> &'static str {
        match kind {
            RedirectCell::INTERFACE => "interface",
            RedirectCell::ENTRY => "entry",
            _ => "broadcast",
        }
    }
}

impl Packet {
    /// The lowest offset that `data` may have: what is in front of it is the frame's own
    /// (`struct xdp_frame`).
    pub const DATA_MIN: u32 = 40;
    /// Fewest linear bytes that `bpf_xdp_adjust_head` leaves (`ETH_HLEN`).
    pub const BYTES_MIN: u32 = 14;

    /// Where a field of the context is; those of 64 bits are relative to `buffer`.
    pub(crate) const fn offset_of(field: CtxField) -> usize {
        match field {
            CtxField::Data => offset_of!(Packet, data),
            CtxField::DataEnd => offset_of!(Packet, data_end),
            CtxField::DataMeta => offset_of!(Packet, data_meta),
            CtxField::IngressIfindex => offset_of!(Packet, ingress_ifindex),
            CtxField::RxQueueIndex => offset_of!(Packet, rx_queue_index),
            CtxField::EgressIfindex => offset_of!(Packet, egress_ifindex),
            CtxField::FragsLen => offset_of!(Packet, frags_len),
        }
    }
}

/// The frames of a burst, and what became of them.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// A pointer to each frame's record.
    pub frames: *const *const Packet,
    /// For each frame the low half of r0, written when its run is over.
    pub returned: *mut [u32],
}

/// A function compiled code calls: machine, r1 to r5; gives r0.
pub type Callee = unsafe extern "C" fn(*mut Machine, u64, u64, u64, u64, u64) -> u64;

/// The functions of the runtime that compiled code calls.
#[derive(Debug, Clone, Copy)]
pub struct Callees {
    /// Tells what to call for the helper of a number.
    pub helper: fn(u32) -> Callee,
    /// Tells what to call for the kfunc that the runtime knows by a number.
    pub kfunc: fn(u32) -> Callee,
    /// `(map, index)`: address of the [`TailCallTarget`] in a slot of a program array, or 0 when it
    /// is empty. Asked where code does not know the map.
    pub tail_call: Callee,
    /// `(frame pointer)`: behind a tail call that stopped, with the frame pointer that its target
    /// was given: what the target returns if it stopped because it threw. Anything else stops on.
    pub catch: Callee,
    /// `(address, bytes)`: loads through a pointer that may be stale; 0 when it is.
    pub probe: Callee,
    /// `(address, bytes, need)`: stops the run unless the program may do what
    /// [`Need`](crate::xir::Need), by number, says.
    pub guard: Callee,
    /// Functions called without a number.
    pub direct: Direct,
}

/// Functions of the runtime behind [`crate::xir::RuntimeFunction`]: it says what they take.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names are the functions'")]
pub struct Direct {
    pub csum_diff: unsafe extern "C" fn(u64, u64, u64, u64, u64) -> u64,
    pub ktime: unsafe extern "C" fn(*mut Machine) -> u64,
    pub jiffies: unsafe extern "C" fn(*mut Machine) -> u64,
    pub random: unsafe extern "C" fn(*mut Machine) -> u64,
    pub redirect: unsafe extern "C" fn(*mut Machine, u64, u64) -> u64,
    pub redirect_map: unsafe extern "C" fn(*mut Machine, u64, u64, u64) -> u64,
    pub load_bytes: unsafe extern "C" fn(*mut Machine, u64, u64, u64) -> u64,
    pub store_bytes: unsafe extern "C" fn(*mut Machine, u64, u64, u64) -> u64,
    pub check_mtu: unsafe extern "C" fn(*mut Machine, u64, u64, u64, u64) -> u64,
    pub ring_reserve: unsafe extern "C" fn(*mut Machine, u64, u64) -> u64,
    pub ring_submit: unsafe extern "C" fn(*mut Machine, u64) -> u64,
    pub ring_discard: unsafe extern "C" fn(*mut Machine, u64) -> u64,
}
