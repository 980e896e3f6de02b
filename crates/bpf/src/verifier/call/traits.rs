//! Properties of a call for the passes before path exploration: the registers it reads, whether it
//! calls back, whether it changes the frame.

use crate::insn::Insn;
use crate::proto::{self, ArgKind, KArg, KfuncFlags, KfuncId, KfuncProto, id};

use super::super::env::Verifier;

/// Properties of a call that the control-flow pass needs before the arguments are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallTraits {
    /// Number of arguments that it reads, from r1 (`None`: unknown, count all five).
    pub(crate) arg_count: Option<u8>,
    /// Whether it calls a function of the program before it returns
    /// (`is_sync_callback_calling_function`).
    pub(crate) calls_back_sync: bool,
    /// Whether it arranges a later call of a function of the program (timer, workqueue).
    pub(crate) calls_back_async: bool,
    /// Whether it is the `*_next` of an open-coded iterator.
    pub(crate) iter_next: bool,
    /// Whether packet pointers are invalid afterwards.
    pub(crate) changes_packet: bool,
    pub(crate) might_sleep: bool,
    /// Whether it does not return (`bpf_throw`).
    pub(crate) throws: bool,
    /// Whether it keeps those of r1..r5 that are no arguments of it (`bpf_fastcall`).
    pub(crate) fastcall: bool,
}

/// The traits of the call `insn`; the defaults if the call is unknown.
pub(crate) fn traits(v: &Verifier<'_>, insn: &Insn) -> CallTraits {
    if insn.is_helper_call() {
        return helper_traits(insn.imm as u32);
    }
    kfunc_of(v, insn).map_or_else(CallTraits::default, kfunc_traits)
}

/// The kfunc that is called, if an XDP program may call it.
pub(super) fn kfunc_of(v: &Verifier<'_>, insn: &Insn) -> Option<&'static KfuncProto> {
    let kfunc = v.input.prog.kfuncs.get(usize::try_from(insn.imm).ok()?)?;
    proto::kfunc(crate::btf::essential_name(&kfunc.name))
}

fn helper_traits(id: u32) -> CallTraits {
    let Some(helper) = proto::helper(id) else {
        return CallTraits::default();
    };
    let takes_func = helper.args.iter().any(|arg| arg.kind == ArgKind::Func);
    let is_async = id == id::TIMER_SET_CALLBACK;
    CallTraits {
        arg_count: Some(helper.args_passed() as u8),
        calls_back_sync: takes_func && !is_async,
        calls_back_async: is_async,
        changes_packet: helper.changes_packet,
        might_sleep: helper.might_sleep,
        fastcall: id == id::GET_SMP_PROCESSOR_ID,
        ..CallTraits::default()
    }
}

fn kfunc_traits(kfunc: &'static KfuncProto) -> CallTraits {
    let takes_func = kfunc.params.iter().any(|param| param.kind == KArg::Callback);
    let is_sync = kfunc.id == KfuncId::RbtreeAddImpl;
    CallTraits {
        arg_count: Some(kfunc.params.len() as u8),
        calls_back_sync: takes_func && is_sync,
        calls_back_async: takes_func && !is_sync,
        iter_next: kfunc.flags.has(KfuncFlags::ITER_NEXT),
        changes_packet: kfunc.flags.has(KfuncFlags::CHANGES_PACKET),
        might_sleep: kfunc.flags.has(KfuncFlags::SLEEPABLE),
        throws: kfunc.id == KfuncId::Throw,
        fastcall: matches!(kfunc.id, KfuncId::CastToKernCtx | KfuncId::RdonlyCast),
    }
}
