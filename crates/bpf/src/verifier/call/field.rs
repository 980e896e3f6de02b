//! The special fields of a type: locks, timers, kptrs, list and tree heads and nodes.

use crate::btf::TypeId;

use super::super::reg::BtfRef;

/// The kinds of special fields (`enum btf_field_type`).
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

/// A special field of a map's values, as the crate that stores the values sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecialField {
    /// The kind of the field.
    pub kind: FieldKind,
    /// Bytes from the start of the value.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

impl FieldKind {
    /// Whether it is a pointer that is read and, if unreferenced, written by ordinary instructions.
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

    /// Kind, size and alignment of a special structure, by its name.
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

    /// Whether a type may have only one field of this kind.
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

/// The type that a field refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FieldType {
    None,
    /// For kptrs: the type that they point to.
    Kptr(BtfRef),
    /// For list heads and tree roots: the type of the elements, and the offset of their node.
    Graph {
        value: TypeId,
        node_offset: u32,
    },
}

/// A special field of a type (`struct btf_field`).
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
    /// Whether a pointer has a tag that is unknown here.
    pub(super) strange_tag: bool,
}

impl Record {
    pub(super) fn to_public(&self) -> Vec<SpecialField> {
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

    /// The only field of a kind of which there is at most one.
    pub(crate) fn unique(&self, kind: FieldKind) -> Option<Field> {
        self.fields.iter().copied().find(|field| field.kind == kind)
    }

    pub(crate) fn has(&self, wanted: impl Fn(FieldKind) -> bool) -> bool {
        self.fields.iter().any(|field| wanted(field.kind))
    }

    /// Whether it contains a lock of either sort: objects of this type are then distinguished by
    /// id.
    pub(crate) fn has_lock(&self) -> bool {
        self.has(|kind| matches!(kind, FieldKind::SpinLock | FieldKind::ResSpinLock))
    }
}
