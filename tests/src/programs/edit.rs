//! Taking instructions out of a program and keeping its jumps, for minimising and mutation.

use towpath_bpf::Insn;
use towpath_bpf::insn::*;

/// The program without the instructions of `gone`; jumps to them go to what follows. A 64-bit load
/// goes as a whole. `None` when a distance no longer fits.
pub fn without(insns: &[Insn], gone: std::ops::Range<usize>) -> Option<Vec<Insn>> {
    removed(insns, gone).map(|(insns, _)| insns)
}

/// The same, and where each instruction went (those that are gone: where what follows went).
pub fn removed(insns: &[Insn], gone: std::ops::Range<usize>) -> Option<(Vec<Insn>, Vec<usize>)> {
    let mut kept = vec![true; insns.len()];
    let mut second_slot = false;
    for (at, insn) in insns.iter().enumerate() {
        if second_slot {
            kept[at] = kept[at - 1];
            second_slot = false;
            continue;
        }
        kept[at] = !gone.contains(&at);
        second_slot = insn.is_ld_imm64();
    }
    let mut places = Vec::with_capacity(insns.len() + 1);
    let mut next = 0usize;
    for keep in &kept {
        places.push(next);
        next += usize::from(*keep);
    }
    places.push(next);
    let mut out = Vec::with_capacity(next);
    let mut second_slot = false;
    for (at, insn) in insns.iter().enumerate() {
        if kept[at] {
            out.push(if second_slot { *insn } else { moved(*insn, at, &places)? });
        }
        second_slot = !second_slot && insn.is_ld_imm64();
    }
    Some((out, places))
}

/// The instruction at its new place, with its distance corrected.
fn moved(insn: Insn, at: usize, places: &[usize]) -> Option<Insn> {
    let distance = |target: i64| {
        let target = usize::try_from(at as i64 + 1 + target).ok()?;
        let place = *places.get(target)?;
        Some(place as i64 - places[at] as i64 - 1)
    };
    if insn.is_pseudo_call() || insn.is_func_ref() {
        let imm = i32::try_from(distance(i64::from(insn.imm))?).ok()?;
        return Some(Insn { imm, ..insn });
    }
    let jumps =
        matches!(insn.class(), BPF_JMP | BPF_JMP32) && !matches!(insn.op(), BPF_CALL | BPF_EXIT);
    if !jumps {
        return Some(insn);
    }
    let off = i16::try_from(distance(i64::from(insn.off))?).ok()?;
    Some(Insn { off, ..insn })
}

/// What can be made smaller.
pub trait Shrink: Clone {
    /// How many instructions there are.
    fn slots(&self) -> usize;

    /// It without some; `None` where that can't be written.
    fn without(&self, gone: std::ops::Range<usize>) -> Option<Self>;
}

impl Shrink for Vec<Insn> {
    fn slots(&self) -> usize {
        self.len()
    }

    fn without(&self, gone: std::ops::Range<usize>) -> Option<Self> {
        without(self, gone)
    }
}

/// The smallest program found by leaving out ever smaller pieces while `fails` still holds
/// (Zeller's delta debugging). `fails` is asked at most `tries_max` times.
pub fn minimise<P: Shrink>(program: &P, tries_max: usize, mut fails: impl FnMut(&P) -> bool) -> P {
    let mut best = program.clone();
    let mut piece = best.slots() / 2;
    let mut tries = 0;
    while piece > 0 && tries < tries_max {
        let mut at = 0;
        let mut smaller = false;
        while at < best.slots() && tries < tries_max {
            let candidate = best.without(at..(at + piece).min(best.slots()));
            tries += 1;
            match candidate {
                Some(candidate) if candidate.slots() < best.slots() && fails(&candidate) => {
                    best = candidate;
                    smaller = true;
                }
                _ => at += piece,
            }
        }
        if !smaller || piece > 1 {
            piece /= 2;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jump(off: i16) -> Insn {
        Insn::new(BPF_JMP | BPF_JEQ, 1, 0, off, 0)
    }

    fn mov(imm: i32) -> Insn {
        Insn::new(BPF_ALU64 | BPF_MOV, 0, 0, 0, imm)
    }

    #[test]
    fn jumps_over_what_goes_get_shorter() {
        let program = [jump(2), mov(1), mov(2), mov(3)];
        assert_eq!(without(&program, 1..2), Some(vec![jump(1), mov(2), mov(3)]));
    }

    #[test]
    fn wide_loads_go_as_a_whole() {
        let wide = Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, 0, 0, 5);
        let program = [wide, Insn::default(), mov(1)];
        assert_eq!(without(&program, 0..1), Some(vec![mov(1)]));
        assert_eq!(without(&program, 1..2), Some(program.to_vec()));
    }

    #[test]
    fn what_does_not_matter_goes() {
        let program: Vec<Insn> = (0..40).map(mov).collect();
        let small = minimise(&program, 500, |p| p.contains(&mov(17)) && p.contains(&mov(30)));
        assert_eq!(small, [mov(17), mov(30)]);
    }
}
