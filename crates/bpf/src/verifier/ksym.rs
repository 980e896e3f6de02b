//! Addresses of kernel variables and functions (`__ksym` externs, `check_pseudo_btf_id`).

use crate::btf::{Btf, Kind, TypeId};
use crate::errno::Errno;
use crate::insn::Insn;

use super::env::{Result, Verifier};
use super::reg::{Base, BtfRef, BtfSource, Flags, Payload, Reg};

impl Verifier<'_> {
    /// The result of `dst = &kernel_variable`.
    pub(crate) fn ksym_pointer(&self, insn: &Insn) -> Result<Reg> {
        let btf: &Btf = &self.input.prog.kernel_btf;
        let id = insn.imm as TypeId;
        let ty = match *btf.kind(id) {
            Kind::Var { ty, .. } => btf.resolve(ty),
            Kind::Func { .. } => {
                let payload = Payload::Mem { size: 0, dynptr_id: 0 };
                return Ok(Reg::pointer(Base::Mem, Flags::RDONLY, payload));
            }
            _ => {
                let message = format!("pseudo btf_id {id} in ldimm64 isn't KIND_VAR or KIND_FUNC");
                return Err(self.reject(Errno::EINVAL, message));
            }
        };
        let typed = Payload::Btf(BtfRef { source: BtfSource::Kernel, id: ty });
        if is_percpu(btf, id) {
            return Ok(Reg::pointer(Base::BtfId, Flags::PERCPU, typed));
        }
        if matches!(btf.kind(ty), Kind::Composite { .. }) {
            return Ok(Reg::pointer(Base::BtfId, Flags::NONE, typed));
        }
        let Some(size) = btf.size_of(ty).and_then(|size| u32::try_from(size).ok()) else {
            let message = format!("ldimm64 unable to resolve the size of type '{}'", btf.name(ty));
            return Err(self.reject(Errno::EINVAL, message));
        };
        let payload = Payload::Mem { size, dynptr_id: 0 };
        Ok(Reg::pointer(Base::Mem, Flags::RDONLY, payload))
    }
}

/// Whether each CPU has its own copy of the variable.
fn is_percpu(btf: &Btf, var: TypeId) -> bool {
    let section = btf.datasec(".data..percpu");
    section.is_some_and(|(_, vars)| vars.iter().any(|entry| entry.ty == var))
}
