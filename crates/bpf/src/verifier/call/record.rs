//! Special fields of map values and program-allocated objects: locks, timers, kptrs, list and tree
//! heads and nodes (`struct btf_record`).
//!
//! They are found by type name, in the value type of each map and in each structure of the object
//! file, and may only be touched by the helpers and kfuncs made for them.

use std::collections::HashMap;
use std::rc::Rc;

use crate::btf::{Btf, TypeId};
use crate::map::FieldSet;
use crate::map::flags::{BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG};
use crate::program::{Linked, MapDef};

use super::super::reg::{BtfRef, BtfSource, MapRef};
use super::find::{types_of, value_record};

/// What a special field is (`enum btf_field_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldKind {
    /// `struct bpf_spin_lock`
    SpinLock,
    /// `struct bpf_res_spin_lock`
    ResSpinLock,
    /// `struct bpf_timer`
    Timer,
    /// `struct bpf_wq`
    Workqueue,
    /// `struct bpf_task_work`
    TaskWork,
    /// `struct bpf_refcount`
    Refcount,
    /// `__kptr_untrusted`
    KptrUnref,
    /// `__kptr`
    KptrRef,
    /// `__percpu_kptr`
    KptrPercpu,
    /// `__uptr`
    Uptr,
    /// `struct bpf_list_head`
    ListHead,
    /// `struct bpf_list_node`
    ListNode,
    /// `struct bpf_rb_root`
    RbRoot,
    /// `struct bpf_rb_node`
    RbNode,
}

/// A special field of a map's values, for whoever stores them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecialField {
    /// What it is.
    pub kind: FieldKind,
    /// Bytes from the start of the value.
    pub offset: u32,
    /// Bytes it takes.
    pub size: u32,
}

/// The special fields of a map's values, by offset. None when one of them breaks a rule: then all
/// of them are plain data, and the verifier refuses their helpers.
pub fn special_fields(def: &MapDef, kernel: &Btf) -> Vec<SpecialField> {
    let Some(btf) = def.btf.as_deref() else { return Vec::new() };
    let Some(types) = types_of(btf, kernel) else { return Vec::new() };
    let mut records = Records { types, ..Records::default() };
    let map = MapRef { index: 0, inner: false };
    records.add_map(map, def, kernel);
    records.of_map(map).map_or_else(Vec::new, |record| record.to_public())
}

/// The special fields of objects of a program's structure, as [`special_fields`].
pub fn special_fields_of(types: &Btf, kernel: &Btf, structure: TypeId) -> Vec<SpecialField> {
    let records = types_of(types, kernel);
    let record = records.and_then(|mut records| records.remove(&types.resolve(structure)));
    record.map_or_else(Vec::new, |record| record.to_public())
}

impl FieldKind {
    /// A pointer that is read and, if unreferenced, written by ordinary instructions.
    pub(crate) fn is_pointer(self) -> bool {
        self.is_kptr() || self == FieldKind::Uptr
    }

    pub(crate) fn is_kptr(self) -> bool {
        matches!(self, FieldKind::KptrUnref | FieldKind::KptrRef | FieldKind::KptrPercpu)
    }

    pub(crate) fn is_root(self) -> bool {
        matches!(self, FieldKind::ListHead | FieldKind::RbRoot)
    }

    /// The kernel's name (`btf_field_type_name`).
    pub(crate) fn name(self) -> &'static str {
        match self {
            FieldKind::SpinLock => "bpf_spin_lock",
            FieldKind::ResSpinLock => "bpf_res_spin_lock",
            FieldKind::Timer => "bpf_timer",
            FieldKind::Workqueue => "bpf_wq",
            FieldKind::TaskWork => "bpf_task_work",
            FieldKind::Refcount => "bpf_refcount",
            FieldKind::KptrUnref | FieldKind::KptrRef => "kptr",
            FieldKind::KptrPercpu => "percpu_kptr",
            FieldKind::Uptr => "uptr",
            FieldKind::ListHead => "bpf_list_head",
            FieldKind::ListNode => "bpf_list_node",
            FieldKind::RbRoot => "bpf_rb_root",
            FieldKind::RbNode => "bpf_rb_node",
        }
    }

    /// The kind of a structure by its name, with its size and alignment.
    pub(super) fn of_struct(name: &str) -> Option<(FieldKind, u32, u32)> {
        Some(match name {
            "bpf_spin_lock" => (FieldKind::SpinLock, 4, 4),
            "bpf_res_spin_lock" => (FieldKind::ResSpinLock, 4, 4),
            "bpf_timer" => (FieldKind::Timer, 16, 8),
            "bpf_wq" => (FieldKind::Workqueue, 16, 8),
            "bpf_task_work" => (FieldKind::TaskWork, 8, 8),
            "bpf_refcount" => (FieldKind::Refcount, 4, 4),
            "bpf_list_head" => (FieldKind::ListHead, 16, 8),
            "bpf_list_node" => (FieldKind::ListNode, 24, 8),
            "bpf_rb_root" => (FieldKind::RbRoot, 16, 8),
            "bpf_rb_node" => (FieldKind::RbNode, 32, 8),
            _ => return None,
        })
    }

    /// Whether there may be only one of them.
    pub(super) fn is_unique(self) -> bool {
        use FieldKind::*;
        matches!(self, SpinLock | ResSpinLock | Timer | Workqueue | TaskWork | Refcount)
    }

    pub(super) fn in_map_value(self) -> bool {
        !matches!(self, FieldKind::ListNode | FieldKind::RbNode)
    }

    pub(super) fn in_object(self) -> bool {
        use FieldKind::*;
        !matches!(self, Timer | Workqueue | TaskWork | Uptr)
    }
}

/// What a field refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FieldType {
    None,
    /// Of kptrs: the type pointed to.
    Kptr(BtfRef),
    /// Of list heads and tree roots: the type of the elements, and where their node is.
    Graph {
        value: TypeId,
        node_offset: u32,
    },
}

/// One special field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Field {
    pub(crate) offset: u32,
    pub(crate) size: u32,
    pub(crate) kind: FieldKind,
    pub(crate) target: FieldType,
}

/// The special fields of one type, by offset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) fields: Vec<Field>,
    /// A pointer has a tag that means nothing here.
    pub(super) strange_tag: bool,
}

impl Record {
    fn to_public(&self) -> Vec<SpecialField> {
        let public = |field: &Field| SpecialField {
            kind: field.kind,
            offset: field.offset,
            size: field.size,
        };
        self.fields.iter().map(public).collect()
    }

    /// The field that starts at `offset` and is one of `wanted`.
    pub(crate) fn find(&self, offset: i64, wanted: impl Fn(FieldKind) -> bool) -> Option<Field> {
        self.fields
            .iter()
            .copied()
            .find(|field| i64::from(field.offset) == offset && wanted(field.kind))
    }

    /// The only field of a kind that is unique.
    pub(crate) fn unique(&self, kind: FieldKind) -> Option<Field> {
        self.fields.iter().copied().find(|field| field.kind == kind)
    }

    pub(crate) fn has(&self, wanted: impl Fn(FieldKind) -> bool) -> bool {
        self.fields.iter().any(|field| wanted(field.kind))
    }

    /// Contains a lock of either sort: objects of this type are told apart by id.
    pub(crate) fn has_lock(&self) -> bool {
        self.has(|kind| matches!(kind, FieldKind::SpinLock | FieldKind::ResSpinLock))
    }
}

/// The records of a program.
#[derive(Debug, Default)]
pub(crate) struct Records {
    maps: HashMap<MapRef, Rc<Record>>,
    types: HashMap<TypeId, Rc<Record>>,
}

impl Records {
    /// Finds all special fields of a program's maps and types. Types that break a rule of theirs
    /// get no record: the fields are then data, and their helpers refuse them.
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

/// Which kinds of map support which fields (`map_check_btf`).
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
