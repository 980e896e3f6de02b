//! Arguments of global functions, from their BTF: a global function is verified once, for all
//! arguments of these types (`btf_prepare_func_args`, `btf_check_subprog_call`).

use crate::btf::{Btf, Kind, TypeId};
use crate::errno::Errno;

use super::call;
use super::env::{Result, Verifier};
use super::info::{ArgKind, SubprogArgs};
use super::reg::{Base, BtfRef, BtfSource, DynptrKind, Flags, Payload, Reg, RegType};
use super::rejection::Rejection;
use super::state::{SlotKind, State, slot_index};

/// Attributes of one argument (`__arg_ctx` ...: `btf_decl_tag("arg:ctx")`), by bit.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Tags(u8);

impl Tags {
    const CTX: u8 = 1;
    const NONNULL: u8 = 2;
    const NULLABLE: u8 = 4;
    const TRUSTED: u8 = 8;
    const UNTRUSTED: u8 = 16;
    const ARENA: u8 = 32;

    fn has(self, tag: u8) -> bool {
        self.0 & tag != 0
    }

    /// Whether there are no other tags than these.
    fn within(self, tags: u8) -> bool {
        self.0 & !tags == 0
    }
}

/// Facts about one parameter of a global function.
struct Param<'a> {
    btf: &'a Btf,
    tags: Tags,
    /// Index, from 0.
    index: usize,
    function: &'a str,
}

impl Verifier<'_> {
    /// Checks that the caller's registers fit a global function's arguments.
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
            ArgKind::Trusted { untrusted: true, .. } | ArgKind::UntrustedMem => Ok(()),
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
                self.check_object_arg(regno, ty, nullable)
            }
        }
    }

    /// Checks for an initialised dynptr on the stack, or one that was passed in.
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

    /// The initial state for verifying a global function (or the program) on its own.
    pub(crate) fn entry_state(&mut self, subprog: usize) -> Result<State> {
        let mut state = State::new(subprog);
        state.in_sleepable = self.may_sleep();
        let start = self.learned.subprogs[subprog].start;
        (state.insn_idx, state.first_insn_idx) = (start, start);
        let ctx = Reg::pointer(Base::Ctx, Flags::NONE, Payload::None);
        if subprog == 0 {
            state.frame_mut().regs[1] = ctx;
            return Ok(state);
        }
        let args = self.subprog_args(subprog)?;
        if self.learned.subprogs[subprog].is_exception_callback {
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
                ArgKind::UntrustedMem => {
                    let flags = Flags::RDONLY | Flags::UNTRUSTED;
                    Reg::pointer(Base::Mem, flags, Payload::Mem { size: 0, dynptr_id: 0 })
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

    /// The arguments of a global function, computed once.
    fn subprog_args(&mut self, subprog: usize) -> Result<SubprogArgs> {
        if let Some(args) = &self.learned.subprogs[subprog].args {
            return Ok(args.clone());
        }
        let args = self.work_out_args(subprog)?;
        self.learned.subprogs[subprog].args = Some(args.clone());
        Ok(args)
    }

    fn work_out_args(&self, subprog: usize) -> Result<SubprogArgs> {
        let function =
            self.learned.subprogs[subprog].function.map(|i| &self.input.prog.functions[i]);
        let known = function.and_then(|f| Some((f, f.type_id?, self.input.prog.btf.as_deref()?)));
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
            let param = Param { btf, tags: Tags::default(), index, function: name };
            let tags = arg_tags(btf, func, index)
                .ok_or_else(|| self.refuse_arg(&param, "has unsupported set of tags"))?;
            self.arg_kind(&Param { tags, ..param }, *ty)
        });
        kinds.collect()
    }

    fn refuse_arg(&self, param: &Param<'_>, why: &str) -> Box<Rejection> {
        let (index, name) = (param.index, param.function);
        self.reject(Errno::EINVAL, format!("arg#{index} {why} in {name}()"))
    }

    fn arg_kind(&self, param: &Param<'_>, ty: TypeId) -> Result<ArgKind> {
        let Param { btf, tags, index, function: name } = *param;
        match *btf.resolved(ty) {
            Kind::Ptr(target) => self.pointer_kind(param, btf.resolve(target)),
            _ if tags != Tags::default() => {
                Err(self.refuse_arg(param, "has pointer tag, but is not a pointer type"))
            }
            Kind::Int { .. } | Kind::Enum { .. } => Ok(ArgKind::Anything),
            _ => {
                let type_name = btf.name(ty);
                let message =
                    format!("Arg#{index} type {type_name} in {name}() is not supported yet.");
                Err(self.reject(Errno::EINVAL, message))
            }
        }
    }

    fn pointer_kind(&self, param: &Param<'_>, target: TypeId) -> Result<ArgKind> {
        let Param { btf, tags, .. } = *param;
        let combination = || self.refuse_arg(param, "has invalid combination of tags");
        let is_composite = matches!(btf.kind(target), Kind::Composite { .. });
        // The context of a syscall program has any type.
        let is_any = self.is_syscall();
        let is_context = is_composite && btf.name(target) == "xdp_md" && !is_any;
        if tags.has(Tags::CTX) || is_context {
            if !tags.within(Tags::CTX) {
                return Err(combination());
            }
            if !is_context && !is_any && !matches!(btf.kind(target), Kind::Void) {
                return Err(self.refuse_arg(param, "should be `struct xdp_md *`"));
            }
            return Ok(ArgKind::Ctx);
        }
        if btf.name(target) == "bpf_dynptr" {
            if tags != Tags::default() {
                return Err(combination());
            }
            return Ok(ArgKind::Dynptr(DynptrKind::Local));
        }
        if tags.has(Tags::TRUSTED) {
            if tags.has(Tags::NONNULL) {
                return Err(combination());
            }
            let ty = self.kernel_type(param, target)?;
            let nullable = tags.has(Tags::NULLABLE);
            return Ok(ArgKind::Trusted { ty, nullable, untrusted: false });
        }
        if tags.has(Tags::UNTRUSTED) {
            if !tags.within(Tags::UNTRUSTED) {
                return Err(
                    self.refuse_arg(param, "untrusted cannot be combined with any other tags")
                );
            }
            if is_primitive(btf.kind(target)) {
                return Ok(ArgKind::UntrustedMem);
            }
            let ty = self.kernel_type(param, target)?;
            return Ok(ArgKind::Trusted { ty, nullable: false, untrusted: true });
        }
        if tags.has(Tags::ARENA) {
            if !tags.within(Tags::ARENA) {
                return Err(self.refuse_arg(param, "arena cannot be combined with any other tags"));
            }
            return Ok(ArgKind::Arena);
        }
        if tags.has(Tags::NULLABLE) {
            return Err(combination());
        }
        self.memory_kind(param, target)
    }

    /// The kernel structure that a pointer's target names (`btf_get_ptr_to_btf_id`).
    fn kernel_type(&self, param: &Param<'_>, target: TypeId) -> Result<BtfRef> {
        let name = crate::btf::essential_name(param.btf.name(target));
        let is_composite = matches!(param.btf.kind(target), Kind::Composite { .. });
        let found = self.input.prog.kernel_btf.find_composite(name).filter(|_| is_composite);
        let Some(id) = found.filter(|_| !name.is_empty()) else {
            let what = format!("reference type('{name}') has no matches");
            return Err(self.refuse_arg(param, &what));
        };
        Ok(BtfRef { source: BtfSource::Kernel, id })
    }

    /// The argument kind of memory of the program's own types.
    fn memory_kind(&self, param: &Param<'_>, target: TypeId) -> Result<ArgKind> {
        let size = param.btf.size_of(target).and_then(|size| u32::try_from(size).ok());
        let Some(size) = size else {
            let name = param.btf.name(target);
            let what = format!("reference type('{name}') size cannot be determined: -22");
            return Err(self.refuse_arg(param, &what));
        };
        Ok(ArgKind::Mem { size, nullable: !param.tags.has(Tags::NONNULL) })
    }
}

/// Whether the type is `void` or a number (`btf_type_is_primitive`).
fn is_primitive(kind: &Kind) -> bool {
    match *kind {
        Kind::Void | Kind::Enum { .. } => true,
        Kind::Int { size, bits, offset, .. } => u32::from(bits) == size * 8 && offset == 0,
        _ => false,
    }
}

/// The declaration tags of one parameter; `None` if one of them is unknown.
fn arg_tags(btf: &Btf, func: TypeId, index: usize) -> Option<Tags> {
    let mut tags = Tags::default();
    for tag in btf.decl_tags(func, index as i32) {
        tags.0 |= match tag.strip_prefix("arg:") {
            None => 0,
            Some("ctx") => Tags::CTX,
            Some("nonnull") => Tags::NONNULL,
            Some("nullable") => Tags::NULLABLE,
            Some("trusted") => Tags::TRUSTED,
            Some("untrusted") => Tags::UNTRUSTED,
            Some("arena") => Tags::ARENA,
            Some(_) => return None,
        };
    }
    Some(tags)
}
