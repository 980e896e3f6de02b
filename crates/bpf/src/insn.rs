//! The BPF instruction: its 8 bytes and the numbers of RFC 9669 (the ISA document).

/// One 8-byte instruction slot. A 64-bit immediate load takes two slots (RFC 9669 section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Insn {
    /// Operation code: class in the low 3 bits.
    pub code: u8,
    /// Destination register, 0..=10 if valid (4 bits in the encoding).
    pub dst: u8,
    /// Source register, or one of the `PSEUDO_*` values (4 bits in the encoding).
    pub src: u8,
    /// Signed offset: jump distance in slots, or memory displacement in bytes.
    pub off: i16,
    /// Signed immediate.
    pub imm: i32,
}

/// Size of one instruction slot, in bytes.
pub const INSN_SIZE: usize = 8;

impl Insn {
    /// Builds an instruction from its five fields.
    pub const fn new(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Self {
        Insn { code, dst, src, off, imm }
    }

    /// Decodes one little-endian slot.
    pub const fn from_le_bytes(b: [u8; INSN_SIZE]) -> Self {
        Insn {
            code: b[0],
            dst: b[1] & 0xf,
            src: b[1] >> 4,
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    /// Encodes one little-endian slot.
    pub const fn to_le_bytes(self) -> [u8; INSN_SIZE] {
        let off = self.off.to_le_bytes();
        let imm = self.imm.to_le_bytes();
        let regs = (self.dst & 0xf) | (self.src << 4);
        [self.code, regs, off[0], off[1], imm[0], imm[1], imm[2], imm[3]]
    }

    /// The instruction class (`BPF_CLASS`).
    pub const fn class(self) -> u8 {
        self.code & 0x07
    }

    /// The operation of an ALU or jump instruction (`BPF_OP`).
    pub const fn op(self) -> u8 {
        self.code & 0xf0
    }

    /// The access size code of a load or store (`BPF_SIZE`).
    pub const fn size_code(self) -> u8 {
        self.code & 0x18
    }

    /// The mode of a load or store (`BPF_MODE`).
    pub const fn mode(self) -> u8 {
        self.code & 0xe0
    }

    /// Number of bytes that a load or store accesses: 1, 2, 4 or 8.
    pub const fn access_bytes(self) -> usize {
        match self.size_code() {
            BPF_W => 4,
            BPF_H => 2,
            BPF_B => 1,
            _ => 8,
        }
    }

    /// Whether the operand is the source register (`BPF_X`) and not the immediate (`BPF_K`).
    pub const fn is_reg_operand(self) -> bool {
        self.code & 0x08 != 0
    }

    /// Whether this is the first slot of a two-slot 64-bit immediate load.
    pub const fn is_ld_imm64(self) -> bool {
        self.code == (BPF_LD | BPF_IMM | BPF_DW)
    }

    /// Whether this is a `call` of a helper by number.
    pub const fn is_helper_call(self) -> bool {
        self.code == (BPF_JMP | BPF_CALL) && self.src == 0
    }

    /// Whether this is a `call` of `bpf_tail_call`, which does not return if it succeeds.
    pub const fn is_tail_call(self) -> bool {
        self.is_helper_call() && self.imm.cast_unsigned() == crate::proto::id::TAIL_CALL
    }

    /// Whether this is a `call` of another function of the same program.
    pub const fn is_pseudo_call(self) -> bool {
        self.code == (BPF_JMP | BPF_CALL) && self.src == PSEUDO_CALL
    }

    /// Whether this is a `call` of a kfunc.
    pub const fn is_kfunc_call(self) -> bool {
        self.code == (BPF_JMP | BPF_CALL) && self.src == PSEUDO_KFUNC_CALL
    }

    /// Whether this loads the address of a function of the same program (a callback).
    pub const fn is_func_ref(self) -> bool {
        self.is_ld_imm64() && self.src == PSEUDO_FUNC
    }

    /// Whether this loads a map (not an address inside its value).
    pub const fn is_map_ref(self) -> bool {
        self.is_ld_imm64() && matches!(self.src, PSEUDO_MAP_FD | PSEUDO_MAP_IDX)
    }

    /// Whether this loads a map, or an address inside its value.
    pub const fn names_map(self) -> bool {
        let is_value = matches!(self.src, PSEUDO_MAP_VALUE | PSEUDO_MAP_IDX_VALUE);
        self.is_map_ref() || self.is_ld_imm64() && is_value
    }
}

macro_rules! codes {
    ($($(#[$meta:meta])* $name:ident = $value:expr;)*) => {
        $(
            $(#[$meta])*
            #[doc = concat!("`", stringify!($name), "` of the kernel's `bpf.h`.")]
            pub const $name: u8 = $value;
        )*
    };
}

codes! {
    BPF_LD = 0x00; BPF_LDX = 0x01; BPF_ST = 0x02; BPF_STX = 0x03;
    BPF_ALU = 0x04; BPF_JMP = 0x05; BPF_JMP32 = 0x06; BPF_ALU64 = 0x07;

    BPF_W = 0x00; BPF_H = 0x08; BPF_B = 0x10; BPF_DW = 0x18;

    BPF_IMM = 0x00; BPF_ABS = 0x20; BPF_IND = 0x40; BPF_MEM = 0x60; BPF_MEMSX = 0x80;
    BPF_ATOMIC = 0xc0;

    BPF_K = 0x00; BPF_X = 0x08;

    BPF_ADD = 0x00; BPF_SUB = 0x10; BPF_MUL = 0x20; BPF_DIV = 0x30; BPF_OR = 0x40; BPF_AND = 0x50;
    BPF_LSH = 0x60; BPF_RSH = 0x70; BPF_NEG = 0x80; BPF_MOD = 0x90; BPF_XOR = 0xa0; BPF_MOV = 0xb0;
    BPF_ARSH = 0xc0; BPF_END = 0xd0;

    BPF_JA = 0x00; BPF_JEQ = 0x10; BPF_JGT = 0x20; BPF_JGE = 0x30; BPF_JSET = 0x40; BPF_JNE = 0x50;
    BPF_JSGT = 0x60; BPF_JSGE = 0x70; BPF_CALL = 0x80; BPF_EXIT = 0x90; BPF_JLT = 0xa0;
    BPF_JLE = 0xb0; BPF_JSLT = 0xc0; BPF_JSLE = 0xd0; BPF_JCOND = 0xe0;

    /// In the source field of a 64-bit immediate load: imm is the index of a map in
    /// [`crate::Linked::maps`].
    PSEUDO_MAP_FD = 1;
    /// As above, the second slot's imm being an offset into the map's (only) value.
    PSEUDO_MAP_VALUE = 2;
    /// imm is the BTF id of a kernel variable.
    PSEUDO_BTF_ID = 3;
    /// imm is the distance in slots to a function.
    PSEUDO_FUNC = 4;
    PSEUDO_MAP_IDX = 5;
    PSEUDO_MAP_IDX_VALUE = 6;
    /// In the source field of a call: imm is the distance in slots to the callee.
    PSEUDO_CALL = 1;
    /// In the source field of a call: imm is an index into [`crate::Linked::kfuncs`].
    PSEUDO_KFUNC_CALL = 2;
}

/// `BPF_FETCH`, in the immediate of an atomic: the old value comes back.
pub const BPF_FETCH: i32 = 0x01;
/// `BPF_XCHG`, in the immediate of an atomic.
pub const BPF_XCHG: i32 = 0xe0 | BPF_FETCH;
/// `BPF_CMPXCHG`, in the immediate of an atomic.
pub const BPF_CMPXCHG: i32 = 0xf0 | BPF_FETCH;
/// `BPF_LOAD_ACQ`, in the immediate of an atomic.
pub const BPF_LOAD_ACQ: i32 = 0x100;
/// `BPF_STORE_REL`, in the immediate of an atomic.
pub const BPF_STORE_REL: i32 = 0x110;

/// Number of a program's registers: r0..r10.
pub const REG_COUNT: usize = 11;
/// Number of the frame pointer, r10.
pub const REG_FP: u8 = 10;
/// Bytes of stack that one program may use over its whole call chain (`MAX_BPF_STACK`).
pub const STACK_BYTES: usize = 512;
/// Bytes of one frame that may not count as stack: r1 to r5, spilled around a call that keeps them,
/// and the rounding to 16 bytes.
pub const SPILL_BYTES_MAX: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_survive_encoding() {
        let insn = Insn::new(BPF_STX | BPF_MEM | BPF_DW, 10, 1, -8, -1);
        assert_eq!(Insn::from_le_bytes(insn.to_le_bytes()), insn);
        assert_eq!(insn.to_le_bytes(), [0x7b, 0x1a, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(insn.access_bytes(), 8);
    }
}
