//! One way of running a program over all packets: everything it left behind, to be compared.

use towpath_bpf::Insn;
use towpath_bpf::insn::{BPF_JCOND, BPF_JMP};
use towpath_bpf::interp::{Limits, Violation};
use towpath_bpf::program::SlotInit;
use towpath_bpf::proto::id;
use towpath_bpf::verifier::Verified;
use towpath_kernel::{KernelProgram, MapSet, TestRun};
use towpath_xdp::{Exec, Frame, LoadOptions, Program, Worker};

use super::contents::{self, Contents, contents, kernel_contents};
use super::pinned::Pinned;
use super::{Mismatch, Outcome, arena, run_frame};
use crate::ways::TIER2_TIMEOUT;

/// What one way of running left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// By packet: `None` where the kernel wouldn't run it, an error where the run failed.
    outcomes: Vec<Option<Result<Outcome, String>>>,
    /// Names and contents of the maps after the last packet; `None` for what can't be compared.
    maps: Vec<(String, Option<Contents>)>,
    /// Lines that the program printed; `None` without a listener.
    printed: Option<Vec<String>>,
}

impl Trace {
    /// Runs a program of ours on all packets.
    pub fn of(program: &Program, packets: &[Vec<u8>]) -> Trace {
        over(program, packets, 0, |_| true).0
    }

    /// Runs a program of ours on the packets that this trace's program was run on.
    pub fn again(&self, program: &Program, packets: &[Vec<u8>]) -> Trace {
        over(program, packets, 0, |packet| self.outcomes[packet].is_some()).0
    }

    /// Runs a program in the kernel.
    pub fn of_kernel(program: &KernelProgram, maps: &MapSet, packets: &[Vec<u8>]) -> Trace {
        let run = |packet: &Vec<u8>| {
            let result = program.test_run(&TestRun::new(packet)).ok()?;
            Some(Ok(Outcome {
                retval: result.retval,
                meta_bytes: result.context.data as usize,
                linear_end: result.context.data_end as usize,
                data: result.data,
            }))
        };
        maps.maps().iter().for_each(arena::touch_in_kernel);
        let pinned = Pinned::here();
        let outcomes = packets.iter().map(run).collect();
        drop(pinned);
        let maps = maps.maps().iter();
        let maps = maps.map(|map| (map.name().to_owned(), kernel_contents(map))).collect();
        Trace { outcomes, maps, printed: None }
    }

    /// With the lines that its program printed in the kernel.
    pub fn with_printed(self, printed: Option<Vec<String>>) -> Trace {
        Trace { printed, ..self }
    }

    /// How many lines the program printed, where that is known.
    pub fn lines_printed(&self) -> usize {
        self.printed.as_ref().map_or(0, Vec::len)
    }

    /// A packet as the program left it, metadata in front; `None` when it was not run, or failed.
    pub fn bytes(&self, packet: usize) -> Option<&[u8]> {
        let outcome = self.outcomes.get(packet)?.as_ref()?.as_ref().ok()?;
        Some(&outcome.data)
    }

    /// Whether no packet was run.
    pub fn is_empty(&self) -> bool {
        self.outcomes.iter().all(Option::is_none)
    }

    /// Where another way of running parts from this one, the reference.
    pub fn differs_from(&self, other: &Trace) -> Option<Mismatch> {
        let pairs = self.outcomes.iter().zip(&other.outcomes);
        let runs = pairs.enumerate().find_map(|(packet, (reference, other))| {
            let (kind, kernel, ours) = match (reference.as_ref()?, other.as_ref()?) {
                (Ok(reference), Ok(other)) => difference(reference, other)?,
                (Ok(reference), Err(fault)) => {
                    ("fault", format!("retval {}", reference.retval), fault.clone())
                }
                (Err(fault), Ok(other)) => {
                    ("fault", fault.clone(), format!("retval {}", other.retval))
                }
                (Err(_), Err(_)) => return None,
            };
            Some(Mismatch { kind: kind.to_owned(), packet, kernel, ours })
        });
        runs.or_else(|| self.maps_differ(other)).or_else(|| self.lines_differ(other))
    }

    fn lines_differ(&self, other: &Trace) -> Option<Mismatch> {
        let (reference, other) = (self.printed.as_ref()?, other.printed.as_ref()?);
        let count = reference.len().max(other.len());
        let at = (0..count).find(|&at| reference.get(at) != other.get(at))?;
        let text = |lines: &[String]| match lines.get(at) {
            Some(line) => format!("line {at}: {line:?}"),
            None => format!("{} lines", lines.len()),
        };
        let (kind, packet) = ("printed".to_owned(), self.outcomes.len());
        Some(Mismatch { kind, packet, kernel: text(reference), ours: text(other) })
    }

    fn maps_differ(&self, other: &Trace) -> Option<Mismatch> {
        self.maps.iter().zip(&other.maps).find_map(|((name, reference), (_, other))| {
            let (kernel, ours) = contents::difference(reference.as_ref()?, other.as_ref()?)?;
            let packet = self.outcomes.len();
            Some(Mismatch { kind: format!("map {name}"), packet, kernel, ours })
        })
    }
}

/// Runs a program with a stack that holds `filling` before each packet. The worker and the frames
/// it used come back with what they left, for those who want their addresses not used again.
fn over(
    program: &Program,
    packets: &[Vec<u8>],
    filling: u8,
    wanted: impl Fn(usize) -> bool,
) -> (Trace, (Worker, Vec<Frame>)) {
    fill_slots(program);
    program.maps().maps().iter().for_each(|map| arena::touch(map));
    program.wait_for_tier2(TIER2_TIMEOUT);
    let mut worker = program.worker(0);
    let mut frames = Vec::new();
    let mut run = |(index, packet): (usize, &Vec<u8>)| {
        wanted(index).then(|| {
            worker.fill_stack(filling);
            let mut frame = Frame::new(packet).map_err(|error| error.to_string())?;
            let outcome = run_frame(program, &mut worker, &mut frame);
            frames.push(frame);
            outcome
        })
    };
    let outcomes = packets.iter().enumerate().map(&mut run).collect();
    let maps = program.maps().maps().iter();
    let maps = maps.map(|map| (map.name().to_owned(), contents(map))).collect();
    let printed = Some(program.surroundings().trace.take());
    (Trace { outcomes, maps, printed }, (worker, frames))
}

/// What differs between two outcomes: its name, the reference's side, the other's.
pub(super) fn difference(
    reference: &Outcome,
    other: &Outcome,
) -> Option<(&'static str, String, String)> {
    if other.retval != reference.retval {
        return Some(("verdict", reference.retval.to_string(), other.retval.to_string()));
    }
    let bounds = |o: &Outcome| (o.meta_bytes, o.linear_end, o.data.len());
    if bounds(other) != bounds(reference) {
        let text = |o: &Outcome| {
            let (meta, linear, all) = bounds(o);
            format!("{meta} metadata, linear part ends at {linear}, {all} in all")
        };
        return Some(("bounds", text(reference), text(other)));
    }
    let at = other.data.iter().zip(&reference.data).position(|(a, b)| a != b)?;
    let text = |data: &[u8]| {
        let end = (at + 16).min(data.len());
        format!("at byte {at}: {:02x?}", &data[at..end])
    };
    Some(("bytes", text(&reference.data), text(&other.data)))
}

/// Whether a program's results depend on where things lie in memory, or on stack it never wrote (a
/// 4-byte store lets the kernel take 8 bytes for written): two runs of the interpreter differ, in
/// maps and frames of their own and over another filling of the stack. A clock that ticks so seldom
/// that both may see one tick counts as well.
pub fn depends_on_surroundings(
    verified: &Verified,
    options: &LoadOptions,
    packets: &[Vec<u8>],
) -> bool {
    let slow_clocks = [id::JIFFIES64, id::KTIME_GET_COARSE_NS];
    let is_slow = |insn: &Insn| insn.is_helper_call() && slow_clocks.contains(&(insn.imm as u32));
    if verified.linked().insns.iter().any(is_slow) {
        return true;
    }
    let mut kept = Vec::new();
    let mut run = |filling: u8| {
        let program = Program::from_verified(verified.clone(), options).ok()?;
        let (trace, used) = over(&program, packets, filling, |_| true);
        // Maps, stack, context and frames stay until the other has run: it gets other addresses.
        kept.push((program, used));
        Some(trace)
    };
    run(0) != run(0xa5)
}

/// Whether a loop that was not followed round by round takes very many. One that only `may_goto`
/// ends is ended by the clock in the kernel (`bpf_check_timed_may_goto`), by us after as many
/// rounds as in kernels without one; `bpf_loop` and iterators may count to millions, in one
/// another. There is nothing to compare, or it would take minutes.
pub fn is_endless(verified: &Verified, packets: &[Vec<u8>]) -> bool {
    let is_unbounded = |insn: &Insn| {
        let is_may_goto = insn.class() == BPF_JMP && insn.op() == BPF_JCOND;
        let loops = insn.is_helper_call() && insn.imm == id::LOOP as i32;
        is_may_goto || insn.is_kfunc_call() || loops
    };
    if !verified.linked().insns.iter().any(is_unbounded) {
        return false;
    }
    let limits = Limits { insns: INSNS_MAX };
    let options = LoadOptions { exec: Exec::Interp, limits, ..LoadOptions::default() };
    let Ok(program) = Program::from_verified(verified.clone(), &options) else { return false };
    fill_slots(&program);
    let mut worker = program.worker(0);
    packets.iter().any(|packet| {
        let Ok(mut frame) = Frame::new(packet) else { return false };
        let ran = program.run(&mut worker, &mut frame);
        ran.is_err_and(|fault| matches!(fault.violation, Violation::Budget { .. }))
    })
}

/// Puts the program itself into the slots its maps reserve for it.
pub fn fill_slots(program: &Program) {
    let Some(verified) = program.verified() else { return };
    for (map, def) in program.maps().maps().iter().zip(verified.linked().maps.iter()) {
        for (slot, init) in &def.slots {
            if matches!(init, SlotInit::Program(name) if name == program.name()) {
                let _in_bounds = map.set_program(*slot, program.id());
            }
        }
    }
}

/// More instructions than a generated program has in one run, all loops that count included.
const INSNS_MAX: u64 = 1 << 18;

#[cfg(test)]
mod tests {
    use towpath_bpf::Env;

    use super::*;
    use crate::packets::packets;
    use crate::programs;
    use crate::verdict::{self, Verdict};

    /// It stores its context into a map.
    const WITH_ADDRESS: u64 = 1_000_523;

    #[test]
    fn an_address_is_never_met_again() {
        let insns = programs::program(WITH_ADDRESS, true);
        let linked = programs::linked(insns, &programs::maps(), &Env::builtin().kernel_btf);
        let Verdict::Accepted(verified) = verdict::ours(&linked) else { panic!("refused") };
        let packets = packets(1_000_000, 6, false);
        let options = LoadOptions::default();
        let depends = |_| depends_on_surroundings(&verified, &options, &packets);
        assert!((0..100).all(depends));
    }
}
