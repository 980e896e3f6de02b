//! Entering code that LLVM made: its functions follow the machine's C convention.

#![expect(unsafe_code, reason = "calls machine code of our own making")]

use std::ffi::c_void;

use super::link::Linked;
use super::module::{BATCH, callback_name};
use crate::code_unsafe::run_batch;
use crate::error::CompileError;
use crate::machine_unsafe::{Batch, Machine};

/// Machine, frame pointer, r1 to r5.
type Callback = unsafe extern "C" fn(*mut Machine, u64, u64, u64, u64, u64, u64) -> u64;

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

    /// The bytes of the code, to look at.
    pub(crate) fn code(&self) -> &[u8] {
        self.linked.code.bytes()
    }

    /// Offsets of the batch entry, which contains the program, and of the entries for callbacks.
    pub(crate) fn offsets(&self) -> Vec<usize> {
        let callbacks = self.callbacks.iter().flatten().copied();
        std::iter::once(self.batch).chain(callbacks).collect()
    }

    /// As [`crate::clif::Layout::run_batch`].
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn run_batch(
        &self,
        machine: *mut Machine,
        batch: Batch,
        first: usize,
    ) -> usize {
        // SAFETY: the batch entry of live code, and the caller's promise.
        unsafe { run_batch(self.linked.code.pointer(self.batch), machine, batch, first) }
    }

    /// Runs a function on behalf of a helper; `None` when no helper may call it.
    ///
    /// # Safety
    ///
    /// As [`crate::clif::Layout::call_back`].
    pub(crate) unsafe fn call_back(
        &self,
        machine: *mut Machine,
        function: usize,
        frame: u64,
        [r1, r2, r3, r4, r5]: [u64; 5],
    ) -> Option<u64> {
        let offset = (*self.callbacks.get(function)?)?;
        let address = self.linked.code.pointer(offset);
        // SAFETY: compiled with exactly this signature, at this offset of a live mapping.
        let entry = unsafe { std::mem::transmute::<*const c_void, Callback>(address) };
        // SAFETY: the caller's promise.
        Some(unsafe { entry(machine, frame, r1, r2, r3, r4, r5) })
    }
}
