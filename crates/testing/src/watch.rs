//! Instructions that runs reached, and the outcomes of their jumps.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use towpath_bpf::Linked;
use towpath_bpf::insn::{BPF_CALL, BPF_EXIT, BPF_JA, BPF_JMP, BPF_JMP32, Insn, REG_COUNT};
use towpath_bpf::interp::{Code, Observer, Violation};

/// Records the instructions of runs in the interpreter, until they are read
/// ([`crate::Coverage::add`], [`Watch::way`]).
#[derive(Debug, Default)]
pub struct Watch {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    programs: Vec<Reached>,
    /// The instruction before.
    last: Option<(usize, usize)>,
}

/// One program's instructions.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) linked: Arc<Linked>,
    /// Number of times that each was reached.
    pub(crate) hits: Vec<u64>,
    /// Number of times that a conditional jump was not taken, and that it was.
    pub(crate) branches: BTreeMap<usize, [u64; 2]>,
}

impl Reached {
    pub(crate) fn new(linked: &Arc<Linked>) -> Reached {
        Reached {
            linked: Arc::clone(linked),
            hits: vec![0; linked.insns.len()],
            branches: BTreeMap::new(),
        }
    }
}

/// The path of a run: for each program, by its name, the instructions that were reached and the
/// outcomes of conditional jumps, without their numbers.
pub type Way = Vec<(String, Vec<bool>, Vec<(usize, [bool; 2])>)>;

impl Watch {
    /// The path since the last call.
    pub fn way(&self) -> Way {
        let way = |reached: Reached| {
            let taken =
                reached.branches.into_iter().map(|(at, counts)| (at, counts.map(|it| it > 0)));
            let hits = reached.hits.into_iter().map(|hits| hits > 0);
            (reached.linked.name.clone(), hits.collect(), taken.collect())
        };
        self.take().into_iter().map(way).collect()
    }

    /// The observations since the last call.
    pub(crate) fn take(&self) -> Vec<Reached> {
        std::mem::take(&mut *self.seen.lock()).programs
    }
}

impl Observer for Watch {
    fn observe(&self, code: &Code, slot: usize, _regs: &[u64; REG_COUNT]) -> Result<(), Violation> {
        let Some(linked) = code.linked() else { return Ok(()) };
        let mut seen = self.seen.lock();
        let known = seen.programs.iter().position(|it| Arc::ptr_eq(&it.linked, linked));
        let number = known.unwrap_or_else(|| {
            seen.programs.push(Reached::new(linked));
            seen.programs.len() - 1
        });
        if let Some((before, at)) = seen.last.replace((number, slot))
            && before == number
            && linked.insns.get(at).is_some_and(is_conditional)
        {
            let is_taken = usize::from(slot != at + 1);
            seen.programs[number].branches.entry(at).or_default()[is_taken] += 1;
        }
        if let Some(hits) = seen.programs[number].hits.get_mut(slot) {
            *hits += 1;
        }
        Ok(())
    }
}

pub(crate) fn is_conditional(insn: &Insn) -> bool {
    let (class, op) = (insn.code & 0x07, insn.code & 0xf0);
    matches!(class, BPF_JMP | BPF_JMP32) && !matches!(op, BPF_JA | BPF_CALL | BPF_EXIT)
}
