//! Special fields of map values and program-allocated objects: locks, timers, kptrs, list and tree
//! heads and nodes (`struct btf_record`).
//!
//! They are found by type name, in the value type of each map and in each structure of the object
//! file, and may only be touched by the helpers and kfuncs made for them.

use std::collections::HashMap;
use std::rc::Rc;

use crate::btf::{Btf, Kind, TypeId};
use crate::program::{Linked, MapDef, MapType};

use super::super::reg::{BtfRef, BtfSource, MapRef};

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
    let mut records = Records { types: types_of(btf, kernel), ..Records::default() };
    let map = MapRef { index: 0, inner: false };
    records.add_map(map, def, kernel);
    let fields = records.of_map(map).map(|record| record.fields.clone()).unwrap_or_default();
    let public =
        |field: Field| SpecialField { kind: field.kind, offset: field.offset, size: field.size };
    fields.into_iter().map(public).collect()
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
    fn of_struct(name: &str) -> Option<(FieldKind, u32, u32)> {
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
    fn is_unique(self) -> bool {
        use FieldKind::*;
        matches!(self, SpinLock | ResSpinLock | Timer | Workqueue | TaskWork | Refcount)
    }

    fn in_map_value(self) -> bool {
        !matches!(self, FieldKind::ListNode | FieldKind::RbNode)
    }

    fn in_object(self) -> bool {
        use FieldKind::*;
        !matches!(self, Timer | Workqueue | TaskWork | Uptr)
    }
}

/// What a field refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
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
    pub(crate) target: Target,
}

/// The special fields of one type, by offset; never empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) fields: Vec<Field>,
}

impl Record {
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
        if let Some(btf) = prog.btf.as_deref() {
            records.types = types_of(btf, &prog.kernel_btf);
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
        let tags = Tags::of(btf);
        let finder = Finder { btf, kernel, tags: &tags, in_map: true };
        let Some(record) = finder.record(def.value_type) else { return };
        let roots_known = record.fields.iter().all(|field| match field.target {
            Target::Graph { value, .. } => self.types.contains_key(&value),
            _ => true,
        });
        if roots_known && kinds_allow(def, &record) {
            self.maps.insert(map, Rc::new(record));
        }
    }
}

/// Which kinds of map support which fields (`map_check_btf`).
fn kinds_allow(def: &MapDef, record: &Record) -> bool {
    use MapType::*;
    const PROG_ACCESS: u32 = (1 << 7) | (1 << 8);
    if def.flags & PROG_ACCESS != 0 {
        return false;
    }
    record.fields.iter().all(|field| match field.kind {
        FieldKind::SpinLock | FieldKind::ResSpinLock => {
            matches!(def.kind, Hash | Array | CgroupStorage | TaskStorage | CgrpStorage)
        }
        FieldKind::Timer
        | FieldKind::Workqueue
        | FieldKind::TaskWork
        | FieldKind::ListHead
        | FieldKind::RbRoot => matches!(def.kind, Hash | LruHash | Array),
        FieldKind::Uptr => def.kind == TaskStorage,
        _ => matches!(
            def.kind,
            Hash | PercpuHash
                | LruHash
                | LruPercpuHash
                | Array
                | PercpuArray
                | TaskStorage
                | CgrpStorage
        ),
    })
}

/// The records of all structures of an object file (`btf_parse_struct_metas`).
fn types_of(btf: &Btf, kernel: &Btf) -> HashMap<TypeId, Rc<Record>> {
    let tags = Tags::of(btf);
    let finder = Finder { btf, kernel, tags: &tags, in_map: false };
    let structs = btf.iter().filter(|(_, ty)| {
        matches!(ty.kind, Kind::Composite { union: false, .. })
            && FieldKind::of_struct(&ty.name).is_none()
    });
    let found: HashMap<TypeId, Record> =
        structs.filter_map(|(id, _)| Some((id, finder.record(id)?))).collect();
    let acyclic = |record: &Record| {
        record.fields.iter().all(|field| match field.target {
            Target::Graph { value, .. } => found.get(&value).is_some_and(|element| {
                // Objects that can be in a list may not own lists of objects that own lists.
                let is_node =
                    record.has(|kind| matches!(kind, FieldKind::ListNode | FieldKind::RbNode));
                !(is_node && element.has(FieldKind::is_root))
            }),
            _ => true,
        })
    };
    found
        .iter()
        .filter(|(_, record)| acyclic(record))
        .map(|(id, record)| (*id, Rc::new(record.clone())))
        .collect()
}

/// Declaration tags by what they are attached to.
struct Tags<'b>(HashMap<(TypeId, i32), &'b str>);

impl<'b> Tags<'b> {
    fn of(btf: &'b Btf) -> Self {
        let tags = btf.iter().filter_map(|(_, tag)| match tag.kind {
            Kind::DeclTag { ty, component } => Some(((ty, component), &*tag.name)),
            _ => None,
        });
        Tags(tags.collect())
    }
}

/// Looks for special fields inside one type.
struct Finder<'b> {
    btf: &'b Btf,
    kernel: &'b Btf,
    tags: &'b Tags<'b>,
    in_map: bool,
}

impl Finder<'_> {
    /// The record of a structure or data section; `None` without special fields, or when one of
    /// them breaks a rule.
    fn record(&self, id: TypeId) -> Option<Record> {
        let mut record = Record::default();
        match self.btf.resolved(id) {
            Kind::Datasec { vars, .. } => {
                for var in vars.iter() {
                    let Kind::Var { ty, .. } = *self.btf.kind(var.ty) else { continue };
                    self.field(ty, var.offset, (var.ty, -1), 0, &mut record)?;
                }
            }
            Kind::Composite { .. } => {
                self.members(self.btf.resolve(id), 0, 0, &mut record)?;
            }
            _ => return None,
        }
        record.fields.sort_by_key(|field| field.offset);
        let overlap =
            record.fields.windows(2).any(|pair| pair[0].offset + pair[0].size > pair[1].offset);
        let unlocked = record.has(FieldKind::is_root) && !record.has_lock();
        // In a list and a tree at once, an object has two owners: they must be counted.
        let is = |kind| record.has(|k| k == kind);
        let uncounted =
            is(FieldKind::ListNode) && is(FieldKind::RbNode) && !is(FieldKind::Refcount);
        let broken = overlap || unlocked || uncounted || record.fields.len() > FIELDS_MAX;
        (!record.fields.is_empty() && !broken).then_some(record)
    }

    fn members(&self, id: TypeId, base: u32, depth: u32, record: &mut Record) -> Option<()> {
        for (index, member) in self.btf.members(id).iter().enumerate() {
            if member.bit_offset % 8 != 0 {
                continue;
            }
            let offset = base.checked_add(member.bit_offset / 8)?;
            self.field(member.ty, offset, (id, index as i32), depth, record)?;
        }
        Some(())
    }

    /// One variable or member, or the elements of an array of them (`btf_find_field_one`).
    fn field(
        &self,
        ty: TypeId,
        offset: u32,
        place: (TypeId, i32),
        depth: u32,
        record: &mut Record,
    ) -> Option<()> {
        let (elem, count) = self.flatten(ty)?;
        let ty = self.btf.strip_qualifiers(elem);
        match self.btf.resolved(ty) {
            Kind::Ptr(to) => self.pointer(*to, offset, count, record),
            Kind::Composite { union: false, size, .. } => {
                let name = self.btf.name(self.btf.resolve(ty));
                match FieldKind::of_struct(name) {
                    Some((kind, size, align)) => {
                        self.structure(kind, size, align, offset, count, place, record)
                    }
                    None if depth < NESTING_MAX && count <= FIELDS_MAX as u32 => {
                        let id = self.btf.resolve(ty);
                        (0..count).try_for_each(|index| {
                            let at = offset.checked_add(size.checked_mul(index)?)?;
                            self.members(id, at, depth + 1, record)
                        })
                    }
                    None => self.first_is_plain(self.btf.resolve(ty), depth),
                }
            }
            _ => Some(()),
        }
    }

    /// The type behind arrays, and how many of it there are.
    fn flatten(&self, ty: TypeId) -> Option<(TypeId, u32)> {
        let mut ty = ty;
        let mut count = 1u32;
        while let Kind::Array { elem, count: more, .. } = *self.btf.kind(ty) {
            count = count.saturating_mul(more);
            ty = elem;
        }
        Some((ty, count))
    }

    /// An array too large to be searched may not contain special fields.
    fn first_is_plain(&self, id: TypeId, depth: u32) -> Option<()> {
        if depth >= NESTING_MAX {
            return Some(());
        }
        let mut inside = Record::default();
        self.members(id, 0, depth + 1, &mut inside)?;
        inside.fields.is_empty().then_some(())
    }

    #[expect(clippy::too_many_arguments, reason = "a field's description, in one place")]
    fn structure(
        &self,
        kind: FieldKind,
        size: u32,
        align: u32,
        offset: u32,
        count: u32,
        place: (TypeId, i32),
        record: &mut Record,
    ) -> Option<()> {
        let wanted = if self.in_map { kind.in_map_value() } else { kind.in_object() };
        if !wanted || count == 0 {
            return Some(());
        }
        let seen = record.unique(kind).is_some() || count > 1;
        if offset % align != 0 || (kind.is_unique() && seen) || count > FIELDS_MAX as u32 {
            return None;
        }
        let target = match kind {
            FieldKind::ListHead => self.contains(place, FieldKind::ListNode)?,
            FieldKind::RbRoot => self.contains(place, FieldKind::RbNode)?,
            _ => Target::None,
        };
        for index in 0..count {
            record.fields.push(Field { offset: offset + index * size, size, kind, target });
        }
        Some(())
    }

    /// What a list or tree holds: the `contains:TYPE:MEMBER` tag (`btf_find_graph_root`).
    fn contains(&self, place: (TypeId, i32), node: FieldKind) -> Option<Target> {
        let tag = self.tags.0.get(&place)?.strip_prefix("contains:")?;
        let (type_name, member_name) = tag.split_once(':')?;
        let value = self
            .btf
            .find(type_name, |kind| matches!(kind, Kind::Composite { union: false, .. }))?;
        let member = self.btf.members(value).iter().find(|member| &*member.name == member_name)?;
        let kind = FieldKind::of_struct(self.btf.name(self.btf.resolve(member.ty)))?.0;
        let node_offset = member.bit_offset / 8;
        (kind == node).then_some(Target::Graph { value, node_offset })
    }

    /// A pointer, when its tag says that it is special (`btf_find_kptr`).
    fn pointer(&self, to: TypeId, offset: u32, count: u32, record: &mut Record) -> Option<()> {
        let Kind::TypeTag(inner) = *self.btf.kind(to) else { return Some(()) };
        let kind = match self.btf.name(to) {
            "kptr_untrusted" => FieldKind::KptrUnref,
            "kptr" => FieldKind::KptrRef,
            "percpu_kptr" => FieldKind::KptrPercpu,
            "uptr" => FieldKind::Uptr,
            _ => return Some(()),
        };
        let id = self.btf.resolve(inner);
        if !matches!(self.btf.kind(id), Kind::Composite { union: false, .. } | Kind::Fwd { .. })
            || offset % 8 != 0
            || count > FIELDS_MAX as u32
        {
            return None;
        }
        let target = Target::Kptr(self.kptr_target(kind, id)?);
        for index in 0..count {
            record.fields.push(Field { offset: offset + index * 8, size: 8, kind, target });
        }
        Some(())
    }

    /// A kernel type of that name, or else the program's own (`btf_parse_kptr`).
    fn kptr_target(&self, kind: FieldKind, id: TypeId) -> Option<BtfRef> {
        let name = self.btf.name(id);
        let Some(in_kernel) = self.kernel.find_composite(name) else {
            return Some(BtfRef { source: BtfSource::Object, id });
        };
        let releasable = kind == FieldKind::KptrUnref || DESTRUCTIBLE.contains(&name);
        releasable.then_some(BtfRef { source: BtfSource::Kernel, id: in_kernel })
    }
}

/// Kernel types that a map may own: those with a registered destructor.
const DESTRUCTIBLE: [&str; 7] = [
    "task_struct",
    "cgroup",
    "bpf_cpumask",
    "bpf_crypto_ctx",
    "nf_conn",
    "prog_test_ref_kfunc",
    "prog_test_member",
];
/// `BTF_FIELDS_MAX`
const FIELDS_MAX: usize = 11;
/// Structures within structures that are searched (`MAX_RESOLVE_DEPTH` of nested fields).
const NESTING_MAX: u32 = 4;
