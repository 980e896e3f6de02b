//! Linked lists of objects (`bpf_list_*`).
//!
//! Heads and nodes have the kernel's layout: `struct bpf_list_head { next, prev }` and
//! `struct bpf_list_node { next, prev, owner }`, 8 bytes each. A head of zeros is an empty list.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;

use super::objects::give_up_around;
use super::{Call, KfuncTable, entry};
use crate::objects::list::{NEXT, OWNER, PREV};

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_list_push_front_impl", entry(push_front)),
    ("bpf_list_push_back_impl", entry(push_back)),
    ("bpf_list_pop_front", entry(pop_front)),
    ("bpf_list_pop_back", entry(pop_back)),
    ("bpf_list_front", entry(front)),
    ("bpf_list_back", entry(back)),
];

/// `bpf_list_push_front_impl(head, node, meta, off)`: `EINVAL` (and the reference is given up) when
/// the node is in a list already.
#[inline(always)]
fn push_front(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    push(call, args, NEXT)
}

/// `bpf_list_push_back_impl(head, node, meta, off)`
#[inline(always)]
fn push_back(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    push(call, args, PREV)
}

/// `bpf_list_pop_front(head)`: the node, or 0.
#[inline(always)]
fn pop_front(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    pop(call, args[0], NEXT)
}

/// `bpf_list_pop_back(head)`
#[inline(always)]
fn pop_back(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    pop(call, args[0], PREV)
}

/// `bpf_list_front(head)`
#[inline(always)]
fn front(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    end(call, args[0], NEXT)
}

/// `bpf_list_back(head)`
#[inline(always)]
fn back(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    end(call, args[0], PREV)
}

/// Puts a node at the end of the list that `side` of the head points to.
fn push(call: &mut Call<'_, '_>, args: [u64; 5], side: u64) -> Result<u64, Stop> {
    let [head, node, ..] = args;
    if call.run.get(node + OWNER, 8)? != 0 {
        give_up_around(call.run, node);
        return Ok(Errno::EINVAL.to_reg());
    }
    let neighbour = match call.run.get(head + side, 8)? {
        0 => head,
        neighbour => neighbour,
    };
    let other = NEXT + PREV - side;
    call.run.put(node + side, 8, neighbour)?;
    call.run.put(node + other, 8, head)?;
    call.run.put(neighbour + other, 8, node)?;
    call.run.put(head + side, 8, node)?;
    call.run.put(node + OWNER, 8, head)?;
    Ok(0)
}

fn pop(call: &mut Call<'_, '_>, head: u64, side: u64) -> Result<u64, Stop> {
    let node = end(call, head, side)?;
    if node == 0 {
        return Ok(0);
    }
    let (next, prev) = (call.run.get(node + NEXT, 8)?, call.run.get(node + PREV, 8)?);
    call.run.put(prev + NEXT, 8, next)?;
    call.run.put(next + PREV, 8, prev)?;
    for field in [NEXT, PREV, OWNER] {
        call.run.put(node + field, 8, 0)?;
    }
    Ok(node)
}

/// The node at one end, or 0.
fn end(call: &mut Call<'_, '_>, head: u64, side: u64) -> Result<u64, Stop> {
    let node = call.run.get(head + side, 8)?;
    Ok(if node == head { 0 } else { node })
}
