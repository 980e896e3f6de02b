//! Maps that an object defines as plain structs in a `maps` section, the predecessor of `.maps`.
//!
//! libbpf 1.x refuses these; many objects in use have them, each with its own struct. All begin
//! with the same four words; the rest is distinguished by the struct's size: libbpf's `bpf_map_def`
//! (16 or 20 bytes), the samples' and selftests' (24 and 28), iproute2's `bpf_elf_map` (36),
//! gobpf's with a namespace (280). Any other size is accepted if the rest is 0.

use super::ObjectError;
use super::elf::Elf;
use super::maps::{Maps, empty_def, wrong};
use crate::btf::Btf;
use crate::map::Values;
use crate::program::{MapDef, MapType, SlotInit};

/// A definition, with the references that can be resolved only when all maps are known.
struct Legacy {
    map: usize,
    /// Id in iproute2's sense, to which `inner_id` and section names `ID/KEY` refer.
    id: u32,
    inner: Inner,
    /// For iproute2's inner maps: the slot in each outer map that refers to this map's id.
    slot: Option<u32>,
}

/// Reference of a map of maps to its inner map.
enum Inner {
    None,
    /// The map with this index in the section (samples).
    Index(u32),
    /// The maps with this id (iproute2): the first is the template.
    Id(u32),
}

/// Collects the maps of all `maps` and `maps/NAME` sections.
pub(super) fn add_legacy_maps(
    maps: &mut Maps,
    elf: &Elf<'_>,
    btf: Option<&Btf>,
) -> Result<(), ObjectError> {
    let mut found = Vec::new();
    for (index, section) in elf.sections.iter().enumerate() {
        let is_maps = section.name == "maps" || section.name.starts_with("maps/");
        if is_maps && section.is_alloc && !section.executable {
            add_section(maps, elf, index, btf, &mut found)?;
        }
    }
    resolve_inner(maps, &found)?;
    fill_tail_calls(maps, elf, &found);
    Ok(())
}

fn add_section(
    maps: &mut Maps,
    elf: &Elf<'_>,
    index: usize,
    btf: Option<&Btf>,
    found: &mut Vec<Legacy>,
) -> Result<(), ObjectError> {
    let section = &elf.sections[index];
    let is_map = |kind| kind == ::object::elf::STT_OBJECT || kind == ::object::elf::STT_NOTYPE;
    let mut places: Vec<(u64, &str, u64)> = elf
        .symbols_in(index)
        .filter(|symbol| is_map(symbol.kind) && !symbol.name.is_empty())
        .map(|symbol| (symbol.value, symbol.name, symbol.size))
        .collect();
    places.sort_unstable();
    for (at, &(start, name, size)) in places.iter().enumerate() {
        // Symbols of old compilers have no size: a definition reaches to the next symbol. A size
        // counts if there is one: weak definitions that a linker left out leave their bytes behind.
        let next = places.get(at + 1).map_or(section.size, |next| next.0);
        let end = if size == 0 { next } else { next.min(start.saturating_add(size)) };
        let bytes = usize::try_from(start)
            .ok()
            .zip(usize::try_from(end).ok())
            .and_then(|(start, end)| section.data.get(start..end))
            .ok_or_else(|| wrong(name, format!("offset {start:#x} is outside {}", section.name)))?;
        let Read { mut def, id, inner, slot } = read(name, bytes)?;
        if let Some(btf) = btf {
            annotate(&mut def, btf);
        }
        let map = maps.add(def, index, start)?;
        found.push(Legacy { map, id, inner, slot });
    }
    Ok(())
}

/// A map definition in the form of `struct bpf_map_def` or `struct bpf_elf_map`.
struct Read {
    def: MapDef,
    id: u32,
    inner: Inner,
    slot: Option<u32>,
}

/// Reads one struct.
fn read(name: &str, bytes: &[u8]) -> Result<Read, ObjectError> {
    let word = |index: usize| {
        let raw = bytes.get(index * 4..).and_then(|rest| rest.first_chunk());
        raw.map_or(0, |&raw| u32::from_le_bytes(raw))
    };
    if bytes.len() < 16 {
        let what = format!("its definition has {} bytes, at least 16 are needed", bytes.len());
        return Err(wrong(name, what));
    }
    let kind = MapType::from_number(word(0))
        .ok_or_else(|| wrong(name, format!("map type {} doesn't exist", word(0))))?;
    let mut def = empty_def(name, kind);
    (def.key_size, def.value_size) = (word(1), word(2));
    (def.max_entries, def.flags) = (word(3), word(4));
    let is_outer = kind.values() == Values::Map;
    let (mut id, mut inner, mut slot, mut known) = (0, Inner::None, None, 20);
    match bytes.len() {
        // `inner_map_idx` and `numa_node` of samples/bpf; the second is ignored.
        24 | 28 => {
            known = bytes.len();
            if is_outer {
                inner = Inner::Index(word(5));
            }
        }
        // `id`, `pinning`, `inner_id`, `inner_idx` of iproute2.
        36 => {
            known = 36;
            id = word(5);
            def.pin_by_name = word(6) != 0;
            if is_outer && word(7) != 0 {
                inner = Inner::Id(word(7));
            }
            // The value -1 only declares a template.
            slot = (id != 0 && word(7) == 0 && word(8) != u32::MAX).then(|| word(8));
        }
        280 => {
            known = 280;
            def.pin_by_name = word(5) != 0;
        }
        _ => {}
    }
    if let Some(at) = bytes.iter().skip(known).position(|&byte| byte != 0) {
        let what = format!(
            "its definition of {} bytes isn't 0 at byte {}, where no known struct has a field",
            bytes.len(),
            known + at
        );
        return Err(wrong(name, what));
    }
    Ok(Read { def, id, inner, slot })
}

/// Sets the types of key and value if the source has them by `BPF_ANNOTATE_KV_PAIR`.
fn annotate(def: &mut MapDef, btf: &Btf) {
    let Some(pair) = btf.find_composite(&format!("____btf_map_{}", def.name)) else { return };
    let typed = |member: &str, size: u32| {
        let member = btf.member(pair, member)?.member;
        (btf.size_of(member.ty) == Some(size.into())).then_some(member.ty)
    };
    if let (Some(key), Some(value)) = (typed("key", def.key_size), typed("value", def.value_size)) {
        (def.key_type, def.value_type) = (key, value);
    }
}

fn resolve_inner(maps: &mut Maps, found: &[Legacy]) -> Result<(), ObjectError> {
    for legacy in found {
        let outer = maps.defs[legacy.map].name.clone();
        let target = match legacy.inner {
            Inner::None => continue,
            Inner::Index(index) => found.get(index as usize),
            Inner::Id(id) => found.iter().find(|other| other.id == id),
        };
        let target = target.filter(|target| target.map != legacy.map);
        let Some(target) = target.map(|target| target.map) else {
            return Err(wrong(&outer, "its inner map isn't in the object".to_owned()));
        };
        let mut template = maps.defs[target].clone();
        template.inner = None;
        maps.defs[legacy.map].inner = Some(Box::new(template));
        if let Inner::Id(id) = legacy.inner {
            let inner = found.iter().filter(|inner| inner.id == id && inner.map != legacy.map);
            let slots = inner.filter_map(|inner| Some((inner.slot?, SlotInit::Map(inner.map))));
            maps.defs[legacy.map].slots.extend(slots);
        }
    }
    Ok(())
}

/// Fills program arrays by iproute2's `__section_tail(ID, KEY)`: the program in section `ID/KEY`
/// goes into slot `KEY` of the array with that id.
fn fill_tail_calls(maps: &mut Maps, elf: &Elf<'_>, found: &[Legacy]) {
    for (index, section) in elf.sections.iter().enumerate().filter(|(_, s)| s.executable) {
        let Some((id, key)) = section.name.split_once('/') else { continue };
        let (Some(id), Ok(key)) = (parse_number(id), key.parse()) else { continue };
        let is_target = |legacy: &&Legacy| {
            legacy.id == id && maps.defs[legacy.map].kind.values() == Values::Program
        };
        let Some(map) = found.iter().find(is_target).map(|legacy| legacy.map) else { continue };
        let symbols = || elf.symbols_in(index);
        let program = symbols()
            .find(|symbol| symbol.is_global())
            .or_else(|| symbols().find(|symbol| symbol.is_function()));
        if let Some(program) = program {
            maps.defs[map].slots.push((key, SlotInit::Program(program.name.to_owned())));
        }
    }
}

/// Parses a C number: decimal or, as in iproute2's examples, hexadecimal.
fn parse_number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_definition_of_any_size_is_read_when_its_tail_is_zero() {
        for size in [4, 5, 6, 7, 8, 12] {
            let mut def = vec![2, 4, 8, 256];
            def.resize(size, 0);
            let Read { def, .. } = read("counters", &words(&def)).unwrap();
            assert_eq!((def.kind, def.value_size, def.max_entries), (MapType::Array, 8, 256));
        }
        let error = read("counters", &words(&[2, 4, 8, 256, 0, 0, 0, 9])).err().unwrap();
        assert!(error.to_string().contains("byte 28"), "{error}");
        assert!(read("counters", &words(&[99, 4, 8, 1])).is_err());
        assert!(read("counters", &[2, 0, 0]).is_err());
    }

    #[test]
    fn iproute2_maps_carry_pinning_and_inner_ids() {
        let outer = read("outer", &words(&[12, 4, 4, 8, 0, 7, 2, 9, 3])).unwrap();
        assert!(outer.def.pin_by_name && matches!(outer.inner, Inner::Id(9)));
        assert_eq!((outer.id, outer.slot), (7, None));
        let slot = |inner_idx| {
            let def = [2, 4, 4, 1, 0, 9, 0, 0, inner_idx];
            read("inner", &words(&def)).unwrap().slot
        };
        assert_eq!([slot(3), slot(0), slot(u32::MAX)], [Some(3), Some(0), None]);
    }
}
