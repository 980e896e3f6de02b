//! Instructions as text, in the notation of the kernel's verifier log and of `bpftool prog dump`.
//!
//! The notation is the same everywhere (dumps, rejections, logs), because users paste these lines
//! into search engines and compare them with the kernel's output.

use std::fmt::{self, Display, Formatter};

use crate::insn::*;
use crate::program::Linked;
use crate::proto::helper_name;

/// An instruction of a program, ready to be printed: `(b7) r0 = 2`.
#[derive(Debug, Clone, Copy)]
pub struct Disasm<'a> {
    insn: Insn,
    /// Immediate of the second slot of a 64-bit load.
    high: i32,
    /// The program and the instruction's slot in it, for names of functions, maps and kfuncs.
    place: Option<(&'a Linked, usize)>,
}

impl<'a> Disasm<'a> {
    /// The instruction at a slot of a program; maps and kfuncs are printed by name.
    pub fn of(program: &'a Linked, slot: usize) -> Option<Self> {
        let insn = *program.insns.get(slot)?;
        let high = program.insns.get(slot + 1).map_or(0, |next| next.imm);
        Some(Disasm { insn, high, place: Some((program, slot)) })
    }

    /// An instruction on its own; `high` is the immediate of its second slot, if it has one.
    pub fn bare(insn: Insn, high: i32) -> Self {
        Disasm { insn, high, place: None }
    }
}

impl Display for Disasm<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "({:02x}) ", self.insn.code)?;
        match self.insn.class() {
            BPF_ALU | BPF_ALU64 => write_alu(f, self.insn),
            BPF_JMP | BPF_JMP32 => self.write_jump(f),
            BPF_LD => self.write_wide_load(f),
            _ => write_access(f, self.insn),
        }
    }
}

impl Disasm<'_> {
    fn write_wide_load(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Insn { code, dst, src, imm, .. } = self.insn;
        if !self.insn.is_ld_imm64() {
            return match self.insn.mode() {
                BPF_ABS => write!(f, "r0 = *({} *)skb[{imm}]", unsigned(code)),
                BPF_IND => write!(f, "r0 = *({} *)skb[r{src} + {imm}]", unsigned(code)),
                _ => write_unknown(f, self.insn),
            };
        }
        match src {
            PSEUDO_MAP_FD | PSEUDO_MAP_IDX => write!(f, "r{dst} = map[{}]", self.map_name()),
            PSEUDO_MAP_VALUE | PSEUDO_MAP_IDX_VALUE => {
                write!(f, "r{dst} = map[{}][0]+{}", self.map_name(), self.high as u32)
            }
            PSEUDO_FUNC => match self.callee() {
                Some(name) => write!(f, "r{dst} = subprog[{imm:+}] <{name}>"),
                None => write!(f, "r{dst} = subprog[{imm:+}]"),
            },
            PSEUDO_BTF_ID => write!(f, "r{dst} = btf_id[{imm}]"),
            _ => {
                let value = u64::from(self.high as u32) << 32 | u64::from(imm as u32);
                write!(f, "r{dst} = {value:#x}")
            }
        }
    }

    fn map_name(&self) -> String {
        let index = self.insn.imm;
        let map =
            self.place.and_then(|(program, _)| program.maps.get(usize::try_from(index).ok()?));
        map.map_or_else(|| format!("index:{index}"), |map| map.name.clone())
    }

    fn write_jump(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Insn { code, dst, src, off, imm } = self.insn;
        let wide = self.insn.class() == BPF_JMP;
        match self.insn.op() {
            BPF_CALL if wide => self.write_call(f),
            BPF_EXIT if wide => f.write_str("exit"),
            BPF_JA if wide => write!(f, "goto pc{off:+}"),
            BPF_JA => write!(f, "gotol pc{imm:+}"),
            BPF_JCOND => write!(f, "may_goto pc{off:+}"),
            op => {
                let Some(sign) = comparison(op) else { return write_unknown(f, self.insn) };
                let name = if wide { 'r' } else { 'w' };
                write!(f, "if {name}{dst} {sign} ")?;
                match code & BPF_X {
                    BPF_X => write!(f, "{name}{src}")?,
                    _ => write!(f, "{imm:#x}")?,
                }
                write!(f, " goto pc{off:+}")
            }
        }
    }

    fn write_call(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let imm = self.insn.imm;
        if self.insn.is_pseudo_call() {
            return match self.callee() {
                Some(name) => write!(f, "call pc{imm:+} <{name}>"),
                None => write!(f, "call pc{imm:+}"),
            };
        }
        if self.insn.is_kfunc_call() {
            let kfunc =
                self.place.and_then(|(program, _)| program.kfuncs.get(usize::try_from(imm).ok()?));
            return match kfunc {
                Some(kfunc) => write!(f, "call {}", kfunc.name),
                None => write!(f, "call kfunc#{imm}"),
            };
        }
        match u32::try_from(imm).ok().and_then(helper_name) {
            Some(name) => write!(f, "call {name}#{imm}"),
            None => write!(f, "call unknown#{imm}"),
        }
    }

    /// Name of the function that a call or function reference leads to.
    fn callee(&self) -> Option<&str> {
        let (program, slot) = self.place?;
        let target = slot as i64 + 1 + i64::from(self.insn.imm);
        let function = program.functions.iter().find(|f| i64::from(f.start) == target)?;
        Some(function.name.as_str()).filter(|name| !name.is_empty())
    }
}

fn write_alu(f: &mut Formatter<'_>, insn: Insn) -> fmt::Result {
    let Insn { code, dst, src, off, imm } = insn;
    let wide = insn.class() == BPF_ALU64;
    let name = if wide { 'r' } else { 'w' };
    let operand = match code & BPF_X {
        BPF_X => format!("{name}{src}"),
        _ => imm.to_string(),
    };
    let sign = match (insn.op(), off) {
        (BPF_NEG, _) => return write!(f, "{name}{dst} = -{name}{dst}"),
        (BPF_END, _) => return write_byte_order(f, insn),
        (BPF_MOV, 0) => "=",
        (BPF_MOV, 1) if wide && code & BPF_X != 0 && imm != 0 => {
            // Arena pointers: address space numbers in the two halves of the immediate.
            let (to, from) = ((imm as u32) >> 16, imm & 0xffff);
            return write!(f, "r{dst} = addr_space_cast(r{src}, {to}, {from})");
        }
        (BPF_MOV, _) => return write!(f, "{name}{dst} = (s{off}){operand}"),
        (BPF_ADD, _) => "+=",
        (BPF_SUB, _) => "-=",
        (BPF_MUL, _) => "*=",
        (BPF_DIV, 0) => "/=",
        (BPF_DIV, _) => "s/=",
        (BPF_OR, _) => "|=",
        (BPF_AND, _) => "&=",
        (BPF_LSH, _) => "<<=",
        (BPF_RSH, _) => ">>=",
        (BPF_MOD, 0) => "%=",
        (BPF_MOD, _) => "s%=",
        (BPF_XOR, _) => "^=",
        (BPF_ARSH, _) => "s>>=",
        _ => return write_unknown(f, insn),
    };
    write!(f, "{name}{dst} {sign} {operand}")
}

/// `BPF_END`: an unconditional swap in the 64-bit class, else a conversion to an order.
fn write_byte_order(f: &mut Formatter<'_>, insn: Insn) -> fmt::Result {
    let Insn { code, dst, imm, .. } = insn;
    let order = match (insn.class() == BPF_ALU64, code & BPF_X) {
        (true, _) => "bswap",
        (false, BPF_X) => "be",
        (false, _) => "le",
    };
    write!(f, "r{dst} = {order}{imm} r{dst}")
}

fn write_access(f: &mut Formatter<'_>, insn: Insn) -> fmt::Result {
    let Insn { code, dst, src, off, imm } = insn;
    let size = unsigned(code);
    match (insn.class(), insn.mode()) {
        (BPF_LDX, BPF_MEM) => write!(f, "r{dst} = *({size} *)(r{src} {off:+})"),
        (BPF_LDX, BPF_MEMSX) => {
            write!(f, "r{dst} = *(s{} *)(r{src} {off:+})", 8 * insn.access_bytes())
        }
        (BPF_ST, BPF_MEM) => write!(f, "*({size} *)(r{dst} {off:+}) = {imm}"),
        (BPF_STX, BPF_MEM) => write!(f, "*({size} *)(r{dst} {off:+}) = r{src}"),
        (BPF_STX, BPF_ATOMIC) => write_atomic(f, insn),
        _ => write_unknown(f, insn),
    }
}

fn write_atomic(f: &mut Formatter<'_>, insn: Insn) -> fmt::Result {
    let Insn { code, dst, src, off, imm } = insn;
    let size = unsigned(code);
    let place = format!("(({size} *)(r{dst} {off:+})");
    let prefix = if insn.access_bytes() == 8 { "atomic64" } else { "atomic" };
    match imm {
        BPF_LOAD_ACQ => write!(f, "r{dst} = load_acquire(({size} *)(r{src} {off:+}))"),
        BPF_STORE_REL => write!(f, "store_release{place}, r{src})"),
        BPF_CMPXCHG => write!(f, "r0 = {prefix}_cmpxchg{place}, r0, r{src})"),
        BPF_XCHG => write!(f, "r{src} = {prefix}_xchg{place}, r{src})"),
        _ => {
            let (name, sign) = match (imm & !BPF_FETCH) as u8 {
                BPF_ADD => ("add", "+="),
                BPF_OR => ("or", "|="),
                BPF_AND => ("and", "&="),
                BPF_XOR => ("xor", "^="),
                _ => return write_unknown(f, insn),
            };
            match imm & BPF_FETCH {
                0 => write!(f, "lock *({size} *)(r{dst} {off:+}) {sign} r{src}"),
                _ => write!(f, "r{src} = {prefix}_fetch_{name}{place}, r{src})"),
            }
        }
    }
}

fn write_unknown(f: &mut Formatter<'_>, insn: Insn) -> fmt::Result {
    let Insn { code: _, dst, src, off, imm } = insn;
    write!(f, "unknown instruction: dst r{dst}, src r{src}, off {off}, imm {imm}")
}

/// Name of an access's type, as in the kernel.
fn unsigned(code: u8) -> &'static str {
    match code & 0x18 {
        BPF_B => "u8",
        BPF_H => "u16",
        BPF_W => "u32",
        _ => "u64",
    }
}

fn comparison(op: u8) -> Option<&'static str> {
    Some(match op {
        BPF_JEQ => "==",
        BPF_JGT => ">",
        BPF_JGE => ">=",
        BPF_JSET => "&",
        BPF_JNE => "!=",
        BPF_JSGT => "s>",
        BPF_JSGE => "s>=",
        BPF_JLT => "<",
        BPF_JLE => "<=",
        BPF_JSLT => "s<",
        BPF_JSLE => "s<=",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> String {
        Disasm::bare(Insn::new(code, dst, src, off, imm), 0).to_string()
    }

    #[test]
    fn the_kernels_notation() {
        let cases = [
            (text(0xb7, 0, 0, 0, 2), "(b7) r0 = 2"),
            (text(0xbf, 6, 1, 0, 0), "(bf) r6 = r1"),
            (text(0xbc, 6, 1, 16, 0), "(bc) w6 = (s16)w1"),
            (text(0x3f, 1, 2, 1, 0), "(3f) r1 s/= r2"),
            (text(0x87, 3, 0, 0, 0), "(87) r3 = -r3"),
            (text(0xdc, 1, 0, 0, 16), "(dc) r1 = be16 r1"),
            (text(0xd7, 1, 0, 0, 64), "(d7) r1 = bswap64 r1"),
            (text(0x61, 1, 2, -4, 0), "(61) r1 = *(u32 *)(r2 -4)"),
            (text(0x91, 1, 2, 0, 0), "(91) r1 = *(s8 *)(r2 +0)"),
            (text(0x7a, 10, 0, -8, 0), "(7a) *(u64 *)(r10 -8) = 0"),
            (text(0xdb, 1, 2, 0, 0), "(db) lock *(u64 *)(r1 +0) += r2"),
            (text(0xc3, 1, 2, 8, 0x01), "(c3) r2 = atomic_fetch_add((u32 *)(r1 +8), r2)"),
            (text(0xdb, 1, 2, 0, 0xf1), "(db) r0 = atomic64_cmpxchg((u64 *)(r1 +0), r0, r2)"),
            (text(0x2d, 1, 2, 9, 0), "(2d) if r1 > r2 goto pc+9"),
            (text(0x16, 1, 0, -3, 8), "(16) if w1 == 0x8 goto pc-3"),
            (text(0x85, 0, 0, 0, 1), "(85) call bpf_map_lookup_elem#1"),
            (text(0x85, 0, 1, 0, 7), "(85) call pc+7"),
            (text(0x95, 0, 0, 0, 0), "(95) exit"),
            (text(0xe5, 0, 0, 2, 0), "(e5) may_goto pc+2"),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
        let wide = Disasm::bare(Insn::new(0x18, 1, 0, 0, -1), 1).to_string();
        assert_eq!(wide, "(18) r1 = 0x1ffffffff");
    }
}
