//! State shared by compiled code and its surroundings: one structure per run, laid out for machine
//! code.

use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

use crate::xir::CtxField;

/// The state that compiled code works on.
///
/// Compiled code reads `packet`, `index`, `worker` and `stop`, and writes redirects and the fields
/// that tail calls change; its batch entry writes `packet` and `index`. All other fields belong to
/// the runtime.
#[derive(Debug)]
#[repr(C)]
pub struct Machine {
    /// Record of the running frame.
    pub packet: *const Packet,
    /// Number of the running frame in the burst.
    pub index: u32,
    /// Number of the running worker: index into per-CPU maps.
    pub worker: u32,
    /// Not 0 if the run has to end now; checked behind each call that may set it, and once in each
    /// round of loops that call anything else.
    pub stop: u32,
    /// Redirect targets of the frames of the burst: a cell for each.
    pub redirects: *mut RedirectCell,
    /// Number of the burst; a cell counts only if it has the same.
    pub burst: u32,
    /// Value of r1 at the start: the address that stands for `struct xdp_md`.
    pub ctx: u64,
    /// Value of r10 in the entry function.
    pub stack_top: u64,
    /// Remaining time of the run, if it is limited; below 0 when it is used up.
    pub budget: i64,
    /// Number of the called helper, if calls are charged for; with the highest bit set, of the
    /// called kfunc.
    pub callee: u32,
    /// Number of tail calls of the frame's run.
    pub tail_calls: u32,
    /// The running program, if a tail call led to it; null for the burst's own program.
    pub target: *const TailCallTarget,
    /// The value of `bpf_jiffies64`, after its first call; 0 before.
    pub jiffies: u64,
    /// Number of the run, by which it can be ended ([`crate::interrupt`]).
    pub run: u64,
    /// Number of the run that is to end, written by the thread that asks.
    pub asked: *const AtomicU64,
    /// The runtime's own state.
    pub runtime: *mut c_void,
}

/// The fields of a target of tail calls that compiled code reads: the start of the runtime's own
/// record of it. A target that was found may be used until the frame's run is over.
#[derive(Debug)]
#[repr(C)]
pub struct TailCallTarget {
    /// Address to jump to: [`crate::Program::entry`], or that of a [`crate::Bridge`].
    pub entry: AtomicU64,
}

/// The fields of a frame that compiled code reads: the start of the runtime's own record of it, so
/// that nothing is copied for a run, and changes by helpers (`bpf_xdp_adjust_head`, ...) are seen
/// at once.
#[derive(Debug)]
#[repr(C)]
pub struct Packet {
    /// Address of the buffer with the packet's linear part; constant during a run.
    pub buffer: u64,
    /// Reserved for the runtime.
    pub owner: [u64; 2],
    /// Offset of the first metadata byte in the buffer.
    pub data_meta: u32,
    /// Offset of the first packet byte.
    pub data: u32,
    /// Offset behind the last linear packet byte.
    pub data_end: u32,
    /// `xdp_md.ingress_ifindex`.
    pub ingress_ifindex: u32,
    /// `xdp_md.rx_queue_index`.
    pub rx_queue_index: u32,
    /// Reserved for the runtime.
    pub frag_size: u32,
    /// `xdp_md.egress_ifindex`.
    pub egress_ifindex: u32,
    /// Number of bytes of the packet behind its linear part.
    pub frags_len: u32,
}

/// Target of a frame's last redirect call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct RedirectCell {
    /// Number of the burst in which it was written; in any other burst the cell is void.
    pub burst: u32,
    /// Meaning of `words`: one of the constants, or a number of the runtime's own.
    pub kind: u32,
    /// Target in the form that `kind` says.
    pub words: [u32; 4],
}

impl RedirectCell {
    /// Number that no burst has: the frame has no target.
    pub const NO_BURST: u32 = 0;
    /// An interface; the first word is its number, the others are 0.
    pub const INTERFACE: u32 = 0;
    /// An entry of a map: the map's number in the program, the key, both words of the entry.
    pub const ENTRY: u32 = 1;
    /// All entries of a map: its number, and 1 if the interface that the frame came from is left
    /// out; the others are 0.
    pub const BROADCAST: u32 = 2;
}

impl RedirectCell {
    /// Name of a kind in the text form of XIR.
    pub(crate) fn kind_name(kind: u32) -> &'static str {
        match kind {
            RedirectCell::INTERFACE => "interface",
            RedirectCell::ENTRY => "entry",
            _ => "broadcast",
        }
    }
}

impl Packet {
    /// Lowest possible offset of `data`: the bytes in front are reserved (`struct xdp_frame`).
    pub const DATA_MIN: u32 = 40;
    /// Smallest number of linear bytes that `bpf_xdp_adjust_head` leaves (`ETH_HLEN`).
    pub const BYTES_MIN: u32 = 14;

    /// Offset of a context field in the record; fields of 64 bits are relative to `buffer`.
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

/// The frames of a burst, and their results.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// A pointer to each frame's record.
    pub frames: *const *const Packet,
    /// For each frame the low half of r0, written at the end of its run.
    pub returned: *mut [u32],
}

/// A function that compiled code calls: takes machine and r1 to r5; gives r0.
pub type Callee = unsafe extern "C" fn(*mut Machine, u64, u64, u64, u64, u64) -> u64;

/// Functions of the runtime that compiled code calls.
#[derive(Debug, Clone, Copy)]
pub struct Callees {
    /// Gives the function for the helper of a number.
    pub helper: fn(u32) -> Callee,
    /// Gives the function for the kfunc with this number in the runtime.
    pub kfunc: fn(u32) -> Callee,
    /// `(map, index)`: gives the address of the [`TailCallTarget`] in a slot of a program array, or
    /// 0 if the slot is empty. Called if the map is unknown at compile time.
    pub tail_call: Callee,
    /// `(frame pointer)`: called after a tail call that stopped the run, with the target's frame
    /// pointer. Gives the target's result if it stopped by an exception; else the run stays
    /// stopped.
    pub catch: Callee,
    /// `(address, bytes)`: loads through a pointer that may be stale; gives 0 if it is.
    pub probe: Callee,
    /// `(address, bytes, need)`: stops the run unless the program may make the access that
    /// [`Need`](crate::xir::Need), by number, names.
    pub guard: Callee,
    /// Functions that are called directly, without a number.
    pub direct: Direct,
}

/// Functions of the runtime behind [`crate::xir::RuntimeFunction`], which documents their
/// parameters.
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
