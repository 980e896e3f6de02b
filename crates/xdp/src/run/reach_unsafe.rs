//! The reach of a run: the one place that turns an address from a program into a [`Grant`].
//!
//! It is precise on purpose: inside the linear buffer only `[data_meta, data_end)` is the packet,
//! inside a map only one key or value at a time, on the stack only the active functions' part.

#![expect(unsafe_code, reason = "a grant states that memory is alive; this is where that is known")]

use std::borrow::Cow;
use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::interp::Violation;
use towpath_maps::{Access, Map};

use super::recent::Recent;
use super::{Run, Types};
use crate::crypto::Cipher;
use crate::memory::{self, Grant};
use crate::objects::Object;
use crate::program::TailCallee;

impl<'a> Run<'a> {
    /// Permission to access `len` bytes at `addr` that the verifier proved accessible: an argument
    /// of a helper, or memory that helpers made and keep for the program. The error is boxed: the
    /// compiler still knows the length in a result that fits registers.
    #[inline(always)]
    pub(crate) fn grant(&self, addr: u64, len: u64, write: bool) -> Result<Grant, Box<Violation>> {
        if !self.proved {
            self.check(addr, len, write)?;
        }
        // SAFETY: what the verifier proved lies in the same ranges that `grant_unproved` lets pass.
        Ok(unsafe { Grant::new(addr, len) })
    }

    /// [`Run::grant_unproved`] where it is not expected to be asked.
    #[cold]
    fn check(&self, addr: u64, len: u64, write: bool) -> Result<(), Box<Violation>> {
        self.grant_unproved(addr, len, write).map(|_granted| ()).map_err(Box::new)
    }

    /// Bytes the program may read: in place if only this run writes there, otherwise a copy.
    #[inline]
    pub(crate) fn view(&self, addr: u64, len: u64) -> Result<Cow<'_, [u8]>, Box<Violation>> {
        if len == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        let grant = self.grant(addr, len, false)?;
        if self.is_own(addr) {
            // SAFETY: while the run is borrowed only helpers write there, and those that keep a
            // view write nothing it shows before they are done with it.
            return Ok(Cow::Borrowed(unsafe { memory::view(grant) }));
        }
        let mut bytes = vec![0; len as usize];
        memory::copy_out(grant, &mut bytes);
        Ok(Cow::Owned(bytes))
    }

    /// Whether only this run writes to this memory: its stack, and its frame unless that is in an
    /// application's memory. Other workers and users write to values of maps.
    #[inline]
    fn is_own(&self, addr: u64) -> bool {
        self.worker.is_in_stack(addr) || self.frame.is_in_head(addr) && !self.frame.is_external()
    }

    /// Appends a copy of bytes at an unproved address, after those of earlier calls: at most
    /// `most`, and only adjacent ones. Returns false if not even one may be read.
    pub(crate) fn copy_more(&self, addr: u64, known: &mut Vec<u8>, most: usize) -> bool {
        let start = known.len();
        let Some(next) = addr.checked_add(start as u64) else { return false };
        let more = self.readable(next).min(most as u64);
        if more == 0 {
            return false;
        }
        known.resize(start + more as usize, 0);
        // SAFETY: as in `grant_unproved`, whose ranges `readable` goes by.
        let grant = unsafe { Grant::new(next, more) };
        memory::copy_out(grant, &mut known[start..]);
        true
    }

    /// Permission to read `len` bytes at an unproved address.
    pub(crate) fn grant_reading(&self, addr: u64, len: u64) -> Option<Grant> {
        if self.readable(addr) >= len {
            // SAFETY: as in `grant_unproved`.
            return Some(unsafe { Grant::new(addr, len) });
        }
        self.grant_unproved(addr, len, false).ok()
    }

    /// Number of contiguous bytes from an address on that the program may read.
    fn readable(&self, addr: u64) -> u64 {
        let to = |end: u64| end.saturating_sub(addr);
        if self.worker.is_in_stack(addr) {
            return if addr < self.stack_floor { 0 } else { to(self.worker.stack_top()) };
        }
        if self.frame.is_in_head(addr) {
            let first = self.frame.data_meta_addr();
            return if addr < first { 0 } else { to(self.frame.data_end_addr()) };
        }
        let Some(past) = addr.checked_add(1) else { return 0 };
        let part = self.recent.part(addr, past).or_else(|| {
            let part = self.maps.own_at(addr)?.part(addr, 1)?;
            // Access to the data of a ring also depends on the records that the program holds.
            (part.access != Access::Record).then(|| self.recent.note(part))?;
            Some(part)
        });
        match part {
            Some(part) if part.access.may_read() => to(part.past),
            Some(_) => 0,
            None => {
                let is_granted = |len: &u64| self.grant_unproved(addr, *len, false).is_ok();
                WINDOWS.into_iter().find(is_granted).unwrap_or(0)
            }
        }
    }

    /// Copies `len` bytes of the frame to where the program may write; the inner error is the
    /// program's (`bpf_xdp_load_bytes`).
    #[inline]
    pub(crate) fn load_frame(
        &self,
        offset: usize,
        to: u64,
        len: usize,
    ) -> Result<Result<(), Errno>, Box<Violation>> {
        let from = match self.frame.pointer(offset, len) {
            Ok(from) => from,
            Err(errno) => return Ok(Err(errno)),
        };
        if len == 0 {
            return Ok(Ok(()));
        }
        let to = self.grant(to, len as u64, true)?;
        match from {
            // SAFETY: bytes of the frame, which the run holds.
            Some(from) => memory::transfer(unsafe { Grant::new(from, len as u64) }, to),
            None => {
                let mut bytes = vec![0; len];
                if let Err(errno) = self.frame.load_bytes(offset, &mut bytes) {
                    return Ok(Err(errno));
                }
                memory::copy_in(to, &bytes);
            }
        }
        Ok(Ok(()))
    }

    /// Copies `len` bytes the program may read into the frame; the inner error is the program's
    /// (`bpf_xdp_store_bytes`).
    #[inline]
    pub(crate) fn store_frame(
        &mut self,
        offset: usize,
        from: u64,
        len: usize,
    ) -> Result<Result<(), Errno>, Box<Violation>> {
        let to = match self.frame.pointer(offset, len) {
            Ok(to) => to,
            Err(errno) => return Ok(Err(errno)),
        };
        if len == 0 {
            return Ok(Ok(()));
        }
        let from = self.grant(from, len as u64, false)?;
        match to {
            // SAFETY: as in `load_frame`.
            Some(to) => memory::transfer(from, unsafe { Grant::new(to, len as u64) }),
            None => {
                let mut bytes = vec![0; len];
                memory::copy_out(from, &mut bytes);
                return Ok(self.frame.store_bytes(offset, &bytes));
            }
        }
        Ok(Ok(()))
    }

    /// Permission to access `len` bytes at any address, or the reason why it is refused.
    pub(crate) fn grant_unproved(
        &self,
        addr: u64,
        len: u64,
        write: bool,
    ) -> Result<Grant, Violation> {
        match self.refusal(addr, len, write) {
            // SAFETY: every range that `refusal` lets pass lies in a block, a map's region or
            // memory registered in `extras` or `records`, all of which are exposed, live at least
            // as long as the run, and are not borrowed while a program or helper uses grants: the
            // run holds frame and worker exclusively and lends no references into them, and maps
            // hand out atomics only.
            None => Ok(unsafe { Grant::new(addr, len) }),
            Some(why) => Err(Violation::Memory { addr, size: len, write, why }),
        }
    }

    /// Switches to another program: the one that a tail call led to, or one that continues; the
    /// burst's own when `callee` is none.
    pub(crate) fn turn_to_program(&mut self, callee: Option<&TailCallee>) {
        self.types = Types::default();
        let maps = match callee {
            None => self.burst_maps,
            // SAFETY: what a run found in a program array lives, with its maps, until the worker is
            // quiescent, which it is not before the run is over.
            Some(callee) => unsafe { &*Arc::as_ptr(&callee.maps) },
        };
        if !std::ptr::eq(maps, self.maps) {
            self.maps = maps;
            self.recent = Recent::new();
        }
    }

    /// The map that a register stands for, if it is one this program may use.
    #[inline(always)]
    pub(crate) fn map_by_handle(&self, handle: u64) -> Option<&'a Map> {
        if self.proved {
            // SAFETY: the verifier proved that the register holds a map of this program, or one
            // found in a map of maps; those live until the worker is quiescent, which it is not
            // before the run is over.
            return Some(unsafe { &*(handle as *const Map) });
        }
        if let Some(map) = self.maps.own_by_handle(handle) {
            return Some(map);
        }
        let map = self.maps.inner_by_handle(handle)?;
        // SAFETY: as above, found among them.
        Some(unsafe { &*Arc::as_ptr(&map) })
    }

    /// The object at an address, if there is one.
    #[inline(always)]
    pub(crate) fn object(&self, addr: u64) -> Option<Object<'a>> {
        if self.proved {
            // SAFETY: the verifier proved that the register holds an object, and those live as long
            // as the maps they may be in.
            return Some(unsafe { Object::at(addr) });
        }
        self.surroundings.objects.find(addr)
    }

    /// The cipher of the crypto context at an address.
    pub(crate) fn cipher(&self, addr: u64) -> Option<&Cipher> {
        let object = self.object(addr).filter(|object| object.addr() == addr)?;
        // SAFETY: the run found the object, and its worker is not quiescent before it is over.
        unsafe { object.cipher() }
    }

    /// The reason why an access is not allowed; `None` when it is.
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
        if let Some(held) = self.worker.held.around(addr) {
            let inside = addr >= held.data_meta_addr() && end <= held.data_end_addr();
            return (!inside).then_some("packet access outside [data_meta, data_end)");
        }
        if let Some(access) = self.recent.access(addr, end) {
            return refusal_by_map(access, write);
        }
        if self.recent.has_object(addr, len) {
            return None;
        }
        match self.map_access(addr, len as usize) {
            // In a ring, only the records that the program holds may be accessed.
            None | Some(Access::Record) => {}
            Some(access) => return refusal_by_map(access, write),
        }
        if self.context_offset(addr).is_some() {
            return Some("the context is read-only, and only loads reach it");
        }
        let mut records = self.records.iter().map(|record| (record.addr, record.addr + record.len));
        if records.any(|(first, past)| first <= addr && end <= past) {
            return None;
        }
        if let Some(extra) = self.extras.iter().find(|e| e.addr <= addr && end <= e.addr + e.len) {
            return (write && !extra.writable).then_some("read-only memory");
        }
        let frags = self.frame.frags();
        let mut ranges = frags.map(|frag| (frag.data_addr(), frag.data_end_addr()));
        if ranges.any(|(first, last)| first <= addr && end <= last) {
            return None;
        }
        if self.worker.is_kernel_object(addr, len) {
            return write.then_some("a kernel object");
        }
        // Last, because all workers share the objects' lock.
        let inside = self.recent.find_object(&self.surroundings.objects, addr, len);
        (!inside).then_some("not memory this run may touch")
    }

    /// The program's access to bytes of a map.
    fn map_access(&self, addr: u64, len: usize) -> Option<Access> {
        let Some(map) = self.maps.own_at(addr) else {
            return self.maps.inner_at(addr)?.owns(addr, len);
        };
        let Some(part) = map.part(addr, len) else { return map.owns(addr, len) };
        // Access to the data of a ring also depends on the records that the program holds.
        if part.access != Access::Record {
            self.recent.note(part);
        }
        Some(part.access)
    }
}

/// A reference of its own to a map.
pub(crate) fn share(map: &Map) -> Arc<Map> {
    let map = std::ptr::from_ref(map);
    // SAFETY: maps are made inside an `Arc` only, and this one is alive.
    unsafe {
        Arc::increment_strong_count(map);
        Arc::from_raw(map)
    }
}

/// Probe sizes, in bytes, when the readable length is unknown.
const WINDOWS: [u64; 5] = [512, 128, 32, 8, 1];

fn refusal_by_map(access: Access, write: bool) -> Option<&'static str> {
    match (access, write) {
        (Access::Absent, _) => Some("an arena page that is not allocated"),
        (access, true) if !access.may_write() => Some("a map that programs may only read"),
        (access, false) if !access.may_read() => Some("a map that programs may only write"),
        _ => None,
    }
}
