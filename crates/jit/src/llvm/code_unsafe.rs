//! Entering LLVM's code, whose functions follow the machine's C convention.

#![expect(unsafe_code, reason = "calls machine code of our own making")]

use super::link::Linked;
use super::module::{BATCH, callback_name};
use crate::code_unsafe::run_batch;
use crate::enter_unsafe::guarded;
use crate::error::CompileError;
use crate::fault_unsafe::CodeFault;
use crate::machine_unsafe::{Batch, Machine};

/// The code of one program, and the ways into it.
#[derive(Debug)]
pub(crate) struct Layout {
    linked: Linked,
    batch: usize,
    /// Offset of each function's entry for callbacks.
    callbacks: Vec<Option<usize>>,
}

impl Layout {
    /// Finds the entries of a program of `functions` functions.
    pub(super) fn new(linked: Linked, functions: usize) -> Result<Layout, CompileError> {
        let batch = linked.offset(BATCH);
        let batch = batch.ok_or_else(|| CompileError::Llvm("no batch entry".into()))?;
        let callbacks = (0..functions).map(|index| linked.offset(&callback_name(index)));
        Ok(Layout { batch, callbacks: callbacks.collect(), linked })
    }

    /// Bytes of the code, for reading.
    pub(crate) fn code(&self) -> &[u8] {
        self.linked.code.bytes()
    }

    /// Offsets at which code for another BPF instruction begins, with its slot; in order.
    pub(crate) fn origins(&self) -> &[(usize, u32)] {
        &self.linked.origins
    }

    /// Offset of an address in the code.
    pub(crate) fn offset_of(&self, address: u64) -> Option<usize> {
        self.linked.code.offset_of(address)
    }

    /// Offsets of the batch entry, which contains the program, and of the entries for callbacks.
    pub(crate) fn offsets(&self) -> Vec<usize> {
        let callbacks = self.callbacks.iter().flatten().copied();
        std::iter::once(self.batch).chain(callbacks).collect()
    }

    /// As [`crate::clif::Layout::run_batch`].
    ///
    /// # Errors
    ///
    /// Fails as [`crate::clif::Layout::run_batch`] does.
    ///
    /// # Safety
    ///
    /// As for [`crate::clif::Layout::run_batch`].
    pub(crate) unsafe fn run_batch(
        &self,
        machine: *mut Machine,
        batch: Batch,
        first: usize,
    ) -> Result<usize, CodeFault> {
        // SAFETY: the batch entry of live code, and the caller's promise.
        unsafe { run_batch(self.linked.code.pointer(self.batch), machine, batch, first) }
    }

    /// Runs a function on behalf of a helper; `None` if no helper may call it.
    ///
    /// # Errors
    ///
    /// Fails if the code did something that the machine does not allow.
    ///
    /// # Safety
    ///
    /// As for [`crate::clif::Layout::call_back`].
    pub(crate) unsafe fn call_back(
        &self,
        machine: *mut Machine,
        function: usize,
        frame: u64,
        [r1, r2, r3, r4, r5]: [u64; 5],
    ) -> Result<Option<u64>, CodeFault> {
        let Some(&Some(offset)) = self.callbacks.get(function) else { return Ok(None) };
        let args = [machine as u64, frame, r1, r2, r3, r4, r5, 0];
        // SAFETY: a function of machine, frame pointer and r1 to r5, at this offset of a live
        // mapping; otherwise, the caller's promise.
        unsafe { guarded(self.linked.code.pointer(offset), &args).map(Some) }
    }
}
