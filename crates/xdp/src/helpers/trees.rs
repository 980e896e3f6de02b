//! Ordered trees of objects (`bpf_rbtree_*`).
//!
//! A node is `{ parent, left, right, owner }` in the 32 bytes of `struct bpf_rb_node`, a root the
//! address of the top node in `struct bpf_rb_root`. The kernel balances by colours; this is a
//! treap, whose priorities come from the nodes' addresses, because it needs no more memory and half
//! the code. The order is the same; the shape (`bpf_rbtree_root`, `left`, `right`) is not
//! guaranteed by the kernel, either.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;

use super::objects::give_up_around;
use super::{Call, KfuncTable, entry};
use crate::objects::tree::{LEFT, OWNER, PARENT, RIGHT};

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_rbtree_add_impl", entry(add)),
    ("bpf_rbtree_remove", entry(remove)),
    ("bpf_rbtree_first", entry(first)),
    ("bpf_rbtree_root", entry(root)),
    ("bpf_rbtree_left", entry(left)),
    ("bpf_rbtree_right", entry(right)),
];

/// `bpf_rbtree_add_impl(root, node, less, meta, off)`: `EINVAL` (and the reference is given up)
/// when the node is in a tree already.
#[inline(always)]
fn add(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [root, node, less, ..] = args;
    if call.run.get(node + OWNER, 8)? != 0 {
        give_up_around(call.run, node);
        return Ok(Errno::EINVAL.to_reg());
    }
    let mut parent = 0;
    let mut place = root;
    loop {
        let at = call.run.get(place, 8)?;
        if at == 0 {
            break;
        }
        let side = if call.callback(less, [node, at, 0, 0, 0])? != 0 { LEFT } else { RIGHT };
        (parent, place) = (at, at + side);
    }
    for (field, value) in [(PARENT, parent), (LEFT, 0), (RIGHT, 0), (OWNER, root)] {
        call.run.put(node + field, 8, value)?;
    }
    call.run.put(place, 8, node)?;
    while parent != 0 && priority(node) > priority(parent) {
        rotate_up(call, root, node)?;
        parent = call.run.get(node + PARENT, 8)?;
    }
    Ok(0)
}

/// `bpf_rbtree_remove(root, node)`: the node, or 0 when it is not in this tree.
#[inline(always)]
fn remove(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [root, node, ..] = args;
    if call.run.get(node + OWNER, 8)? != root {
        return Ok(0);
    }
    loop {
        let (left, right) = (call.run.get(node + LEFT, 8)?, call.run.get(node + RIGHT, 8)?);
        match (left, right) {
            (0, 0) => break,
            (child, 0) | (0, child) => rotate_up(call, root, child)?,
            _ if priority(left) > priority(right) => rotate_up(call, root, left)?,
            _ => rotate_up(call, root, right)?,
        }
    }
    let parent = call.run.get(node + PARENT, 8)?;
    replace_child(call, root, parent, node, 0)?;
    for field in [PARENT, LEFT, RIGHT, OWNER] {
        call.run.put(node + field, 8, 0)?;
    }
    Ok(node)
}

/// `bpf_rbtree_first(root)`: the smallest node, or 0.
#[inline(always)]
fn first(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let mut node = call.run.get(args[0], 8)?;
    while node != 0 {
        match call.run.get(node + LEFT, 8)? {
            0 => break,
            left => node = left,
        }
    }
    Ok(node)
}

/// `bpf_rbtree_root(root)`
#[inline(always)]
fn root(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.run.get(args[0], 8)?)
}

/// `bpf_rbtree_left(root, node)`
#[inline(always)]
fn left(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    child(call, args, LEFT)
}

/// `bpf_rbtree_right(root, node)`
#[inline(always)]
fn right(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    child(call, args, RIGHT)
}

fn child(call: &mut Call<'_, '_>, args: [u64; 5], side: u64) -> Result<u64, Stop> {
    let [root, node, ..] = args;
    if call.run.get(node + OWNER, 8)? != root {
        return Ok(0);
    }
    Ok(call.run.get(node + side, 8)?)
}

/// Rotates a node up: it takes its parent's place, and the parent becomes its child.
#[inline]
fn rotate_up(call: &mut Call<'_, '_>, root: u64, node: u64) -> Result<(), Stop> {
    let parent = call.run.get(node + PARENT, 8)?;
    let above = call.run.get(parent + PARENT, 8)?;
    let side = if call.run.get(parent + LEFT, 8)? == node { LEFT } else { RIGHT };
    let other = LEFT + RIGHT - side;
    let moved = call.run.get(node + other, 8)?;
    call.run.put(parent + side, 8, moved)?;
    if moved != 0 {
        call.run.put(moved + PARENT, 8, parent)?;
    }
    call.run.put(node + other, 8, parent)?;
    call.run.put(parent + PARENT, 8, node)?;
    call.run.put(node + PARENT, 8, above)?;
    replace_child(call, root, above, parent, node)
}

/// Replaces the child `old` of `parent` (or, without a parent, the root) by `new`.
fn replace_child(
    call: &mut Call<'_, '_>,
    root: u64,
    parent: u64,
    old: u64,
    new: u64,
) -> Result<(), Stop> {
    let place = if parent == 0 {
        root
    } else if call.run.get(parent + LEFT, 8)? == old {
        parent + LEFT
    } else {
        parent + RIGHT
    };
    Ok(call.run.put(place, 8, new)?)
}

/// A pseudo-random priority, constant for a node.
fn priority(node: u64) -> u64 {
    node.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
