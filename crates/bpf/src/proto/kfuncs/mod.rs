//! The kfuncs that programs may call, by family (the sets that the kernel registers for XDP, and
//! those for making crypto contexts).

mod common;
mod crypto;
mod dynptrs;
mod iterators;
mod objects;
mod strings;
mod tasks;
mod xdp;

use super::kfunc::{Iter, KArg, KParam, KRet, KfuncFlags, KfuncId, KfuncProto};
use super::{Backing, Ties};

/// All tables.
pub(super) const TABLES: &[&[KfuncProto]] = &[
    xdp::TABLE,
    crypto::TABLE,
    objects::TABLE,
    tasks::TABLE,
    iterators::TABLE,
    common::TABLE,
    dynptrs::TABLE,
    strings::TABLE,
];

const fn kfunc(
    id: KfuncId,
    params: &'static [KParam],
    ret: KRet,
    summary: &'static str,
) -> KfuncProto {
    KfuncProto {
        id,
        name: id.name(),
        params,
        ret,
        ties: Ties::NONE,
        flags: KfuncFlags::NONE,
        summary,
        backing: Backing::Full,
    }
}

/// Kfuncs that read at addresses which the verifier does not check.
const OWN_MEMORY: Backing =
    Backing::FullExcept("it reads only memory that the program could access itself");
/// Kfuncs that release an object of a kind that no other kfunc finds.
const NOTHING_TO_RELEASE: Backing = Backing::FullExcept("there is never one to release");

const fn p(name: &'static str, kind: KArg) -> KParam {
    KParam { name, kind }
}

impl KfuncProto {
    const fn flags(self, flags: &[KfuncFlags]) -> Self {
        let mut all = self.flags;
        let mut index = 0;
        while index < flags.len() {
            all = all.with(flags[index]);
            index += 1;
        }
        let ties = if all.has(KfuncFlags::ACQUIRE) { Ties::OWN } else { Ties::NONE };
        KfuncProto { flags: all, ties: self.ties.with(ties), ..self }
    }

    const fn ties(self, ties: Ties) -> Self {
        KfuncProto { ties: self.ties.with(ties), ..self }
    }

    const fn backed(self, backing: Backing) -> Self {
        KfuncProto { backing, ..self }
    }
}
