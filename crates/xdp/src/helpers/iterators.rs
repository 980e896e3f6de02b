//! Open-coded iterators: state on the program's stack, initialised by `new` and advanced by `next`.
//!
//! `next` returns the address of the current item, which stays valid until the next call; for
//! numbers and bits that is the state itself, as in the kernel. Iterators over tasks and cgroups
//! are empty.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;

use super::{Call, KfuncTable, entry};

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_iter_num_new", entry(num_new)),
    ("bpf_iter_num_next", entry(num_next)),
    ("bpf_iter_num_destroy", entry(num_destroy)),
    ("bpf_iter_bits_new", entry(bits_new)),
    ("bpf_iter_bits_next", entry(bits_next)),
    ("bpf_iter_bits_destroy", entry(destroy)),
    ("bpf_iter_task_new", entry(none_new)),
    ("bpf_iter_task_next", entry(none_next)),
    ("bpf_iter_task_destroy", entry(destroy)),
    ("bpf_iter_task_vma_new", entry(none_new)),
    ("bpf_iter_task_vma_next", entry(none_next)),
    ("bpf_iter_task_vma_destroy", entry(destroy)),
    ("bpf_iter_css_new", entry(none_new)),
    ("bpf_iter_css_next", entry(none_next)),
    ("bpf_iter_css_destroy", entry(destroy)),
    ("bpf_iter_css_task_new", entry(none_new)),
    ("bpf_iter_css_task_next", entry(none_next)),
    ("bpf_iter_css_task_destroy", entry(destroy)),
];

/// `bpf_iter_num_new(it, start, end)`: `struct bpf_iter_num_kern { int cur; int end; }`, where
/// `cur` is one before the next number.
#[inline(always)]
fn num_new(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [it, start, end, ..] = args;
    let (start, end) = (start as i32, end as i32);
    let refused = if start > end {
        Some(Errno::EINVAL)
    } else if i64::from(end) - i64::from(start) > i64::from(LOOPS_MAX) {
        Some(Errno::E2BIG)
    } else {
        None
    };
    let (current, end) = if refused.is_some() { (0, 0) } else { (start.wrapping_sub(1), end) };
    write_pair(call, it, current, end)?;
    Ok(refused.map_or(0, Errno::to_reg))
}

/// `bpf_iter_num_next(it)`
#[inline(always)]
fn num_next(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let (current, end) = read_pair(call, args[0])?;
    // Wraps: a range from `INT_MIN` has `INT_MAX` before its first number.
    let next = current.wrapping_add(1);
    if next >= end {
        write_pair(call, args[0], 0, 0)?;
        return Ok(0);
    }
    write_pair(call, args[0], next, end)?;
    Ok(args[0])
}

/// `bpf_iter_num_destroy(it)`
#[inline(always)]
fn num_destroy(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    write_pair(call, args[0], 0, 0)?;
    Ok(0)
}

/// `bpf_iter_bits_new(it, words, count)`. The state is `struct bpf_iter_bits_kern`: the bits of a
/// single word or the address of several, how many bits there are, and the current bit.
#[inline(always)]
fn bits_new(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [it, words, count, ..] = args;
    let count = count as u32;
    write_bits(call, it, Bits { words: 0, count: 0, current: 0 })?;
    if words == 0 || count == 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    if count > BITS_WORDS_MAX {
        return Ok(Errno::E2BIG.to_reg());
    }
    if call.read_unproved(words, count as usize * 8).is_err() {
        return Ok(Errno::EFAULT.to_reg());
    }
    let words = if count == 1 { read_u64(call, words)? } else { words };
    write_bits(call, it, Bits { words, count: count * 64, current: -1 })?;
    Ok(0)
}

/// `bpf_iter_bits_next(it)`: the item is the current bit in the state.
#[inline(always)]
fn bits_next(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let mut bits = read_bits(call, args[0])?;
    for bit in (bits.current + 1)..bits.count as i32 {
        let word = match bits.count {
            64 => bits.words,
            _ => read_u64(call, bits.words + (bit / 64 * 8) as u64)?,
        };
        if word >> (bit % 64) & 1 == 1 {
            bits.current = bit;
            write_bits(call, args[0], bits)?;
            return Ok(args[0] + BITS_CURRENT_OFFSET);
        }
    }
    bits.count = 0;
    write_bits(call, args[0], bits)?;
    Ok(0)
}

/// An iterator that is always empty.
#[inline(always)]
fn none_new(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(0)
}

#[inline(always)]
fn none_next(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(0)
}

#[inline(always)]
fn destroy(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(0)
}

#[inline(always)]
fn read_pair(call: &Call<'_, '_>, addr: u64) -> Result<(i32, i32), Stop> {
    let word = read_u64(call, addr)?;
    Ok((word as i32, (word >> 32) as i32))
}

#[inline(always)]
fn write_pair(call: &Call<'_, '_>, addr: u64, current: i32, end: i32) -> Result<(), Stop> {
    let word = u64::from(current as u32) | u64::from(end as u32) << 32;
    Ok(call.run.put(addr, 8, word)?)
}

/// `struct bpf_iter_bits_kern`
#[derive(Clone, Copy)]
struct Bits {
    words: u64,
    count: u32,
    current: i32,
}

#[inline(always)]
fn read_bits(call: &Call<'_, '_>, addr: u64) -> Result<Bits, Stop> {
    let words = read_u64(call, addr)?;
    let state = read_u64(call, addr + 8)?;
    Ok(Bits { words, count: state as u32, current: (state >> 32) as i32 })
}

#[inline(always)]
fn write_bits(call: &Call<'_, '_>, addr: u64, bits: Bits) -> Result<(), Stop> {
    let state = u64::from(bits.count) | u64::from(bits.current as u32) << 32;
    call.run.put(addr, 8, bits.words)?;
    Ok(call.run.put(addr + 8, 8, state)?)
}

#[inline(always)]
fn read_u64(call: &Call<'_, '_>, addr: u64) -> Result<u64, Stop> {
    Ok(call.run.get(addr, 8)?)
}

/// `BPF_MAX_LOOPS`
const LOOPS_MAX: u32 = 8 << 20;
/// Offset of the current bit in the state.
const BITS_CURRENT_OFFSET: u64 = 12;
/// `BITS_ITER_NR_WORDS_MAX`
const BITS_WORDS_MAX: u32 = 511;
