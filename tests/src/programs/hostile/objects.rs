//! Objects that programs make, keep in maps, lists and trees, share and give up.

use towpath_bpf::insn::*;
use towpath_bpf::proto::id;

use super::feature::Feature;
use super::holding::HELD;
use super::types::{GUARDED_LIST, GUARDED_TREE, NODE_LIST, NODE_TREE, types};
use super::writer::{Limits, Writer};
use super::{kfunc, maps};
use crate::programs::asm::Jump;

/// Where a `struct keeper` has its objects.
const KEPT_PLAIN: i32 = 8;
const KEPT_NODE: i32 = 16;

impl Writer<'_> {
    /// Something with objects.
    pub(super) fn object_statement(&mut self) {
        let reg = self.free();
        self.contained(|writer| match writer.random.below(6) {
            0 => writer.made(reg),
            1 => writer.taken(reg),
            2 => writer.read(reg),
            3 => writer.pushed(reg),
            4 => writer.popped(reg),
            _ => writer.shared(reg),
        });
        let imm = self.immediate();
        self.asm.mov_imm(reg, imm);
    }

    /// `reg` = a new object, or this fails.
    fn new_object(&mut self, reg: u8, node: bool) {
        let ty = if node { types().node } else { types().plain };
        self.asm.mov_imm(1, ty as i32);
        self.asm.mov_imm(2, 0);
        self.asm.call_kfunc(kfunc("bpf_obj_new_impl"));
        self.not_null(0, false);
        self.asm.mov(reg, 0);
    }

    /// Gives the object in r1 up, unless this is forgotten.
    fn drop_object(&mut self) {
        self.asm.mov_imm(2, 0);
        if !self.misses() {
            self.asm.call_kfunc(kfunc("bpf_obj_drop_impl"));
        }
    }

    /// The numbers at its start.
    fn touch_object(&mut self, reg: u8, feature: Feature) {
        let off = *self.random.pick(&[0, 4, 8]);
        let off = if self.misses() { 16 } else { off };
        match self.random.below(3) {
            0 => self.asm.store_imm(BPF_DW, reg, off & 8, 3),
            1 => self.asm.store(BPF_W, reg, reg, off),
            _ => self.asm.load(BPF_W, 1, reg, off),
        }
        self.mark(feature);
    }

    /// A new one, given up or put into a map.
    fn made(&mut self, reg: u8) {
        let node = self.random.one_in(3);
        self.new_object(reg, node);
        self.touch_object(reg, Feature::Object);
        self.nested(HELD, 1 << reg);
        if self.random.one_in(2) {
            self.asm.mov(1, reg);
            self.drop_object();
            if self.misses() {
                self.touch_object(reg, Feature::Object);
            }
            return;
        }
        let missing = self.keeper();
        self.asm.mov(1, 0);
        let field = if node != self.misses() { KEPT_NODE } else { KEPT_PLAIN };
        self.asm.alu_imm(BPF_ADD, 1, field);
        self.asm.mov(2, reg);
        self.asm.call(id::KPTR_XCHG as i32);
        let empty = self.asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0);
        if self.random.one_in(4) {
            // It is the map's now, and what was there is ours.
            self.touch_object(0, Feature::Kptr);
        }
        self.asm.mov(1, 0);
        self.drop_object();
        let done = self.asm.jump(BPF_JMP | BPF_JA, 0, 0, 0);
        self.asm.land(missing);
        self.asm.mov(1, reg);
        self.drop_object();
        self.asm.land(empty);
        self.asm.land(done);
        if self.misses() {
            self.touch_object(reg, Feature::Object);
        }
    }

    /// r0 = a value that keeps objects; the jump is for when it is not there.
    fn keeper(&mut self) -> Jump {
        let (key, _) = self.key(BPF_W);
        self.asm.load_map(1, maps::KEEPER);
        self.address(2, key);
        self.asm.call(id::MAP_LOOKUP_ELEM as i32);
        self.asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0)
    }

    /// One taken out of a map, if there is one.
    fn taken(&mut self, reg: u8) {
        let missing = self.keeper();
        self.fail(missing);
        self.asm.mov(1, 0);
        let field = *self.random.pick(&[KEPT_PLAIN, KEPT_NODE]);
        self.asm.alu_imm(BPF_ADD, 1, field);
        self.asm.mov_imm(2, 0);
        self.asm.call(id::KPTR_XCHG as i32);
        self.not_null(0, false);
        self.asm.mov(reg, 0);
        self.touch_object(reg, Feature::Kptr);
        self.nested(HELD, 1 << reg);
        self.touch_object(reg, Feature::Kptr);
        self.asm.mov(1, reg);
        self.drop_object();
    }

    /// Reads it in place, while it can't be freed, or longer.
    fn read(&mut self, reg: u8) {
        let missing = self.keeper();
        self.fail(missing);
        self.asm.mov(reg, 0);
        let guarded = !self.misses();
        if guarded {
            self.asm.call_kfunc(kfunc("bpf_rcu_read_lock"));
        }
        let field = *self.random.pick(&[KEPT_PLAIN, KEPT_NODE]);
        self.asm.load(BPF_DW, reg, reg, field as i16);
        let null = (!self.misses()).then(|| self.asm.jump(BPF_JMP | BPF_JEQ, reg, 0, 0));
        self.nested(HELD, 1 << reg);
        self.asm.load(BPF_DW, 1, reg, 8 * self.random.below(2) as i16);
        self.mark(Feature::Kptr);
        if let Some(null) = null {
            self.asm.land(null);
        }
        if guarded {
            self.asm.call_kfunc(kfunc("bpf_rcu_read_unlock"));
        }
        if self.misses() {
            self.asm.load(BPF_DW, 1, reg, 0);
        }
    }

    /// One put into a list or a tree.
    fn pushed(&mut self, reg: u8) {
        self.new_object(reg, true);
        self.touch_object(reg, Feature::Object);
        let value = self.room(8);
        self.asm.store_imm(BPF_W, REG_FP, value, 0);
        self.asm.load_map(1, maps::GUARDED);
        self.address(2, value);
        self.asm.call(id::MAP_LOOKUP_ELEM as i32);
        let missing = self.asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0);
        self.asm.store(BPF_DW, REG_FP, 0, value);
        self.asm.mov(1, 0);
        self.asm.call(id::SPIN_LOCK as i32);
        self.asm.load(BPF_DW, 1, REG_FP, value);
        self.asm.mov(2, reg);
        if self.random.one_in(2) {
            self.asm.alu_imm(BPF_ADD, 1, GUARDED_LIST);
            self.asm.alu_imm(BPF_ADD, 2, NODE_LIST);
            self.asm.mov_imm(3, 0);
            self.asm.mov_imm(4, 0);
            self.asm.call_kfunc(kfunc("bpf_list_push_front_impl"));
        } else {
            let less = self.less();
            self.asm.alu_imm(BPF_ADD, 1, GUARDED_TREE);
            self.asm.alu_imm(BPF_ADD, 2, NODE_TREE);
            self.function_address(3, less);
            self.asm.mov_imm(4, 0);
            self.asm.mov_imm(5, 0);
            self.asm.call_kfunc(kfunc("bpf_rbtree_add_impl"));
        }
        self.mark(Feature::Graph);
        if self.random.one_in(3) {
            self.asm.load(BPF_DW, 1, reg, 0);
        }
        self.asm.load(BPF_DW, 1, REG_FP, value);
        self.asm.call(id::SPIN_UNLOCK as i32);
        if self.misses() {
            self.asm.load(BPF_DW, 1, reg, 0);
        }
        let done = self.asm.jump(BPF_JMP | BPF_JA, 0, 0, 0);
        self.asm.land(missing);
        self.asm.mov(1, reg);
        self.drop_object();
        self.asm.land(done);
    }

    /// `less(a, b)` of a tree.
    fn less(&mut self) -> usize {
        let off = if self.misses() { 40 } else { -(NODE_TREE as i16) };
        self.parts.plain_function(|asm| {
            asm.mov_imm(0, 0);
            asm.load(BPF_DW, 3, 1, off);
            asm.load(BPF_DW, 4, 2, off + 8);
            let over = asm.jump(BPF_JMP | BPF_JGE | BPF_X, 3, 4, 0);
            asm.mov_imm(0, 1);
            asm.land(over);
            asm.exit();
        })
    }

    /// One out of a list.
    fn popped(&mut self, reg: u8) {
        let other = 7 + (reg - 6) % 3;
        let free = self.locked & 1 << other == 0;
        self.value(maps::GUARDED);
        self.asm.mov(reg, 0);
        self.asm.mov(1, reg);
        self.asm.call(id::SPIN_LOCK as i32);
        self.asm.mov(1, reg);
        self.asm.alu_imm(BPF_ADD, 1, GUARDED_LIST);
        self.asm.call_kfunc(kfunc("bpf_list_pop_front"));
        let held = if free { other } else { reg };
        let value = self.room(8);
        self.asm.store(BPF_DW, REG_FP, reg, value);
        self.asm.mov(held, 0);
        self.asm.load(BPF_DW, 1, REG_FP, value);
        self.asm.call(id::SPIN_UNLOCK as i32);
        let null = self.asm.jump(BPF_JMP | BPF_JEQ, held, 0, 0);
        self.asm.load(BPF_DW, 1, held, -(NODE_LIST as i16));
        self.mark(Feature::Graph);
        self.nested(HELD, 1 << held);
        self.asm.mov(1, held);
        self.asm.alu_imm(BPF_SUB, 1, NODE_LIST);
        self.drop_object();
        self.asm.land(null);
        self.asm.mov_imm(held, 0);
    }

    /// Two references to one object.
    fn shared(&mut self, reg: u8) {
        self.new_object(reg, true);
        self.asm.mov(1, reg);
        self.asm.mov_imm(2, 0);
        self.asm.call_kfunc(kfunc("bpf_refcount_acquire_impl"));
        let second = self.room(8);
        self.asm.store(BPF_DW, REG_FP, 0, second);
        self.asm.mov(1, reg);
        self.drop_object();
        self.asm.load(BPF_DW, reg, REG_FP, second);
        let null = self.asm.jump(BPF_JMP | BPF_JEQ, reg, 0, 0);
        self.nested(Limits { leaving: true, ..HELD }, 1 << reg);
        self.touch_object(reg, Feature::Object);
        self.asm.mov(1, reg);
        self.drop_object();
        self.asm.land(null);
    }
}
