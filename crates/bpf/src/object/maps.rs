//! Maps that an object defines through BTF: variables in the `.maps` section whose type *is* the
//! definition.
//!
//! `__uint(type, N)` declares a member `int (*type)[N]`, `__type(key, T)` a member `T *key`, and
//! `__array(values, T)` an array of the slots' type (libbpf's `parse_btf_map_def`).

use std::collections::HashMap;

use super::ObjectError;
use super::elf::{Elf, SymbolSection, limit};
use crate::btf::{Btf, Kind, Linkage, Member, TypeId};
use crate::map::Values;
use crate::program::{MapDef, MapType, SlotInit};

/// The maps of an object while they are collected.
#[derive(Debug, Default)]
pub(super) struct Maps {
    pub(super) defs: Vec<MapDef>,
    /// Map at an offset of a section (`.maps`, `maps`).
    pub(super) by_place: HashMap<(usize, u64), usize>,
    /// Map that holds all of a data section.
    pub(super) by_section: HashMap<usize, usize>,
    /// Offsets of the definitions' `values`: section, offset, map; sorted.
    values: Vec<(usize, u64, usize)>,
}

impl Maps {
    /// Adds a definition found at a place of the file.
    pub(super) fn add(
        &mut self,
        def: MapDef,
        section: usize,
        offset: u64,
    ) -> Result<usize, ObjectError> {
        limit("maps", self.defs.len() + 1, MAPS_MAX)?;
        let index = self.defs.len();
        if self.by_place.insert((section, offset), index).is_some() {
            let what = format!("another map is at the same offset {offset:#x}");
            return Err(wrong(&def.name, what));
        }
        self.defs.push(def);
        Ok(index)
    }

    /// Collects the variables of the `.maps` section.
    pub(super) fn add_btf_maps(
        &mut self,
        elf: &Elf<'_>,
        btf: Option<&Btf>,
    ) -> Result<(), ObjectError> {
        let Some((section, contents)) = elf.section(MAPS_SECTION) else { return Ok(()) };
        let found = btf.and_then(|btf| Some((btf, btf.datasec(MAPS_SECTION)?.1)));
        let Some((btf, vars)) = found else {
            return Err(ObjectError::Section {
                section: MAPS_SECTION.to_owned(),
                what: "there is no type information for it (compile with -g)".to_owned(),
            });
        };
        for var in vars {
            let name = btf.name(var.ty);
            let Kind::Var { ty, linkage } = *btf.kind(var.ty) else {
                return Err(wrong(name, "its type in BTF isn't that of a variable".into()));
            };
            // It is defined in another file: only the programs that use it can't be linked.
            if linkage == Linkage::Extern {
                continue;
            }
            if u64::from(var.offset) + u64::from(var.size) > contents.size {
                return Err(wrong(name, format!("offset {:#x} is outside .maps", var.offset)));
            }
            let mut values_at = None;
            let def = Definition { btf, map: name, is_inner: false }.read(ty, &mut values_at)?;
            self.check_arena(&def)?;
            let index = self.add(def, section, var.offset.into())?;
            if let Some(at) = values_at {
                self.values.push((section, u64::from(var.offset) + u64::from(at), index));
            }
        }
        self.values.sort_unstable();
        Ok(())
    }

    /// Checks that an object has at most one arena (`bpf_object__init_user_btf_maps`).
    fn check_arena(&self, def: &MapDef) -> Result<(), ObjectError> {
        let is_arena = |def: &&MapDef| def.kind.values() == Values::Pages;
        match self.defs.iter().find(is_arena).filter(|_other| is_arena(&def)) {
            Some(other) => Err(ObjectError::Map {
                map: def.name.clone(),
                what: format!("an object has one arena, and '{}' is one already", other.name),
            }),
            None => Ok(()),
        }
    }

    /// Fills `.values` slots from the relocations of `.maps` (`bpf_object__collect_map_relos`).
    pub(super) fn fill_slots(&mut self, elf: &Elf<'_>) -> Result<(), ObjectError> {
        let Some((section, contents)) = elf.section(MAPS_SECTION) else { return Ok(()) };
        limit("slots filled in .maps", contents.relocations.len(), SLOTS_MAX)?;
        for relocation in &contents.relocations {
            let symbol = &elf.symbols[relocation.symbol];
            let refuse = |what: &str| ObjectError::Relocation {
                section: MAPS_SECTION.to_owned(),
                offset: relocation.offset,
                symbol: symbol.label(elf),
                what: what.to_owned(),
            };
            let after = self.values.partition_point(|v| (v.0, v.1) <= (section, relocation.offset));
            let Some(&(_, start, map)) = after.checked_sub(1).and_then(|at| self.values.get(at))
            else {
                return Err(refuse("no map definition with values lies here"));
            };
            let distance = relocation.offset - start;
            if !distance.is_multiple_of(8) {
                return Err(refuse("a slot takes 8 bytes, this is inside one"));
            }
            let slot = u32::try_from(distance / 8).map_err(|_cause| refuse("too far"))?;
            let def = &self.defs[map];
            let init = if def.kind.values() == Values::Program {
                if !symbol.is_function() || symbol.place == SymbolSection::Undefined {
                    return Err(refuse("a slot of a program array needs a program"));
                }
                SlotInit::Program(symbol.name.to_owned())
            } else {
                let addend = contents.data.get(relocation.offset as usize..);
                let addend = addend.and_then(|rest| rest.first_chunk()).copied();
                let offset =
                    symbol.value.wrapping_add(u64::from_le_bytes(addend.unwrap_or([0; 8])));
                match symbol.place {
                    SymbolSection::Section(at) => self.by_place.get(&(at, offset)).copied(),
                    _ => None,
                }
                .map(SlotInit::Map)
                .ok_or_else(|| refuse("a slot of a map of maps needs a map of this object"))?
            };
            self.defs[map].slots.push((slot, init));
        }
        Ok(())
    }
}

/// A definition with only a name and a kind.
pub(super) fn empty_def(name: &str, kind: MapType) -> MapDef {
    MapDef::new(name, kind, 0, 0, 0)
}

/// The size of a ring buffer that an object asks for, rounded to a possible one: a power of two,
/// and whole pages (libbpf's `adjust_ringbuf_sz`). 0 leaves the size to the loader.
fn ring_bytes(asked: u32) -> u32 {
    const PAGE_BYTES: u32 = 4096;
    let bytes = || asked.checked_next_power_of_two().map(|bytes| bytes.max(PAGE_BYTES));
    if asked == 0 { 0 } else { bytes().unwrap_or(asked) }
}

/// One definition that is being read from a struct type.
struct Definition<'a> {
    btf: &'a Btf,
    map: &'a str,
    is_inner: bool,
}

impl Definition<'_> {
    /// Reads the struct; `values_at` gets the byte offset of its `values` member.
    fn read(&self, ty: TypeId, values_at: &mut Option<u32>) -> Result<MapDef, ObjectError> {
        let Kind::Composite { members, union: false, .. } = self.btf.resolved(ty) else {
            let what = format!("its type must be a struct, not {}", self.btf.c_name(ty));
            return Err(wrong(self.map, what));
        };
        if members.len() > MEMBERS_MAX {
            return Err(self.wrong("its definition has too many members"));
        }
        let kind = members.iter().find(|member| &*member.name == "type");
        let kind = kind.ok_or_else(|| self.wrong("its definition has no type"))?;
        let number = self.integer(kind)?;
        let kind = MapType::from_number(number)
            .ok_or_else(|| self.wrong(&format!("map type {number} doesn't exist")))?;
        let mut def = empty_def(self.map, kind);
        for member in members {
            self.apply(member, &mut def, values_at)?;
        }
        if kind.values() == Values::Records {
            def.max_entries = ring_bytes(def.max_entries);
        }
        Ok(def)
    }

    fn apply(
        &self,
        member: &Member,
        def: &mut MapDef,
        values_at: &mut Option<u32>,
    ) -> Result<(), ObjectError> {
        match &*member.name {
            "type" | "numa_node" => {}
            "max_entries" => def.max_entries = self.integer(member)?,
            "map_flags" => def.flags = self.integer(member)?,
            "map_extra" => def.map_extra = self.long(member)?,
            "key_size" => self.set_size("key", &mut def.key_size, self.integer(member)?)?,
            "value_size" => self.set_size("value", &mut def.value_size, self.integer(member)?)?,
            "key" => {
                let size;
                (def.key_type, size) = self.pointed_type(member)?;
                self.set_size("key", &mut def.key_size, size)?;
            }
            "value" => {
                let size;
                (def.value_type, size) = self.pointed_type(member)?;
                self.set_size("value", &mut def.value_size, size)?;
            }
            "pinning" => match (self.is_inner, self.integer(member)?) {
                // Other bits belong to other loaders (Cilium's `CILIUM_PIN_REPLACE`, 16).
                (false, pinning) => def.pin_by_name = pinning & LIBBPF_PIN_BY_NAME != 0,
                (true, _) => return Err(self.wrong("an inner map can't be pinned")),
            },
            "values" => {
                *values_at = Some(member.bit_offset / 8);
                self.values(member, def)?;
            }
            // libbpf refuses unknown members only in strict mode; here they are ignored.
            _ => {}
        }
        Ok(())
    }

    /// Reads `__array(values, T)`: inner map definitions or program prototypes.
    fn values(&self, member: &Member, def: &mut MapDef) -> Result<(), ObjectError> {
        if self.is_inner {
            return Err(self.wrong("an inner map can't have values of its own"));
        }
        let Kind::Array { elem, .. } = *self.btf.resolved(member.ty) else {
            return Err(self.wrong("values must be an array"));
        };
        let Kind::Ptr(slot) = *self.btf.resolved(elem) else {
            return Err(self.wrong("values must be an array of pointers"));
        };
        self.set_size("value", &mut def.value_size, 4)?;
        match (def.kind.values(), self.btf.resolved(slot)) {
            (Values::Map, Kind::Composite { .. }) => {
                let name = format!("{}.inner", self.map);
                let inner = Definition { btf: self.btf, map: &name, is_inner: true };
                def.inner = Some(Box::new(inner.read(slot, &mut None)?));
                Ok(())
            }
            (Values::Program, Kind::FuncProto { .. }) => Ok(()),
            (Values::Map, _) => {
                Err(self.wrong("values must be pointers to an inner map's definition"))
            }
            (Values::Program, _) => Err(self.wrong("values must be pointers to functions")),
            _ => Err(self.wrong(&format!("a {} can't have values", def.kind.name()))),
        }
    }

    /// Reads N of `int (*member)[N]`.
    fn integer(&self, member: &Member) -> Result<u32, ObjectError> {
        if let Kind::Ptr(to) = *self.btf.resolved(member.ty)
            && let Kind::Array { count, .. } = *self.btf.resolved(to)
        {
            return Ok(count);
        }
        Err(self.wrong(&format!("member {} must be written with __uint", member.name)))
    }

    /// As [`Self::integer`], or `enum { X = N } member` of `__ulong`.
    fn long(&self, member: &Member) -> Result<u64, ObjectError> {
        match self.btf.resolved(member.ty) {
            Kind::Enum { values, .. } if values.len() == 1 => Ok(values[0].1 as u64),
            _ => self.integer(member).map(u64::from),
        }
    }

    /// T of `T *member`, and its size.
    fn pointed_type(&self, member: &Member) -> Result<(TypeId, u32), ObjectError> {
        let Kind::Ptr(to) = *self.btf.resolved(member.ty) else {
            return Err(self.wrong(&format!("member {} must be written with __type", member.name)));
        };
        let size = self.btf.size_of(to).and_then(|size| u32::try_from(size).ok());
        let size = size.ok_or_else(|| {
            self.wrong(&format!("{} type {} has no size", member.name, self.btf.c_name(to)))
        })?;
        Ok((to, size))
    }

    fn set_size(&self, what: &str, slot: &mut u32, size: u32) -> Result<(), ObjectError> {
        if *slot != 0 && *slot != size {
            return Err(self.wrong(&format!("{what} size is given as {slot} and as {size}")));
        }
        *slot = size;
        Ok(())
    }

    fn wrong(&self, what: &str) -> ObjectError {
        wrong(self.map, what.to_owned())
    }
}

pub(super) fn wrong(map: &str, what: String) -> ObjectError {
    ObjectError::Map { map: map.to_owned(), what }
}

/// Name of the section of definitions by BTF.
pub(super) const MAPS_SECTION: &str = ".maps";
/// The loader pins the map under its name (`enum libbpf_pin_type`).
const LIBBPF_PIN_BY_NAME: u32 = 1;
/// Largest number of members of a definition: there are a dozen kinds.
const MEMBERS_MAX: usize = 64;
/// Largest number of slots: more would be filled by a program's loader, not by its source.
const SLOTS_MAX: usize = 1 << 16;
/// Largest number of maps: a program can refer to 64 (`MAX_USED_MAPS`), an object with many
/// programs to some more.
const MAPS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_buffers_have_a_size_that_can_be() {
        let sizes = [0, 8, 4096, 4097, 12_288, 1 << 31, u32::MAX];
        let made = [0, 4096, 4096, 8192, 16_384, 1 << 31, u32::MAX];
        assert_eq!(sizes.map(ring_bytes), made);
    }

    #[test]
    fn an_object_has_one_arena() {
        let def = |name, kind| MapDef::new(name, kind, 0, 0, 1);
        let mut maps = Maps::default();
        maps.check_arena(&def("first", MapType::Arena)).expect("there is none");
        maps.defs.push(def("first", MapType::Arena));
        maps.check_arena(&def("other", MapType::Hash)).expect("it is no arena");
        let error = maps.check_arena(&def("second", MapType::Arena)).expect_err("there is one");
        assert_eq!(
            error.to_string(),
            "map second: an object has one arena, and 'first' is one already"
        );
    }
}
