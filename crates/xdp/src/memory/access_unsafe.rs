//! Accesses to memory by address, on the strength of a [`Grant`].
//!
//! Map values may be read and written by several workers and a user thread at once, as in the
//! kernel. So every aligned access is one relaxed atomic of its own width, which is what a plain
//! load or store of a BPF program means there; an unaligned one is a plain access and may tear, as
//! it may in the kernel.

#![expect(unsafe_code, reason = "programs hold addresses; this is where they are followed")]

use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use towpath_bpf::interp::AtomicOp;

/// Permission to access `len` bytes at `addr`: they belong to memory that outlives the permission,
/// is readable and writable, and was exposed ([`super::Block`], a map's region). The code that made
/// the grant has decided whether the program may write there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    addr: u64,
    len: u64,
}

impl Grant {
    /// Makes a grant for these bytes.
    ///
    /// # Safety
    ///
    /// The bytes lie inside one live allocation with exposed provenance that stays alive as long as
    /// the grant is used, and no reference to them exists meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn new(addr: u64, len: u64) -> Grant {
        Grant { addr, len }
    }

    /// A grant for memory that is never freed.
    #[cfg(test)]
    pub(crate) fn leaked(len: usize) -> Grant {
        let block = std::mem::ManuallyDrop::new(super::Block::new(len));
        // SAFETY: no other code knows the block, which is exposed and never freed.
        unsafe { Grant::new(block.addr(), len as u64) }
    }

    /// The address of its first byte.
    #[inline(always)]
    pub(crate) fn addr(self) -> u64 {
        self.addr
    }

    /// A grant for a part of it.
    ///
    /// # Panics
    ///
    /// If the part is not inside.
    #[inline(always)]
    pub(crate) fn part(self, offset: u64, len: u64) -> Grant {
        assert!(offset <= self.len && len <= self.len - offset, "a part is inside");
        Grant { addr: self.addr + offset, len }
    }
}

/// Loads a whole grant of 1, 2, 4 or 8 bytes, little endian.
#[inline(always)]
pub(crate) fn load(grant: Grant) -> u64 {
    let Grant { addr, len } = grant;
    if !addr.is_multiple_of(len) {
        return load_unaligned(grant);
    }
    match len {
        1 => u64::from(byte(addr).load(Relaxed)),
        2 => u64::from(u16::from_le(half(addr).load(Relaxed))),
        4 => u64::from(u32::from_le(word(addr).load(Relaxed))),
        8 => u64::from_le(double(addr).load(Relaxed)),
        _ => unreachable!("access of {len} bytes"),
    }
}

/// Stores the low bytes of `value` into a whole grant of 1, 2, 4 or 8 bytes.
#[inline(always)]
pub(crate) fn store(grant: Grant, value: u64) {
    let Grant { addr, len } = grant;
    if !addr.is_multiple_of(len) {
        return store_unaligned(grant, value);
    }
    match len {
        1 => byte(addr).store(value as u8, Relaxed),
        2 => half(addr).store((value as u16).to_le(), Relaxed),
        4 => word(addr).store((value as u32).to_le(), Relaxed),
        8 => double(addr).store(value.to_le(), Relaxed),
        _ => unreachable!("access of {len} bytes"),
    }
}

#[inline(always)]
fn load_unaligned(Grant { addr, len }: Grant) -> u64 {
    let source = with_exposed_provenance_mut::<u8>(addr as usize);
    // SAFETY: a grant is live memory; a pointer to numbers need not be aligned here.
    unsafe {
        match len {
            2 => u64::from(u16::from_le(source.cast::<u16>().read_unaligned())),
            4 => u64::from(u32::from_le(source.cast::<u32>().read_unaligned())),
            8 => u64::from_le(source.cast::<u64>().read_unaligned()),
            _ => unreachable!("access of {len} bytes"),
        }
    }
}

#[inline(always)]
fn store_unaligned(Grant { addr, len }: Grant, value: u64) {
    let target = with_exposed_provenance_mut::<u8>(addr as usize);
    // SAFETY: as in `load_unaligned`.
    unsafe {
        match len {
            2 => target.cast::<u16>().write_unaligned((value as u16).to_le()),
            4 => target.cast::<u32>().write_unaligned((value as u32).to_le()),
            8 => target.cast::<u64>().write_unaligned(value.to_le()),
            _ => unreachable!("access of {len} bytes"),
        }
    }
}

/// One atomic operation on a whole, aligned grant; returns the old value.
#[inline]
pub(crate) fn atomic(grant: Grant, op: AtomicOp, operand: u64) -> u64 {
    let Grant { addr, len } = grant;
    assert!(addr.is_multiple_of(len), "atomics are aligned, checked with the grant");
    match (op, len) {
        (AtomicOp::LoadAcquire, 1) => u64::from(byte(addr).load(Acquire)),
        (AtomicOp::LoadAcquire, 2) => u64::from(half(addr).load(Acquire)),
        (AtomicOp::LoadAcquire, 4) => u64::from(word(addr).load(Acquire)),
        (AtomicOp::LoadAcquire, _) => double(addr).load(Acquire),
        (AtomicOp::StoreRelease, _) => {
            match len {
                1 => byte(addr).store(operand as u8, Release),
                2 => half(addr).store(operand as u16, Release),
                4 => word(addr).store(operand as u32, Release),
                _ => double(addr).store(operand, Release),
            }
            0
        }
        (_, 4) => u64::from(modify_word(addr, op, operand as u32)),
        _ => modify_double(addr, op, operand),
    }
}

/// Copies a grant's bytes out. `out` is as long as the grant. Copies in the widest possible pieces,
/// because later wide loads of bytes written singly would stall.
pub(crate) fn copy_out(grant: Grant, out: &mut [u8]) {
    assert_eq!(grant.len, out.len() as u64);
    let mut addr = grant.addr;
    let mut out = out;
    while !out.is_empty() {
        if addr.is_multiple_of(8) && out.len() >= 8 {
            let (word, rest) = out.split_at_mut(8);
            word.copy_from_slice(&double(addr).load(Relaxed).to_ne_bytes());
            (addr, out) = (addr + 8, rest);
        } else if addr.is_multiple_of(4) && out.len() >= 4 {
            let (part, rest) = out.split_at_mut(4);
            part.copy_from_slice(&word(addr).load(Relaxed).to_ne_bytes());
            (addr, out) = (addr + 4, rest);
        } else {
            let (first, rest) = out.split_at_mut(1);
            first[0] = byte(addr).load(Relaxed);
            (addr, out) = (addr + 1, rest);
        }
    }
}

/// Copies bytes into a grant of the same length.
pub(crate) fn copy_in(grant: Grant, bytes: &[u8]) {
    assert_eq!(grant.len, bytes.len() as u64);
    let mut addr = grant.addr;
    let mut bytes = bytes;
    while let Some((&first, rest)) = bytes.split_first() {
        if addr.is_multiple_of(8)
            && let Some((word, rest)) = bytes.split_first_chunk::<8>()
        {
            double(addr).store(u64::from_ne_bytes(*word), Relaxed);
            (addr, bytes) = (addr + 8, rest);
        } else if addr.is_multiple_of(4)
            && let Some((part, rest)) = bytes.split_first_chunk::<4>()
        {
            word(addr).store(u32::from_ne_bytes(*part), Relaxed);
            (addr, bytes) = (addr + 4, rest);
        } else {
            byte(addr).store(first, Relaxed);
            (addr, bytes) = (addr + 1, rest);
        }
    }
}

/// Copies the bytes of one grant into another of the same length; they may overlap. Data races on
/// memory shared with other runs are up to the program, as in the kernel.
#[inline]
pub(crate) fn transfer(from: Grant, to: Grant) {
    assert_eq!(from.len, to.len);
    let source = with_exposed_provenance_mut::<u8>(from.addr as usize);
    let target = with_exposed_provenance_mut::<u8>(to.addr as usize);
    // SAFETY: both are grants: live, exposed memory without references.
    unsafe { std::ptr::copy(source, target, to.len as usize) };
}

/// The bytes of a grant as a slice, for the duration of a helper.
///
/// # Safety
///
/// No other thread writes there, and the reference ends before the program, or a helper, writes.
#[inline]
pub(crate) unsafe fn view<'a>(grant: Grant) -> &'a [u8] {
    let source = with_exposed_provenance_mut::<u8>(grant.addr as usize);
    // SAFETY: a grant is live memory; the rest is the caller's promise.
    unsafe { std::slice::from_raw_parts(source, grant.len as usize) }
}

/// Takes the `bpf_spin_lock` in an aligned grant of 4 bytes.
pub(crate) fn lock(grant: Grant) {
    towpath_maps::fields::spin_lock(word(grant.addr));
}

/// Releases a lock taken with [`lock`].
pub(crate) fn unlock(grant: Grant) {
    towpath_maps::fields::spin_unlock(word(grant.addr));
}

/// Releases all locks that this thread holds, after a program was ended.
pub(crate) fn unlock_all() {
    towpath_maps::fields::take_held(|lock| {
        // A lock that was taken is in memory that lasts as long as the run, which is not over.
        towpath_maps::fields::spin_unlock(word(lock as u64));
    });
}

fn modify_word(addr: u64, op: AtomicOp, operand: u32) -> u32 {
    let cell = word(addr);
    match op {
        AtomicOp::Add => cell.fetch_add(operand, SeqCst),
        AtomicOp::Or => cell.fetch_or(operand, SeqCst),
        AtomicOp::And => cell.fetch_and(operand, SeqCst),
        AtomicOp::Xor => cell.fetch_xor(operand, SeqCst),
        AtomicOp::CompareExchange { expected } => {
            match cell.compare_exchange(expected as u32, operand, SeqCst, SeqCst) {
                Ok(old) | Err(old) => old,
            }
        }
        AtomicOp::Exchange | AtomicOp::LoadAcquire | AtomicOp::StoreRelease => {
            cell.swap(operand, SeqCst)
        }
    }
}

fn modify_double(addr: u64, op: AtomicOp, operand: u64) -> u64 {
    let cell = double(addr);
    match op {
        AtomicOp::Add => cell.fetch_add(operand, SeqCst),
        AtomicOp::Or => cell.fetch_or(operand, SeqCst),
        AtomicOp::And => cell.fetch_and(operand, SeqCst),
        AtomicOp::Xor => cell.fetch_xor(operand, SeqCst),
        AtomicOp::CompareExchange { expected } => {
            match cell.compare_exchange(expected, operand, SeqCst, SeqCst) {
                Ok(old) | Err(old) => old,
            }
        }
        AtomicOp::Exchange | AtomicOp::LoadAcquire | AtomicOp::StoreRelease => {
            cell.swap(operand, SeqCst)
        }
    }
}

#[inline(always)]
fn byte<'a>(addr: u64) -> &'a AtomicU8 {
    // SAFETY: `addr` is inside a grant, so inside live exposed memory without other references;
    // bytes have no alignment. The reference does not leave this module.
    unsafe { AtomicU8::from_ptr(with_exposed_provenance_mut(addr as usize)) }
}

#[inline(always)]
fn half<'a>(addr: u64) -> &'a AtomicU16 {
    debug_assert!(addr.is_multiple_of(2));
    // SAFETY: as for `byte`; callers checked the alignment.
    unsafe { AtomicU16::from_ptr(with_exposed_provenance_mut(addr as usize)) }
}

#[inline(always)]
fn word<'a>(addr: u64) -> &'a AtomicU32 {
    debug_assert!(addr.is_multiple_of(4));
    // SAFETY: as for `byte`; callers checked the alignment.
    unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(addr as usize)) }
}

#[inline(always)]
fn double<'a>(addr: u64) -> &'a AtomicU64 {
    debug_assert!(addr.is_multiple_of(8));
    // SAFETY: as for `byte`; callers checked the alignment.
    unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(addr as usize)) }
}
