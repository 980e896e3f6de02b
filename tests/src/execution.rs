//! The same packets through the kernel and through a program of ours: what each run left behind.

mod arena;
mod contents;
mod fill;
mod pinned;
mod trace;

use towpath_bpf::Linked;
use towpath_kernel::{KernelProgram, MapSet, TestRun};
use towpath_workload::is_volatile;
use towpath_xdp::{Frame, LoadOptions, Program, Worker};

use crate::random::Random;
use crate::ways::TIER2_TIMEOUT;

pub use contents::{Contents, contents, kernel_contents};
pub use trace::{Trace, depends_on_surroundings, fill_slots, is_endless};

use pinned::Pinned;

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

/// A program on both sides, each with maps of its own. Its thread stays on one CPU while it lives.
pub struct Pair<'k> {
    kernel: &'k KernelProgram,
    kernel_maps: &'k MapSet,
    program: Program,
    worker: Worker,
    /// Reads clock, random numbers or the CPU: maps and bytes may differ rightly.
    pub volatile: bool,
    /// Between one comparison and the next as well: maps keep what the first one left.
    _pinned: Pinned,
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
        program.wait_for_tier2(TIER2_TIMEOUT);
        let worker = program.worker(0);
        let volatile = is_volatile(linked);
        // Not earlier: threads that compile must not inherit it.
        Pair { kernel, kernel_maps, program, worker, volatile, _pinned: Pinned::here() }
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
        let (kind, kernel, ours) = trace::difference(kernel, &ours)?;
        mismatch(kind, kernel, ours)
    }

    /// Puts the same elements into the maps of both sides (`fill`).
    pub fn fill_maps(&self, packets: &[Vec<u8>]) -> Option<Mismatch> {
        let pairs = self.kernel_maps.maps().iter().zip(self.program.maps().maps());
        let mut random = Random::new(0xf111);
        self.kernel_maps.maps().iter().for_each(arena::touch_in_kernel);
        self.program.maps().maps().iter().for_each(|map| arena::touch(map));
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
        run_packet(&self.program, &mut self.worker, packet)
    }

    fn compare_maps(&self, packet: usize) -> Option<Mismatch> {
        for (theirs, ours) in self.kernel_maps.maps().iter().zip(self.program.maps().maps()) {
            let (Some(theirs_now), Some(ours_now)) = (kernel_contents(theirs), contents(ours))
            else {
                continue;
            };
            let Some((kernel, ours_text)) = contents::difference(&theirs_now, &ours_now) else {
                continue;
            };
            return Some(Mismatch {
                kind: format!("map {}", ours.name()),
                packet,
                kernel,
                ours: ours_text,
            });
        }
        None
    }
}

fn run_packet(program: &Program, worker: &mut Worker, packet: &[u8]) -> Result<Outcome, String> {
    let mut frame = Frame::new(packet).map_err(|error| error.to_string())?;
    run_frame(program, worker, &mut frame)
}

fn run_frame(program: &Program, worker: &mut Worker, frame: &mut Frame) -> Result<Outcome, String> {
    let verdict = program.run(worker, frame).map_err(|fault| fault.to_string())?;
    let meta_bytes = frame.metadata_len();
    let (data, linear_end) = (frame.to_vec_with_metadata(), meta_bytes + frame.linear_len());
    Ok(Outcome { retval: verdict.returned, data, meta_bytes, linear_end })
}
