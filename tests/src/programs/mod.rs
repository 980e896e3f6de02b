//! Random programs: generated with a structure that verifiers accept, then sometimes damaged.
//!
//! Programs without damage are accepted almost always, and test that running them gives what the
//! kernel gives. Damaged ones sit at the edge of what is provable, and test that our verifier
//! draws the line where the kernel's does.

pub mod arenas;
mod asm;
mod calls;
pub mod edit;
mod fragments;
pub mod gadgets;
mod generate;
mod helpers;
pub mod hostile;
mod idioms;
pub mod isa;
mod iterators;
mod memory;
pub mod mutate;
pub mod printed;
mod state;

use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::insn::{PSEUDO_MAP_FD, PSEUDO_MAP_VALUE};
use towpath_bpf::program::{AttachType, KfuncRef, MapType, SlotInit};
use towpath_bpf::{Insn, Linked, MapDef};
use towpath_workload::plain_map;

use crate::random::Random;
use crate::tables::functions;

/// The program of a seed: every third one is damaged. With `callbacks`, some hand functions to
/// helpers.
pub fn program(seed: u64, callbacks: bool) -> Vec<Insn> {
    let mut random = Random::new(seed);
    let damaged = random.one_in(3);
    let mut insns = generate::program(&mut random, damaged, callbacks);
    if damaged {
        mutate::damage(&mut insns, &mut random);
    }
    insns
}

/// Instructions as a linked program over those of [`maps`] that it uses: making maps costs the
/// kernel more than all the rest.
pub fn linked(mut insns: Vec<Insn>, maps: &Arc<[MapDef]>, kernel_btf: &Arc<Btf>) -> Linked {
    let maps = only_used(&mut insns, maps);
    Linked {
        name: NAME.to_owned(),
        section: "xdp".to_owned(),
        attach: AttachType::Xdp,
        has_frags: false,
        license: "GPL".to_owned(),
        functions: functions(&insns, &[]),
        insns,
        lines: Vec::new(),
        maps,
        unresolved: Vec::new(),
        kfuncs: kfuncs(),
        btf: None,
        kernel_btf: Arc::clone(kernel_btf),
    }
}

/// The kfuncs that random programs call, by index.
fn kfuncs() -> Vec<KfuncRef> {
    let kfunc = |name: &str| KfuncRef { name: name.to_owned(), type_id: None, weak: false };
    ["bpf_iter_num_new", "bpf_iter_num_next", "bpf_iter_num_destroy"].map(kfunc).into()
}

/// The maps that instructions refer to, which get their new numbers.
fn only_used(insns: &mut [Insn], maps: &[MapDef]) -> Arc<[MapDef]> {
    let mut used: Vec<usize> = Vec::new();
    let names_map =
        |insn: &Insn| insn.is_ld_imm64() && matches!(insn.src, PSEUDO_MAP_FD | PSEUDO_MAP_VALUE);
    for insn in insns.iter_mut().filter(|insn| names_map(insn)) {
        let map = insn.imm as usize;
        // Damaged references stay what they are.
        if map < maps.len() {
            insn.imm = place(&mut used, map) as i32;
        }
    }
    let mut defs: Vec<MapDef> = Vec::new();
    // Maps that are in maps come behind.
    while let Some(&map) = used.get(defs.len()) {
        let mut def = maps[map].clone();
        for (_, init) in &mut def.slots {
            if let SlotInit::Map(inner) = init {
                *inner = place(&mut used, *inner);
            }
        }
        defs.push(def);
    }
    defs.into()
}

fn place(used: &mut Vec<usize>, map: usize) -> usize {
    used.iter().position(|known| *known == map).unwrap_or_else(|| {
        used.push(map);
        used.len() - 1
    })
}

/// The maps that random programs use, by index.
pub fn maps() -> Arc<[MapDef]> {
    let mut programs = plain_map("programs", MapType::ProgArray, (4, 4, 4));
    programs.slots.push((SELF_SLOT, SlotInit::Program(NAME.to_owned())));
    let inner = plain_map("inner", MapType::Array, (4, INNER_VALUE, 4));
    let mut outer = plain_map("outer", MapType::ArrayOfMaps, (4, 4, 4));
    outer.inner = Some(Box::new(inner.clone()));
    outer.slots.push((0, SlotInit::Map(INNER_MAP)));
    outer.slots.push((2, SlotInit::Map(INNER_MAP)));
    vec![
        plain_map("array", MapType::Array, (4, ARRAY_VALUE, ARRAY_ENTRIES)),
        plain_map("hash", MapType::Hash, (8, HASH_VALUE, HASH_ENTRIES)),
        plain_map("devmap", MapType::Devmap, (4, 4, 4)),
        programs,
        plain_map("queue", MapType::Queue, (0, QUEUE_VALUE, 4)),
        plain_map("one", MapType::Array, (4, ARRAY_VALUE, 1)),
        plain_map("percpu", MapType::PercpuArray, (4, 16, 4)),
        plain_map("percpu_hash", MapType::PercpuHash, (4, 8, 16)),
        // So large that nothing is evicted: which element that is depends on the CPU.
        plain_map("lru", MapType::LruHash, (12, 16, 1024)),
        outer,
        inner,
        arenas::map(),
    ]
    .into()
}

const ARRAY_MAP: i32 = 0;
const HASH_MAP: i32 = 1;
const DEV_MAP: i32 = 2;
const PROGRAM_MAP: i32 = 3;
const QUEUE_MAP: i32 = 4;
const SINGLE_MAP: i32 = 5;

const PERCPU_MAP: i32 = 6;
const PERCPU_HASH_MAP: i32 = 7;
const LRU_MAP: i32 = 8;
const OUTER_MAP: i32 = 9;
const INNER_MAP: usize = 10;
const ARENA_MAP: i32 = 11;

/// Name of every program, and of what is in its own slot of the program array.
const NAME: &str = "random";
const SELF_SLOT: u32 = 1;

const INNER_VALUE: u32 = 16;
const ARRAY_VALUE: u32 = 64;
const ARRAY_ENTRIES: u32 = 4;
const HASH_VALUE: u32 = 24;
const HASH_ENTRIES: u32 = 8;
const QUEUE_VALUE: u32 = 8;
