//! Places: memory at an offset that only a bound makes safe.

use towpath_bpf::insn::*;
use towpath_bpf::proto::id;

use super::feature::Feature;
use super::maps;
use super::writer::{Limits, SPILLS, Writer, spill};

/// Where in so many bytes an access goes, and how far an index may move it.
#[derive(Debug, Clone, Copy)]
pub(super) struct AccessSpan {
    size: u8,
    offset: i16,
    /// The largest index.
    pub(super) max: i32,
    /// It counts words, and the access is atomic.
    by_words: bool,
}

impl Writer<'_> {
    /// Gets a number, bounds it, and uses it.
    pub(super) fn probe(&mut self) {
        match self.random.below(14) {
            0..=5 => self.value_at(),
            6..=7 => self.stack_at(),
            8..=10 if self.has_context => self.packet_at(),
            11 if !self.limits.calls => self.record_at(),
            12 if !self.limits.calls => self.sized(),
            _ => self.inner_at(),
        }
    }

    /// A place in so many bytes.
    pub(super) fn place(&mut self, bytes: i32) -> AccessSpan {
        if self.random.one_in(6) {
            return AccessSpan { size: BPF_DW, offset: 0, max: bytes / 8 - 1, by_words: true };
        }
        let (size, width) = self.width();
        let room = bytes - width as i32;
        let offset = if self.random.one_in(3) { self.random.below(room as usize + 1) } else { 0 };
        let max = room - offset as i32;
        AccessSpan { size, offset: offset as i16, max, by_words: false }
    }

    /// A kept register with a number of at most `max`.
    pub(super) fn index(&mut self, max: i32) -> u8 {
        let reg = self.free();
        if self.random.one_in(2) {
            self.source(reg);
        }
        for _ in 0..self.random.below(3) {
            self.launder(reg);
        }
        self.bound(reg, max);
        match self.random.below(8) {
            0 => {
                let slot = self.random.below(SPILLS);
                let (size, _) = self.width();
                self.asm.store(size, REG_FP, reg, spill(slot));
                let size = if self.misses() { BPF_DW } else { size };
                self.asm.load(size, reg, REG_FP, spill(slot));
            }
            1 if self.nesting < 2 => self.nested(Limits::default(), 1 << reg),
            2 => {
                let op = *self.random.pick(&[BPF_AND, BPF_RSH, BPF_MOD]);
                let imm = 1 + self.random.below(7) as i32;
                self.asm.alu_imm(op, reg, imm);
            }
            _ => {}
        }
        reg
    }

    /// The access: `base` is moved by the index, and gone.
    pub(super) fn touch(&mut self, base: u8, index: u8, place: AccessSpan, feature: Feature) {
        let AccessSpan { offset, by_words, .. } = place;
        if by_words {
            self.asm.mov(5, index);
            self.asm.alu_imm(BPF_LSH, 5, 3);
            self.asm.alu(BPF_ADD, base, 5);
            let op = *self.random.pick(&[0x00, 0x01, 0x41, BPF_XCHG]);
            self.asm.put(BPF_STX | BPF_ATOMIC | BPF_DW, base, index, offset, op);
            return self.mark(feature);
        }
        self.move_by(base, index);
        self.reach(base, index, place, feature);
    }

    /// The access, where the index has moved its base already.
    fn reach(&mut self, base: u8, index: u8, place: AccessSpan, feature: Feature) {
        let AccessSpan { size, offset, .. } = place;
        match self.random.below(4) {
            0 => {
                let imm = self.immediate();
                self.asm.store_imm(size, base, offset, imm);
            }
            1 => self.asm.store(size, base, index, offset),
            _ => self.load(size, index, base, offset),
        }
        self.mark(feature);
    }

    /// `base += index`, directly or by detours.
    fn move_by(&mut self, base: u8, index: u8) {
        let off = self.random.below(40) as i32;
        match self.random.below(5) {
            0 => {
                // The sum the other way round.
                self.asm.mov(5, index);
                self.asm.alu(BPF_ADD, 5, base);
                self.asm.mov(base, 5);
            }
            1 => {
                self.asm.alu_imm(BPF_ADD, base, off);
                self.asm.alu(BPF_ADD, base, index);
                self.asm.alu_imm(BPF_SUB, base, off);
            }
            2 => {
                self.asm.mov_imm(5, off);
                self.asm.alu(BPF_SUB, 5, index);
                self.asm.alu_imm(BPF_ADD, base, off);
                self.asm.alu(BPF_SUB, base, 5);
            }
            _ => self.asm.alu(BPF_ADD, base, index),
        }
    }

    /// A value of one of the maps.
    pub(super) fn value_at(&mut self) {
        let (map, bytes) = *self.random.pick(&[
            (maps::SINGLE, maps::ARRAY_BYTES),
            (maps::SINGLE, maps::ARRAY_BYTES),
            (maps::ARRAY, maps::ARRAY_BYTES),
            (maps::HASH, maps::HASH_BYTES),
            (maps::PERCPU, maps::SMALL_BYTES),
            (maps::LRU, maps::SMALL_BYTES),
        ]);
        let place = self.place(bytes as i32);
        let index = self.index(place.max);
        self.contained(|writer| {
            writer.value(map);
            writer.touch(0, index, place, Feature::ValueAt);
        });
    }

    /// r0 = a value of a map, or this fails.
    pub(super) fn value(&mut self, map: i32) {
        if map == maps::SINGLE || self.limits.calls {
            return self.single(0);
        }
        let (key, known) = self.key(if map == maps::HASH { BPF_DW } else { BPF_W });
        self.asm.load_map(1, map);
        self.address(2, key);
        self.asm.call(id::MAP_LOOKUP_ELEM as i32);
        let is_array = map == maps::ARRAY || map == maps::PERCPU;
        self.not_null(0, is_array && known);
    }

    /// A key of `size` on the stack, and whether it is a constant that arrays have.
    pub(super) fn key(&mut self, size: u8) -> (i16, bool) {
        let key = self.room(8);
        let known = self.random.one_in(2);
        let from = 7 + self.random.below(3) as u8;
        if known || self.locked & 1 << from != 0 {
            let imm = self.random.below(4) as i32;
            let size = if self.random.one_in(8) { BPF_DW } else { size };
            self.asm.store_imm(size, REG_FP, key, imm);
        } else {
            self.asm.mov(1, from);
            self.asm.alu_imm(BPF_AND, 1, 7);
            self.asm.store(size, REG_FP, 1, key);
        }
        (key, known)
    }

    /// Fails where `reg` is null; does not ask where that seems to be known, now and then.
    pub(super) fn not_null(&mut self, reg: u8, known: bool) {
        if (known && self.random.one_in(3)) || self.misses() {
            return;
        }
        let good = self.random.one_in(4);
        if good {
            let over = self.asm.jump(BPF_JMP | BPF_JNE, reg, 0, 0);
            let jump = self.asm.jump(BPF_JMP | BPF_JA, 0, 0, 0);
            self.fail(jump);
            return self.asm.land(over);
        }
        let jump = self.asm.jump(BPF_JMP | BPF_JEQ, reg, 0, 0);
        self.fail(jump);
    }

    /// A value of a map that is in a map.
    fn inner_at(&mut self) {
        if self.limits.calls {
            return self.stack_at();
        }
        let place = self.place(maps::SMALL_BYTES as i32);
        let index = self.index(place.max);
        let outer = *self.random.pick(&[maps::OUTER, maps::OUTER_ANY]);
        self.contained(|writer| {
            let (key, _) = writer.key(BPF_W);
            writer.asm.load_map(1, outer);
            writer.address(2, key);
            writer.asm.call(id::MAP_LOOKUP_ELEM as i32);
            writer.not_null(0, false);
            writer.asm.mov(5, 0);
            let (key, known) = writer.key(BPF_W);
            writer.asm.mov(1, 5);
            writer.address(2, key);
            writer.asm.call(id::MAP_LOOKUP_ELEM as i32);
            writer.not_null(0, known);
            writer.touch(0, index, place, Feature::Inner);
        });
    }

    /// The function's own stack.
    pub(super) fn stack_at(&mut self) {
        let bytes = 8 * SPILLS as i32;
        let mut place = self.place(bytes);
        if !self.misses() {
            // Stack is aligned, whatever the access.
            place.size = if place.by_words { place.size } else { BPF_B };
        }
        let index = self.index(place.max);
        self.address(1, spill(SPILLS - 1));
        if place.by_words {
            return self.touch(1, index, place, Feature::StackAt);
        }
        self.asm.alu(BPF_ADD, 1, index);
        self.reach(1, index, place, Feature::StackAt);
    }

    /// The packet: bounded first, and then compared with its end.
    fn packet_at(&mut self) {
        let (size, width) = self.width();
        let max = *self.random.pick(&[3, 13, 60, 63, 255, 4000, 0x7fff, 0xffff]);
        let index = self.index(max);
        let short = i32::from(self.misses());
        self.contained(|writer| {
            writer.asm.load(BPF_W, 2, 6, 0);
            writer.asm.load(BPF_W, 3, 6, 4);
            writer.move_by(2, index);
            writer.asm.mov(4, 2);
            writer.asm.alu_imm(BPF_ADD, 4, width as i32 - short);
            let jump = match writer.random.below(3) {
                0 => writer.asm.jump(BPF_JMP | BPF_JLT | BPF_X, 3, 4, 0),
                1 if writer.misses() => writer.asm.jump(BPF_JMP | BPF_JLE | BPF_X, 3, 4, 0),
                _ => writer.asm.jump(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 0),
            };
            writer.fail(jump);
            match writer.random.below(3) {
                0 => writer.asm.store(size, 2, index, 0),
                _ => writer.load(size, index, 2, 0),
            }
            writer.mark(Feature::PacketAt);
        });
    }

    /// A ring buffer record, which nothing leaves before it is given back.
    fn record_at(&mut self) {
        let bytes = *self.random.pick(&[8, 16, 24, 64]);
        let place = self.place(bytes);
        let index = self.index(place.max);
        self.contained(|writer| {
            writer.asm.load_map(1, maps::RING);
            writer.asm.mov_imm(2, bytes);
            writer.asm.mov_imm(3, 0);
            writer.asm.call(id::RINGBUF_RESERVE as i32);
            writer.not_null(0, false);
            let record = writer.room(8);
            writer.asm.store(BPF_DW, REG_FP, 0, record);
            writer.touch(0, index, place, Feature::Record);
            writer.asm.load(BPF_DW, 1, REG_FP, record);
            writer.asm.mov_imm(2, 0);
            let done = *writer.random.pick(&[id::RINGBUF_SUBMIT, id::RINGBUF_DISCARD]);
            if !writer.misses() {
                writer.asm.call(done as i32);
            }
        });
    }

    /// A helper that gets memory and how much of it there is.
    fn sized(&mut self) {
        let bytes = 16;
        let from_one = self.random.one_in(2) && self.has_context;
        let index = self.index(if from_one { bytes - 1 } else { bytes });
        self.contained(|writer| {
            let buffer = writer.room(bytes as i16);
            for part in [0, 8] {
                writer.asm.store_imm(BPF_DW, REG_FP, buffer + part, 0);
            }
            let memory = writer.random.one_in(3);
            if from_one {
                writer.asm.alu_imm(BPF_ADD, index, 1);
                writer.asm.mov(1, 6);
                let at = writer.random.below(40) as i32;
                writer.asm.mov_imm(2, at);
                writer.address(3, buffer);
                if memory {
                    writer.single(3);
                    let off = writer.random.below(49) as i32;
                    writer.asm.alu_imm(BPF_ADD, 3, off);
                }
                writer.asm.mov(4, index);
                let copy = *writer.random.pick(&[id::XDP_LOAD_BYTES, id::XDP_STORE_BYTES]);
                writer.asm.call(copy as i32);
            } else {
                writer.asm.load_map(1, maps::RING);
                writer.address(2, buffer);
                writer.asm.mov(3, index);
                writer.asm.mov_imm(4, 0);
                writer.asm.call(id::RINGBUF_OUTPUT as i32);
            }
            writer.mark(Feature::Sized);
            writer.asm.mov(index, 0);
        });
    }
}
