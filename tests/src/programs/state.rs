//! What the generator knows of registers and stack while it writes: far less than a verifier.

/// What a register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing that may be read.
    Unset,
    /// A number.
    Scalar,
    /// The context.
    Ctx,
    /// A packet pointer behind which so many bytes are proved.
    Packet(i16),
    /// A map value pointer with so many bytes behind it.
    Value(i16),
}

/// Registers and stack at one point of the program.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) regs: [Kind; 10],
    /// 8-byte slots below the frame pointer that hold numbers.
    pub(super) stack: [bool; SLOTS],
    /// Registers that must keep their kind, by bit: a loop's body comes back to it.
    pub(super) pinned: u16,
    /// Registers that must not be written, by bit: a loop's counter.
    pub(super) locked: u16,
}

impl State {
    /// At the start of the program: r1 is the context.
    pub(super) fn entry() -> Self {
        let mut regs = [Kind::Unset; 10];
        regs[1] = Kind::Ctx;
        State { regs, stack: [false; SLOTS], pinned: 0, locked: 0 }
    }

    /// At the start of a function called here.
    pub(super) fn callee(&self) -> Self {
        let mut regs = [Kind::Unset; 10];
        regs[1..=5].copy_from_slice(&self.regs[1..=5]);
        State { regs, stack: [false; SLOTS], pinned: 0, locked: 0 }
    }

    /// Registers whose kind satisfies `wanted`.
    pub(super) fn find(&self, wanted: impl Fn(Kind) -> bool) -> Vec<u8> {
        (0..10u8).filter(|&reg| wanted(self.regs[usize::from(reg)])).collect()
    }

    /// Registers that may be overwritten with something of this kind.
    pub(super) fn writable(&self, kind: Kind) -> Vec<u8> {
        (0..10u8)
            .filter(|&reg| {
                let held = self.regs[usize::from(reg)];
                let bit = 1 << reg;
                let pinned = self.pinned & bit != 0 && held != kind;
                self.locked & bit == 0 && !pinned && held != Kind::Ctx
            })
            .collect()
    }

    pub(super) fn set(&mut self, reg: u8, kind: Kind) {
        self.regs[usize::from(reg)] = kind;
    }

    /// After a call: r0 is a number, r1..r5 are gone.
    pub(super) fn clobber(&mut self) {
        self.regs[..=5].fill(Kind::Unset);
        self.regs[0] = Kind::Scalar;
    }

    /// After a change of the packet's bounds.
    pub(super) fn drop_packet_pointers(&mut self) {
        for kind in &mut self.regs {
            if matches!(kind, Kind::Packet(_)) {
                *kind = Kind::Unset;
            }
        }
    }

    /// What is known where two paths meet.
    pub(super) fn join(&mut self, other: &State) {
        for (mine, theirs) in self.regs.iter_mut().zip(other.regs) {
            *mine = match (*mine, theirs) {
                (Kind::Packet(a), Kind::Packet(b)) => Kind::Packet(a.min(b)),
                (Kind::Value(a), Kind::Value(b)) => Kind::Value(a.min(b)),
                (a, b) if a == b => a,
                _ => Kind::Unset,
            };
        }
        for (mine, theirs) in self.stack.iter_mut().zip(other.stack) {
            *mine &= theirs;
        }
    }
}

/// Stack slots one function spills numbers to: with four more for passing moments, few enough for
/// four functions within 512 bytes.
pub(super) const SLOTS: usize = 11;

/// Offset of a slot from the frame pointer.
pub(super) const fn slot_offset(slot: usize) -> i16 {
    -8 * (slot as i16 + 1)
}
