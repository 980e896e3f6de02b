//! Memory accesses of instructions and of helper arguments.

use super::env::{Access, Result, Verifier};

impl Verifier<'_> {
    /// A load or store of `size` bytes at `regno + off` by the current instruction
    /// (`check_mem_access`). A load sets `value_regno`; a store takes its value from it.
    pub(crate) fn check_mem_access(
        &mut self,
        regno: u8,
        off: i32,
        size: u32,
        access: Access,
        value_regno: Option<u8>,
        sign_extend: bool,
    ) -> Result<()> {
        let _ = (regno, off, size, access, value_regno, sign_extend);
        Err(self.internal("memory accesses are not checked yet"))
    }

    /// A helper or kfunc reads or writes `size` bytes at `regno` (`check_helper_mem_access`).
    /// `raw`: it fills them without reading, so that stack may be uninitialised before.
    pub(crate) fn check_helper_mem_access(
        &mut self,
        regno: u8,
        size: u32,
        access: Access,
        zero_size_allowed: bool,
        raw: bool,
    ) -> Result<()> {
        let _ = (regno, size, access, zero_size_allowed, raw);
        Err(self.internal("memory accesses are not checked yet"))
    }

    /// The stack bytes `regno + off ..+ size` must hold data (`check_stack_range_initialized`).
    pub(crate) fn check_stack_range_initialized(
        &mut self,
        regno: u8,
        off: i32,
        size: u32,
        access: Access,
        zero_size_allowed: bool,
        raw: bool,
    ) -> Result<()> {
        let _ = (regno, off, size, access, zero_size_allowed, raw);
        Err(self.internal("memory accesses are not checked yet"))
    }

    /// Slot `spi` of frame `frame` is read here: states in which it differs are not equal
    /// (`bpf_mark_stack_read`).
    pub(crate) fn mark_stack_read(&mut self, frame: usize, spi: usize) {
        let _ = (frame, spi);
    }

    /// Slot `spi` of frame `frame` is fully overwritten here (`bpf_mark_stack_write`).
    pub(crate) fn mark_stack_written(&mut self, frame: usize, spi: usize) {
        let _ = (frame, spi);
    }

    /// Packet contents or bounds changed: no packet pointer or slice of the packet is usable
    /// (`clear_all_pkt_pointers`).
    pub(crate) fn clear_all_packet_pointers(&mut self) {}
}
