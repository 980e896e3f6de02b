//! Machine code in memory: all functions of a program in one mapping, writable until it is
//! complete, executable from then on, never both.

#![expect(unsafe_code, reason = "maps memory, fills it, and hands out pointers to code in it")]

use std::ffi::c_void;
use std::ptr::NonNull;

use cranelift_codegen::binemit::Reloc;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::{BATCH_ENTRY, CompiledModule, EXTRA_FUNCTIONS, Relocation, TRAMPOLINE};
use crate::error::CompileError;
use crate::machine_unsafe::{Descriptor, Machine};

/// The signature of the trampoline: machine, function, frame pointer, r1 to r5.
type Trampoline = unsafe extern "C" fn(*mut Machine, u64, u64, u64, u64, u64, u64, u64) -> u64;

/// The signature of the batch entry: machine, descriptors, first, count.
type Batch = unsafe extern "C" fn(*mut Machine, *mut Descriptor, u64, u64) -> u64;

/// The code of one program, at its final address until dropped.
#[derive(Debug)]
pub(crate) struct Layout {
    base: NonNull<c_void>,
    bytes: usize,
    /// Bytes of code, without padding to whole pages.
    code_bytes: usize,
    /// Offset of each function, then of the trampoline and the batch entry.
    offsets: Vec<usize>,
}

// SAFETY: the mapping is immutable once `Layout::new` returns, and freed by the only owner.
unsafe impl Send for Layout {}
// SAFETY: as above; shared access is reading and executing.
unsafe impl Sync for Layout {}

impl Layout {
    pub(super) fn new(compiled: &CompiledModule) -> Result<Self, CompileError> {
        let (image, offsets) = link(compiled)?;
        let bytes = image.len().next_multiple_of(rustix::param::page_size());
        let memory =
            |source: rustix::io::Errno| CompileError::Memory { bytes, source: source.into() };
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let base = base.map_err(memory)?;
        let base = NonNull::new(base).ok_or_else(|| memory(rustix::io::Errno::NOMEM))?;
        let layout = Layout { base, bytes, code_bytes: image.len(), offsets };
        // SAFETY: the mapping is `bytes >= image.len()` long, writable, and nobody else knows it.
        unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), base.as_ptr().cast(), image.len()) };
        // SAFETY: the whole mapping, which no reference points into.
        unsafe {
            rustix::mm::mprotect(base.as_ptr(), bytes, MprotectFlags::READ | MprotectFlags::EXEC)
        }
        .map_err(memory)?;
        Ok(layout)
    }

    /// Address of a function.
    pub(crate) fn address(&self, function: usize) -> Option<u64> {
        let functions = self.offsets.len() - EXTRA_FUNCTIONS;
        let offset = *self.offsets[..functions].get(function)?;
        Some(self.base.as_ptr() as u64 + offset as u64)
    }

    /// The bytes of the code, to look at.
    pub(crate) fn code(&self) -> &[u8] {
        // SAFETY: readable, initialised and immutable for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.code_bytes) }
    }

    /// Offsets of the functions, then of the trampoline and the batch entry.
    pub(crate) fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Runs the program for the descriptors from `first` on; gives their number, or the index of
    /// the one that stopped the run.
    ///
    /// # Safety
    ///
    /// `machine.stack_top` is one past a stack as deep as the verifier said; `machine`, descriptors
    /// and everything the program was given are valid for the whole run.
    pub(crate) unsafe fn run_batch(
        &self,
        machine: *mut Machine,
        descriptors: *mut [Descriptor],
        first: usize,
    ) -> usize {
        let address = self.extra(BATCH_ENTRY);
        // SAFETY: compiled with exactly this signature, at this offset of a live mapping.
        let entry = unsafe { std::mem::transmute::<*mut c_void, Batch>(address) };
        let count = descriptors.len() as u64;
        // SAFETY: the caller's promise.
        unsafe { entry(machine, descriptors.cast(), first as u64, count) as usize }
    }

    /// Runs the callback at `target`.
    ///
    /// # Safety
    ///
    /// `target` is the address of a function of a live compiled program that takes five arguments,
    /// `frame` one past a stack as deep as the verifier said; `machine` and everything the program
    /// was given are valid for the whole run.
    pub(crate) unsafe fn call_back(
        &self,
        machine: *mut Machine,
        target: u64,
        frame: u64,
        [r1, r2, r3, r4, r5]: [u64; 5],
    ) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.trampoline()(machine, target, frame, r1, r2, r3, r4, r5) }
    }

    fn trampoline(&self) -> Trampoline {
        // SAFETY: compiled with exactly this signature, at this offset of a live mapping.
        unsafe { std::mem::transmute::<*mut c_void, Trampoline>(self.extra(TRAMPOLINE)) }
    }

    /// Address of a function behind those of the module.
    fn extra(&self, number: usize) -> *mut c_void {
        let first = self.offsets.len() - EXTRA_FUNCTIONS;
        self.base.as_ptr().wrapping_byte_add(self.offsets[first + number])
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: our own mapping; whoever could run code in it held a reference to `self`.
        // Failure leaves the memory mapped, which harms nothing.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.bytes) };
    }
}

/// Puts the functions one behind the other and resolves the calls between them.
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
