//! A program ready to run: references to maps, variables and kfuncs are replaced by addresses.
//!
//! The kernel does the same when it loads a program (`resolve_pseudo_ldimm64`, `fixup_kfunc_call`):
//! afterwards instructions are independent of the object that the program came from, so that
//! programs of several objects can tail-call each other.

use std::sync::Arc;

use crate::insn::{
    Insn, PSEUDO_BTF_ID, PSEUDO_MAP_FD, PSEUDO_MAP_IDX, PSEUDO_MAP_IDX_VALUE, PSEUDO_MAP_VALUE,
};
use crate::program::{KfuncRef, Linked};
use crate::verifier::{AccessFact, InsnFacts, Verified};

/// Instructions that can run.
#[derive(Debug, Clone)]
pub struct Code {
    /// Name, for messages.
    pub name: String,
    insns: Vec<Insn>,
    /// Access by slot; empty if every access is [`Access::Direct`].
    accesses: Vec<Access>,
    /// Function that turns the cookie of a `bpf_throw` into the return value.
    exception_callback: Option<u32>,
    /// Source of line information.
    linked: Option<Arc<Linked>>,
}

/// Kind of a load's or store's memory access, as the verifier determined it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// The address is proved valid.
    #[default]
    Direct,
    /// A load through a kernel pointer that may be stale: gives 0 if it is (`BPF_PROBE_MEM`).
    Probe,
    /// The low 32 bits of the register are an offset into the arena (`BPF_PROBE_MEM32`).
    Arena,
}

/// Gives the addresses for the references of a [`Linked`] program.
pub trait Resolver {
    /// Address that stands for the map with this index in [`Linked::maps`].
    fn map(&self, index: usize) -> Option<u64>;
    /// Address of byte `offset` of the only value of a map.
    fn map_value(&self, index: usize, offset: u32) -> Option<u64>;
    /// Address of a kernel variable, by its type in [`Linked::kernel_btf`].
    fn variable(&self, type_id: u32) -> Option<u64>;
    /// Number of a kfunc for [`super::Runtime::call_kfunc`].
    fn kfunc(&self, kfunc: &KfuncRef) -> Option<u32>;
}

/// A reference that the resolver doesn't know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("instruction {insn}: {what} cannot be resolved")]
pub struct ResolveError {
    /// Slot of the instruction.
    pub insn: usize,
    /// Kind and index of the reference.
    pub what: String,
}

impl Code {
    /// Code without references, as in conformance tests.
    pub(crate) fn raw(name: &str, insns: Vec<Insn>) -> Code {
        Code {
            name: name.to_owned(),
            insns,
            accesses: Vec::new(),
            exception_callback: None,
            linked: None,
        }
    }

    /// Resolves the references of a verified program.
    ///
    /// # Errors
    ///
    /// Fails if the resolver doesn't know a reference.
    pub fn of(verified: &Verified, resolver: &dyn Resolver) -> Result<Code, ResolveError> {
        let access = |fact: &InsnFacts| match fact.access {
            Some(AccessFact::ProbeRead) => Access::Probe,
            Some(AccessFact::Arena) => Access::Arena,
            _ => Access::Direct,
        };
        let accesses = verified.facts().iter().map(access).collect();
        let code = Code::resolve(Arc::new(verified.linked().clone()), accesses, resolver)?;
        Ok(Code { exception_callback: verified.exception_callback(), ..code })
    }

    /// Resolves a program without a proof of safety, for tests of the interpreter: it checks every
    /// access anyway, but such a program may fault, loop for long or leave a map locked.
    ///
    /// # Errors
    ///
    /// Fails if the resolver doesn't know a reference.
    #[cfg(feature = "unverified")]
    pub fn unverified(linked: Arc<Linked>, resolver: &dyn Resolver) -> Result<Code, ResolveError> {
        Code::resolve(linked, Vec::new(), resolver)
    }

    /// Resolves a program with these `accesses` by slot; if there are none, all are direct.
    fn resolve(
        linked: Arc<Linked>,
        accesses: Vec<Access>,
        resolver: &dyn Resolver,
    ) -> Result<Code, ResolveError> {
        let mut insns = linked.insns.clone();
        let mut slot = 0;
        while slot < insns.len() {
            let insn = insns[slot];
            if insn.is_ld_imm64() {
                if let Some(value) = resolve_imm64(&insns, slot, resolver)? {
                    write_imm64(&mut insns, slot, value);
                }
                slot += 2;
                continue;
            }
            if insn.is_kfunc_call() {
                let index = insn.imm as usize;
                let id = linked.kfuncs.get(index).and_then(|kfunc| resolver.kfunc(kfunc));
                // An unknown weak kfunc may be in code that is never reached; if it is reached
                // after all, the complement of its index identifies it.
                insns[slot].imm = id.map_or(!insn.imm, |id| id as i32);
            }
            slot += 1;
        }
        Ok(Code {
            name: linked.name.clone(),
            insns,
            accesses,
            exception_callback: None,
            linked: Some(linked),
        })
    }

    /// The name of a kfunc that could not be resolved, from the immediate of its call.
    pub(super) fn unknown_kfunc(&self, imm: i32) -> String {
        let kfunc = self.linked.as_ref().and_then(|linked| linked.kfuncs.get(!imm as usize));
        kfunc.map_or_else(|| format!("number {imm}"), |kfunc| kfunc.name.clone())
    }

    /// The instructions.
    #[inline]
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// Kind of access of the load or store in this slot.
    #[inline]
    pub fn access(&self, slot: usize) -> Access {
        self.accesses.get(slot).copied().unwrap_or_default()
    }

    /// First slot of the exception callback, if there is one.
    pub fn exception_callback(&self) -> Option<u32> {
        self.exception_callback
    }

    /// The program that this was resolved from.
    pub fn linked(&self) -> Option<&Arc<Linked>> {
        self.linked.as_ref()
    }

    /// `file:line: text` of a slot's source line.
    pub fn source_line(&self, slot: usize) -> Option<String> {
        let line = self.linked.as_ref()?.line_of(slot)?;
        Some(format!("{}:{}: {}", line.file, line.line, line.text))
    }
}

/// The address that a program has for one of its functions. It is tagged, so that no other value
/// resembles it: it lies in the gap between user and kernel addresses.
pub fn function_address(slot: usize) -> u64 {
    FUNCTION_TAG | slot as u64
}

/// The address that a program has for a kfunc, by its type in the kernel's BTF. Programs only
/// compare it with 0, to test whether a weak kfunc exists.
pub fn kfunc_address(type_id: u32) -> u64 {
    KFUNC_TAG | u64::from(type_id)
}

/// Tag of addresses that stand for kfuncs, in the same gap.
const KFUNC_TAG: u64 = 0xbf01_0000_0000_0000;

/// Whether a register value can be the address of a function.
pub fn is_function(addr: u64) -> bool {
    addr & FUNCTION_MASK == FUNCTION_TAG
}

/// The slot behind an address that [`function_address`] made.
pub fn function_slot(addr: u64) -> Option<usize> {
    is_function(addr).then_some((addr & !FUNCTION_MASK) as usize)
}

/// The 64-bit constant in two slots.
pub(super) fn imm64(insns: &[Insn], slot: usize) -> Option<u64> {
    let low = insns.get(slot)?.imm as u32;
    let high = insns.get(slot + 1)?.imm as u32;
    Some(u64::from(high) << 32 | u64::from(low))
}

fn resolve_imm64(
    insns: &[Insn],
    slot: usize,
    resolver: &dyn Resolver,
) -> Result<Option<u64>, ResolveError> {
    let insn = insns[slot];
    let index = insn.imm as usize;
    let unresolved = |what: &str| ResolveError { insn: slot, what: format!("{what} {index}") };
    match insn.src {
        PSEUDO_MAP_FD | PSEUDO_MAP_IDX => {
            resolver.map(index).map(Some).ok_or_else(|| unresolved("map"))
        }
        PSEUDO_MAP_VALUE | PSEUDO_MAP_IDX_VALUE => {
            let offset = insns.get(slot + 1).map_or(0, |second| second.imm as u32);
            let value = resolver.map_value(index, offset);
            value.map(Some).ok_or_else(|| unresolved("value of map"))
        }
        PSEUDO_BTF_ID => {
            let value = resolver.variable(insn.imm as u32);
            value.map(Some).ok_or_else(|| unresolved("kernel variable of type"))
        }
        _ => Ok(None),
    }
}

fn write_imm64(insns: &mut [Insn], slot: usize, value: u64) {
    insns[slot].src = 0;
    insns[slot].imm = value as u32 as i32;
    if let Some(second) = insns.get_mut(slot + 1) {
        second.imm = (value >> 32) as u32 as i32;
    }
}

const FUNCTION_TAG: u64 = 0xbf00_0000_0000_0000;
const FUNCTION_MASK: u64 = 0xffff_ffff_0000_0000;
