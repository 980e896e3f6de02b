//! The same packets through the kernel and through the interpreter: what each run left behind.

mod fill;

use std::collections::BTreeMap;

use towpath_bpf::Linked;
use towpath_bpf::program::MapType;
use towpath_kernel::{KernelMap, KernelProgram, MapSet, TestRun};
use towpath_maps::Map;
use towpath_xdp::{Frame, LoadOptions, Program, Worker};

use crate::random::Random;

/// What one run left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The program's return value.
    pub retval: u32,
    /// Metadata, then the packet.
    pub data: Vec<u8>,
    /// How much of `data` is metadata.
    pub meta_bytes: usize,
    /// Where in `data` the linear part ends.
    pub linear_end: usize,
}

/// Where the two sides part.
#[derive(Debug, Clone)]
pub struct Mismatch {
    /// `verdict`, `bytes`, `bounds`, `map NAME`, `fault` or `refused`.
    pub kind: String,
    /// Which packet.
    pub packet: usize,
    /// What the kernel did.
    pub kernel: String,
    /// What we did.
    pub ours: String,
}

/// A program on both sides, each with maps of its own.
pub struct Pair<'k> {
    kernel: &'k KernelProgram,
    kernel_maps: &'k MapSet,
    program: Program,
    worker: Worker,
    /// Reads clock, random numbers or the CPU: maps and bytes may differ rightly.
    pub volatile: bool,
}

impl<'k> Pair<'k> {
    /// Prepares our side; the error says why it can't run.
    pub fn new(
        linked: &Linked,
        kernel: &'k KernelProgram,
        kernel_maps: &'k MapSet,
        options: &LoadOptions,
    ) -> Result<Self, String> {
        let program =
            Program::from_linked(linked.clone(), options).map_err(|error| error.to_string())?;
        Ok(Pair::of(program, linked, kernel, kernel_maps))
    }

    /// Of a program that is loaded already.
    pub fn of(
        program: Program,
        linked: &Linked,
        kernel: &'k KernelProgram,
        kernel_maps: &'k MapSet,
    ) -> Self {
        let worker = program.worker(0);
        Pair { kernel, kernel_maps, program, worker, volatile: is_volatile(linked) }
    }

    /// How our side really runs: by the interpreter where nothing could be compiled.
    pub fn exec(&self) -> towpath_xdp::Exec {
        self.program.exec()
    }

    /// Runs every packet on both sides, in order, then compares the maps.
    pub fn compare(&mut self, packets: &[Vec<u8>]) -> Option<Mismatch> {
        let mut ran = 0;
        for (index, packet) in packets.iter().enumerate() {
            let Ok(kernel) = self.run_kernel(packet) else {
                continue;
            };
            ran += 1;
            let ours = self.run_ours(packet);
            if let Some(mismatch) = self.differ(index, &kernel, ours) {
                return Some(mismatch);
            }
        }
        if ran == 0 {
            return Some(Mismatch {
                kind: "refused".to_owned(),
                packet: 0,
                kernel: "test_run refuses every packet".to_owned(),
                ours: String::new(),
            });
        }
        if self.volatile { None } else { self.compare_maps(packets.len()) }
    }

    fn differ(
        &self,
        packet: usize,
        kernel: &Outcome,
        ours: Result<Outcome, String>,
    ) -> Option<Mismatch> {
        let mismatch = |kind: &str, kernel: String, ours: String| {
            Some(Mismatch { kind: kind.to_owned(), packet, kernel, ours })
        };
        let ours = match ours {
            Ok(ours) => ours,
            Err(fault) => return mismatch("fault", format!("retval {}", kernel.retval), fault),
        };
        if self.volatile {
            return None;
        }
        if ours.retval != kernel.retval {
            return mismatch("verdict", kernel.retval.to_string(), ours.retval.to_string());
        }
        let bounds = |o: &Outcome| (o.meta_bytes, o.linear_end, o.data.len());
        if bounds(&ours) != bounds(kernel) {
            let text = |o: &Outcome| {
                let (meta, linear, all) = bounds(o);
                format!("{meta} metadata, linear part ends at {linear}, {all} in all")
            };
            return mismatch("bounds", text(kernel), text(&ours));
        }
        let at = ours.data.iter().zip(&kernel.data).position(|(a, b)| a != b)?;
        let text = |data: &[u8]| {
            let end = (at + 16).min(data.len());
            format!("at byte {at}: {:02x?}", &data[at..end])
        };
        mismatch("bytes", text(&kernel.data), text(&ours.data))
    }

    /// Puts the same elements into the maps of both sides (`fill`).
    pub fn fill_maps(&self, packets: &[Vec<u8>]) -> Option<Mismatch> {
        let pairs = self.kernel_maps.maps().iter().zip(self.program.maps().maps());
        let mut random = Random::new(0xf111);
        pairs.into_iter().find_map(|(theirs, ours)| fill::fill(theirs, ours, packets, &mut random))
    }

    /// One packet in the kernel.
    pub fn run_kernel(&self, packet: &[u8]) -> Result<Outcome, String> {
        let result =
            self.kernel.test_run(&TestRun::new(packet)).map_err(|error| error.to_string())?;
        Ok(Outcome {
            retval: result.retval,
            meta_bytes: result.context.data as usize,
            linear_end: result.context.data_end as usize,
            data: result.data,
        })
    }

    /// One packet in the interpreter.
    pub fn run_ours(&mut self, packet: &[u8]) -> Result<Outcome, String> {
        run_frame(&self.program, &mut self.worker, packet)
    }

    fn compare_maps(&self, packet: usize) -> Option<Mismatch> {
        for (theirs, ours) in self.kernel_maps.maps().iter().zip(self.program.maps().maps()) {
            let (Some(theirs_now), Some(ours_now)) = (kernel_contents(theirs), contents(ours))
            else {
                continue;
            };
            if theirs_now == ours_now {
                continue;
            }
            let keys = theirs_now.keys().chain(ours_now.keys());
            let key = keys.into_iter().find(|key| theirs_now.get(*key) != ours_now.get(*key))?;
            let text = |value: Option<&Vec<u8>>| match value {
                Some(value) => format!("key {key:02x?}: {value:02x?}"),
                None => format!("key {key:02x?}: not there"),
            };
            return Some(Mismatch {
                kind: format!("map {}", ours.name()),
                packet,
                kernel: text(theirs_now.get(key)),
                ours: text(ours_now.get(key)),
            });
        }
        None
    }
}

/// Whether a program's results depend on stack it never wrote: two runs of ours over another
/// filling of it differ. (A 4-byte store lets the kernel take 8 bytes for written.)
pub fn reads_unwritten_stack(linked: &Linked, options: &LoadOptions, packets: &[Vec<u8>]) -> bool {
    let run = |filling: u8| {
        let program = Program::from_linked(linked.clone(), options).ok()?;
        let mut worker = program.worker(0);
        let mut outcomes = Vec::new();
        for packet in packets {
            worker.fill_stack(filling);
            outcomes.push(run_frame(&program, &mut worker, packet));
        }
        let maps: Vec<_> = program.maps().maps().iter().map(|map| contents(map)).collect();
        Some((outcomes, maps))
    };
    run(0) != run(0xa5)
}

fn run_frame(program: &Program, worker: &mut Worker, packet: &[u8]) -> Result<Outcome, String> {
    let mut frame = Frame::new(packet).map_err(|error| error.to_string())?;
    let verdict = program.run(worker, &mut frame).map_err(|fault| fault.to_string())?;
    let metadata = frame.metadata().to_vec();
    let (meta_bytes, linear_end) = (metadata.len(), metadata.len() + frame.linear_len());
    let data = [metadata, frame.to_vec()].concat();
    Ok(Outcome { retval: verdict.returned, data, meta_bytes, linear_end })
}

/// A map's elements in an order of their own.
type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Whether a map's elements mean the same on both sides (and not a descriptor, an id, a socket).
fn is_comparable(kind: MapType) -> bool {
    matches!(
        kind,
        MapType::Hash
            | MapType::Array
            | MapType::PercpuHash
            | MapType::PercpuArray
            | MapType::LruHash
            | MapType::LruPercpuHash
            | MapType::LpmTrie
            | MapType::Queue
            | MapType::Stack
    )
}

/// What the kernel holds in a map.
pub fn kernel_contents(map: &KernelMap) -> Option<Contents> {
    if !is_comparable(map.kind()) {
        return None;
    }
    if matches!(map.kind(), MapType::Queue | MapType::Stack) {
        return Some(map.lookup(&[]).ok().map(|value| (Vec::new(), value)).into_iter().collect());
    }
    let entries = map.entries(ENTRIES_MAX).ok()?;
    let percpu = is_percpu(map.kind());
    let folded = |value: Vec<u8>| {
        let count = if percpu { value.len() / map.cpu_value_bytes() } else { 1 };
        let values: Vec<&[u8]> = value.chunks(value.len() / count.max(1)).collect();
        if percpu { fold(&values) } else { value.clone() }
    };
    Some(entries.into_iter().map(|(key, value)| (key, folded(value))).collect())
}

/// What our map holds.
pub fn contents(map: &Map) -> Option<Contents> {
    if !is_comparable(map.kind()) {
        return None;
    }
    let user = map.user();
    if matches!(map.kind(), MapType::Queue | MapType::Stack) {
        let head = user.lookup(&[], 0).ok().map(|value| (Vec::new(), value.bytes().to_vec()));
        return Some(head.into_iter().collect());
    }
    let folded = |value: &towpath_maps::Value| {
        if map.is_percpu() { fold(&value.cpus()) } else { value.bytes().to_vec() }
    };
    Some(user.entries().take(ENTRIES_MAX).map(|(key, value)| (key, folded(&value))).collect())
}

fn is_percpu(kind: MapType) -> bool {
    matches!(kind, MapType::PercpuHash | MapType::PercpuArray | MapType::LruPercpuHash)
}

/// All CPUs' values as one: the sum of their 64-bit words, as a run may happen on any CPU.
fn fold(values: &[&[u8]]) -> Vec<u8> {
    let words = values.iter().map(|value| value.len().div_ceil(8)).max().unwrap_or(0);
    let mut sums = vec![0u64; words];
    for value in values {
        for (sum, word) in sums.iter_mut().zip(value.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            *sum = sum.wrapping_add(u64::from_le_bytes(bytes));
        }
    }
    sums.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Whether a program asks for something that differs from run to run.
fn is_volatile(linked: &Linked) -> bool {
    linked.insns.iter().any(|insn| insn.is_helper_call() && VOLATILE_HELPERS.contains(&insn.imm))
}

/// Clock, random numbers, CPU, task, addresses of kernel objects.
const VOLATILE_HELPERS: &[i32] = &[
    5, 7, 8, 14, 15, 16, 17, 22, 35, 42, 55, 80, 112, 113, 114, 115, 118, 120, 123, 125, 141, 148,
    153, 154, 158, 160, 165, 175, 176, 208,
];

/// Elements compared of one map.
const ENTRIES_MAX: usize = 100_000;
