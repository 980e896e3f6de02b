//! What global functions take, from their BTF: they are verified once, for all such arguments
//! (`btf_prepare_func_args`, `btf_check_subprog_call`).

use crate::btf::{Btf, Kind, TypeId};
use crate::errno::Errno;

use super::call;
use super::env::{Result, Verifier};
use super::reg::{Base, BtfRef, BtfSource, DynptrKind, Flags, Payload, Reg, RegType};
use super::state::{SlotKind, State, slot_index};

/// One argument of a global function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgKind {
    /// A number.
    Anything,
    Ctx,
    /// Memory of so many bytes.
    Mem {
        size: u32,
        nullable: bool,
    },
    Dynptr(DynptrKind),
    Arena,
    /// A typed kernel pointer.
    Trusted {
        ty: BtfRef,
        nullable: bool,
        untrusted: bool,
    },
    /// Memory read with probe semantics.
    UntrustedMem {
        size: u32,
    },
}

/// The arguments of a global function, checked.
pub(crate) type SubprogArgs = Vec<ArgKind>;

/// Attributes of one argument (`__arg_ctx` ...: `btf_decl_tag("arg:ctx")`).
#[derive(Default)]
struct Tags {
    ctx: bool,
    nonnull: bool,
    nullable: bool,
    trusted: bool,
    untrusted: bool,
    arena: bool,
}

impl Verifier<'_> {
    /// The caller's registers fit a global function's arguments.
    pub(crate) fn check_global_args(&mut self, subprog: usize) -> Result<()> {
        let args = self.subprog_args(subprog)?;
        for (index, arg) in args.iter().enumerate() {
            let regno = index as u8 + 1;
            self.check_global_arg(regno, index, arg)?;
        }
        Ok(())
    }

    fn check_global_arg(&mut self, regno: u8, index: usize, arg: &ArgKind) -> Result<()> {
        let reg = *self.reg(regno);
        match *arg {
            ArgKind::Anything if reg.is_scalar() => Ok(()),
            ArgKind::Anything => {
                Err(self.reject(Errno::EINVAL, format!("R{regno} is not a scalar")))
            }
            ArgKind::Trusted { untrusted: true, .. } | ArgKind::UntrustedMem { .. } => Ok(()),
            ArgKind::Ctx if reg.is(Base::Ctx) => self.check_fixed_pointer(regno, &reg),
            ArgKind::Ctx => {
                let message = format!("arg#{index} expects pointer to ctx");
                Err(self.reject(Errno::EINVAL, message))
            }
            ArgKind::Mem { size, nullable } => {
                if !nullable && (reg.maybe_null() || reg.is_null_const()) {
                    let message = format!("arg#{index} is expected to be non-NULL");
                    return Err(self.reject(Errno::EINVAL, message));
                }
                self.check_mem_reg(regno, size)
            }
            ArgKind::Arena if reg.is(Base::Arena) || reg.is_scalar() => Ok(()),
            ArgKind::Arena => {
                let message = format!("R{regno} is not a pointer to arena or scalar.");
                Err(self.reject(Errno::EINVAL, message))
            }
            ArgKind::Dynptr(_) => self.check_passed_dynptr(regno),
            ArgKind::Trusted { ty, nullable, .. } => {
                if nullable && reg.is_null_const() {
                    return Ok(());
                }
                let same = reg.btf() == Some(ty) && reg.has(Flags::TRUSTED);
                if same && (nullable || !reg.maybe_null()) {
                    return Ok(());
                }
                let message = format!("arg#{index} expects a trusted pointer of its type");
                Err(self.reject(Errno::EINVAL, message))
            }
        }
    }

    /// An initialised dynptr on the stack, or one that was passed in.
    fn check_passed_dynptr(&mut self, regno: u8) -> Result<()> {
        let reg = *self.reg(regno);
        let valid = match reg.base() {
            Base::Dynptr => reg.off == 0 && reg.var.tnum.equals_const(0),
            Base::Stack => {
                let off = reg.const_offset().filter(|off| (-512..0).contains(off));
                let slot = off.and_then(|off| self.frame_of(&reg).slot(slot_index(off)));
                slot.is_some_and(|slot| {
                    slot.special() == Some(SlotKind::Dynptr)
                        && matches!(slot.reg.payload, Payload::Dynptr { first_slot: true, .. })
                })
            }
            _ => false,
        };
        if valid {
            return Ok(());
        }
        let message = format!("Expected an initialized dynptr as R{regno}");
        Err(self.reject(Errno::EINVAL, message))
    }

    /// The state in which a global function (or the program) is verified on its own.
    pub(crate) fn entry_state(&mut self, subprog: usize) -> Result<State> {
        let mut state = State::new(subprog);
        let start = self.subprogs[subprog].start;
        (state.insn_idx, state.first_insn_idx) = (start, start);
        let ctx = Reg::pointer(Base::Ctx, Flags::NONE, Payload::None);
        if subprog == 0 {
            state.frame_mut().regs[1] = ctx;
            return Ok(state);
        }
        let args = self.subprog_args(subprog)?;
        if self.subprogs[subprog].is_exception_callback {
            if *args != [ArgKind::Anything] {
                let message = "exception cb only supports single integer argument";
                return Err(self.reject(Errno::EINVAL, message));
            }
            state.frame_mut().in_exception_callback = true;
        }
        for (index, arg) in args.iter().enumerate().take(5) {
            let mut reg = match *arg {
                ArgKind::Anything => Reg::UNKNOWN,
                ArgKind::Ctx => ctx,
                ArgKind::Mem { size, nullable } => {
                    let flags = if nullable { Flags::MAYBE_NULL } else { Flags::NONE };
                    Reg::pointer(Base::Mem, flags, Payload::Mem { size, dynptr_id: 0 })
                }
                ArgKind::UntrustedMem { size } => {
                    let flags = Flags::RDONLY | Flags::UNTRUSTED;
                    Reg::pointer(Base::Mem, flags, Payload::Mem { size, dynptr_id: 0 })
                }
                ArgKind::Arena => Reg { kind: RegType::plain(Base::Arena), ..Reg::UNKNOWN },
                ArgKind::Dynptr(kind) => {
                    let mut reg = Reg::NOT_INIT;
                    call::mark_dynptr_reg(self, &mut reg, kind);
                    reg
                }
                ArgKind::Trusted { ty, nullable, untrusted } => {
                    let trust = if untrusted { Flags::UNTRUSTED } else { Flags::TRUSTED };
                    let null = if nullable { Flags::MAYBE_NULL } else { Flags::NONE };
                    Reg::pointer(Base::BtfId, trust | null, Payload::Btf(ty))
                }
            };
            if reg.maybe_null() || reg.is(Base::Mem) {
                reg.id = self.new_id();
            }
            state.frame_mut().regs[index + 1] = reg;
        }
        Ok(state)
    }

    /// The arguments of a global function, worked out once.
    fn subprog_args(&mut self, subprog: usize) -> Result<SubprogArgs> {
        if let Some(args) = &self.subprogs[subprog].args {
            return Ok(args.clone());
        }
        let args = self.work_out_args(subprog)?;
        self.subprogs[subprog].args = Some(args.clone());
        Ok(args)
    }

    fn work_out_args(&self, subprog: usize) -> Result<SubprogArgs> {
        let function = self.subprogs[subprog].function.map(|i| &self.prog.functions[i]);
        let known = function.and_then(|f| Some((f, f.type_id?, self.prog.btf.as_deref()?)));
        let Some((function, func, btf)) = known else {
            let message = format!("global func#{subprog} has no type information");
            return Err(self.reject_hint(Errno::EINVAL, message, "compile with -g"));
        };
        let name = &function.name;
        let proto = match *btf.kind(func) {
            Kind::Func { proto, .. } => proto,
            _ => func,
        };
        let Kind::FuncProto { ret, params } = btf.kind(proto) else {
            let message = format!("global func '{name}' has no prototype");
            return Err(self.reject(Errno::EINVAL, message));
        };
        if params.len() > 5 {
            let count = params.len();
            let message =
                format!("Global function {name}() with {count} > 5 args. Buggy compiler.");
            return Err(self.reject(Errno::EINVAL, message));
        }
        if !matches!(btf.resolved(*ret), Kind::Int { .. } | Kind::Enum { .. }) {
            let message = format!(
                "Global function {name}() doesn't return scalar. Only those are supported."
            );
            let hint = "return int, or make the function static";
            return Err(self.reject_hint(Errno::EINVAL, message, hint));
        }
        let kinds = params.iter().enumerate().map(|(index, (_, ty))| {
            self.arg_kind(btf, &arg_tags(btf, func, index), *ty, index, name)
        });
        kinds.collect()
    }

    fn arg_kind(
        &self,
        btf: &Btf,
        tags: &Tags,
        ty: TypeId,
        index: usize,
        name: &str,
    ) -> Result<ArgKind> {
        let target = match *btf.resolved(ty) {
            Kind::Int { .. } | Kind::Enum { .. } => return Ok(ArgKind::Anything),
            Kind::Ptr(target) => btf.resolve(target),
            _ => {
                let type_name = btf.name(ty);
                let message =
                    format!("Arg#{index} type {type_name} in {name}() is not supported yet.");
                return Err(self.reject(Errno::EINVAL, message));
            }
        };
        if tags.ctx || btf.name(target) == "xdp_md" {
            return Ok(ArgKind::Ctx);
        }
        if btf.name(target) == "bpf_dynptr" {
            return Ok(ArgKind::Dynptr(DynptrKind::Local));
        }
        if tags.arena {
            return Ok(ArgKind::Arena);
        }
        if tags.trusted || tags.untrusted {
            let kernel = &self.prog.kernel_btf;
            let found = kernel.find_composite(crate::btf::essential_name(btf.name(target)));
            if let Some(id) = found {
                let ty = BtfRef { source: BtfSource::Kernel, id };
                let nullable = tags.nullable;
                return Ok(ArgKind::Trusted { ty, nullable, untrusted: tags.untrusted });
            }
        }
        let size = btf.size_of(target).and_then(|size| u32::try_from(size).ok());
        match size {
            Some(size) if tags.untrusted => Ok(ArgKind::UntrustedMem { size }),
            Some(size) => Ok(ArgKind::Mem { size, nullable: !tags.nonnull }),
            None => {
                let type_name = btf.name(target);
                let message = format!(
                    "arg#{index} reference type('{type_name}') size cannot be determined: -22"
                );
                Err(self.reject(Errno::EINVAL, message))
            }
        }
    }
}

/// The declaration tags of one parameter.
fn arg_tags(btf: &Btf, func: TypeId, index: usize) -> Tags {
    let mut tags = Tags::default();
    for (_, ty) in btf.iter() {
        let Kind::DeclTag { ty: owner, component } = ty.kind else { continue };
        if owner != func || component != index as i32 {
            continue;
        }
        match &*ty.name {
            "arg:ctx" => tags.ctx = true,
            "arg:nonnull" => tags.nonnull = true,
            "arg:nullable" => tags.nullable = true,
            "arg:trusted" => tags.trusted = true,
            "arg:untrusted" => tags.untrusted = true,
            "arg:arena" => tags.arena = true,
            _ => {}
        }
    }
    tags
}
