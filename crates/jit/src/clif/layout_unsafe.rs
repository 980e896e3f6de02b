//! Addresses of the functions of a program compiled by Cranelift, and the ways into them.

#![expect(unsafe_code, reason = "calls machine code of our own making")]

use std::ffi::c_void;

use cranelift_codegen::binemit::Reloc;

use super::{BATCH_ENTRY, CompiledModule, EXTRA_FUNCTIONS, Relocation, TRAMPOLINE, WAY_IN};
use crate::code_unsafe::{Code, run_batch};
use crate::enter_unsafe::guarded;
use crate::error::CompileError;
use crate::fault_unsafe::CodeFault;
use crate::machine_unsafe::{Batch, Machine};

/// The code of one program.
#[derive(Debug)]
pub(crate) struct Layout {
    code: Code,
    /// Offset of each function, then of the trampolines and the batch entry.
    offsets: Vec<usize>,
    /// Offsets at which code for another BPF instruction begins, with its slot; in order.
    origins: Vec<(usize, u32)>,
}

impl Layout {
    pub(super) fn new(compiled: &CompiledModule, limit: usize) -> Result<Self, CompileError> {
        let (image, offsets) = link(compiled)?;
        let code = Code::place(image.len(), limit, |_, memory| {
            memory.copy_from_slice(&image);
            Ok(())
        })?;
        let functions = compiled.functions.iter().zip(&offsets);
        let origins = functions.flat_map(|(function, &start)| {
            function.origins.iter().map(move |&(offset, slot)| (start + offset as usize, slot))
        });
        let origins = origins.collect();
        Ok(Layout { code, offsets, origins })
    }

    /// Address of a function.
    pub(crate) fn address(&self, function: usize) -> Option<u64> {
        let functions = self.offsets.len() - EXTRA_FUNCTIONS;
        let offset = *self.offsets[..functions].get(function)?;
        Some(self.code.address() + offset as u64)
    }

    /// Address of the first function.
    pub(crate) fn start(&self) -> u64 {
        self.code.address()
    }

    /// Bytes of the code, for reading.
    pub(crate) fn code(&self) -> &[u8] {
        self.code.bytes()
    }

    /// Offsets of the functions, then of the trampolines and the batch entry.
    pub(crate) fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Offset of an address in the code.
    pub(crate) fn offset_of(&self, address: u64) -> Option<usize> {
        self.code.offset_of(address)
    }

    /// Offsets at which code for another BPF instruction begins, with its slot; in order.
    pub(crate) fn origins(&self) -> &[(usize, u32)] {
        &self.origins
    }

    /// Runs the program for the frames from `first` on; gives their number, or the index of the
    /// frame that stopped the run.
    ///
    /// # Errors
    ///
    /// Fails as [`crate::code_unsafe::run_batch`] does.
    ///
    /// # Safety
    ///
    /// `machine.stack_top` is one past a stack of the depth that the verifier determined;
    /// `machine`, frames and all memory that the program was given are valid for the whole run.
    pub(crate) unsafe fn run_batch(
        &self,
        machine: *mut Machine,
        batch: Batch,
        first: usize,
    ) -> Result<usize, CodeFault> {
        // SAFETY: the batch entry of live code, and the caller's promise.
        unsafe { run_batch(self.extra(BATCH_ENTRY), machine, batch, first) }
    }

    /// Runs the callback at `target`.
    ///
    /// # Errors
    ///
    /// Fails if the code did something that the machine does not allow.
    ///
    /// # Safety
    ///
    /// `target` is the address of a function of a live compiled program that takes five arguments,
    /// `frame` one past a stack of the depth that the verifier determined; `machine` and all memory
    /// that the program was given are valid for the whole run.
    pub(crate) unsafe fn call_back(
        &self,
        machine: *mut Machine,
        target: u64,
        frame: u64,
        [r1, r2, r3, r4, r5]: [u64; 5],
    ) -> Result<u64, CodeFault> {
        let args = [machine as u64, target, frame, r1, r2, r3, r4, r5];
        // SAFETY: the trampoline has these parameters, and is at this offset of a live mapping;
        // otherwise, the caller's promise.
        unsafe { guarded(self.extra(TRAMPOLINE), &args) }
    }

    /// Address of the code by which code of the machine's C convention enters targets of tail
    /// calls: machine, entry, frame pointer, context.
    pub(crate) fn way_in(&self) -> u64 {
        self.extra(WAY_IN) as u64
    }

    /// Address of a function behind those of the module.
    fn extra(&self, number: usize) -> *const c_void {
        let first = self.offsets.len() - EXTRA_FUNCTIONS;
        self.code.pointer(self.offsets[first + number])
    }
}

/// Places the functions one behind the other and resolves the calls between them.
fn link(compiled: &CompiledModule) -> Result<(Vec<u8>, Vec<usize>), CompileError> {
    let mut image = Vec::new();
    let mut offsets = Vec::with_capacity(compiled.functions.len());
    for function in &compiled.functions {
        image.resize(image.len().next_multiple_of(function.align.max(16) as usize), 0);
        offsets.push(image.len());
        image.extend_from_slice(&function.code);
    }
    for (function, &offset) in compiled.functions.iter().zip(&offsets) {
        for relocation in &function.relocations {
            relocate(&mut image, offset, &offsets, relocation)?;
        }
    }
    Ok((image, offsets))
}

fn relocate(
    image: &mut [u8],
    function: usize,
    offsets: &[usize],
    relocation: &Relocation,
) -> Result<(), CompileError> {
    let failure = || CompileError::Cranelift {
        function: format!("at offset {function}"),
        what: format!("a relocation that leads nowhere: {relocation:?}"),
    };
    let at = function + relocation.offset as usize;
    let target = *offsets.get(relocation.callee as usize).ok_or_else(failure)? as i64;
    let distance = target + relocation.addend - at as i64;
    let bytes = image.get_mut(at..at + 4).ok_or_else(failure)?;
    match relocation.kind {
        Reloc::X86CallPCRel4 => {
            let distance = i32::try_from(distance).ok().ok_or_else(failure)?;
            bytes.copy_from_slice(&distance.to_le_bytes());
        }
        // A 26-bit distance in words, in the low bits of the instruction (`bl`).
        Reloc::Arm64Call => {
            let words = i32::try_from(distance >> 2).ok().ok_or_else(failure)?;
            let words = words as u32 & 0x03ff_ffff;
            for (byte, bits) in bytes.iter_mut().zip(words.to_le_bytes()) {
                *byte |= bits;
            }
        }
        _ => return Err(failure()),
    }
    Ok(())
}
