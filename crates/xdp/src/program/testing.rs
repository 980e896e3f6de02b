//! Programs from bare instructions, for tests: no object file, no proof.

use std::sync::Arc;

use towpath_bpf::MapDef;
use towpath_bpf::btf::Btf;
use towpath_bpf::insn::Insn;
use towpath_bpf::interp::{Code, Limits};
use towpath_bpf::program::{AttachType, Linked, MapType};
use towpath_maps::{MapSet, SetOptions};

use super::load::Addresses;
use super::{Program, Surroundings};

/// A program over these maps.
pub(crate) fn program(insns: &[Insn], defs: &[MapDef]) -> Program {
    let maps = Arc::new(MapSet::create(defs, &SetOptions::new(1)).unwrap());
    let linked = Linked {
        name: "test".to_owned(),
        section: "xdp".to_owned(),
        attach: AttachType::Xdp,
        has_frags: true,
        license: "GPL".to_owned(),
        insns: insns.to_vec(),
        functions: Vec::new(),
        lines: Vec::new(),
        maps: defs.to_vec().into(),
        kfuncs: Vec::new(),
        btf: None,
        kernel_btf: Arc::new(Btf::default()),
    };
    let addresses = Addresses { maps: &maps, kernel: Arc::clone(&linked.kernel_btf) };
    let code = Arc::new(Code::resolve(Arc::new(linked), Vec::new(), &addresses).unwrap());
    let limits = Limits { insns: 1_000_000 };
    let surroundings = Arc::new(Surroundings { limits, ..Surroundings::default() });
    Program {
        id: surroundings.programs.add(Arc::clone(&code)),
        code,
        verified: None,
        attach: AttachType::Xdp,
        has_frags: true,
        maps,
        surroundings,
    }
}

/// A map without name, types or slots.
pub(crate) fn map_def(kind: MapType, key_size: u32, value_size: u32, max_entries: u32) -> MapDef {
    MapDef {
        name: kind.name(),
        kind,
        key_size,
        value_size,
        max_entries,
        flags: 0,
        map_extra: 0,
        pin_by_name: false,
        key_type: 0,
        value_type: 0,
        btf: None,
        inner: None,
        slots: Vec::new(),
        initial: None,
        section: None,
    }
}
