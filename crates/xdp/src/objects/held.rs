//! Objects owned by fields: pointers, lists and trees, released with their container
//! (`bpf_obj_free_fields`).
//!
//! Lists and trees are traversed by their links, as in the kernel. Programs cannot write links, but
//! a list may change while it is released, if its lock was never released. So each step is checked:
//! it must lead to a node whose owner is this list, and clears the owner.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use towpath_maps::fields::FieldKind;

use super::slot_unsafe::Object;
use super::{Objects, USER};

/// Byte offsets of the links in a list's node (`struct bpf_list_node`).
pub(crate) mod list {
    pub(crate) const NEXT: u64 = 0;
    pub(crate) const PREV: u64 = 8;
    /// The head of its list, or 0.
    pub(crate) const OWNER: u64 = 16;
}

/// Byte offsets of the links in a tree's node (`struct bpf_rb_node`).
pub(crate) mod tree {
    pub(crate) const PARENT: u64 = 0;
    pub(crate) const LEFT: u64 = 8;
    pub(crate) const RIGHT: u64 = 16;
    /// The root of its tree, or 0.
    pub(crate) const OWNER: u64 = 24;
}

impl Objects {
    /// Releases the objects that a field owned: `place` is the field's address, `content` its first
    /// word.
    pub(super) fn release_content(&self, kind: FieldKind, place: u64, content: u64) {
        self.each_held(kind, place, content, |object| self.release(object, USER));
    }

    /// Releases the objects owned by an object's fields, recursively. Objects can be nested to any
    /// depth, so a work list is used instead of recursion.
    #[cold]
    pub(super) fn bury(&self, object: Object<'_>, worker: usize) {
        let mut work = vec![object];
        while let Some(object) = work.pop() {
            for field in &object.class().shape.fields {
                let Some(word) = object.word(field.offset as usize) else { continue };
                let content = word.swap(0, AcqRel);
                let place = object.addr() + u64::from(field.offset);
                self.each_held(field.kind, place, content, |held| {
                    if held.give_up() {
                        work.push(held);
                    }
                });
            }
            object.class().retire(worker, object.slot());
        }
    }

    /// Calls a function with each object that a field owned; the field no longer owns them.
    fn each_held<'o>(
        &'o self,
        kind: FieldKind,
        place: u64,
        content: u64,
        mut show: impl FnMut(Object<'o>),
    ) {
        match kind {
            FieldKind::Kptr | FieldKind::KptrPercpu => {
                if let Some(object) = self.find(content) {
                    show(object);
                }
            }
            FieldKind::ListHead => {
                let mut node = content;
                while let Some((object, [next])) =
                    self.leave(node, [list::NEXT], list::OWNER, place)
                {
                    node = next;
                    show(object);
                }
            }
            FieldKind::RbRoot => {
                let mut nodes = vec![content];
                while let Some(node) = nodes.pop() {
                    let sides = [tree::LEFT, tree::RIGHT];
                    if let Some((object, below)) = self.leave(node, sides, tree::OWNER, place) {
                        nodes.extend(below);
                        show(object);
                    }
                }
            }
            _ => {}
        }
    }

    /// Removes a node from `owner`; returns its object and the targets of its links. `None` if it
    /// did not belong to `owner`.
    fn leave<const LINKS: usize>(
        &self,
        node: u64,
        links: [u64; LINKS],
        owner_offset: u64,
        owner: u64,
    ) -> Option<(Object<'_>, [u64; LINKS])> {
        if node == 0 || node == owner {
            return None;
        }
        let object = self.find(node)?;
        let word = |offset: u64| object.word((node + offset - object.addr()) as usize);
        // Links are read first, as the node may be reused at once when it has no owner.
        let links = links.map(|offset| word(offset).map_or(0, |link| link.load(Relaxed)));
        let left = word(owner_offset)?.compare_exchange(owner, 0, AcqRel, Relaxed);
        left.is_ok().then_some((object, links))
    }
}
