//! Special fields of map values and program-allocated objects: locks, timers, kptrs, list and tree
//! heads and nodes (`struct btf_record`).
//!
//! Special fields are found by type name, in the value type of each map and in each structure of
//! the object file, and only their own helpers and kfuncs may access them.

use std::collections::HashMap;
use std::rc::Rc;

use crate::btf::{Btf, TypeId};
use crate::map::FieldSet;
use crate::map::flags::{BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG};
use crate::program::{Linked, MapDef};

use super::super::reg::{BtfRef, BtfSource, MapRef};
use super::field::{FieldKind, FieldType, Record, SpecialField};
use super::find::{types_of, value_record};

/// Special fields of a map's values, by offset. Empty if one of them breaks a rule: then all of
/// them are plain data, and the verifier refuses calls of their helpers.
pub fn special_fields(def: &MapDef, kernel: &Btf) -> Vec<SpecialField> {
    let Some(btf) = def.btf.as_deref() else { return Vec::new() };
    let Some(types) = types_of(btf, kernel) else { return Vec::new() };
    let mut records = Records { types, ..Records::default() };
    let map = MapRef { index: 0, inner: false };
    records.add_map(map, def, kernel);
    records.of_map(map).map_or_else(Vec::new, |record| record.to_public())
}

/// Special fields of objects of a program's structure, as [`special_fields`].
pub fn special_fields_of(types: &Btf, kernel: &Btf, structure: TypeId) -> Vec<SpecialField> {
    let records = types_of(types, kernel);
    let record = records.and_then(|mut records| records.remove(&types.resolve(structure)));
    record.map_or_else(Vec::new, |record| record.to_public())
}

/// The records of a program.
#[derive(Debug, Default)]
pub(crate) struct Records {
    maps: HashMap<MapRef, Rc<Record>>,
    types: HashMap<TypeId, Rc<Record>>,
}

impl Records {
    /// Finds all special fields of a program's maps and types. Types that break a rule get no
    /// record: their fields are then data, and calls of the fields' helpers are refused.
    pub(crate) fn of(prog: &Linked) -> Self {
        let mut records = Records::default();
        let of_maps = || prog.maps.iter().find_map(|def| def.btf.as_deref());
        if let Some(btf) = prog.btf.as_deref().or_else(of_maps) {
            let Some(types) = types_of(btf, &prog.kernel_btf) else { return records };
            records.types = types;
        }
        for (index, def) in prog.maps.iter().enumerate() {
            let outer = MapRef { index: index as u32, inner: false };
            records.add_map(outer, def, &prog.kernel_btf);
            if let Some(inner) = def.inner.as_deref() {
                let inner_ref = MapRef { inner: true, ..outer };
                records.add_map(inner_ref, inner, &prog.kernel_btf);
            }
        }
        records
    }

    pub(crate) fn of_map(&self, map: MapRef) -> Option<Rc<Record>> {
        self.maps.get(&map).cloned()
    }

    /// The record of a type of the object file (`btf_find_struct_meta`).
    pub(crate) fn of_type(&self, ty: BtfRef) -> Option<Rc<Record>> {
        if ty.source != BtfSource::Object {
            return None;
        }
        self.types.get(&ty.id).cloned()
    }

    fn add_map(&mut self, map: MapRef, def: &MapDef, kernel: &Btf) {
        let Some(btf) = def.btf.as_deref() else { return };
        let Some(record) = value_record(btf, kernel, def.value_type) else { return };
        if record.fields.is_empty() {
            return;
        }
        let roots_known = record.fields.iter().all(|field| match field.target {
            FieldType::Graph { value, .. } => self.types.contains_key(&value),
            _ => true,
        });
        if roots_known && kinds_allow(def, &record) {
            self.maps.insert(map, Rc::new(record));
        }
    }
}

/// Whether the kind of map supports the fields of its values (`map_check_btf`).
fn kinds_allow(def: &MapDef, record: &Record) -> bool {
    let allowed = def.kind.spec().fields;
    let is_shared = def.flags & (BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG) == 0;
    is_shared
        && record.fields.iter().all(|field| {
            allowed.has(match field.kind {
                FieldKind::SpinLock | FieldKind::ResSpinLock => FieldSet::LOCK,
                FieldKind::Timer
                | FieldKind::Workqueue
                | FieldKind::TaskWork
                | FieldKind::ListHead
                | FieldKind::RbRoot => FieldSet::TIMER,
                FieldKind::Uptr => FieldSet::UPTR,
                _ => FieldSet::KPTR,
            })
        })
}
