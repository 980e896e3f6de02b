//! Which instructions cases reached, and through them which C lines and branches.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_bpf::Linked;
use towpath_bpf::insn::{BPF_CALL, BPF_EXIT, BPF_JA, BPF_JMP, BPF_JMP32, Insn, REG_COUNT};
use towpath_bpf::interp::{Code, Observer, Violation};
use towpath_xdp::Program;

use crate::error::CliError;
use crate::output::{Align, Output, Table};

/// What all cases reached, by C file.
#[derive(Default)]
pub(super) struct Coverage {
    pub(super) files: BTreeMap<Arc<str>, SourceFile>,
}

/// One C file: what was made into instructions of programs that ran.
#[derive(Default)]
pub(super) struct SourceFile {
    /// By number.
    pub(super) lines: BTreeMap<u32, SourceLine>,
}

/// A line.
pub(super) struct SourceLine {
    pub(super) text: Arc<str>,
    /// How often it was reached.
    pub(super) hits: u64,
    /// Of each of its conditional jumps, how often it fell through, and how often it was taken.
    pub(super) branches: BTreeMap<(Arc<str>, usize), [u64; 2]>,
}

/// Sees the instructions of one case.
#[derive(Default)]
pub(super) struct Watch {
    seen: RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    programs: Vec<Reached>,
    /// The instruction before.
    last: Option<(usize, usize)>,
}

/// One program's instructions.
struct Reached {
    linked: Arc<Linked>,
    hits: Vec<u64>,
    branches: BTreeMap<usize, [u64; 2]>,
}

impl Reached {
    fn new(linked: &Arc<Linked>) -> Reached {
        Reached {
            linked: Arc::clone(linked),
            hits: vec![0; linked.insns.len()],
            branches: BTreeMap::new(),
        }
    }
}

/// The way that a run took: of each program, by its name, the instructions that were reached, and
/// which ways were taken at conditional jumps. How often does not count.
pub(super) type Way = Vec<(String, Vec<bool>, Vec<(usize, [bool; 2])>)>;

impl Watch {
    /// The way that was taken.
    pub(super) fn way(self) -> Way {
        let way = |reached: Reached| {
            let taken =
                reached.branches.into_iter().map(|(at, counts)| (at, counts.map(|it| it > 0)));
            let hits = reached.hits.into_iter().map(|hits| hits > 0);
            (reached.linked.name.clone(), hits.collect(), taken.collect())
        };
        self.seen.into_inner().programs.into_iter().map(way).collect()
    }
}

impl Observer for Watch {
    fn observe(&self, code: &Code, slot: usize, _regs: &[u64; REG_COUNT]) -> Result<(), Violation> {
        let (Some(linked), Ok(mut seen)) = (code.linked(), self.seen.try_borrow_mut()) else {
            return Ok(());
        };
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

fn is_conditional(insn: &Insn) -> bool {
    let (class, op) = (insn.code & 0x07, insn.code & 0xf0);
    matches!(class, BPF_JMP | BPF_JMP32) && !matches!(op, BPF_JA | BPF_CALL | BPF_EXIT)
}

impl Coverage {
    /// Adds what a case reached of a program, and of those it went on to.
    pub(super) fn add(&mut self, program: &Program, watch: Watch) {
        let mut programs = watch.seen.into_inner().programs;
        if programs.is_empty()
            && let Some(linked) = program.code().linked()
        {
            programs.push(Reached::new(linked));
        }
        programs.iter().for_each(|reached| self.add_program(reached));
    }

    fn add_program(&mut self, reached: &Reached) {
        let lines = &reached.linked.lines;
        let name: Arc<str> = reached.linked.name.as_str().into();
        for (index, line) in lines.iter().enumerate() {
            let start = line.insn as usize;
            let end = lines.get(index + 1).map_or(reached.hits.len(), |next| next.insn as usize);
            let Some(hits) = reached.hits.get(start..end) else { continue };
            let file = self.files.entry(Arc::clone(&line.file)).or_default();
            let known = file.lines.entry(line.line).or_insert_with(|| SourceLine {
                text: Arc::clone(&line.text),
                hits: 0,
                branches: BTreeMap::new(),
            });
            known.hits += hits.iter().copied().max().unwrap_or(0);
            for slot in start..end {
                if reached.linked.insns.get(slot).is_some_and(is_conditional) {
                    let ways = known.branches.entry((Arc::clone(&name), slot)).or_default();
                    let taken = reached.branches.get(&slot).copied().unwrap_or_default();
                    (ways[0], ways[1]) = (ways[0] + taken[0], ways[1] + taken[1]);
                }
            }
        }
    }

    /// A table by file, and the lines that no case reached.
    pub(super) fn print(&self, output: &mut Output) -> Result<(), CliError> {
        if self.files.is_empty() {
            return output.line("coverage: no line information: compile with -g");
        }
        let columns = [("file", Align::Left), ("lines", Align::Right), ("branches", Align::Right)];
        let mut table = Table::new(&columns);
        for (path, file) in &self.files {
            let name = path.rsplit('/').next().unwrap_or(path).to_owned();
            table.row(vec![name, share(file.lines_reached()), share(file.branches_reached())]);
        }
        output.line("")?;
        output.table(&table)?;
        for (path, file) in &self.files {
            let name = path.rsplit('/').next().unwrap_or(path);
            for (number, line) in file.lines.iter().filter(|(_, line)| line.hits == 0) {
                output.line(&format!("  not reached  {name}:{number}  {}", line.text))?;
            }
        }
        Ok(())
    }
}

impl SourceFile {
    /// Of so many.
    pub(super) fn lines_reached(&self) -> (usize, usize) {
        (self.lines.values().filter(|line| line.hits > 0).count(), self.lines.len())
    }

    /// Ways out of conditional jumps, of so many.
    pub(super) fn branches_reached(&self) -> (usize, usize) {
        let ways = || self.lines.values().flat_map(|line| line.branches.values().flatten());
        (ways().filter(|&&count| count > 0).count(), ways().count())
    }
}

/// `41 of 50 (82 %)`
pub(super) fn share((some, all): (usize, usize)) -> String {
    match (some * 100).checked_div(all) {
        Some(percent) => format!("{some} of {all} ({percent} %)"),
        None => "none".to_owned(),
    }
}
