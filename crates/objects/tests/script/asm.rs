//! Instructions as scripts write them: `code dst src off imm; ...`, the code in hexadecimal.

use towpath_bpf::Insn;

use crate::values::Names;

/// The bytes of instructions; an immediate may be the name of a descriptor.
pub(crate) fn assemble(text: &str, names: &Names) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for insn in text.split(';').map(str::trim).filter(|insn| !insn.is_empty()) {
        let [code, dst, src, off, imm] =
            insn.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let number = |word: &str| names.number(word);
        let code = u8::from_str_radix(code, 16).ok()?;
        let (dst, src) = (number(dst)? as u8, number(src)? as u8);
        let insn = Insn { code, dst, src, off: number(off)? as i16, imm: number(imm)? as i32 };
        bytes.extend(insn.to_le_bytes());
    }
    Some(bytes)
}
