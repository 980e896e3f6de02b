//! Programs written as text, in the notation of the kernel's verifier log.
//!
//! ```text
//! r2 = *(u32 *)(r1 + 0); r3 = *(u32 *)(r1 + 4)
//! if r2 s> 8 goto out
//! r1 = map[array]; r2 = value[array] + 4; r3 = &function
//! r1 = fetch_add *(u64 *)(r10 - 8); lock *(u32 *)(r10 - 4) |= w1
//! call bpf_tail_call; call function; may_goto out
//! out: exit
//! ```
//!
//! A name in front of a colon is a place to jump to, or the start of a function when it is called.
//! What programs often do has a word: `lookup NAME` looks for key 0 in a map, `find NAME` goes to
//! `out` where there is nothing, `read rN` reads a byte of the value found at index rN, and a place
//! `out` that is missing is made at the end: `r0 = 2; exit`. `raw CODE DST SRC OFF IMM` is an
//! instruction as it is.

use std::collections::HashMap;

use towpath_bpf::Insn;
use towpath_bpf::insn::*;
use towpath_bpf::proto;

/// Instructions, and what they refer to.
#[derive(Debug, Default)]
pub struct Assembled {
    /// Map references have an index into `maps` as immediate, calls of kfuncs one into `kfuncs`.
    pub insns: Vec<Insn>,
    /// Names of maps.
    pub maps: Vec<String>,
    /// Names of kfuncs.
    pub kfuncs: Vec<String>,
}

/// Assembles a text; the error names the statement.
pub fn assemble(text: &str) -> Result<Assembled, String> {
    let mut assembler = Assembler::default();
    for statement in text.lines().flat_map(|line| line.split(';')) {
        let statement = statement.trim();
        let words = words(statement);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assembler.statement(&words).ok_or_else(|| format!("not understood: `{statement}`"))?;
    }
    assembler.finish()
}

/// Names and numbers; each other character but blanks on its own.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut in_name = false;
    for c in text.chars() {
        let name = c.is_alphanumeric() || c == '_';
        match words.last_mut() {
            Some(word) if name && in_name => word.push(c),
            _ if c.is_whitespace() => {}
            _ => words.push(c.to_string()),
        }
        in_name = name;
    }
    words
}

/// Where programs go that end early.
const OUT: &str = "out";

#[derive(Default)]
struct Assembler {
    out: Assembled,
    places: HashMap<String, usize>,
    /// Instructions whose distance is missing, and to where it is.
    jumps: Vec<(usize, String)>,
    /// Calls by name: of functions, helpers or kfuncs.
    calls: Vec<(usize, String)>,
}

impl Assembler {
    fn put(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Option<()> {
        self.out.insns.push(Insn::new(code, dst, src, off, imm));
        Some(())
    }

    fn statement(&mut self, words: &[&str]) -> Option<()> {
        match words {
            [] => Some(()),
            [name, ":", rest @ ..] => {
                self.places.insert((*name).to_owned(), self.out.insns.len());
                self.statement(rest)
            }
            ["exit"] => self.put(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
            ["goto", place] => self.jump(BPF_JMP | BPF_JA, 0, 0, 0, place),
            ["may_goto", place] => self.jump(BPF_JMP | BPF_JCOND, 0, 0, 0, place),
            ["call", name] => {
                self.calls.push((self.out.insns.len(), (*name).to_owned()));
                self.put(BPF_JMP | BPF_CALL, 0, 0, 0, 0)
            }
            ["lookup", map] => self.lookup(map),
            ["find", map] => {
                self.lookup(map)?;
                self.jump(BPF_JMP | BPF_JEQ, 0, 0, 0, OUT)
            }
            ["read", index] => {
                self.put(BPF_ALU64 | BPF_ADD | BPF_X, 0, register(index)?.0, 0, 0)?;
                self.put(BPF_LDX | BPF_MEM | BPF_B, 0, 0, 0, 0)
            }
            ["raw", fields @ ..] => self.raw(fields),
            ["if", rest @ ..] => self.condition(rest),
            ["lock", rest @ ..] => self.lock(rest),
            ["store_release", rest @ ..] => {
                let (place, rest) = memory(rest)?;
                let ["=", src] = rest else { return None };
                let code = BPF_STX | BPF_ATOMIC | place.size;
                self.put(code, place.base, register(src)?.0, place.off, BPF_STORE_REL)
            }
            ["*", ..] => self.store(words),
            [dst, rest @ ..] => {
                let (dst, wide) = register(dst)?;
                self.assign(dst, wide, rest)
            }
        }
    }

    fn lookup(&mut self, map: &str) -> Option<()> {
        self.put(BPF_ST | BPF_MEM | BPF_W, REG_FP, 0, -4, 0)?;
        self.put(BPF_ALU64 | BPF_MOV | BPF_X, 2, REG_FP, 0, 0)?;
        self.put(BPF_ALU64 | BPF_ADD, 2, 0, 0, -4)?;
        self.map(1, PSEUDO_MAP_FD, map, 0)?;
        self.put(BPF_JMP | BPF_CALL, 0, 0, 0, proto::id::MAP_LOOKUP_ELEM.cast_signed())
    }

    fn raw(&mut self, fields: &[&str]) -> Option<()> {
        let (mut numbers, mut rest) = (Vec::new(), fields);
        while !rest.is_empty() {
            let (number, behind) = number(rest)?;
            numbers.push(number);
            rest = behind;
        }
        let [code, dst, src, off, imm] = numbers[..] else { return None };
        self.put(code as u8, dst as u8, src as u8, off as i16, imm as i32)
    }

    fn jump(&mut self, code: u8, dst: u8, src: u8, imm: i32, place: &str) -> Option<()> {
        self.jumps.push((self.out.insns.len(), place.to_owned()));
        self.put(code, dst, src, 0, imm)
    }

    fn condition(&mut self, words: &[&str]) -> Option<()> {
        let (left, wide) = register(words.first()?)?;
        let to = words.iter().position(|word| *word == "goto")?;
        let [_, place] = words.get(to..)? else { return None };
        let class = if wide { BPF_JMP } else { BPF_JMP32 };
        let (op, operand) = condition_op(words.get(1..to)?)?;
        match operand_of(operand)? {
            Operand::Register(src) => self.jump(class | op | BPF_X, left, src, 0, place),
            Operand::Number(imm) => self.jump(class | op, left, 0, imm as i32, place),
        }
    }

    fn lock(&mut self, words: &[&str]) -> Option<()> {
        let (place, rest) = memory(words)?;
        let [op, "=", src] = rest else { return None };
        let operation = i32::from(alu_op(op)?);
        let code = BPF_STX | BPF_ATOMIC | place.size;
        self.put(code, place.base, register(src)?.0, place.off, operation)
    }

    fn store(&mut self, words: &[&str]) -> Option<()> {
        let (place, rest) = memory(words)?;
        let ["=", operand @ ..] = rest else { return None };
        let mode = BPF_MEM | place.size;
        match operand_of(operand)? {
            Operand::Register(src) => self.put(BPF_STX | mode, place.base, src, place.off, 0),
            Operand::Number(imm) => self.put(BPF_ST | mode, place.base, 0, place.off, imm as i32),
        }
    }

    fn assign(&mut self, dst: u8, wide: bool, words: &[&str]) -> Option<()> {
        let class = if wide { BPF_ALU64 } else { BPF_ALU };
        let ["=", value @ ..] = words else { return self.arithmetic(dst, class, words) };
        match value {
            ["*", ..] => {
                let (place, []) = memory(value)? else { return None };
                let mode = if place.signed { BPF_MEMSX } else { BPF_MEM };
                self.put(BPF_LDX | mode | place.size, dst, place.base, place.off, 0)
            }
            ["(", width @ ("s8" | "s16" | "s32"), ")", src] => {
                let bits = width[1..].parse().ok()?;
                self.put(class | BPF_MOV | BPF_X, dst, register(src)?.0, bits, 0)
            }
            ["-", src] if register(src) == Some((dst, wide)) => {
                self.put(class | BPF_NEG, dst, 0, 0, 0)
            }
            ["&", function] => {
                self.calls.push((self.out.insns.len(), (*function).to_owned()));
                self.put(BPF_LD | BPF_IMM | BPF_DW, dst, PSEUDO_FUNC, 0, 0)?;
                self.put(0, 0, 0, 0, 0)
            }
            ["map", "[", map, "]"] => self.map(dst, PSEUDO_MAP_FD, map, 0),
            ["value", "[", map, "]", rest @ ..] => {
                self.map(dst, PSEUDO_MAP_VALUE, map, offset(rest)?.into())
            }
            [swap, src] if swap_op(swap).is_some() && register(src)?.0 == dst => {
                let (code, bits) = swap_op(swap)?;
                self.put(code, dst, 0, 0, bits)
            }
            [operation, "*", ..] => self.fetch(dst, operation, &value[1..]),
            [.., "ll"] => {
                let (number, _) = number(value)?;
                self.put(BPF_LD | BPF_IMM | BPF_DW, dst, 0, 0, number as i32)?;
                self.put(0, 0, 0, 0, (number >> 32) as i32)
            }
            _ => match operand_of(value)? {
                Operand::Register(src) => self.put(class | BPF_MOV | BPF_X, dst, src, 0, 0),
                Operand::Number(imm) => self.put(class | BPF_MOV, dst, 0, 0, imm as i32),
            },
        }
    }

    fn arithmetic(&mut self, dst: u8, class: u8, words: &[&str]) -> Option<()> {
        let at = words.iter().position(|word| *word == "=")?;
        let (op, signed) = match words.get(..at)? {
            ["s", op] => (alu_op(op)?, i16::from(matches!(*op, "/" | "%"))),
            [">", ">"] => (BPF_RSH, 0),
            ["<", "<"] => (BPF_LSH, 0),
            ["s", ">", ">"] => (BPF_ARSH, 0),
            [op] => (alu_op(op)?, 0),
            _ => return None,
        };
        match operand_of(words.get(at + 1..)?)? {
            Operand::Register(src) => self.put(class | op | BPF_X, dst, src, signed, 0),
            Operand::Number(imm) => self.put(class | op, dst, 0, signed, imm as i32),
        }
    }

    /// Atomic operations that give a value; `cmpxchg` compares with r0 and stores the register.
    fn fetch(&mut self, register: u8, operation: &str, words: &[&str]) -> Option<()> {
        let (place, []) = memory(words)? else { return None };
        let code = BPF_STX | BPF_ATOMIC | place.size;
        let operation = match operation {
            "load_acquire" => return self.put(code, register, place.base, place.off, BPF_LOAD_ACQ),
            "xchg" => BPF_XCHG,
            "cmpxchg" => BPF_CMPXCHG,
            "fetch_add" => i32::from(BPF_ADD) | BPF_FETCH,
            "fetch_and" => i32::from(BPF_AND) | BPF_FETCH,
            "fetch_or" => i32::from(BPF_OR) | BPF_FETCH,
            "fetch_xor" => i32::from(BPF_XOR) | BPF_FETCH,
            _ => return None,
        };
        self.put(code, place.base, register, place.off, operation)
    }

    fn map(&mut self, dst: u8, pseudo: u8, name: &str, offset: i32) -> Option<()> {
        let index = index_of(&mut self.out.maps, name);
        self.put(BPF_LD | BPF_IMM | BPF_DW, dst, pseudo, 0, index)?;
        self.put(0, 0, 0, 0, offset)
    }

    /// Fills in the distances, and what the called names are.
    fn finish(mut self) -> Result<Assembled, String> {
        let distance = |places: &HashMap<String, usize>, from: usize, to: &str| {
            places.get(to).map(|to| *to as i64 - from as i64 - 1)
        };
        let wants_out = self.jumps.iter().any(|(_, to)| to == OUT);
        if wants_out && !self.places.contains_key(OUT) {
            self.statement(&[OUT, ":", "r0", "=", "2"]);
            self.statement(&["exit"]);
        }
        for (from, to) in &self.jumps {
            let slots = distance(&self.places, *from, to).ok_or(format!("no place `{to}`"))?;
            self.out.insns[*from].off = slots as i16;
        }
        for (at, name) in &self.calls {
            let insn = &mut self.out.insns[*at];
            if let Some(slots) = distance(&self.places, *at, name) {
                insn.imm = slots as i32;
                if !insn.is_func_ref() {
                    insn.src = PSEUDO_CALL;
                }
            } else if let Some(helper) = helper(name) {
                insn.imm = helper;
            } else {
                insn.src = PSEUDO_KFUNC_CALL;
                insn.imm = index_of(&mut self.out.kfuncs, name);
            }
        }
        Ok(self.out)
    }
}

fn index_of(names: &mut Vec<String>, name: &str) -> i32 {
    let known = names.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    }) as i32
}

/// A helper's number, also of those that an XDP program may not call.
fn helper(name: &str) -> Option<i32> {
    const NUMBERS_MAX: u32 = 256;
    (1..NUMBERS_MAX).find(|id| proto::helper_name(*id) == Some(name)).map(u32::cast_signed)
}

/// `*(u32 *)(r1 + 4)`
struct Memory {
    size: u8,
    signed: bool,
    base: u8,
    off: i16,
}

/// A memory operand, and the words behind it.
fn memory<'a>(words: &'a [&'a str]) -> Option<(Memory, &'a [&'a str])> {
    let ["*", "(", ty, "*", ")", "(", base, rest @ ..] = words else { return None };
    let end = rest.iter().position(|word| *word == ")")?;
    let size = match ty.get(1..)? {
        "8" => BPF_B,
        "16" => BPF_H,
        "32" => BPF_W,
        "64" => BPF_DW,
        _ => return None,
    };
    let (base, off) = (register(base)?.0, offset(&rest[..end])?);
    Some((Memory { size, signed: ty.starts_with('s'), base, off }, &rest[end + 1..]))
}

/// `+ 4`, `- 4`, or nothing.
fn offset(words: &[&str]) -> Option<i16> {
    let sign = match words {
        [] => return Some(0),
        ["+", ..] => 1,
        ["-", ..] => -1,
        _ => return None,
    };
    let (value, []) = number(&words[1..])? else { return None };
    i16::try_from(sign * value).ok()
}

enum Operand {
    Register(u8),
    Number(i64),
}

fn operand_of(words: &[&str]) -> Option<Operand> {
    if let [word] = words
        && let Some((register, _)) = register(word)
    {
        return Some(Operand::Register(register));
    }
    match number(words)? {
        (value, []) => Some(Operand::Number(value)),
        _ => None,
    }
}

/// Register and whether all 64 bits are meant: `r3`, `w3`.
fn register(word: &str) -> Option<(u8, bool)> {
    let wide = word.starts_with('r');
    let number: u8 = word.strip_prefix(['r', 'w'])?.parse().ok()?;
    (number < 16).then_some((number, wide))
}

/// A decimal or hexadecimal number with its sign, and the words behind it.
fn number<'a>(words: &'a [&'a str]) -> Option<(i64, &'a [&'a str])> {
    let (sign, words) = match words {
        ["-", rest @ ..] => (-1, rest),
        _ => (1, words),
    };
    let (first, rest) = words.split_first()?;
    let value = match first.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?.cast_signed(),
        None => first.parse::<u64>().ok()?.cast_signed(),
    };
    Some((value.wrapping_mul(sign), rest))
}

fn alu_op(op: &str) -> Option<u8> {
    Some(match op {
        "+" => BPF_ADD,
        "-" => BPF_SUB,
        "*" => BPF_MUL,
        "/" => BPF_DIV,
        "%" => BPF_MOD,
        "|" => BPF_OR,
        "&" => BPF_AND,
        "^" => BPF_XOR,
        _ => return None,
    })
}

/// The comparison at the start, and the words behind it.
fn condition_op<'a>(words: &'a [&'a str]) -> Option<(u8, &'a [&'a str])> {
    Some(match words {
        ["=", "=", rest @ ..] => (BPF_JEQ, rest),
        ["!", "=", rest @ ..] => (BPF_JNE, rest),
        ["&", rest @ ..] => (BPF_JSET, rest),
        ["s", ">", "=", rest @ ..] => (BPF_JSGE, rest),
        ["s", ">", rest @ ..] => (BPF_JSGT, rest),
        ["s", "<", "=", rest @ ..] => (BPF_JSLE, rest),
        ["s", "<", rest @ ..] => (BPF_JSLT, rest),
        [">", "=", rest @ ..] => (BPF_JGE, rest),
        [">", rest @ ..] => (BPF_JGT, rest),
        ["<", "=", rest @ ..] => (BPF_JLE, rest),
        ["<", rest @ ..] => (BPF_JLT, rest),
        _ => return None,
    })
}

/// Byte swaps: opcode and bits.
fn swap_op(word: &str) -> Option<(u8, i32)> {
    let digits = word.find(|c: char| c.is_ascii_digit())?;
    let code = match &word[..digits] {
        "be" => BPF_ALU | BPF_END | BPF_X,
        "le" => BPF_ALU | BPF_END,
        "bswap" => BPF_ALU64 | BPF_END,
        _ => return None,
    };
    Some((code, word[digits..].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use towpath_bpf::disasm::Disasm;

    use super::*;

    #[test]
    fn what_is_written_is_what_the_disassembler_prints() {
        let lines = [
            "r2 = r1",
            "w2 = -5",
            "r2 += 8",
            "w3 s>>= 31",
            "r3 s/= r4",
            "r1 = (s8)r2",
            "r2 = be16 r2",
            "r3 = *(u32 *)(r1 +4)",
            "r3 = *(s16 *)(r1 -2)",
            "*(u64 *)(r10 -8) = r1",
            "lock *(u64 *)(r10 -8) += r1",
            "exit",
        ];
        for line in lines {
            let assembled = assemble(line).unwrap();
            let text = Disasm::bare(assembled.insns[0], 0).to_string();
            assert_eq!(text.split_once(") ").map(|(_, text)| text), Some(line));
        }
    }

    #[test]
    fn jumps_and_calls_find_their_places() {
        let text = "start: if w1 s>= -3 goto end\n call function; call bpf_tail_call\n end: exit\n\
                    function: r0 = 1 ll; r0 = xchg *(u64 *)(r10 - 8); goto start";
        let insns = assemble(text).unwrap().insns;
        assert_eq!(insns[0], Insn::new(BPF_JMP32 | BPF_JSGE, 1, 0, 2, -3));
        assert_eq!(insns[1], Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 2));
        assert!(insns[2].is_tail_call());
        assert_eq!((insns[6].imm, insns[7].off), (BPF_XCHG, -8));
        assert!(assemble("r1 = ").unwrap_err().contains("r1 ="));
    }
}
