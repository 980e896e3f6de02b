//! Opening an object file: the order in which its parts are read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::code::{Code, Function};
use super::elf::Elf;
use super::ext::BtfExt;
use super::externs::{Externs, KCONFIG_SECTION};
use super::maps::Maps;
use super::section::is_text;
use super::{Object, ObjectError, Program, data, legacy, meaning_of};
use crate::btf::{Btf, Kind, Linkage};
use crate::program::{DataSection, MapDef, SlotInit};

/// Reads all parts that don't depend on the kernel.
pub(super) fn open(bytes: &[u8], name: &str) -> Result<Object, ObjectError> {
    let elf = Elf::parse(bytes, name)?;
    let (mut btf, ext) = read_types(&elf)?;
    let externs = Externs::collect(&elf, btf.as_ref())?;
    if let Some(btf) = &mut btf {
        complete_sections(btf, &elf, &externs);
    }
    let types = btf.as_ref();
    let mut maps = Maps::default();
    maps.add_btf_maps(&elf, types)?;
    legacy::add_legacy_maps(&mut maps, &elf, types)?;
    data::add_data_maps(&mut maps, &elf, types)?;
    let config_map = (externs.kconfig_size > 0).then(|| {
        let bytes = vec![0; externs.kconfig_size as usize];
        maps.defs.push(data::data_map(KCONFIG_SECTION, DataSection::Kconfig, bytes, types));
        maps.defs.len() - 1
    });
    maps.fill_slots(&elf)?;
    let mut code = Code::collect(&elf, types, &ext)?;
    code.resolve(&elf, &maps, &externs);
    let entries = entries(&code, &maps.defs);
    let globals = data::collect_globals(&elf, types, &maps)?;
    let btf = btf.map(Arc::new);
    Ok(Object {
        name: name.to_owned(),
        license: license(&elf),
        programs: entries.iter().map(|&entry| describe(&code, entry)).collect(),
        maps: with_types(maps.defs, btf.as_ref()),
        btf,
        globals,
        entries,
        code,
        externs,
        config_map,
    })
}

fn read_types(elf: &Elf<'_>) -> Result<(Option<Btf>, BtfExt), ObjectError> {
    let Some((_, section)) = elf.section(".BTF") else { return Ok((None, BtfExt::default())) };
    let btf = Btf::parse(section.data)?;
    let ext = match elf.section(".BTF.ext") {
        Some((_, ext)) => BtfExt::parse(ext.data, Btf::string_section(section.data)?)?,
        None => BtfExt::default(),
    };
    Ok((Some(btf), ext))
}

/// Completes sizes of sections and offsets of global variables, which compilers leave to the loader
/// (`btf_fixup_datasec`).
fn complete_sections(btf: &mut Btf, elf: &Elf<'_>, externs: &Externs) {
    let mut seen = HashSet::new();
    let sections: Vec<_> = btf
        .iter()
        .filter(|(_, ty)| matches!(ty.kind, Kind::Datasec { .. }) && seen.insert(&*ty.name))
        .map(|(id, ty)| (id, ty.name.clone()))
        .collect();
    for (id, name) in sections {
        let Kind::Datasec { vars, .. } = btf.kind(id) else { continue };
        let mut vars = vars.clone();
        let size = if &*name == KCONFIG_SECTION {
            let places: HashMap<&str, (u32, u32)> = externs
                .config()
                .map(|(ext, offset, size, _)| (ext.name.as_str(), (offset, size)))
                .collect();
            for var in &mut vars {
                if let Some(&place) = places.get(btf.name(var.ty)) {
                    (var.offset, var.size) = place;
                }
            }
            externs.kconfig_size
        } else if let Some((index, section)) = elf.section(&name) {
            let offsets: HashMap<&str, u64> =
                elf.symbols_in(index).map(|symbol| (symbol.name, symbol.value)).collect();
            for var in &mut vars {
                let is_global =
                    matches!(btf.kind(var.ty), Kind::Var { linkage: Linkage::Global, .. });
                let offset = offsets.get(btf.name(var.ty)).filter(|_| is_global);
                if let Some(offset) = offset.and_then(|&offset| u32::try_from(offset).ok()) {
                    var.offset = offset;
                }
            }
            u32::try_from(section.size).unwrap_or(u32::MAX)
        } else {
            continue;
        };
        vars.sort_by_key(|var| var.offset);
        if let Some(ty) = btf.own_type_mut(id) {
            ty.kind = Kind::Datasec { size, vars };
        }
    }
}

/// Functions that can be selected as programs: those outside of `.text`, where compilers put
/// subprograms; if there are none, the global ones of `.text`.
///
/// A static function outside of `.text` is a program too unless another function refers to it:
/// Cilium's tail calls are such functions, and its loader (cilium/ebpf) accepts them. libbpf
/// refuses them.
fn entries(code: &Code, maps: &[MapDef]) -> Vec<usize> {
    let called = code.called();
    let slots: HashSet<&str> = maps
        .iter()
        .flat_map(|map| &map.slots)
        .filter_map(|(_, init)| match init {
            SlotInit::Program(name) => Some(name.as_str()),
            SlotInit::Map(_) => None,
        })
        .collect();
    let is_program = |index: usize, function: &Function| {
        function.is_global || !called.contains(&index) || slots.contains(function.name.as_str())
    };
    let functions = || code.functions.iter().enumerate().filter(|(_, it)| !it.insns.is_empty());
    let entries: Vec<usize> = functions()
        .filter(|(index, function)| !is_text(&function.section) && is_program(*index, function))
        .map(|(index, _)| index)
        .collect();
    if !entries.is_empty() {
        return entries;
    }
    functions().filter(|(_, function)| function.is_global).map(|(index, _)| index).collect()
}

fn describe(code: &Code, entry: usize) -> Program {
    let function = &code.functions[entry];
    let meaning = meaning_of(&function.section);
    Program {
        name: function.name.clone(),
        section: function.section.clone(),
        kind: meaning.kind,
        attach: meaning.attach,
        has_frags: meaning.has_frags,
        insn_count: function.insns.len(),
    }
}

/// The licence up to its NUL.
fn license(elf: &Elf<'_>) -> String {
    let Some((_, section)) = elf.section("license") else { return String::new() };
    let text = section.data.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text.get(..LICENSE_BYTES_MAX).unwrap_or(text)).into_owned()
}

/// Gives each map the types it refers to.
fn with_types(mut defs: Vec<MapDef>, btf: Option<&Arc<Btf>>) -> Arc<[MapDef]> {
    for def in &mut defs {
        if let Some(inner) = &mut def.inner {
            inner.btf = btf.cloned();
        }
        def.btf = btf.cloned();
    }
    defs.into()
}

/// Longest licence: the kernel reads 128 bytes (`bpf_prog_load`).
const LICENSE_BYTES_MAX: usize = 127;
