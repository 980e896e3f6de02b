//! Lists and trees of program-allocated objects: heads, nodes, and their compatibility.

use crate::errno::Errno;
use crate::proto::KfuncId;

use super::super::env::{Result, Verifier};
use super::super::reg::{Base, BtfRef, BtfSource, Flags, Payload, Reg};
use super::super::rejection::Rejection;
use super::field::{Field, FieldKind, FieldType};
use super::meta::CallMeta;
use super::refs::is_alloc_object;

impl Verifier<'_> {
    /// Checks a list head or tree root (`__process_kf_arg_ptr_to_graph_root`).
    pub(super) fn process_graph_root(
        &mut self,
        regno: u8,
        kind: FieldKind,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let arg = regno - 1;
        let reg = *self.reg(regno);
        let is_object = reg.is(Base::BtfId) && reg.kind.flags == Flags::ALLOC;
        let is_value = reg.is(Base::MapValue) && reg.kind.flags == Flags::NONE;
        if !is_object && !is_value {
            let message = format!("arg#{arg} expected pointer to map value or allocated object");
            return Err(self.reject(Errno::EINVAL, message));
        }
        if is_object && reg.ref_id == 0 {
            return Err(self.reject(Errno::EINVAL, "allocated object must be referenced"));
        }
        let name = kind.name();
        let Some(off) = reg.const_offset() else {
            return Err(self.variable_offset(regno, name));
        };
        let record = self.record_of(&reg);
        let found = record.as_ref().and_then(|record| record.find(off, |k| k == kind));
        let (Some(field), Some(record)) = (found, record) else {
            return Err(self.reject(Errno::EINVAL, format!("{name} not found at offset={off}")));
        };
        if !self.check_object_locked(&reg)? {
            let lock = record.unique(FieldKind::SpinLock);
            let lock = lock.or_else(|| record.unique(FieldKind::ResSpinLock));
            let at = lock.map_or(0, |lock| lock.offset);
            let message = format!("bpf_spin_lock at off={at} must be held for {name}");
            return Err(self.reject_hint(
                Errno::EINVAL,
                message,
                "take the lock beside the list or tree with bpf_spin_lock() first",
            ));
        }
        meta.root = Some(field);
        Ok(())
    }

    /// Checks a list node (`KF_ARG_PTR_TO_LIST_NODE`).
    pub(super) fn process_list_node(&mut self, regno: u8, meta: &mut CallMeta) -> Result<()> {
        self.check_owned(regno)?;
        self.process_graph_node(regno, FieldKind::ListNode, meta)
    }

    /// Checks a tree node (`KF_ARG_PTR_TO_RB_NODE`).
    pub(super) fn process_rb_node(
        &mut self,
        kfunc: KfuncId,
        regno: u8,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        if kfunc == KfuncId::RbtreeAddImpl {
            self.check_owned(regno)?;
        } else {
            let name = kfunc.name();
            if !reg.has(Flags::NON_OWN_REF) && reg.ref_id == 0 {
                let message =
                    format!("{name} can only take non-owning or refcounted bpf_rb_node pointer");
                return Err(self.reject(Errno::EINVAL, message));
            }
            if self.in_rbtree_callback() {
                let message = format!("{name} not allowed in rbtree cb");
                return Err(self.reject(Errno::EINVAL, message));
            }
        }
        if !is_alloc_object(&reg) {
            let message = format!("arg#{} expected pointer to allocated object", regno - 1);
            return Err(self.reject(Errno::EINVAL, message));
        }
        self.process_graph_node(regno, FieldKind::RbNode, meta)
    }

    /// Checks for an object that the program owns, and that is not yet in any list or tree.
    fn check_owned(&self, regno: u8) -> Result<()> {
        let reg = self.reg(regno);
        if !reg.is(Base::BtfId) || reg.kind.flags != Flags::ALLOC {
            let message = format!("arg#{} expected pointer to allocated object", regno - 1);
            return Err(self.reject(Errno::EINVAL, message));
        }
        if reg.ref_id == 0 {
            return Err(self.reject(Errno::EINVAL, "allocated object must be referenced"));
        }
        Ok(())
    }

    /// Checks that the node is the one that the root's tag names
    /// (`__process_kf_arg_ptr_to_graph_node`).
    fn process_graph_node(
        &mut self,
        regno: u8,
        kind: FieldKind,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        let name = kind.name();
        let Some(off) = reg.const_offset() else {
            return Err(self.variable_offset(regno, name));
        };
        let field = self.record_of(&reg).and_then(|record| record.find(off, |k| k == kind));
        if field.is_none() {
            return Err(self.reject(Errno::EINVAL, format!("{name} not found at offset={off}")));
        }
        let root = meta.root.map(|root| (root.kind.name(), root.target));
        let Some((root_name, FieldType::Graph { value, node_offset })) = root else {
            return Err(self.internal("a node without a list or tree"));
        };
        let wanted = BtfRef { source: BtfSource::Object, id: value };
        let value_name = self.btf(BtfSource::Object).map_or("", |btf| btf.name(value));
        if !reg.btf().is_some_and(|ty| self.is_type_at(ty, 0, wanted, true)) {
            let message = format!(
                "operation on {root_name} expects arg#1 {name} at offset={node_offset} in struct \
                 {value_name}, but arg is at offset={off} in struct {}",
                self.struct_name(&reg)
            );
            return Err(self.reject(Errno::EINVAL, message));
        }
        meta.arg_btf = reg.btf();
        if i64::from(node_offset) != off {
            let message = format!(
                "arg#1 offset={off}, but expected {name} at offset={node_offset} in struct \
                 {value_name}"
            );
            return Err(self.reject(Errno::EINVAL, message));
        }
        Ok(())
    }

    fn variable_offset(&self, regno: u8, name: &str) -> Box<Rejection> {
        let message = format!(
            "R{regno} doesn't have constant offset. {name} has to be at the constant offset"
        );
        self.reject(Errno::EINVAL, message)
    }

    /// Whether the running function is the comparison of a tree, which runs with the tree's lock
    /// held (`in_rbtree_lock_required_cb`).
    pub(super) fn in_rbtree_callback(&self) -> bool {
        let frame = self.path.cur.frame();
        if !frame.in_callback || frame.callsite >= self.input.prog.insns.len() {
            return false;
        }
        let call = self.insn_at(frame.callsite);
        let kfunc = call.is_kfunc_call().then(|| super::traits::kfunc_of(self, &call)).flatten();
        kfunc.is_some_and(|kfunc| kfunc.id == KfuncId::RbtreeAddImpl)
    }
}

/// A pointer to the node of an element of a list or tree (`mark_reg_graph_node`).
pub(super) fn element(root: &Field) -> Option<Reg> {
    let FieldType::Graph { value, node_offset } = root.target else { return None };
    let ty = BtfRef { source: BtfSource::Object, id: value };
    let mut reg = Reg::pointer(Base::BtfId, Flags::ALLOC, Payload::Btf(ty));
    reg.off = i32::try_from(node_offset).ok()?;
    Some(reg)
}
