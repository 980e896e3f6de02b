//! What a run may touch: the one place that turns an address from a program into a [`Grant`].
//!
//! Precise on purpose: inside the linear buffer only `[data_meta, data_end)` is the packet, inside
//! a map only one key or value at a time, on the stack only the active functions' part.

#![expect(unsafe_code, reason = "a grant states that memory is alive; this is where that is known")]

use towpath_bpf::interp::Violation;
use towpath_maps::Access;

use super::Run;
use crate::memory::Grant;

impl Run<'_> {
    /// Permission to touch `len` bytes at `addr`, or why not.
    #[inline]
    pub(crate) fn grant(&self, addr: u64, len: u64, write: bool) -> Result<Grant, Violation> {
        match self.refusal(addr, len, write) {
            // SAFETY: every range that `refusal` lets pass lies in a block, a map's region or
            // memory registered in `extras`, all of which are exposed, live at least as long as
            // the run, and are not borrowed while a program or helper uses grants: the run holds
            // frame and worker exclusively and lends no references into them, and maps hand out
            // atomics only.
            None => Ok(unsafe { Grant::new(addr, len) }),
            Some(why) => Err(Violation::Memory { addr, size: len, write, why }),
        }
    }

    /// Why an access is not allowed; `None` when it is.
    fn refusal(&self, addr: u64, len: u64, write: bool) -> Option<&'static str> {
        let Some(end) = addr.checked_add(len) else { return Some("the range wraps around") };
        if self.worker.is_in_stack(addr) {
            let inside = addr >= self.stack_floor && end <= self.worker.stack_top();
            return (!inside).then_some("outside the stack of the active functions");
        }
        if self.frame.is_in_head(addr) {
            let inside = addr >= self.frame.data_meta_addr() && end <= self.frame.data_end_addr();
            return (!inside).then_some("packet access outside [data_meta, data_end)");
        }
        match self.maps.owns(addr, len as usize) {
            // Of a ring only the records that the program holds may be touched: see `extras`.
            None | Some(Access::Record) => {}
            Some(access) => return refusal_by_map(access, write),
        }
        if self.context_offset(addr).is_some() {
            return Some("the context is read-only, and only loads reach it");
        }
        if let Some(extra) = self.extras.iter().find(|e| e.addr <= addr && end <= e.addr + e.len) {
            return (write && !extra.writable).then_some("read-only memory");
        }
        let frags = self.frame.frags().iter();
        let mut ranges = frags.map(|frag| (frag.addr(), frag.addr() + frag.len as u64));
        if ranges.any(|(first, last)| first <= addr && end <= last) {
            return None;
        }
        if self.worker.is_kernel_object(addr, len) {
            return write.then_some("a kernel object");
        }
        // Last, because all workers share the objects' lock.
        let inside = self.surroundings.objects.owns(addr, len);
        (!inside).then_some("not memory this run may touch")
    }
}

fn refusal_by_map(access: Access, write: bool) -> Option<&'static str> {
    match (access, write) {
        (Access::Absent, _) => Some("an arena page that is not allocated"),
        (access, true) if !access.may_write() => Some("a map that programs may only read"),
        (access, false) if !access.may_read() => Some("a map that programs may only write"),
        _ => None,
    }
}
