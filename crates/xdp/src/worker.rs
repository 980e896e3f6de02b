//! A worker: the data that one thread needs to run programs, made once and used for every frame.

use std::cell::RefCell;
use std::sync::Arc;

use towpath_bpf::insn::{SPILL_BYTES_MAX, STACK_BYTES};
use towpath_bpf::interp::{MAX_CALL_FRAMES, MAX_TAIL_CALLS, Observer};

use crate::brake::Brake;
use crate::burst::Burst;
use crate::clock::Ticks;
use crate::held::{HeldFrames, Schedules};
use crate::host::{Bridges, Esp, Seen};
use crate::memory::Block;
use crate::sanitize::{Poison, Sanitizer};
use crate::tx_timestamps::TxTimestamps;

/// Stack, context and random numbers of one thread. Programs see its number as their CPU.
#[derive(Debug)]
pub struct Worker {
    number: u32,
    stack: Block,
    /// Stands for `xdp_md`: its address is what r1 holds, its fields come from the frame.
    context: Block,
    random: u64,
    /// The monotonic clock.
    pub(crate) ticks: Ticks,
    /// Stands for objects of the kernel about which nothing is known: zeros, but for its start,
    /// which can show a frame as a `struct xdp_buff`.
    kernel_object: Block,
    /// Small blocks that helpers lend to callbacks, and take back.
    spare: Vec<Block>,
    /// A buffer for formatting text.
    pub(crate) text: Vec<u8>,
    /// Empty buffers for text that helpers read.
    pub(crate) texts: RefCell<Vec<Vec<u8>>>,
    /// For runs of one frame.
    pub(crate) single: Burst,
    /// Interfaces, routes and neighbours for helpers.
    pub(crate) host: Seen,
    /// Bridges for `bpf_fdb_lookup`.
    pub(crate) bridges: Option<Arc<dyn Bridges>>,
    /// Security associations by the ifindex of their port, for IPsec kfuncs.
    pub(crate) esp: Vec<(u32, Box<dyn Esp>)>,
    /// Requests the runs of dequeue programs for `bpf_schedule_iface_dequeue`.
    pub(crate) schedules: Option<Arc<dyn Schedules>>,
    /// The requests of `bpf_xdp_request_tx_timestamp`.
    pub(crate) tx_timestamps: Option<Arc<TxTimestamps>>,
    /// Its stop word.
    pub(crate) brake: Arc<Brake>,
    /// Frames that a dequeue program took out of queues.
    pub(crate) held: HeldFrames,
    /// The sanitizer, which tracks unset memory.
    pub(crate) sanitizer: Option<Box<Sanitizer>>,
    /// Bytes to fill the stack with before each run.
    poison: Option<Poison>,
    /// A further observer of each instruction.
    pub(crate) onlooker: Option<Onlooker>,
}

/// An observer of runs.
#[derive(Clone)]
pub(crate) struct Onlooker(pub(crate) Arc<dyn Observer + Send + Sync>);

impl std::fmt::Debug for Onlooker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Onlooker")
    }
}

impl Worker {
    /// Worker `number` (from 0): index of its values in per-CPU maps.
    pub fn new(number: u32) -> Worker {
        Worker::with_seed(number, entropy())
    }

    /// As [`Worker::new`], with repeatable `bpf_get_prandom_u32` numbers.
    pub fn with_seed(number: u32, seed: u64) -> Worker {
        Worker {
            number,
            stack: Block::new(CHAIN_STACK_BYTES * MAX_CALL_FRAMES),
            context: Block::new(CONTEXT_BLOCK_BYTES),
            random: seed,
            ticks: Ticks::new(),
            kernel_object: Block::new(KERNEL_OBJECT_BYTES),
            spare: Vec::new(),
            text: Vec::new(),
            texts: RefCell::default(),
            single: Burst::default(),
            host: Seen::default(),
            bridges: None,
            esp: Vec::new(),
            schedules: None,
            tx_timestamps: None,
            brake: Arc::default(),
            held: HeldFrames::default(),
            sanitizer: None,
            poison: None,
            onlooker: None,
        }
    }

    /// Sets the stop word, to which the worker writes what it runs from now on.
    pub fn set_brake(&mut self, brake: &Arc<Brake>) {
        self.brake = Arc::clone(brake);
    }

    /// The worker's stop word, for threads that want to end its run.
    pub fn brake(&self) -> &Arc<Brake> {
        &self.brake
    }

    /// Fills the stack with a byte, to find out whether a program reads bytes that it never wrote.
    pub fn fill_stack(&mut self, byte: u8) {
        self.stack.bytes_mut().fill(byte);
    }

    /// Fills the stack before each run (in compiled code: each burst) with bytes that follow from a
    /// seed, so that results that depend on unwritten bytes differ each time. Compiled code may
    /// have its stack elsewhere ([`crate::Sanitize::prepare`]).
    pub fn set_poison(&mut self, seed: Option<u32>) {
        self.poison = seed.map(Poison::new);
    }

    /// Fills the stack, if it is to be poisoned.
    #[inline]
    pub(crate) fn poison_stack(&mut self) {
        if let Some(poison) = &mut self.poison {
            poison.fill(self.stack.bytes_mut());
        }
    }

    /// Sets the sanitizer that watches the programs of this worker from now on. With one, programs
    /// run in the interpreter, even those that were compiled.
    pub fn set_sanitizer(&mut self, sanitizer: Option<Sanitizer>) {
        self.sanitizer = sanitizer.map(Box::new);
    }

    /// The sanitizer that watches the programs of this worker.
    pub fn sanitizer(&mut self) -> Option<&mut Sanitizer> {
        self.sanitizer.as_deref_mut()
    }

    /// Shows each instruction of interpreted programs to an observer from now on; compiled programs
    /// are not observed.
    pub fn set_observer(&mut self, observer: Option<Arc<dyn Observer + Send + Sync>>) {
        self.onlooker = observer.map(Onlooker);
    }

    /// Begins a run in the interpreter; `judges`: for a packet.
    pub(crate) fn begin_watched(&mut self, judges: bool) {
        self.poison_stack();
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.begin(judges);
        }
    }

    /// The worker's number, which `bpf_get_smp_processor_id` returns.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Sets the bridges that `bpf_fdb_lookup` asks from now on; without any it finds none.
    pub fn set_bridges(&mut self, bridges: Option<Arc<dyn Bridges>>) {
        self.bridges = bridges;
    }

    /// Sets the ports, by ifindex, whose security associations IPsec kfuncs use from now on.
    pub fn set_esp(&mut self, ports: Vec<(u32, Box<dyn Esp>)>) {
        self.esp = ports;
    }

    /// Sets the handler for requests to run dequeue programs; without one there are no such
    /// programs.
    pub fn set_schedules(&mut self, schedules: Option<Arc<dyn Schedules>>) {
        self.schedules = schedules;
    }

    /// Sets the requests for transmit timestamps; without them no program can ask for one.
    pub fn set_tx_timestamps(&mut self, requests: Option<Arc<TxTimestamps>>) {
        self.tx_timestamps = requests;
    }

    /// A block of at least `len` bytes, with any content; give it back with [`Worker::put_away`].
    pub(crate) fn lend(&mut self, len: usize) -> Block {
        let spare = self.spare.pop().filter(|block| block.len() >= len);
        spare.unwrap_or_else(|| Block::new(len.max(LENT_BYTES)))
    }

    /// Takes a lent block back.
    pub(crate) fn put_away(&mut self, block: Block) {
        self.spare.push(block);
    }

    /// The next random number (splitmix64, the upper half).
    pub(crate) fn random_u32(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }

    /// One past the highest stack byte: r10 of the entry function.
    pub(crate) fn stack_top(&self) -> u64 {
        self.stack.addr() + self.stack.len() as u64
    }

    /// The lowest stack byte.
    pub(crate) fn stack_floor(&self) -> u64 {
        self.stack.addr()
    }

    pub(crate) fn is_in_stack(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.stack.addr()) < self.stack.len() as u64
    }

    /// Address of a kernel object of any type, all zeros.
    pub(crate) fn unknown_object(&self) -> u64 {
        self.kernel_object.addr() + XDP_BUFF_BYTES as u64
    }

    /// Address of a `struct xdp_buff` with these `data`, `data_end` and `data_meta`, and with a
    /// receive queue of this number.
    pub(crate) fn show_xdp_buff(&mut self, pointers: [u64; 3], queue_index: u32) -> u64 {
        let (buff, device) = (self.kernel_object.addr(), self.unknown_object());
        let rxq = buff + RXQ_OFFSET as u64;
        let bytes = self.kernel_object.bytes_mut();
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        for (field, pointer) in pointers.into_iter().enumerate() {
            put(field * 8, pointer);
        }
        put(RXQ_POINTER_OFFSET, rxq);
        put(RXQ_OFFSET, device);
        put(RXQ_OFFSET + 8, u64::from(queue_index));
        buff
    }

    /// Whether a program may read `len` bytes at an address because a kernel object is there.
    pub(crate) fn is_kernel_object(&self, addr: u64, len: u64) -> bool {
        let offset = addr.wrapping_sub(self.kernel_object.addr());
        offset < self.kernel_object.len() as u64 && offset + len <= self.kernel_object.len() as u64
    }

    /// The value of r1 when a program starts.
    pub(crate) fn context_addr(&self) -> u64 {
        self.context.addr()
    }
}

/// A seed that differs from worker to worker and run to run.
fn entropy() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8)
}

/// Stack that compiled code may need below one entry. A program may tail-call out of a function
/// whose callers have used up to 256 bytes, which stay in use (`check_max_stack_depth`); the last
/// program has 512 for itself. Each of a program's frames may have spills that don't count.
pub(crate) const CHAIN_STACK_BYTES: usize =
    MAX_TAIL_CALLS as usize * (256 + SPILLS_BYTES) + STACK_BYTES + SPILLS_BYTES;
const SPILLS_BYTES: usize = MAX_CALL_FRAMES * SPILL_BYTES_MAX;
/// Usual size of a lent block: the largest key of a map.
const LENT_BYTES: usize = 512;
const CONTEXT_BLOCK_BYTES: usize = 64;
/// More than the largest structure programs get pointers to (`task_struct`).
const KERNEL_OBJECT_BYTES: usize = 32 << 10;
/// Where `struct xdp_buff` and the queue it points to lie in the kernel object.
const XDP_BUFF_BYTES: usize = 256;
const RXQ_POINTER_OFFSET: usize = 32;
const RXQ_OFFSET: usize = 128;
