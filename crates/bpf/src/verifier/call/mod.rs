//! Calls of helpers and kfuncs: which exist, what they take, what they give back.

use crate::errno::Errno;
use crate::insn::Insn;

mod traits;

pub(crate) use traits::{CallTraits, traits};

use super::env::{Result, Verifier};
use super::reg::{Base, DynptrKind, Reg};

/// What the call checks remember of a call instruction over all paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallAux {}

/// Checks a helper call in the current state and applies its effects (`check_helper_call`).
pub(crate) fn check_helper_call(v: &mut Verifier<'_>, _insn_idx: usize, insn: &Insn) -> Result<()> {
    Err(v.reject(Errno::EINVAL, format!("invalid func unknown#{}", insn.imm)))
}

/// Checks a kfunc call in the current state and applies its effects (`check_kfunc_call`).
pub(crate) fn check_kfunc_call(v: &mut Verifier<'_>, _insn_idx: usize, insn: &Insn) -> Result<()> {
    Err(v.reject(Errno::EINVAL, format!("kernel function btf_id {} is not allowed", insn.imm)))
}

/// A load from, or store to, a typed pointer (`check_ptr_to_btf_access`).
pub(crate) fn check_btf_access(
    v: &mut Verifier<'_>,
    regno: u8,
    off: i32,
    size: u32,
    access: super::env::Access,
    value_regno: Option<u8>,
) -> Result<()> {
    let _ = (off, size, access, value_regno);
    Err(v.reject(Errno::EACCES, format!("R{regno} invalid mem access 'ptr_'")))
}

/// A load from, or store to, a constant map pointer (`check_ptr_to_map_access`).
pub(crate) fn check_map_ptr_access(
    v: &mut Verifier<'_>,
    regno: u8,
    off: i32,
    size: u32,
    access: super::env::Access,
    value_regno: Option<u8>,
) -> Result<()> {
    let _ = (off, size, access, value_regno);
    Err(v.reject(Errno::EACCES, format!("R{regno} invalid mem access 'map_ptr'")))
}

/// Whether a direct access to `size` bytes at `off` of a map value touches one of its special
/// fields (lock, timer, kptr ...), which only their helpers may do (second half of
/// `check_map_access`). `helper` is the access of a helper's memory argument, not an instruction.
/// Answers true when the access was a kptr load or store that is allowed
/// (`check_map_kptr_access`), and has then set the value register.
pub(crate) fn check_map_fields(
    _v: &mut Verifier<'_>,
    _regno: u8,
    _off: i32,
    _size: u32,
    _access: super::env::Access,
    _value_regno: Option<u8>,
    _helper: bool,
) -> Result<bool> {
    Ok(false)
}

/// A store is about to overwrite a slot of a dynptr (`destroy_if_dynptr_stack_slot`).
pub(crate) fn destroy_if_dynptr(v: &mut Verifier<'_>, frame: usize, spi: usize) -> Result<()> {
    let _ = (frame, spi);
    Err(v.reject(Errno::EINVAL, "cannot overwrite referenced dynptr"))
}

/// Sets a dynptr argument register of a global function or callback
/// (`mark_dynptr_cb_reg`).
pub(crate) fn mark_dynptr_reg(v: &mut Verifier<'_>, reg: &mut Reg, kind: DynptrKind) {
    let id = v.new_id();
    *reg = Reg::pointer(
        Base::Dynptr,
        super::reg::Flags::NONE,
        super::reg::Payload::Dynptr { kind, first_slot: true },
    );
    reg.id = id;
}

/// A load from, or store to, a socket that a helper or map gave (`check_sock_access`): which fields
/// may be read with which sizes. The caller sets the loaded register to an unknown number.
pub(crate) fn check_sock_access(
    v: &mut Verifier<'_>,
    regno: u8,
    off: i32,
    size: u32,
    access: super::env::Access,
) -> Result<()> {
    let _ = (off, size, access);
    Err(v.reject(Errno::EACCES, format!("R{regno} invalid sock access")))
}
