//! Whose work a difference is: the first pass with which it appears.

use std::fmt;

use towpath_bpf::Linked;
use towpath_bpf::disasm::Disasm;
use towpath_bpf::verifier::Verified;

use super::random::trace;
use crate::execution::Trace;
use crate::ways::Way;

/// What turning passes off and on has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blame {
    /// The pass with which the difference appears when passes are added one by one, and its place
    /// among those that run. `None`: it is there without any pass, so it is the back end's (or the
    /// builder's); or it is the interpreter that differs from the kernel.
    pub first: Option<(String, usize)>,
    /// Each of these, left out alone, makes it disappear.
    pub healing: Vec<String>,
    /// Whether the two ways of running differ from each other at all.
    pub differs: bool,
}

impl Blame {
    /// Runs the program with ever more passes, and without each.
    pub fn find(verified: &Verified, way: &Way, packets: &[Vec<u8>]) -> Blame {
        let nobody = Blame { first: None, healing: Vec::new(), differs: false };
        let Ok((reference, _)) = trace(verified, &Way::interpreter(), packets, None) else {
            return nobody;
        };
        let differs = |way: &Way| is_different(verified, way, packets, &reference);
        if !differs(way) {
            return nobody;
        }
        let names: Vec<String> = way.passes.passes().map(|pass| pass.name.to_owned()).collect();
        let total = towpath_jit::passes::PASSES.len() + way.passes.more.len();
        let with_first = |count: usize| {
            let mut fewer = way.clone();
            fewer.passes.first = Some(count);
            fewer
        };
        let first = (0..=total).find(|&count| differs(&with_first(count))).unwrap_or(total);
        // The last pass that runs among the first so many.
        let place = with_first(first).passes.passes().count();
        let first = (place > 0).then(|| (names[place - 1].clone(), place));
        let without = |name: &&String| {
            let mut other = way.clone();
            other.passes.without.insert((*name).clone());
            !differs(&other)
        };
        let mut healing: Vec<String> = names.iter().filter(without).cloned().collect();
        healing.sort_unstable();
        healing.dedup();
        Blame { first, healing, differs: true }
    }
}

fn is_different(verified: &Verified, way: &Way, packets: &[Vec<u8>], reference: &Trace) -> bool {
    match trace(verified, way, packets, Some(reference)) {
        Ok((other, _)) => reference.differs_from(&other).is_some(),
        Err(_) => true,
    }
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.first, self.differs) {
            (_, false) => return f.write_str("pass: none, the interpreter does the same"),
            (None, true) => f.write_str("pass: none, it is there without any (back end)")?,
            (Some((name, place)), true) => write!(f, "pass: {name}, number {place}")?,
        }
        if !self.healing.is_empty() {
            write!(f, "; gone without {}", self.healing.join(" or without "))?;
        }
        Ok(())
    }
}

/// A program as lines of text.
pub(super) fn listing(linked: &Linked) -> String {
    let mut text = String::new();
    let mut second_slot = false;
    for (at, insn) in linked.insns.iter().enumerate() {
        if let (false, Some(line)) = (second_slot, Disasm::of(linked, at)) {
            text.push_str(&format!("\n    {at:3}: {line}"));
        }
        second_slot = !second_slot && insn.is_ld_imm64();
    }
    text
}

/// A packet as one line of text.
pub(super) fn hex(packet: &[u8]) -> String {
    let shown = packet.iter().take(HEX_BYTES_MAX).map(|byte| format!("{byte:02x}"));
    let rest = packet.len().saturating_sub(HEX_BYTES_MAX);
    let more = if rest > 0 { format!(" and {rest} bytes more") } else { String::new() };
    format!("{}{more}", shown.collect::<String>())
}

/// Bytes of a packet that are printed.
const HEX_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use towpath_jit::passes::Pass;
    use towpath_jit::xir::{BinaryOp, Op};
    use towpath_xdp::Exec;

    use crate::compare::{Budget, random};
    use crate::ways::Way;

    /// Makes a multiplication of every exclusive or.
    const BROKEN: Pass = Pass::new("broken", "is wrong on purpose", |function, _| {
        for inst in &mut function.insts {
            if let Op::Binary(op @ BinaryOp::Xor, ..) = &mut inst.op {
                *op = BinaryOp::Mul;
            }
        }
    });

    #[test]
    fn a_broken_pass_is_named_over_the_smallest_program() {
        let mut way = Way::of(Exec::Jit);
        way.passes.more.push(BROKEN);
        let budget = Budget {
            seed: 1,
            programs: 80,
            packets: 4,
            verified_max: None,
            unverified: false,
            ways: vec![way],
            scramble: false,
            failures_max: 4,
            threads: 1,
        };
        let report = random(None, &budget);
        // In some programs another pass makes the numbers that the broken one gets wrong.
        let healed = |ours: &str| ours.ends_with("gone without broken");
        let clear = report.differences.iter().filter(|difference| healed(&difference.ours));
        let least = clear.min_by_key(|difference| difference.name.lines().count());
        let least = least.unwrap_or_else(|| panic!("programs with xor that matters: {report}"));
        assert!(least.ours.contains("pass: broken, number"), "{report}");
        assert!(least.name.lines().count() < 100, "not small: {report}");
        assert!(least.name.contains("^="), "{report}");
    }
}
