//! A stack with other initial bytes for a program in the kernel, to find out whether the program
//! reads unwritten stack.
//!
//! A program of Towpath fills its 512 bytes of stack and then makes a tail call. The called program
//! takes its place on the stack (`emit_bpf_tail_call_indirect` of the compilers), and nothing
//! writes there in between: interrupts have stacks of their own, and push below.

use towpath_bpf::map::MapType;
use towpath_bpf::{Insn, Linked, MapDef};

use crate::program::{KernelProgram, LoadError};
use crate::run::{RunError, TestRun, TestRunResult};
use crate::{Kernel, MapSet};

/// A program behind one that fills the stack.
#[derive(Debug)]
pub struct Poisoned {
    filler: KernelProgram,
    /// The map of the tail call, kept because the slot is emptied with the map's last reference.
    _slot: MapSet,
}

impl Kernel {
    /// Puts a program that was loaded from `linked` behind one that fills the stack, from the top
    /// down, with words from `next`.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses a program or map ([`LoadError`]), or if the program may not be
    /// called from a program array.
    pub fn poisoned(
        &self,
        program: &KernelProgram,
        linked: &Linked,
        next: impl FnMut() -> u64,
    ) -> Result<Poisoned, LoadError> {
        let defs = vec![MapDef::new("behind_poison", MapType::ProgArray, 4, 4, 1)];
        let refused = |error: crate::MapError| LoadError::Slot { reason: error.to_string() };
        let slot = self.load_maps(&defs).map_err(refused)?;
        let words = std::iter::repeat_with(next).take(STACK_WORDS);
        let filler = Linked {
            has_frags: linked.has_frags,
            attach: linked.attach,
            ..Linked::of_insns("poison", instructions(words), defs, &linked.kernel_btf)
        };
        let filler = self.load(&filler, &slot)?;
        slot.maps()[0]
            .set_program(0, program)
            .map_err(|errno| LoadError::Slot { reason: errno.to_string() })?;
        Ok(Poisoned { filler, _slot: slot })
    }
}

impl Poisoned {
    /// As [`KernelProgram::test_run`]; every repetition has the same bytes.
    pub fn test_run(&self, run: &TestRun<'_>) -> Result<TestRunResult, RunError> {
        self.filler.test_run(run)
    }
}

fn instructions(words: impl Iterator<Item = u64>) -> Vec<Insn> {
    let fill = |(index, word): (usize, u64)| {
        let place = -8 * (index as i16 + 1);
        [
            Insn::new(LOAD_IMM64, 2, 0, 0, word as u32 as i32),
            Insn::new(0, 0, 0, 0, (word >> 32) as u32 as i32),
            Insn::new(STORE_U64, 10, 2, place, 0),
        ]
    };
    let mut insns: Vec<Insn> = words.enumerate().flat_map(fill).collect();
    insns.extend([
        Insn::new(LOAD_IMM64, 2, PSEUDO_MAP_FD, 0, 0),
        Insn::new(0, 0, 0, 0, 0),
        Insn::new(MOV_IMM, 3, 0, 0, 0),
        Insn::new(CALL, 0, 0, 0, TAIL_CALL),
        Insn::new(MOV_IMM, 0, 0, 0, 0),
        Insn::new(EXIT, 0, 0, 0, 0),
    ]);
    insns
}

/// `MAX_BPF_STACK`, in words.
const STACK_WORDS: usize = 64;

const LOAD_IMM64: u8 = 0x18;
const STORE_U64: u8 = 0x7b;
const MOV_IMM: u8 = 0xb7;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const PSEUDO_MAP_FD: u8 = 1;
const TAIL_CALL: i32 = 12;
