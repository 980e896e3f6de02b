//! Conditions of RFC 9669 section 4.3.

use crate::insn::{
    BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JLE, BPF_JLT, BPF_JMP32, BPF_JNE, BPF_JSET, BPF_JSGE, BPF_JSGT,
    BPF_JSLE, BPF_JSLT, Insn,
};

/// Whether a conditional jump is taken; `None` for an unknown condition.
///
/// Class JMP32 compares the low halves: sign-extending both keeps every order, signed and, since
/// extension is monotonic in each half of the range, unsigned.
#[inline]
pub(super) fn taken(insn: Insn, dst: u64, src: u64) -> Option<bool> {
    let (dst, src) = if insn.class() == BPF_JMP32 {
        (i64::from(dst as i32) as u64, i64::from(src as i32) as u64)
    } else {
        (dst, src)
    };
    let (signed_dst, signed_src) = (dst as i64, src as i64);
    Some(match insn.op() {
        BPF_JEQ => dst == src,
        BPF_JNE => dst != src,
        BPF_JSET => dst & src != 0,
        BPF_JGT => dst > src,
        BPF_JGE => dst >= src,
        BPF_JLT => dst < src,
        BPF_JLE => dst <= src,
        BPF_JSGT => signed_dst > signed_src,
        BPF_JSGE => signed_dst >= signed_src,
        BPF_JSLT => signed_dst < signed_src,
        BPF_JSLE => signed_dst <= signed_src,
        _ => return None,
    })
}
