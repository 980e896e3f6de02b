//! Whether an existing map can stand for one that an object file defines, and how its values are
//! converted to another version of their type.
//!
//! libbpf asks the same before it uses a pinned map again (`map_is_reuse_compat`): kind, sizes and
//! flags. Here the types count, too, if both sides have them: a value whose members have moved
//! would be misread.

use std::fmt;

use towpath_bpf::MapDef;
use towpath_bpf::btf::TypeId;
use towpath_bpf::program::{DataSection, MapType};

use crate::fields::{Field, FieldKind};
use crate::flags::BPF_F_RDONLY_PROG;
use crate::map::Map;
use crate::typed::leaves::{Leaf, leaves};
use crate::user::Value;

/// The first property in which a map differs from a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The property: `value_size`, `the type of its values`.
    pub property: &'static str,
    /// The map's shape.
    pub was: String,
    /// The defined shape.
    pub is: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was {} and is {}", self.property, self.was, self.is)
    }
}

/// The reason why `map` can't be used for `def`, whose values have these special fields; `None` if
/// it can.
pub fn difference(map: &Map, def: &MapDef, fields: &[Field]) -> Option<Difference> {
    of_definitions(map.def(), def)
        .or_else(|| of_fields(map, def, fields))
        .or_else(|| of_sections(map.def(), def))
}

fn of_definitions(old: &MapDef, new: &MapDef) -> Option<Difference> {
    let slots_from_cpus = new.kind == MapType::PerfEventArray && new.max_entries == 0;
    let entries = if slots_from_cpus { old.max_entries } else { new.max_entries };
    let sizes = [
        ("key_size", old.key_size, new.key_size),
        ("value_size", old.value_size, new.value_size),
        ("max_entries", old.max_entries, entries),
        ("map_flags", old.flags & !BPF_F_RDONLY_PROG, new.flags & !BPF_F_RDONLY_PROG),
    ];
    if old.kind != new.kind {
        return differ("its kind", &old.kind.name(), &new.kind.name());
    }
    if let Some((property, was, is)) = sizes.into_iter().find(|(_, was, is)| was != is) {
        return differ(property, &was, &is);
    }
    if old.map_extra != new.map_extra {
        return differ("map_extra", &old.map_extra, &new.map_extra);
    }
    match (&old.inner, &new.inner) {
        (Some(old), Some(new)) => of_definitions(old, new),
        (None, None) => of_types("a part of its keys", (old, old.key_type), (new, new.key_type))
            .or_else(|| {
                of_types("a part of its values", (old, old.value_type), (new, new.value_type))
            }),
        (old, new) => {
            let told = |inner: &Option<Box<MapDef>>| if inner.is_some() { "there" } else { "none" };
            differ("its inner map", &told(old), &told(new))
        }
    }
}

/// Types are compared where both sides have them.
fn of_types(
    property: &'static str,
    (old, old_type): (&MapDef, TypeId),
    (new, new_type): (&MapDef, TypeId),
) -> Option<Difference> {
    let parts = |def: &MapDef, id: TypeId| leaves(def.btf.as_deref().filter(|_| id != 0)?, id);
    let (old, new) = (parts(old, old_type)?, parts(new, new_type)?);
    let count = old.len().max(new.len());
    let (was, is) = (0..count).map(|at| (old.get(at), new.get(at))).find(|(was, is)| was != is)?;
    let told = |leaf: Option<&Leaf>| match leaf {
        Some(Leaf { path, bit_offset, c_type, .. }) => {
            let name = if path.is_empty() { String::new() } else { format!(" {path}") };
            format!("{c_type}{name} at byte {}", bit_offset / 8)
        }
        None => "nothing".to_owned(),
    };
    differ(property, &told(was), &told(is))
}

/// Objects in special fields were made by programs that know their types by the BTF of their
/// object.
fn of_fields(map: &Map, def: &MapDef, fields: &[Field]) -> Option<Difference> {
    if map.fields() != fields {
        return differ("special fields of its values", &map.fields().len(), &fields.len());
    }
    let owns_objects = |field: &Field| {
        let kinds = [FieldKind::Kptr, FieldKind::KptrPercpu, FieldKind::ListHead];
        kinds.contains(&field.kind) || field.kind == FieldKind::RbRoot
    };
    if have_same_types(map.def(), def) || !fields.iter().any(owns_objects) {
        return None;
    }
    differ("the object's BTF, by which its values own objects,", &"another", &"this one")
}

fn have_same_types(old: &MapDef, new: &MapDef) -> bool {
    match (&old.btf, &new.btf) {
        (Some(old), Some(new)) => old.iter().eq(new.iter()),
        (old, new) => old.is_none() && new.is_none(),
    }
}

/// Global variables: constants and initial values belong to the code.
fn of_sections(old: &MapDef, new: &MapDef) -> Option<Difference> {
    if old.section != new.section {
        let told = |section: Option<DataSection>| section.map_or("none", DataSection::name);
        return differ("its section", &told(old.section), &told(new.section));
    }
    match new.section {
        Some(section) if section.is_constant() => {
            differ("its contents", &"constant", &"the new object's")
        }
        _ if old.initial != new.initial => {
            differ("its first values", &"others", &"the new object's")
        }
        // An arena's variables have no type of their own.
        None if new.initial.is_some() && !have_same_types(old, new) => {
            differ("its variables", &"others", &"the new object's")
        }
        // Without types the places of variables are unknown.
        Some(_) if new.btf.is_none() || new.value_type == 0 => {
            differ("its variables", &"unknown", &"unknown")
        }
        _ => None,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it ends functions that look for a difference")]
fn differ(
    property: &'static str,
    was: &dyn fmt::Display,
    is: &dyn fmt::Display,
) -> Option<Difference> {
    Some(Difference { property, was: was.to_string(), is: is.to_string() })
}

/// A conversion of values of one type to those of another: every part that both have by name is
/// copied, the rest is 0. Without types on both sides the bytes are copied unchanged.
#[derive(Debug)]
pub struct Conversion {
    size: usize,
    parts: Option<Vec<(Leaf, Leaf)>>,
}

impl Conversion {
    /// From the values of one definition to those of the other.
    pub fn of_values(old: &MapDef, new: &MapDef) -> Conversion {
        Conversion::new((old, old.value_type), (new, new.value_type), new.value_size)
    }

    /// As [`Conversion::of_values`], for keys.
    pub fn of_keys(old: &MapDef, new: &MapDef) -> Conversion {
        Conversion::new((old, old.key_type), (new, new.key_type), new.key_size)
    }

    fn new(old: (&MapDef, TypeId), new: (&MapDef, TypeId), size: u32) -> Conversion {
        let parts = |(def, id): (&MapDef, TypeId)| leaves(def.btf.as_deref()?, id);
        let pairs = || {
            let (old, new) = (parts(old)?, parts(new)?);
            // A type without named parts is copied whole.
            if old.iter().chain(&new).any(|leaf| leaf.path.is_empty()) {
                return None;
            }
            let like = |leaf: &Leaf| old.iter().find(|it| it.path == leaf.path).cloned();
            Some(new.iter().filter_map(|leaf| Some((like(leaf)?, leaf.clone()))).collect())
        };
        Conversion { size: size as usize, parts: pairs() }
    }

    /// The new bytes.
    pub fn bytes(&self, old: &[u8]) -> Vec<u8> {
        let mut new = vec![0; self.size];
        match &self.parts {
            None => {
                let count = old.len().min(new.len());
                new[..count].copy_from_slice(&old[..count]);
            }
            Some(parts) => parts.iter().for_each(|(from, to)| copy_bits(old, from, &mut new, to)),
        }
        new
    }

    /// The new value, of all CPUs where it has several.
    pub fn value(&self, old: &Value) -> Value {
        match old {
            Value::One(bytes) => Value::One(self.bytes(bytes)),
            Value::PerCpu(all) => Value::PerCpu(all.iter().map(|it| self.bytes(it)).collect()),
        }
    }
}

/// Copies a leaf bit by bit, from its lowest one: a wider one is filled up with zeros, a narrower
/// one loses its highest.
fn copy_bits(old: &[u8], from: &Leaf, new: &mut [u8], to: &Leaf) {
    for bit in 0..from.bits.min(to.bits) {
        let (at, target) = ((from.bit_offset + bit) as usize, (to.bit_offset + bit) as usize);
        let is_set = old.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
        if is_set && let Some(byte) = new.get_mut(target / 8) {
            *byte |= 1 << (target % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::map::CreateOptions;
    use crate::qsbr::Domain;
    use crate::testing::def;

    use super::*;

    fn differs(old: &MapDef, new: &MapDef) -> Option<String> {
        let map = Map::create(old, &CreateOptions::new(Domain::new(1))).expect("it can be made");
        difference(&map, new, &[]).map(|difference| difference.to_string())
    }

    #[test]
    fn the_property_that_changed_is_named() {
        let old = def(MapType::Hash, 4, 8, 16, 0);
        assert_eq!(differs(&old, &old), None);
        let changed = [
            (def(MapType::LruHash, 4, 8, 16, 0), "its kind was hash and is lru_hash"),
            (def(MapType::Hash, 8, 8, 16, 0), "key_size was 4 and is 8"),
            (def(MapType::Hash, 4, 4, 16, 0), "value_size was 8 and is 4"),
            (def(MapType::Hash, 4, 8, 32, 0), "max_entries was 16 and is 32"),
            (def(MapType::Hash, 4, 8, 16, 1), "map_flags was 0 and is 1"),
        ];
        for (new, told) in changed {
            assert_eq!(differs(&old, &new).as_deref(), Some(told));
        }
    }

    #[test]
    fn inner_maps_count_and_perf_arrays_have_the_size_that_they_got() {
        let mut old = def(MapType::ArrayOfMaps, 4, 4, 2, 0);
        old.inner = Some(Box::new(def(MapType::Array, 4, 8, 3, 0)));
        let mut new = old.clone();
        new.inner = Some(Box::new(def(MapType::Array, 4, 8, 4, 0)));
        assert_eq!(differs(&old, &new).as_deref(), Some("max_entries was 3 and is 4"));
        let perf = def(MapType::PerfEventArray, 4, 4, 0, 0);
        assert_eq!(differs(&perf, &perf), None);
    }

    #[test]
    fn first_values_and_constants_belong_to_the_code() {
        let mut old = def(MapType::Array, 4, 8, 1, 0);
        old.section = Some(DataSection::Data);
        old.initial = Some(vec![1; 8]);
        let mut new = old.clone();
        new.initial = Some(vec![2; 8]);
        assert!(differs(&old, &new).is_some_and(|told| told.starts_with("its first values")));
        // The places of variables are unknown.
        assert!(differs(&old, &old).is_some_and(|told| told.starts_with("its variables")));
        old.section = Some(DataSection::Rodata);
        assert!(differs(&old, &old).is_some_and(|told| told.starts_with("its contents")));
    }

    #[test]
    fn bits_move_with_their_names() {
        let leaf = |path: &str, bit_offset, bits| Leaf {
            path: path.to_owned(),
            bit_offset,
            bits,
            c_type: String::new(),
        };
        let parts = vec![(leaf("a", 0, 4), leaf("a", 8, 8)), (leaf("b", 4, 4), leaf("b", 0, 2))];
        let conversion = Conversion { size: 2, parts: Some(parts) };
        assert_eq!(conversion.bytes(&[0b1110_1001]), [0b10, 0b1001]);
        let plain = Conversion { size: 3, parts: None };
        assert_eq!(plain.bytes(&[1, 2]), [1, 2, 0]);
    }
}
