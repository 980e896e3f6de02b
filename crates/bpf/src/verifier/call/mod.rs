//! Calls of helpers and kfuncs: availability, arguments, results.
//!
//! `helper.rs` and `kfunc.rs` are the two entries; `args.rs` and `kargs.rs` check the arguments,
//! and each other module handles one kind of memory or object that arguments point to.

mod args;
mod callback;
mod dynptr;
pub(super) mod field;
mod find;
mod format;
mod graph;
mod helper;
mod iter;
mod kargs;
mod kfunc;
mod kptr;
mod lock;
mod map_ptr;
mod mem;
mod meta;
pub(super) mod record;
mod refs;
mod regtype;
mod sock;
mod traits;
mod trust;
mod walk;

pub(crate) use traits::{CallTraits, traits};

use crate::insn::Insn;

use super::env::{Access, Result, Verifier};
use super::reg::{DynptrKind, Reg};

/// Checks a helper call in the current state and applies its effects (`check_helper_call`).
pub(crate) fn check_helper_call(v: &mut Verifier<'_>, _insn_idx: usize, insn: &Insn) -> Result<()> {
    v.call_helper(insn.imm as u32)
}

/// Checks a kfunc call in the current state and applies its effects (`check_kfunc_call`).
pub(crate) fn check_kfunc_call(v: &mut Verifier<'_>, _insn_idx: usize, insn: &Insn) -> Result<()> {
    v.call_kfunc(insn)
}

/// Checks a load from, or store to, a typed pointer (`check_ptr_to_btf_access`).
pub(crate) fn check_btf_access(
    v: &mut Verifier<'_>,
    regno: u8,
    off: i32,
    size: u32,
    access: Access,
    value_regno: Option<u8>,
) -> Result<()> {
    v.check_object_access(regno, off, size, access, value_regno)
}

/// Checks a load from, or store to, a constant map pointer (`check_ptr_to_map_access`).
pub(crate) fn check_map_ptr_access(
    v: &mut Verifier<'_>,
    regno: u8,
    off: i32,
    size: u32,
    access: Access,
    value_regno: Option<u8>,
) -> Result<()> {
    v.check_map_object_access(regno, off, size, access, value_regno)
}

/// Checks whether a direct access to `size` bytes at `off` of a map value touches one of its
/// special fields (lock, timer, kptr ...), which only their helpers may do (second half of
/// `check_map_access`). `helper` tells that it is the access of a helper's memory argument, not of
/// an instruction. Gives true if it was a permitted load or store of a kptr
/// (`check_map_kptr_access`), and has then set the value register.
pub(crate) fn check_map_fields(
    v: &mut Verifier<'_>,
    regno: u8,
    off: i32,
    size: u32,
    _access: Access,
    value_regno: Option<u8>,
    helper: bool,
) -> Result<bool> {
    v.check_field_access(regno, off, size, value_regno, helper)
}

/// Sets a dynptr argument register of a global function or callback
/// (`mark_dynptr_cb_reg`).
pub(crate) fn mark_dynptr_reg(v: &mut Verifier<'_>, reg: &mut Reg, kind: DynptrKind) {
    *reg = dynptr::dynptr_reg(kind, true);
    reg.id = v.new_id();
}

/// Checks a load from, or store to, a socket that a helper or map gave (`check_sock_access`): some
/// fields may be read, with some sizes. The caller sets the loaded register to an unknown number.
pub(crate) fn check_sock_access(
    v: &mut Verifier<'_>,
    regno: u8,
    off: i32,
    size: u32,
    access: Access,
) -> Result<()> {
    v.check_sock_field(regno, off, size, access)
}
