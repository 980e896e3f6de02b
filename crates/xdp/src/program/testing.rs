//! Programs from bare instructions, for tests: no object file, no proof.

use std::sync::Arc;

use towpath_bpf::MapDef;
use towpath_bpf::btf::Btf;
use towpath_bpf::insn::Insn;
use towpath_bpf::interp::Limits;
use towpath_bpf::program::{Linked, MapType};
use towpath_bpf::verifier::Verified;
use towpath_maps::{Map, MapSet};

use super::load::{finish, finish_verified};
use super::{LoadOptions, Program, Shared};
use crate::Exec;

/// A program over these maps.
pub(crate) fn program(insns: &[Insn], defs: &[MapDef]) -> Program {
    load(linked(insns, defs))
}

/// Loads without a proof.
pub(crate) fn load(linked: Linked) -> Program {
    let limits = Limits { insns: 1_000_000 };
    let options = LoadOptions { unverified: true, limits, ..LoadOptions::default() };
    Program::from_linked(linked, &options).unwrap()
}

/// As [`Shared::load`], with a choice of the executor.
pub(crate) fn load_over(
    shared: &Shared,
    verified: Verified,
    maps: Vec<Arc<Map>>,
    exec: Exec,
) -> Program {
    let maps = Arc::new(MapSet::of(maps, shared.domain()));
    let surroundings = Arc::clone(shared.surroundings());
    finish_verified(verified, maps, surroundings, shared.options(), exec).unwrap()
}

/// As [`load_over`], unverified, in the interpreter.
pub(crate) fn load_unverified_over(
    shared: &Shared,
    linked: Linked,
    maps: Vec<Arc<Map>>,
) -> Program {
    let maps = Arc::new(MapSet::of(maps, shared.domain()));
    let surroundings = Arc::clone(shared.surroundings());
    let options = LoadOptions { unverified: true, ..LoadOptions::default() };
    finish(linked, maps, surroundings, &options, Exec::Interp).unwrap()
}

/// A program as from a linker.
pub(crate) fn linked(insns: &[Insn], defs: &[MapDef]) -> Linked {
    Linked::of_insns("test", insns.to_vec(), defs.to_vec(), &Arc::new(Btf::default()))
}

/// A map without name, types or slots.
pub(crate) fn map_def(kind: MapType, key_size: u32, value_size: u32, max_entries: u32) -> MapDef {
    MapDef::new(kind.name(), kind, key_size, value_size, max_entries)
}
