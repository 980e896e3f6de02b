//! Objects owned by fields: pointers, lists and trees, released with their container
//! (`bpf_obj_free_fields`).
//!
//! Lists and trees are followed by their links, as the kernel follows them. Programs cannot write
//! links, but a list may change while it is given up, if its lock was never given back. So each
//! step is looked at: it leads to a node that says it is in this list, and says so no more
//! afterwards.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use towpath_maps::fields::FieldKind;

use super::slot_unsafe::Object;
use super::{Objects, USER};

/// Where the links of a list's node are, in bytes (`struct bpf_list_node`).
pub(crate) mod list {
    pub(crate) const NEXT: u64 = 0;
    pub(crate) const PREV: u64 = 8;
    /// The head of its list, or 0.
    pub(crate) const OWNER: u64 = 16;
}

/// Where the links of a tree's node are, in bytes (`struct bpf_rb_node`).
pub(crate) mod tree {
    pub(crate) const PARENT: u64 = 0;
    pub(crate) const LEFT: u64 = 8;
    pub(crate) const RIGHT: u64 = 16;
    /// The root of its tree, or 0.
    pub(crate) const OWNER: u64 = 24;
}

impl Objects {
    /// Gives up what a field owned: `place` is the field's address, `content` its first word.
    pub(super) fn release_content(&self, kind: FieldKind, place: u64, content: u64) {
        self.each_held(kind, place, content, |object| self.release(object, USER));
    }

    /// Gives up what an object's fields own, and what that owned. Objects can hold others to any
    /// depth: a work list, no recursion.
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

    /// Shows each object that a field owns, which owns them no more.
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

    /// The object of a node that belonged to `owner` and does no more, and where links of the node
    /// led.
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
        // Who finds it free may put it elsewhere at once: its links are read before.
        let links = links.map(|offset| word(offset).map_or(0, |link| link.load(Relaxed)));
        let left = word(owner_offset)?.compare_exchange(owner, 0, AcqRel, Relaxed);
        left.is_ok().then_some((object, links))
    }
}
