//! Loads, stores and atomics of RFC 9669 section 5, on top of a [`Runtime`].

use super::{Access, AtomicOp, Runtime, Violation};
use crate::insn::{
    BPF_ADD, BPF_AND, BPF_CMPXCHG, BPF_FETCH, BPF_LOAD_ACQ, BPF_MEM, BPF_MEMSX, BPF_OR,
    BPF_STORE_REL, BPF_XCHG, BPF_XOR, Insn,
};

/// Value of an `LDX` instruction; `None` for an unknown mode.
pub(super) fn load<R: Runtime>(
    runtime: &mut R,
    insn: Insn,
    base: u64,
    access: Access,
) -> Result<Option<u64>, Violation> {
    let size = insn.access_bytes() as u32;
    let value = match access {
        Access::Probe => runtime.load_probe(displaced(insn, base), size),
        Access::Direct => runtime.load(displaced(insn, base), size)?,
        // An unallocated page of the arena reads as 0 (bpf_arena_handle_fault, ex_handler_bpf).
        Access::Arena => match arena(runtime, insn, base) {
            Some(addr) => runtime.load_probe(addr, size),
            None => 0,
        },
    };
    Ok(match (insn.mode(), size) {
        (BPF_MEM, _) => Some(value),
        (BPF_MEMSX, 1) => Some(i64::from(value as i8) as u64),
        (BPF_MEMSX, 2) => Some(i64::from(value as i16) as u64),
        (BPF_MEMSX, 4) => Some(i64::from(value as i32) as u64),
        _ => None,
    })
}

/// `ST` and `STX` in mode MEM.
pub(super) fn store<R: Runtime>(
    runtime: &mut R,
    insn: Insn,
    base: u64,
    access: Access,
    value: u64,
) -> Result<(), Violation> {
    let size = insn.access_bytes() as u32;
    if access == Access::Arena {
        // A store to an unallocated page of the arena is dropped, as in the kernel's fault handler.
        if let Some(addr) = arena(runtime, insn, base) {
            let _dropped = runtime.store(addr, size, value);
        }
        return Ok(());
    }
    runtime.store(displaced(insn, base), size, value)
}

/// Performs an atomic instruction on the registers; `false` for an unknown one.
pub(super) fn atomic<R: Runtime>(
    runtime: &mut R,
    insn: Insn,
    access: Access,
    regs: &mut [u64; 11],
) -> Result<bool, Violation> {
    let Some(op) = operation(insn, regs[0]) else { return Ok(false) };
    let (dst, src) = (usize::from(insn.dst), usize::from(insn.src));
    // BPF_LOAD_ACQ is a load: its address is in the source register.
    let base = if op == AtomicOp::LoadAcquire { regs[src] } else { regs[dst] };
    let size = insn.access_bytes() as u32;
    let old = match access {
        Access::Arena => {
            let Some(addr) = arena(runtime, insn, base) else { return Ok(true) };
            match runtime.atomic(addr, size, op, regs[src]) {
                Ok(old) => old,
                // An atomic on an unallocated page of the arena has no effect, not even on
                // registers.
                Err(_) if addr.is_multiple_of(size.into()) => return Ok(true),
                Err(why) => return Err(why),
            }
        }
        Access::Direct | Access::Probe => {
            runtime.atomic(displaced(insn, base), size, op, regs[src])?
        }
    };
    match op {
        AtomicOp::LoadAcquire => regs[dst] = old,
        AtomicOp::CompareExchange { .. } => regs[0] = old,
        AtomicOp::StoreRelease => {}
        _ if insn.imm & BPF_FETCH != 0 => regs[src] = old,
        _ => {}
    }
    Ok(true)
}

/// Atomic operation that the immediate names; `None` if none, or not in this size.
fn operation(insn: Insn, r0: u64) -> Option<AtomicOp> {
    let op = match insn.imm {
        BPF_LOAD_ACQ => return Some(AtomicOp::LoadAcquire),
        BPF_STORE_REL => return Some(AtomicOp::StoreRelease),
        BPF_XCHG => AtomicOp::Exchange,
        BPF_CMPXCHG if insn.access_bytes() == 4 => {
            AtomicOp::CompareExchange { expected: u64::from(r0 as u32) }
        }
        BPF_CMPXCHG => AtomicOp::CompareExchange { expected: r0 },
        imm => match u8::try_from(imm & !BPF_FETCH).ok()? {
            BPF_ADD => AtomicOp::Add,
            BPF_OR => AtomicOp::Or,
            BPF_AND => AtomicOp::And,
            BPF_XOR => AtomicOp::Xor,
            _ => return None,
        },
    };
    (insn.access_bytes() >= 4).then_some(op)
}

fn displaced(insn: Insn, base: u64) -> u64 {
    base.wrapping_add(i64::from(insn.off) as u64)
}

/// Address in the arena. The kernel adds the offset after cutting the register to 32 bits; guard
/// pages on both sides of the arena catch addresses outside.
fn arena<R: Runtime>(runtime: &mut R, insn: Insn, base: u64) -> Option<u64> {
    let addr = runtime.arena_address(u64::from(base as u32))?;
    Some(addr.wrapping_add(i64::from(insn.off) as u64))
}
