//! Finding special fields in the types of an object file (`btf_parse_fields`).

use std::collections::HashMap;
use std::rc::Rc;

use crate::btf::{Btf, Kind, TypeId};

use super::super::reg::{BtfRef, BtfSource};
use super::field::{Field, FieldKind, FieldType, Record};

/// The records of all structures of an object file (`btf_parse_struct_metas`). `None` if one of
/// them breaks a rule: the kernel then refuses all of the file's type information, and loaders go
/// on without it.
pub(super) fn types_of(btf: &Btf, kernel: &Btf) -> Option<HashMap<TypeId, Rc<Record>>> {
    let finder = Finder { btf, kernel, in_map: false };
    let structs = btf.iter().filter(|(_, ty)| {
        matches!(ty.kind, Kind::Composite { union: false, .. })
            && FieldKind::of_struct(&ty.name).is_none()
    });
    let mut found: HashMap<TypeId, Record> = HashMap::new();
    for (id, _) in structs {
        let record = finder.record(id)?;
        if !record.fields.is_empty() {
            found.insert(id, record);
        }
    }
    let sound = found.values().all(|record| {
        let is_node = record.has(|kind| matches!(kind, FieldKind::ListNode | FieldKind::RbNode));
        record.fields.iter().all(|field| match field.target {
            // Elements of a list may not own lists whose elements own lists.
            FieldType::Graph { value, .. } => found
                .get(&value)
                .is_some_and(|element| !(is_node && element.has(FieldKind::is_root))),
            _ => true,
        })
    });
    sound.then(|| found.into_iter().map(|(id, record)| (id, Rc::new(record))).collect())
}

/// The record of a map's values; `None` if it breaks a rule.
pub(super) fn value_record(btf: &Btf, kernel: &Btf, value: TypeId) -> Option<Record> {
    Finder { btf, kernel, in_map: true }.record(value)
}

/// Looks for special fields inside one type.
struct Finder<'b> {
    btf: &'b Btf,
    kernel: &'b Btf,
    in_map: bool,
}

impl Finder<'_> {
    /// The record of a structure or data section, empty if it has no special fields; `None` if one
    /// of them breaks a rule.
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
            _ => {}
        }
        if record.fields.is_empty() {
            return Some(record);
        }
        record.fields.sort_by_key(|field| field.offset);
        let overlap =
            record.fields.windows(2).any(|pair| pair[0].offset + pair[0].size > pair[1].offset);
        let unlocked = record.has(FieldKind::is_root) && !record.has_lock();
        // An object in a list and a tree at once has two owners: its references must be counted.
        let is = |kind| record.has(|k| k == kind);
        let uncounted =
            is(FieldKind::ListNode) && is(FieldKind::RbNode) && !is(FieldKind::Refcount);
        let broken = overlap
            || unlocked
            || uncounted
            || record.strange_tag
            || record.fields.len() > FIELDS_MAX;
        (!broken).then_some(record)
    }

    fn members(&self, id: TypeId, base: u32, depth: u32, record: &mut Record) -> Option<()> {
        for (index, member) in self.btf.members(id).iter().enumerate() {
            if !member.bit_offset.is_multiple_of(8) {
                continue;
            }
            let offset = base.checked_add(member.bit_offset / 8)?;
            self.field(member.ty, offset, (id, index as i32), depth, record)?;
        }
        Some(())
    }

    /// Records one variable or member, or the elements of an array of them (`btf_find_field_one`).
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

    /// The type of the elements of nested arrays, and their number.
    fn flatten(&self, ty: TypeId) -> Option<(TypeId, u32)> {
        let mut ty = ty;
        let mut count = 1u32;
        while let Kind::Array { elem, count: more, .. } = *self.btf.kind(ty) {
            count = count.saturating_mul(more);
            ty = elem;
        }
        Some((ty, count))
    }

    /// Fails if an element has special fields, for an array that is too large to be recorded.
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
        if !offset.is_multiple_of(align) || (kind.is_unique() && seen) || count > FIELDS_MAX as u32
        {
            return None;
        }
        let target = match kind {
            FieldKind::ListHead => self.contains(place, FieldKind::ListNode)?,
            FieldKind::RbRoot => self.contains(place, FieldKind::RbNode)?,
            _ => FieldType::None,
        };
        for index in 0..count {
            record.fields.push(Field { offset: offset + index * size, size, kind, target });
        }
        Some(())
    }

    /// Type of the elements of a list or tree: the `contains:TYPE:MEMBER` tag
    /// (`btf_find_graph_root`).
    fn contains(&self, place: (TypeId, i32), node: FieldKind) -> Option<FieldType> {
        let tag = self.btf.decl_tags(place.0, place.1).last()?.strip_prefix("contains:")?;
        let (type_name, member_name) = tag.split_once(':')?;
        let value = self
            .btf
            .find(type_name, |kind| matches!(kind, Kind::Composite { union: false, .. }))?;
        let member = self.btf.members(value).iter().find(|member| &*member.name == member_name)?;
        let kind = FieldKind::of_struct(self.btf.name(self.btf.resolve(member.ty)))?.0;
        let node_offset = member.bit_offset / 8;
        (kind == node).then_some(FieldType::Graph { value, node_offset })
    }

    /// Records a pointer if its tag makes it a special field (`btf_find_kptr`).
    fn pointer(&self, to: TypeId, offset: u32, count: u32, record: &mut Record) -> Option<()> {
        let Kind::TypeTag(inner) = *self.btf.kind(to) else { return Some(()) };
        let kind = match self.btf.name(to) {
            "kptr_untrusted" => FieldKind::KptrUnref,
            "kptr" => FieldKind::KptrRef,
            "percpu_kptr" => FieldKind::KptrPercpu,
            "uptr" => FieldKind::Uptr,
            _ => {
                record.strange_tag = true;
                return Some(());
            }
        };
        if !(if self.in_map { kind.in_map_value() } else { kind.in_object() }) {
            return Some(());
        }
        let id = self.btf.resolve(inner);
        if !matches!(self.btf.kind(id), Kind::Composite { union: false, .. } | Kind::Fwd { .. })
            || !offset.is_multiple_of(8)
            || count > FIELDS_MAX as u32
        {
            return None;
        }
        let target = FieldType::Kptr(self.kptr_target(kind, id)?);
        for index in 0..count {
            record.fields.push(Field { offset: offset + index * 8, size: 8, kind, target });
        }
        Some(())
    }

    /// The kernel's type of the target's name, or else the program's own (`btf_parse_kptr`).
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
/// `BTF_FIELDS_MAX` of the kernel.
const FIELDS_MAX: usize = 11;
/// Depth of nested structures that are searched (`MAX_RESOLVE_DEPTH` of nested fields).
const NESTING_MAX: u32 = 4;
