//! Programs that combine everything a verifier has to keep apart, close to the edge of what can be
//! proved, for maps and jump tables with unreliable contents.
//!
//! A program is made of statements. Each gets a number from somewhere, changes it, bounds it (now
//! and then not quite), and uses it where only the bound makes that safe; or it holds something
//! while other statements run. What a statement leaves behind is always the same: numbers in r7
//! to r9, the context (or a number) in r6, nothing in r0 to r5. So any statement may stand
//! anywhere: in functions, callbacks, loops, between getting a thing and giving it back.

mod bounds;
mod calls;
mod ends;
mod feature;
mod holding;
mod loops;
mod maps;
mod numbers;
mod objects;
mod places;
mod targets;
mod types;
mod writer;

use std::sync::Arc;

use towpath_bpf::btf::{Btf, Linkage, TypeId};
use towpath_bpf::insn::{PSEUDO_MAP_FD, PSEUDO_MAP_VALUE};
use towpath_bpf::program::{AttachType, Function, KfuncRef};
use towpath_bpf::{Insn, Linked, MapDef};

pub use feature::Feature;
pub use maps::{
    ARENA, ARRAY, GUARDED, HASH, INNER_ENTRIES, KEEPER, LRU, OUTER, OUTER_ANY, PERCPU,
    PROGRAM_SLOTS, PROGRAMS, RING, SINGLE, TIMED, inner, inner_of, maps,
};
pub use targets::targets;

use super::edit::{Shrink, removed};
use super::mutate;
use crate::random::Random;
use crate::tables::functions;
use types::{EXCEPTION_CALLBACK, types};

/// A program, and where its interesting points are.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// The instructions; maps by their number in [`maps`].
    pub insns: Vec<Insn>,
    /// Takes frames of several buffers.
    pub has_frags: bool,
    /// What a function is, by its first slot; the others are plain.
    kinds: Vec<(usize, Kind)>,
    /// Slots that are executed only once something interesting holds.
    pub points: Vec<(usize, Feature)>,
    /// Slots that use a thing after its end, where nothing of the program was changed since.
    pub ends: Vec<usize>,
}

/// What a function of a program is to the verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Followed at each call.
    Static,
    /// Verified once, for any number.
    GlobalNumber,
    /// Verified once, for any memory of 16 bytes, or null.
    GlobalMemory,
    /// Verified once, for any memory of 16 bytes.
    GlobalNonnull,
    /// Makes the result of a program that throws.
    Catcher,
}

/// The program of a seed: every third one is damaged.
pub fn sample(seed: u64) -> Sample {
    let mut random = Random::new(seed ^ 0x5eed_0f05_711e);
    let is_damaged = random.one_in(3);
    let mut sample = writer::program(&mut random);
    if is_damaged {
        sample.ends.clear();
        mutate::disturb(&mut sample.insns, KFUNCS.len(), maps().len(), &mut random);
    }
    sample
}

impl Shrink for Sample {
    fn slots(&self) -> usize {
        self.insns.len()
    }

    fn without(&self, gone: std::ops::Range<usize>) -> Option<Sample> {
        let (insns, places) = removed(&self.insns, gone)?;
        let moved = |slot: &usize| places.get(*slot).copied();
        let kinds = self.kinds.iter().filter_map(|(at, kind)| Some((moved(at)?, *kind))).collect();
        let points = self.points.iter().filter_map(|(at, what)| Some((moved(at)?, *what)));
        let points = points.filter(|(at, _)| *at < insns.len()).collect();
        // What is left may not end things any more.
        Some(Sample { insns, has_frags: self.has_frags, kinds, points, ends: Vec::new() })
    }
}

impl Sample {
    /// One function that takes frames of several buffers.
    pub fn of(insns: Vec<Insn>) -> Sample {
        Sample { insns, has_frags: true, ..Sample::default() }
    }

    /// The program with the maps it uses, and the number in [`maps`] of each of them.
    pub fn linked(&self, kernel_btf: &Arc<Btf>) -> (Linked, Vec<usize>) {
        let mut insns = self.insns.clone();
        let used = number_maps(&mut insns);
        let all = maps();
        let defs: Vec<MapDef> = used.iter().map(|&map| all[map].clone()).collect();
        let functions = self.functions();
        let linked = Linked {
            name: NAME.to_owned(),
            section: "xdp".to_owned(),
            attach: AttachType::Xdp,
            has_frags: self.has_frags,
            license: "GPL".to_owned(),
            functions,
            insns,
            lines: Vec::new(),
            maps: defs.into(),
            unresolved: Vec::new(),
            kfuncs: kfuncs(),
            btf: Some(Arc::clone(&types().btf)),
            kernel_btf: Arc::clone(kernel_btf),
        };
        (linked, used)
    }

    fn functions(&self) -> Vec<Function> {
        let catches = self.kinds.iter().any(|(_, kind)| *kind == Kind::Catcher);
        let mut functions = functions(&self.insns, &[]);
        for (start, kind) in &self.kinds {
            let start = *start as u32;
            let known = functions.binary_search_by_key(&start, |function| function.start);
            // The catching function has no caller; other functions without a caller are removed.
            if let (Err(place), Kind::Catcher) = (known, kind) {
                let name = EXCEPTION_CALLBACK.to_owned();
                let linkage = Linkage::Global;
                functions.insert(place, Function { start, name, linkage, type_id: None });
            }
        }
        for function in &mut functions {
            let mut kinds = self.kinds.iter().filter(|(at, _)| *at == function.start as usize);
            let kind = kinds.next().map_or(Kind::Static, |(_, kind)| *kind);
            function.linkage = if kind == Kind::Static { Linkage::Static } else { Linkage::Global };
            function.type_id = Some(kind.type_id());
            if function.start == 0 {
                let types = &types().functions;
                function.linkage = Linkage::Global;
                function.type_id =
                    Some(if catches { types.entry_that_catches } else { types.entry });
            }
        }
        functions
    }
}

impl Kind {
    fn type_id(self) -> TypeId {
        let types = &types().functions;
        match self {
            Kind::Static => types.part,
            Kind::GlobalNumber => types.global_number,
            Kind::GlobalMemory => types.global_memory,
            Kind::GlobalNonnull => types.global_nonnull,
            Kind::Catcher => types.caught,
        }
    }
}

/// Gives the maps that instructions refer to new numbers, and says which those are.
fn number_maps(insns: &mut [Insn]) -> Vec<usize> {
    // Casts ask for an arena.
    let casts = insns.iter().any(|insn| insn.code == CAST && insn.off == 1);
    let mut used = if casts { vec![ARENA as usize] } else { Vec::new() };
    let names_map =
        |insn: &Insn| insn.is_ld_imm64() && matches!(insn.src, PSEUDO_MAP_FD | PSEUDO_MAP_VALUE);
    for insn in insns.iter_mut().filter(|insn| names_map(insn)) {
        let map = insn.imm as usize;
        if map >= maps().len() {
            continue;
        }
        let place = used.iter().position(|known| *known == map).unwrap_or_else(|| {
            used.push(map);
            used.len() - 1
        });
        insn.imm = place as i32;
    }
    used
}

fn kfuncs() -> Vec<KfuncRef> {
    let kfunc = |name: &&str| KfuncRef { name: (*name).to_owned(), type_id: None, weak: false };
    KFUNCS.iter().map(kfunc).collect()
}

/// The index of a kfunc.
fn kfunc(name: &str) -> i32 {
    KFUNCS.iter().position(|known| *known == name).map_or(i32::MAX, |index| index as i32)
}

/// The kfuncs that hostile programs call; an index is what instructions hold.
const KFUNCS: &[&str] = &[
    "bpf_iter_num_new",
    "bpf_iter_num_next",
    "bpf_iter_num_destroy",
    "bpf_obj_new_impl",
    "bpf_obj_drop_impl",
    "bpf_refcount_acquire_impl",
    "bpf_list_push_front_impl",
    "bpf_list_pop_front",
    "bpf_rbtree_add_impl",
    "bpf_rbtree_remove",
    "bpf_rbtree_first",
    "bpf_rcu_read_lock",
    "bpf_rcu_read_unlock",
    "bpf_preempt_disable",
    "bpf_preempt_enable",
    "bpf_throw",
    "bpf_dynptr_from_xdp",
    "bpf_dynptr_slice",
    "bpf_dynptr_slice_rdwr",
    "bpf_dynptr_adjust",
    "bpf_dynptr_clone",
    "bpf_dynptr_size",
    "bpf_xdp_pull_data",
    "bpf_local_irq_save",
    "bpf_local_irq_restore",
];

const CAST: u8 = 0xbf;
/// Name of every program.
const NAME: &str = "hostile";
