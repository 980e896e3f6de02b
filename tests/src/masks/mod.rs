//! Whether machine code is masked against speculation: a walk over what the compiler made.
//!
//! The walk knows nothing of the compiler but who calls whom. It follows each way through a
//! function and keeps, for each register and each slot that registers are spilled to, what kind of
//! value is there (`values::Kind`), and an identity that is equal only for equal values. An
//! access is fine where no branch lies between it and a barrier; where its address is no choice of
//! the program's (a constant, the runtime's own records); or where it went through an `and` with a
//! word that was computed from *every* branch on the way by a conditional move on *that branch's*
//! comparison. Anything else is a gadget's second half, and is reported.

mod identity;
mod values;
mod walk;

use std::fmt;

use iced_x86::{Decoder, DecoderOptions, Instruction};

/// An access that is not masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmasked {
    /// Of the instruction, in the program's code.
    pub offset: usize,
    /// The instruction.
    pub text: String,
}

impl fmt::Display for Unmasked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}: {}", self.offset, self.text)
    }
}

/// Whether the walk knows this machine's instructions.
pub const fn is_known() -> bool {
    cfg!(target_arch = "x86_64")
}

/// Accesses of a program on tier 1 that are not masked, on any way through it.
pub fn unmasked(program: &towpath_jit::Program) -> Vec<Unmasked> {
    let (code, offsets) = program.code();
    let Some((&burst, functions)) = offsets.split_last() else { return Vec::new() };
    // In front of the entry for bursts there are two that only call what they are given.
    let functions = &functions[..functions.len() - 2];
    let mut found: Vec<Unmasked> = functions
        .iter()
        .flat_map(|&start| walk::function(code, start, walk::Called::ByPrograms))
        .collect();
    found.extend(walk::function(code, burst, walk::Called::ByRuntime));
    found
}

/// How many instructions are barriers.
pub fn barriers(program: &towpath_jit::Program) -> usize {
    let (code, _) = program.code();
    instructions(code, 0).filter(|inst| inst.mnemonic() == iced_x86::Mnemonic::Lfence).count()
}

fn instructions(code: &[u8], start: usize) -> impl Iterator<Item = Instruction> {
    let code = code.get(start..).unwrap_or_default().to_vec();
    let mut at = start as u64;
    let mut rest = 0;
    std::iter::from_fn(move || {
        let mut decoder = Decoder::with_ip(64, code.get(rest..)?, at, DecoderOptions::NONE);
        let inst = decoder.can_decode().then(|| decoder.decode())?;
        rest += inst.len();
        at += inst.len() as u64;
        Some(inst)
    })
}
