//! Runs a bare instruction stream over a buffer, as the bpf_conformance suite requires of a
//! runtime.
//!
//! The stream is not verified, so this runtime relies on nothing: memory is a `Vec`, addresses are
//! invented, helpers do not exist and the run is bounded.

use std::sync::Arc;

use super::{
    AtomicOp, Callbacks, Code, Fault, Limits, MAX_CALL_FRAMES, Runtime, Stop, Violation, run_at,
};
use crate::insn::{INSN_SIZE, Insn, STACK_BYTES};

/// Runs `program` (little-endian slots) with r1 = address of `memory`, r2 = its length and returns
/// r0. `memory` is changed as the program changes it.
pub fn run_conformance(program: &[u8], memory: &mut Vec<u8>) -> Result<u64, ConformanceError> {
    if program.is_empty() || !program.len().is_multiple_of(INSN_SIZE) {
        return Err(ConformanceError::Length(program.len()));
    }
    let slots = program.chunks_exact(INSN_SIZE).map(|slot| {
        let mut bytes = [0; INSN_SIZE];
        bytes.copy_from_slice(slot);
        Insn::from_le_bytes(bytes)
    });
    let code = Arc::new(Code::raw("conformance", slots.collect()));
    let args = [MEMORY_ADDR, memory.len() as u64, 0, 0, 0];
    let mut runtime = Flat {
        memory: std::mem::take(memory),
        stack: vec![0; STACK_BYTES * MAX_CALL_FRAMES],
        floor: STACK_TOP,
    };
    let result = run_at(&code, 0, args, &mut runtime, &Limits { insns: INSNS_MAX });
    *memory = runtime.memory;
    Ok(result?)
}

/// Reason why a conformance program has no result.
#[derive(Debug, thiserror::Error)]
pub enum ConformanceError {
    /// The length is not a positive multiple of an instruction's.
    #[error("a program is a multiple of 8 bytes and not empty, this one has {0}")]
    Length(usize),
    /// The run ended with a fault.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Two areas at made-up addresses.
pub(super) struct Flat {
    memory: Vec<u8>,
    stack: Vec<u8>,
    /// Lowest stack address that the active functions may access.
    floor: u64,
}

impl Flat {
    fn bytes(&mut self, addr: u64, size: u32, write: bool) -> Result<&mut [u8], Violation> {
        let end = addr.checked_add(u64::from(size));
        let size = u64::from(size);
        let (area, base) = match end {
            Some(end) if addr >= self.floor && end <= STACK_TOP => {
                let base = STACK_TOP - self.stack.len() as u64;
                (&mut self.stack, base)
            }
            Some(end) if addr >= MEMORY_ADDR && end <= MEMORY_ADDR + self.memory.len() as u64 => {
                (&mut self.memory, MEMORY_ADDR)
            }
            _ => {
                let why = "outside the buffer and the stack";
                return Err(Violation::Memory { addr, size, write, why });
            }
        };
        let start = (addr - base) as usize;
        Ok(&mut area[start..start + size as usize])
    }
}

impl Runtime for Flat {
    fn load(&mut self, addr: u64, size: u32) -> Result<u64, Violation> {
        Ok(from_le(self.bytes(addr, size, false)?))
    }

    fn store(&mut self, addr: u64, size: u32, value: u64) -> Result<(), Violation> {
        let bytes = self.bytes(addr, size, true)?;
        bytes.copy_from_slice(&value.to_le_bytes()[..size as usize]);
        Ok(())
    }

    fn atomic(
        &mut self,
        addr: u64,
        size: u32,
        op: AtomicOp,
        operand: u64,
    ) -> Result<u64, Violation> {
        let old = self.load(addr, size)?;
        self.store(addr, size, op.apply(old, operand))?;
        Ok(old)
    }

    fn enter_frame(&mut self, depth: usize) -> Result<u64, Violation> {
        if depth >= MAX_CALL_FRAMES {
            return Err(Violation::CallDepth { limit: MAX_CALL_FRAMES });
        }
        let top = STACK_TOP - (depth * STACK_BYTES) as u64;
        self.floor = top - STACK_BYTES as u64;
        Ok(top)
    }

    fn leave_frame(&mut self, depth: usize) {
        self.floor = STACK_TOP - (depth * STACK_BYTES) as u64;
    }

    fn call_helper(
        &mut self,
        id: u32,
        _args: [u64; 5],
        _callbacks: &mut dyn Callbacks<Self>,
    ) -> Result<u64, Stop> {
        Err(Violation::UnknownHelper { id }.into())
    }

    fn call_kfunc(
        &mut self,
        id: u32,
        _args: [u64; 5],
        _callbacks: &mut dyn Callbacks<Self>,
    ) -> Result<u64, Stop> {
        Err(Violation::UnknownKfunc { name: id.to_string() }.into())
    }

    fn tail_call(&mut self, _map: u64, _index: u32) -> Result<Option<Arc<Code>>, Stop> {
        Ok(None)
    }
}

fn from_le(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

/// An empty buffer and a stack.
#[cfg(test)]
pub(super) fn flat() -> Flat {
    let stack = vec![0; STACK_BYTES * MAX_CALL_FRAMES];
    Flat { memory: Vec::new(), stack, floor: STACK_TOP }
}

const MEMORY_ADDR: u64 = 0x1000_0000;
const STACK_TOP: u64 = 0x2000_0000;
/// Largest number of instructions, at which an endless loop ends.
const INSNS_MAX: u64 = 10_000_000;
