//! Programs that print: each conversion on numbers from the packet and on constants, in each place
//! that an argument can have.

use towpath_bpf::insn::*;
use towpath_bpf::proto::id;

use super::asm::Asm;
use super::isa::{A, B, Case, case};

/// Every case over operands in packets ([`super::isa::packets`]).
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for texts in CONVERSIONS.chunks(3) {
        cases.push(by_registers(texts, false));
        cases.push(by_registers(texts, true));
    }
    for count in 0..=MANY.len() {
        cases.push(by_words(&MANY[..count]));
    }
    cases.extend(ADDRESSES.map(of_addresses));
    cases.extend([by_address_in_word(), of_one_or_the_other(), of_packet()]);
    cases
}

/// `bpf_trace_printk` with up to three arguments: the operands and their sum, or constants.
fn by_registers(texts: &[&str], constant: bool) -> Case {
    let format = texts.join("|");
    case(format!("printk {format:?}, constant {constant}"), None, |asm| {
        let size = store_text(asm, &format);
        if constant {
            asm.mov_imm(3, -5);
            asm.load_imm64(4, 0x8000_0001_ffff_fffe);
            asm.mov_imm(5, 77);
        } else {
            asm.mov(3, 7);
            asm.mov(4, 8);
            asm.mov(5, 7);
            asm.alu(BPF_ADD, 5, 8);
        }
        point(asm, 1, TEXT);
        asm.mov_imm(2, size);
        asm.call(id::TRACE_PRINTK as i32);
        asm.mov(7, 0);
    })
}

/// `bpf_trace_vprintk`: words on the stack, of which every third is a constant.
fn by_words(texts: &[&str]) -> Case {
    let format = texts.join(",");
    case(format!("vprintk {format:?}"), None, |asm| {
        let size = store_text(asm, &format);
        for (word, at) in (0..texts.len()).zip((WORDS..).step_by(8)) {
            match word % 3 {
                0 => asm.store(BPF_DW, REG_FP, 7, at),
                1 => asm.store(BPF_DW, REG_FP, 8, at),
                _ => asm.store_imm(BPF_DW, REG_FP, at, -3),
            }
        }
        point(asm, 1, TEXT);
        asm.mov_imm(2, size);
        match texts.len() {
            0 => asm.mov_imm(3, 0),
            _ => point(asm, 3, WORDS),
        }
        asm.mov_imm(4, texts.len() as i32 * 8);
        asm.call(id::TRACE_VPRINTK as i32);
        asm.mov(7, 0);
    })
}

/// What lies at an address: the packet's first bytes, copied to the stack, and their address twice.
fn of_addresses(text: &str) -> Case {
    let format = format!("<{text}> {text}");
    case(format!("printk {format:?}"), None, |asm| {
        let size = store_text(asm, &format);
        for (from, at) in [(A, WORDS), (B, WORDS + 8)] {
            asm.load(BPF_DW, 0, 6, from);
            asm.store(BPF_DW, REG_FP, 0, at);
        }
        // Ends a text.
        asm.store_imm(BPF_DW, REG_FP, WORDS + 16, 0);
        point(asm, 3, WORDS);
        point(asm, 4, WORDS);
        point(asm, 1, TEXT);
        asm.mov_imm(2, size);
        asm.call(id::TRACE_PRINTK as i32);
        asm.mov(7, 0);
    })
}

/// `bpf_trace_vprintk`, of which a word is the address of what is printed.
fn by_address_in_word() -> Case {
    case("vprintk of an address".to_owned(), None, |asm| {
        let size = store_text(asm, "%pI4");
        asm.store(BPF_DW, REG_FP, 7, WORDS);
        point(asm, 1, WORDS);
        asm.store(BPF_DW, REG_FP, 1, WORDS + 8);
        point(asm, 1, TEXT);
        asm.mov_imm(2, size);
        point(asm, 3, WORDS + 8);
        asm.mov_imm(4, 8);
        asm.call(id::TRACE_VPRINTK as i32);
        asm.mov(7, 0);
    })
}

/// What is printed lies on the stack on one path only.
fn of_one_or_the_other() -> Case {
    case("printk of stack or packet".to_owned(), None, |asm| {
        let size = store_text(asm, "%pI4");
        asm.store(BPF_DW, REG_FP, 8, WORDS);
        asm.mov(3, 6);
        let other = asm.jump(BPF_JMP | BPF_JGT, 7, 0, 7);
        point(asm, 3, WORDS);
        asm.land(other);
        point(asm, 1, TEXT);
        asm.mov_imm(2, size);
        asm.call(id::TRACE_PRINTK as i32);
        asm.mov(7, 0);
    })
}

/// What is printed is written before, and again behind it.
fn of_packet() -> Case {
    case("printk of the packet".to_owned(), None, |asm| {
        let size = store_text(asm, "%pI4");
        asm.store(BPF_W, 6, 8, A);
        point(asm, 1, TEXT);
        asm.mov_imm(2, size);
        asm.mov(3, 6);
        asm.call(id::TRACE_PRINTK as i32);
        asm.store(BPF_W, 6, 7, A);
        asm.mov(7, 0);
    })
}

/// Stores a text with its NUL on the stack; gives its size.
fn store_text(asm: &mut Asm, text: &str) -> i32 {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    for (&byte, at) in bytes.iter().zip(TEXT..) {
        asm.store_imm(BPF_B, REG_FP, at, byte.into());
    }
    bytes.len() as i32
}

fn point(asm: &mut Asm, reg: u8, at: i16) {
    asm.mov(reg, REG_FP);
    asm.alu_imm(BPF_ADD, reg, at.into());
}

/// Where a format lies on the stack, up to 128 bytes of it.
const TEXT: i16 = -128;
/// Where arguments lie.
const WORDS: i16 = -256;
/// Conversions of numbers.
const CONVERSIONS: [&str; 21] = [
    "%d", "%u", "%x", "%lld", "%llu", "%llx", "%ld", "%lu", "%lX", "%i", "%X", "%5d", "%-12ld",
    "%012llx", "%+d", "% d", "%03u", "%20llu", "%-3x", "%px", "%%%d",
];
/// As many as `bpf_trace_vprintk` takes.
const MANY: [&str; 12] =
    ["%d", "%llx", "%u", "%lld", "%x", "%llu", "%px", "%ld", "%i", "%lx", "%X", "%lu"];
/// Conversions of what lies at an address.
const ADDRESSES: [&str; 4] = ["%pI4", "%pi4", "%pI6", "%pi6"];
