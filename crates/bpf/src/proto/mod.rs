//! Every helper and kfunc that programs may call, with its argument and result types, as data.
//!
//! One table serves four readers: the verifier checks calls against it, the runtime dispatches on
//! its ids, messages take names from it, and `docs/helpers.md` is generated from it. Numbers and
//! names are the kernel's (`include/uapi/linux/bpf.h`); types are those of 6.18.

pub mod arg;
mod backing;
mod helpers;
pub mod id;
pub mod kfunc;
mod kfuncs;
pub mod markdown;
mod tie;

pub use arg::{Arg, ArgKind, Flags, Ret, RetKind};
pub use backing::Backing;
pub use kfunc::{KArg, KRet, KfuncFlags, KfuncId, KfuncProto};
pub use tie::Ties;

/// Properties of one helper, for the verifier and the runtime.
#[derive(Debug, Clone, Copy)]
pub struct HelperProto {
    /// Number (`enum bpf_func_id`).
    pub id: u32,
    /// Name with its `bpf_` prefix.
    pub name: &'static str,
    /// Whether it needs a GPL-compatible licence.
    pub gpl_only: bool,
    /// Capability that a user needs in the kernel to load a program that calls it.
    pub capability: Capability,
    /// Up to five arguments.
    pub args: &'static [Arg],
    /// Result.
    pub ret: Ret,
    /// Owners of the result.
    pub ties: Ties,
    /// Whether packet pointers may be passed as memory (`pkt_access`).
    pub pkt_access: bool,
    /// Whether packet pointers are invalid afterwards (`bpf_helper_changes_pkt_data`).
    pub changes_packet: bool,
    /// Whether it writes packet bytes only through arguments that are meant for output.
    pub keeps_packet: bool,
    /// Whether it may sleep. If so, only `syscall` programs and work queue callbacks may call it,
    /// because XDP programs run in softirq.
    pub might_sleep: bool,
    /// Its effect, in one sentence.
    pub summary: &'static str,
    /// Source of its results in Towpath.
    pub backing: Backing,
}

impl HelperProto {
    /// Number of arguments that a call passes: `bpf_trace_printk` also reads registers that its
    /// prototype does not name.
    pub fn args_passed(&self) -> usize {
        if self.id == id::TRACE_PRINTK { 5 } else { self.args.len() }
    }

    /// Whether programs that users call may call it (`syscall_prog_func_proto`). They may not call
    /// helpers that work on a frame, on its context or on sockets found for a frame, nor the coarse
    /// clock, which tracing programs lack.
    pub fn is_for_syscalls(&self) -> bool {
        let is_missing = matches!(
            self.id,
            id::KTIME_GET_COARSE_NS
                | id::REDIRECT
                | id::REDIRECT_MAP
                | id::CSUM_DIFF
                | id::SK_RELEASE
                | id::TCP_CHECK_SYNCOOKIE
                | id::TCP_GEN_SYNCOOKIE
                | id::TCP_RAW_GEN_SYNCOOKIE_IPV4
                | id::TCP_RAW_GEN_SYNCOOKIE_IPV6
                | id::TCP_RAW_CHECK_SYNCOOKIE_IPV4
                | id::TCP_RAW_CHECK_SYNCOOKIE_IPV6
        );
        let takes_ctx = self.args.iter().any(|arg| arg.kind == ArgKind::Ctx);
        !is_missing && !takes_ctx
    }
}

/// Capability that the kernel requires to load a program that calls a helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// None beyond loading XDP programs.
    Net,
    /// `CAP_BPF`.
    Bpf,
    /// `CAP_PERFMON`.
    Perfmon,
}

/// The helper with this number, if programs may call it.
pub fn helper(id: u32) -> Option<&'static HelperProto> {
    helpers().find(|helper| helper.id == id)
}

/// All helpers that programs may call. XDP programs may call all of them, others fewer
/// ([`HelperProto::is_for_syscalls`]).
pub fn helpers() -> impl Iterator<Item = &'static HelperProto> {
    helpers::TABLES.iter().flat_map(|table| table.iter())
}

/// The name of any helper, including helpers that XDP programs may not call.
pub fn helper_name(id: u32) -> Option<&'static str> {
    id::name(id)
}

/// The kfunc with this name, if programs may call it.
pub fn kfunc(name: &str) -> Option<&'static KfuncProto> {
    kfuncs().find(|kfunc| kfunc.name == name)
}

/// All kfuncs that programs may call.
pub fn kfuncs() -> impl Iterator<Item = &'static KfuncProto> {
    kfuncs::TABLES.iter().flat_map(|table| table.iter())
}

#[cfg(test)]
mod tests;
