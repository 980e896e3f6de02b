//! Human-readable machine code: the feature `disasm`.

use iced_x86::{
    Decoder, DecoderOptions, Formatter as _, Instruction, IntelFormatter, Mnemonic, OpKind,
};

/// An instruction of machine code.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineInsn {
    /// Offset in bytes from the start of the code.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
    /// The instruction in Intel's notation.
    pub text: String,
    /// Offset of the function that it calls.
    pub calls: Option<usize>,
    /// The 64-bit constant that it loads.
    pub constant: Option<u64>,
}

/// The instructions of x86-64 machine code, such as [`MachineCode::bytes`] on x86-64. Invalid bytes
/// are shown as `(bad)`.
///
/// [`MachineCode::bytes`]: super::MachineCode::bytes
pub fn disassemble(code: &[u8]) -> Vec<MachineInsn> {
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_hex_prefix("0x");
    formatter.options_mut().set_hex_suffix("");
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_branch_leading_zeros(false);
    let decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let shown = |insn: Instruction| {
        let mut text = String::new();
        formatter.format(&insn, &mut text);
        MachineInsn {
            offset: insn.ip() as usize,
            len: insn.len(),
            text,
            calls: calls(&insn),
            constant: constant(&insn),
        }
    };
    decoder.into_iter().map(shown).collect()
}

fn calls(insn: &Instruction) -> Option<usize> {
    let is_near = insn.mnemonic() == Mnemonic::Call && insn.op0_kind() == OpKind::NearBranch64;
    is_near.then(|| insn.near_branch64() as usize)
}

fn constant(insn: &Instruction) -> Option<u64> {
    let has_one = insn.op_count() >= 2 && insn.op1_kind() == OpKind::Immediate64;
    has_one.then(|| insn.immediate64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_say_what_they_call_and_load() {
        // movabs rax, 0x1122334455667788; call +1; ret; an opcode that 64-bit code has not.
        let code = [0x48, 0xb8, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xe8, 1, 0, 0, 0];
        let found = disassemble(&[&code[..], &[0xc3, 0x06]].concat());
        let texts: Vec<&str> = found.iter().map(|insn| &*insn.text).collect();
        assert_eq!(texts, ["mov rax, 0x1122334455667788", "call 0x10", "ret", "(bad)"]);
        assert_eq!(found[0].constant, Some(0x1122_3344_5566_7788));
        assert_eq!((found[1].offset, found[1].len, found[1].calls), (10, 5, Some(16)));
    }
}
