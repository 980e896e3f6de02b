//! Global variables: data sections become one-element array maps, and their variables can be found
//! and set by name.

use super::elf::{Elf, Section, limit};
use super::maps::{Maps, empty_def};
use super::{Global, GlobalError, GlobalValue, ObjectError};
use crate::btf::{Btf, Kind, Linkage};
use crate::map::Values;
use crate::program::{DataSection, MapDef, MapType};

/// Adds a map for each data section.
pub(super) fn add_data_maps(
    maps: &mut Maps,
    elf: &Elf<'_>,
    btf: Option<&Btf>,
) -> Result<(), ObjectError> {
    let mut total = 0u64;
    for (index, section) in elf.sections.iter().enumerate() {
        let kind = kind_of(section);
        let is_arena = section.name == ARENA_SECTION;
        if section.size == 0 || (kind.is_none() && !is_arena) {
            continue;
        }
        total = total.saturating_add(section.size);
        if total > DATA_BYTES_MAX {
            return Err(ObjectError::Limit {
                what: format!("too many bytes in data sections, with {}", section.name),
                count: total,
                max: DATA_BYTES_MAX,
            });
        }
        let size = section.size as usize;
        let initial = if section.is_nobits { vec![0; size] } else { section.data.to_vec() };
        let map = match kind {
            Some(kind) => {
                maps.defs.push(data_map(section.name, kind, initial, btf));
                maps.defs.len() - 1
            }
            None => fill_arena(maps, initial)?,
        };
        maps.by_section.insert(index, map);
    }
    Ok(())
}

/// Variables in an arena's address space are the first bytes of the object's only arena.
fn fill_arena(maps: &mut Maps, initial: Vec<u8>) -> Result<usize, ObjectError> {
    let arena = maps.defs.iter().position(|def| def.kind.values() == Values::Pages);
    let arena = arena.ok_or_else(|| ObjectError::Section {
        section: ARENA_SECTION.to_owned(),
        what: "variables in an arena need a map of type arena in the object".to_owned(),
    })?;
    maps.defs[arena].initial = Some(initial);
    Ok(arena)
}

/// The map of a data section (`bpf_object__init_internal_map`).
pub(super) fn data_map(
    name: &str,
    kind: DataSection,
    initial: Vec<u8>,
    btf: Option<&Btf>,
) -> MapDef {
    let mut def = empty_def(name, MapType::Array);
    def.key_size = 4;
    def.value_size = initial.len() as u32;
    def.max_entries = 1;
    if kind.is_constant() {
        def.flags = BPF_F_RDONLY_PROG;
    }
    if let Some(btf) = btf
        && let Some((id, vars)) = btf.datasec(name)
    {
        def.value_type = id;
        let is_global = |ty| matches!(btf.kind(ty), Kind::Var { linkage: Linkage::Global, .. });
        if kind != DataSection::Kconfig && vars.iter().any(|var| is_global(var.ty)) {
            def.flags |= BPF_F_MMAPABLE;
        }
    }
    def.initial = Some(initial);
    def.section = Some(kind);
    def
}

/// Kind of data section, by name as in libbpf: `.data`, `.data.NAME`, ...
fn kind_of(section: &Section<'_>) -> Option<DataSection> {
    let named = |stem: &str| {
        section.name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    match () {
        () if !section.is_alloc || section.executable => None,
        () if named(".data") => Some(DataSection::Data),
        () if named(".rodata") => Some(DataSection::Rodata),
        () if named(".bss") => Some(DataSection::Bss),
        () => None,
    }
}

/// All variables of the data sections: from BTF, or from symbols if there is none.
pub(super) fn collect_globals(
    elf: &Elf<'_>,
    btf: Option<&Btf>,
    maps: &Maps,
) -> Result<Vec<Global>, ObjectError> {
    let mut globals = Vec::new();
    let mut sections: Vec<(usize, usize)> =
        maps.by_section.iter().map(|(&section, &map)| (section, map)).collect();
    sections.sort_unstable();
    for (section, map) in sections {
        let def = &maps.defs[map];
        let Some(kind) = def.section else { continue };
        let symbols = elf.symbols_in(section).count();
        let vars = btf.and_then(|btf| btf.datasec(&def.name)).map_or(symbols, |(_, v)| v.len());
        limit("global variables", globals.len() + vars, GLOBALS_MAX)?;
        match btf.and_then(|btf| Some((btf, btf.datasec(&def.name)?.1))) {
            Some((btf, vars)) => globals.extend(vars.iter().map(|var| Global {
                name: btf.name(var.ty).to_owned(),
                map,
                section: kind,
                offset: var.offset,
                size: var.size,
                ty: match *btf.kind(var.ty) {
                    Kind::Var { ty, .. } => ty,
                    _ => 0,
                },
                declaration: btf.c_declaration(var.ty, ""),
            })),
            None => {
                let variables = elf.symbols_in(section).filter(|symbol| {
                    symbol.kind == ::object::elf::STT_OBJECT && !symbol.name.is_empty()
                });
                globals.extend(variables.filter_map(|symbol| {
                    Some(Global {
                        name: symbol.name.to_owned(),
                        map,
                        section: kind,
                        offset: u32::try_from(symbol.value).ok()?,
                        size: u32::try_from(symbol.size).ok()?,
                        ty: 0,
                        declaration: symbol.name.to_owned(),
                    })
                }));
            }
        }
    }
    globals.retain(|global| {
        let end = u64::from(global.offset) + u64::from(global.size);
        end <= u64::from(maps.defs[global.map].value_size)
    });
    Ok(globals)
}

/// Bytes of `value` in the form of `global`.
pub(super) fn encode(
    global: &Global,
    value: &GlobalValue,
    btf: Option<&Btf>,
) -> Result<Vec<u8>, GlobalError> {
    let size = global.size as usize;
    let integer = match value {
        GlobalValue::Bytes(bytes) if bytes.len() == size => return Ok(bytes.clone()),
        GlobalValue::Bytes(bytes) => {
            return Err(GlobalError::Size {
                name: global.name.clone(),
                declaration: global.declaration.clone(),
                size: global.size.into(),
                given: bytes.len() as u64,
            });
        }
        GlobalValue::Int(integer) => *integer,
    };
    let signed = match btf.map(|btf| btf.resolved(global.ty)) {
        Some(Kind::Int { boolean: true, .. }) if !(0..=1).contains(&integer) => None,
        Some(Kind::Int { signed, .. } | Kind::Enum { signed, .. }) => Some(*signed),
        // Without a type, either interpretation of the bytes is allowed.
        None | Some(Kind::Void) => Some(integer < 0),
        Some(_) => None,
    };
    let fits = |signed: bool| {
        let bits = 8 * size as u32;
        size <= 8
            && if signed {
                (-(1i128 << (bits.max(1) - 1))..1i128 << (bits.max(1) - 1)).contains(&integer)
            } else {
                (0..1i128 << bits).contains(&integer)
            }
    };
    if !signed.is_some_and(fits) {
        return Err(GlobalError::Value {
            name: global.name.clone(),
            declaration: global.declaration.clone(),
            value: integer.to_string(),
        });
    }
    Ok(integer.to_le_bytes()[..size].to_vec())
}

/// Section in which compilers put variables of address space 1.
const ARENA_SECTION: &str = ".addr_space.1";
/// Largest number of globals: the kernel's limit of one BTF section; each is listed with its
/// declaration.
const GLOBALS_MAX: usize = 1 << 16;
/// Programs can't write (`BPF_F_RDONLY_PROG`).
const BPF_F_RDONLY_PROG: u32 = 0x80;
/// User space can map it (`BPF_F_MMAPABLE`).
const BPF_F_MMAPABLE: u32 = 0x400;
/// Largest data section, in bytes: real programs have kilobytes.
const DATA_BYTES_MAX: u64 = 256 << 20;
