//! Holding things while other statements run: pointers, locks, sections, dynptrs, timers.

use towpath_bpf::insn::*;
use towpath_bpf::proto::id;

use super::feature::Feature;
use super::writer::{Limits, Writer};
use super::{kfunc, maps};

/// While something is held that must be given back.
pub(super) const HELD: Limits = Limits { calls: false, leaving: true };

impl Writer<'_> {
    /// Gets something, lets statements run, gives it back.
    pub(super) fn hold(&mut self) {
        match self.random.below(9) {
            0..=1 => self.lock(),
            2 => self.section("bpf_rcu_read_lock", "bpf_rcu_read_unlock"),
            3 => self.section("bpf_preempt_disable", "bpf_preempt_enable"),
            4 => self.interrupts(),
            5 => self.memory_dynptr(),
            6 if self.has_context => self.packet_dynptr(),
            7 => self.record_dynptr(),
            _ => self.timer(),
        }
    }

    /// A pointer stays in a register while statements run.
    pub(super) fn kept_pointer(&mut self) {
        let reg = self.free();
        self.contained(|writer| match writer.random.below(5) {
            0..=1 if writer.has_context => writer.kept_packet(reg),
            2 if !writer.limits.calls => writer.kept_record(reg),
            3 => {
                let off = writer.room(16);
                writer.address(reg, off);
                writer.nested(Limits::default(), 1 << reg);
                writer.use_pointer(reg, 16);
            }
            _ => writer.kept_value(reg),
        });
        let imm = self.immediate();
        self.asm.mov_imm(reg, imm);
    }

    /// An access somewhere in so many bytes.
    fn use_pointer(&mut self, reg: u8, bytes: usize) {
        let (size, width) = self.width();
        let beyond = usize::from(self.misses());
        let off = (self.random.below(bytes - width + 1) + beyond * width) as i16;
        match self.random.below(3) {
            0 => self.asm.store_imm(size, reg, off, 0x5a),
            1 => self.asm.store(size, reg, 6 + self.random.below(2) as u8, off),
            _ => self.asm.load(size, 1, reg, off),
        }
        self.mark(Feature::KeptPointer);
    }

    fn kept_packet(&mut self, reg: u8) {
        let room = 1 + self.random.below(40);
        self.asm.load(BPF_W, reg, 6, 0);
        self.asm.load(BPF_W, 3, 6, 4);
        self.asm.mov(4, reg);
        self.asm.alu_imm(BPF_ADD, 4, room as i32 + 7);
        let short = self.asm.jump(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 0);
        self.fail(short);
        self.nested(Limits::default(), 1 << reg);
        self.use_pointer(reg, room + 7);
    }

    fn kept_value(&mut self, reg: u8) {
        let (map, bytes) =
            *self.random.pick(&[(maps::ARRAY, 64), (maps::HASH, 24), (maps::LRU, 16)]);
        self.value(map);
        let bytes = if self.limits.calls { 64 } else { bytes };
        self.asm.mov(reg, 0);
        self.nested(Limits::default(), 1 << reg);
        if map == maps::HASH && self.random.one_in(3) && !self.limits.calls {
            // Deleting the element does not take the memory away.
            let (key, _) = self.key(BPF_DW);
            self.asm.load_map(1, maps::HASH);
            self.address(2, key);
            self.asm.call(id::MAP_DELETE_ELEM as i32);
        }
        self.use_pointer(reg, bytes);
    }

    fn kept_record(&mut self, reg: u8) {
        let bytes = *self.random.pick(&[8, 16, 40]);
        self.asm.load_map(1, maps::RING);
        self.asm.mov_imm(2, bytes);
        self.asm.mov_imm(3, 0);
        self.asm.call(id::RINGBUF_RESERVE as i32);
        self.not_null(0, false);
        self.asm.mov(reg, 0);
        self.nested(HELD, 1 << reg);
        self.use_pointer(reg, bytes as usize);
        self.asm.mov(1, reg);
        self.asm.mov_imm(2, 0);
        let done = *self.random.pick(&[id::RINGBUF_SUBMIT, id::RINGBUF_DISCARD]);
        if !self.misses() {
            self.asm.call(done as i32);
            self.mark(Feature::Record);
        }
        if self.misses() {
            self.use_pointer(reg, bytes as usize);
        }
    }

    /// A value's lock.
    fn lock(&mut self) {
        let reg = self.free();
        self.contained(|writer| {
            writer.value(maps::GUARDED);
            writer.asm.mov(reg, 0);
            writer.asm.mov(1, reg);
            writer.asm.call(id::SPIN_LOCK as i32);
            let off = *writer.random.pick(&[4, 8, 16]);
            writer.asm.load(BPF_W, 1, reg, off);
            writer.mark(Feature::Lock);
            writer.nested(Limits { calls: true, leaving: true }, 1 << reg);
            writer.asm.mov(1, reg);
            if !writer.misses() {
                writer.asm.call(id::SPIN_UNLOCK as i32);
            }
        });
        self.asm.mov_imm(reg, 1);
    }

    fn section(&mut self, enter: &str, leave: &str) {
        self.asm.call_kfunc(kfunc(enter));
        self.mark(Feature::Section);
        self.nested(HELD, 0);
        if !self.misses() {
            self.asm.call_kfunc(kfunc(leave));
        }
    }

    fn interrupts(&mut self) {
        let flags = self.room(8);
        self.address(1, flags);
        self.asm.call_kfunc(kfunc("bpf_local_irq_save"));
        self.mark(Feature::Section);
        self.nested(HELD, 0);
        self.address(1, flags);
        if !self.misses() {
            self.asm.call_kfunc(kfunc("bpf_local_irq_restore"));
        }
    }

    /// A dynptr over a map value.
    fn memory_dynptr(&mut self) {
        let dynptr = self.room(16);
        let bytes = 1 + self.random.below(48) as i32;
        self.contained(|writer| {
            writer.single(1);
            let off = writer.random.below(16) as i32;
            writer.asm.alu_imm(BPF_ADD, 1, off);
            writer.asm.mov_imm(2, bytes);
            writer.asm.mov_imm(3, 0);
            writer.address(4, dynptr);
            writer.asm.call(id::DYNPTR_FROM_MEM as i32);
            writer.nested(Limits::default(), 0);
            writer.part_of(dynptr);
        });
    }

    /// A part of a dynptr, at an index.
    fn part_of(&mut self, dynptr: i16) {
        let bytes = *self.random.pick(&[8, 16, 32]);
        let place = self.place(bytes);
        let index = self.index(place.max);
        self.address(1, dynptr);
        let off = self.random.below(20) as i32;
        self.asm.mov_imm(2, off);
        self.asm.mov_imm(3, bytes);
        self.asm.call(id::DYNPTR_DATA as i32);
        self.not_null(0, false);
        self.touch(0, index, place, Feature::Dynptr);
    }

    /// A dynptr over the packet, and a part of it that may be a copy.
    fn packet_dynptr(&mut self) {
        let dynptr = self.room(16);
        let buffer = self.room(16);
        let place = self.place(16);
        let index = self.index(place.max);
        self.contained(|writer| {
            writer.asm.mov(1, 6);
            writer.asm.mov_imm(2, 0);
            writer.address(3, dynptr);
            writer.asm.call_kfunc(kfunc("bpf_dynptr_from_xdp"));
            if writer.random.one_in(3) {
                writer.nested(Limits::default(), 1 << index);
            }
            writer.address(1, dynptr);
            let off = writer.random.below(60) as i32;
            writer.asm.mov_imm(2, off);
            writer.address(3, buffer);
            writer.asm.mov_imm(4, 16);
            let slice = *writer.random.pick(&["bpf_dynptr_slice", "bpf_dynptr_slice_rdwr"]);
            writer.asm.call_kfunc(kfunc(slice));
            writer.not_null(0, false);
            if writer.random.one_in(4) {
                // What it is a slice of may go away meanwhile.
                let kept = writer.room(8);
                writer.asm.store(BPF_DW, REG_FP, 0, kept);
                writer.nested(Limits::default(), 1 << index);
                writer.asm.load(BPF_DW, 0, REG_FP, kept);
            }
            if slice == "bpf_dynptr_slice" && !writer.misses() {
                writer.asm.alu(BPF_ADD, 0, index);
                writer.asm.load(BPF_B, 1, 0, 0);
                return writer.mark(Feature::Dynptr);
            }
            writer.touch(0, index, place, Feature::Dynptr);
        });
    }

    /// A ring buffer record as a dynptr.
    fn record_dynptr(&mut self) {
        let dynptr = self.room(16);
        self.asm.load_map(1, maps::RING);
        let bytes = 8 + self.random.below(40) as i32;
        self.asm.mov_imm(2, bytes);
        self.asm.mov_imm(3, 0);
        self.address(4, dynptr);
        self.asm.call(id::RINGBUF_RESERVE_DYNPTR as i32);
        self.contained(|writer| writer.part_of(dynptr));
        self.nested(HELD, 0);
        self.address(1, dynptr);
        self.asm.mov_imm(2, 0);
        let done = *self.random.pick(&[id::RINGBUF_SUBMIT_DYNPTR, id::RINGBUF_DISCARD_DYNPTR]);
        if !self.misses() {
            self.asm.call(done as i32);
        }
    }

    /// A timer whose function touches the value it is in.
    fn timer(&mut self) {
        let reg = self.free();
        let place = self.place(64);
        let bound = if self.misses() { 64 } else { 7 };
        let careless = self.misses();
        let part = self.parts.plain_function(|asm| {
            asm.load(BPF_DW, 1, 3, if careless { 8 } else { 0 });
            asm.alu_imm(BPF_AND, 1, bound);
            asm.alu_imm(BPF_ADD, 1, place.max.min(1));
            asm.store(BPF_DW, 3, 1, 0);
            asm.put(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_MAP_VALUE, 0, maps::SINGLE);
            asm.put(0, 0, 0, 0, 0);
            asm.alu(BPF_ADD, 2, 1);
            asm.load(BPF_DW, 1, 2, 0);
            asm.mov_imm(0, 0);
            asm.exit();
        });
        self.contained(|writer| {
            writer.value(maps::TIMED);
            writer.asm.mov(reg, 0);
            writer.asm.mov(1, reg);
            writer.asm.alu_imm(BPF_ADD, 1, 8);
            writer.asm.load_map(2, maps::TIMED);
            writer.asm.mov_imm(3, 1);
            writer.asm.call(id::TIMER_INIT as i32);
            writer.asm.mov(1, reg);
            writer.asm.alu_imm(BPF_ADD, 1, 8);
            writer.function_address(2, part);
            writer.asm.call(id::TIMER_SET_CALLBACK as i32);
            writer.asm.mov(1, reg);
            writer.asm.alu_imm(BPF_ADD, 1, 8);
            writer.asm.mov_imm(2, 0);
            writer.asm.mov_imm(3, 0);
            writer.asm.call(id::TIMER_START as i32);
            writer.mark(Feature::Timer);
        });
        self.asm.mov_imm(reg, 2);
    }

    /// An arena, where every address will do.
    pub(super) fn arena(&mut self) {
        let reg = self.free();
        self.asm.mov(1, reg);
        if self.random.one_in(2) {
            self.asm.alu_imm(BPF_AND, 1, 0x3ff8);
        }
        self.asm.load_map(2, maps::ARENA);
        self.asm.put(BPF_ALU64 | BPF_MOV | BPF_X, 1, 1, 1, 1);
        let (size, _) = self.width();
        let off = self.random.between(-16, 64) as i16;
        match self.random.below(3) {
            0 => self.asm.store(size, 1, reg, off),
            1 => self.asm.store_imm(size, 1, off, 77),
            _ => self.asm.load(size, reg, 1, off),
        }
        self.mark(Feature::Arena);
    }
}
