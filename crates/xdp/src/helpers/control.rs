//! Loops, locks and exceptions: helpers that steer the program.
//!
//! `bpf_tail_call` is not among them: the limit of 33 tail calls (`MAX_TAIL_CALL_CNT`) is checked
//! by the interpreter (`tail_call` in `crates/bpf/src/interp/machine.rs`) and by compiled code
//! (`tail_call.rs` in `crates/jit/src/clif` and `crates/jit/src/llvm`).

use towpath_bpf::Errno;
use towpath_bpf::interp::{MAX_LOOPS, Stop, Violation};
use towpath_bpf::proto::id;

use super::{Call, KfuncTable, Table, entry};

pub(super) const TABLE: Table = &[
    (id::LOOP, entry(bpf_loop)),
    (id::SPIN_LOCK, entry(spin_lock)),
    (id::SPIN_UNLOCK, entry(spin_unlock)),
];

pub(super) const KFUNCS: KfuncTable = &[("bpf_throw", entry(throw))];

/// `bpf_loop(nr_loops, callback, context, flags)`: the callback gets the index and the context; a
/// return value other than 0 ends the loop. Returns the number of calls made. All 64 bits of the
/// number count, as where the kernel puts the loop in place of the call (`inline_bpf_loop`).
fn bpf_loop(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [count, callback, context, flags, _] = args;
    if flags != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    if count > u64::from(MAX_LOOPS) {
        return Ok(Errno::E2BIG.to_reg());
    }
    for index in 0..count {
        if call.callback(callback, [index, context, 0, 0, 0])? != 0 {
            return Ok(index + 1);
        }
    }
    Ok(count)
}

/// `bpf_spin_lock(lock)`
fn spin_lock(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let grant = call.run.grant_lock("bpf_spin_lock", args[0])?;
    crate::memory::lock(grant);
    Ok(0)
}

/// `bpf_spin_unlock(lock)`
fn spin_unlock(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let grant = call.run.grant_lock("bpf_spin_unlock", args[0])?;
    crate::memory::unlock(grant);
    Ok(0)
}

/// `bpf_throw(cookie)`
fn throw(_call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Err(Stop::Throw(args[0]))
}

impl crate::run::Run<'_> {
    pub(super) fn grant_lock(
        &self,
        function: &'static str,
        addr: u64,
    ) -> Result<crate::memory::Grant, Box<Violation>> {
        if !addr.is_multiple_of(4) {
            let why = "an aligned lock";
            return Err(Violation::Argument { function, argument: 1, value: addr, why }.into());
        }
        self.grant(addr, 4, true)
    }
}
