//! Reading the kernel's own description of a map through a map pointer.

use crate::errno::Errno;

use super::super::env::{Access, Result, Verifier};
use super::super::reg::Flags;
use super::walk::{Loaded, MemberKind, struct_walk};

impl Verifier<'_> {
    /// Checks a load from, or store to, a map pointer: its structure is the kernel's `struct
    /// bpf_array` and the like (`check_ptr_to_map_access`).
    pub(super) fn check_map_object_access(
        &mut self,
        regno: u8,
        off: i32,
        size: u32,
        access: Access,
        value_regno: Option<u8>,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        let Some(def) = self.map_of(&reg) else {
            return Err(self.internal("a map pointer without a map"));
        };
        let name = def.kind.spec().kernel_struct;
        self.forbid_struct(name)?;
        let off = i64::from(off) + i64::from(reg.off);
        let Ok(start) = u32::try_from(off) else {
            let message = format!("R{regno} is {name} invalid negative access: off={off}");
            return Err(self.reject(Errno::EACCES, message));
        };
        if access != Access::Read {
            let message = format!("only read from {name} is supported");
            return Err(self.reject(Errno::EACCES, message));
        }
        let ty = self.kernel_struct(name)?;
        let btf = &self.input.prog.kernel_btf;
        let (mut id, mut at, mut flags) = (ty.id, start, Flags::NONE);
        let loaded = loop {
            let place = struct_walk(btf, id, at, size, &mut flags)
                .map_err(|(errno, message)| self.reject(errno, message))?;
            match place {
                MemberKind::Struct(inner) => (id, at) = (inner, 0),
                MemberKind::Scalar => break Loaded::Scalar,
                MemberKind::OtherPointer => break Loaded::Untrusted,
                MemberKind::Pointer { to, .. } => {
                    let to = super::super::reg::BtfRef { id: btf.resolve(to), ..ty };
                    break Loaded::Object(to, flags.with(Flags::UNTRUSTED));
                }
            }
        };
        if let Some(value_regno) = value_regno {
            *self.reg_mut(value_regno) = loaded.into_reg(self);
        }
        Ok(())
    }
}
