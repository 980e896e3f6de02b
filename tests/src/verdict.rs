//! Two verifiers on one program: what each said, and whether they agree.

use towpath_bpf::Linked;
use towpath_bpf::verifier::{self, Options, Verified};
use towpath_kernel::{Kernel, KernelProgram, LoadOptions, MapSet};

/// What one verifier said.
#[derive(Debug)]
pub enum Verdict<P> {
    /// Accepted; the program, ready to run.
    Accepted(P),
    /// Refused, and why.
    Refused(String),
}

impl<P> Verdict<P> {
    /// Whether it was accepted.
    pub fn is_accepted(&self) -> bool {
        matches!(self, Verdict::Accepted(_))
    }

    /// Why it was refused; empty when it was not.
    pub fn reason(&self) -> &str {
        match self {
            Verdict::Accepted(_) => "",
            Verdict::Refused(reason) => reason,
        }
    }

    /// The program, if accepted.
    pub fn program(&self) -> Option<&P> {
        match self {
            Verdict::Accepted(program) => Some(program),
            Verdict::Refused(_) => None,
        }
    }
}

/// How two verdicts relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// Both accept.
    BothAccept,
    /// Both refuse.
    BothRefuse,
    /// We accept what the kernel refuses: a hole in our proof, or a rule we lack.
    Unsound,
    /// We refuse what the kernel accepts.
    TooStrict,
}

impl Agreement {
    /// Of our verdict and the kernel's.
    pub fn of(ours: bool, kernel: bool) -> Self {
        match (ours, kernel) {
            (true, true) => Agreement::BothAccept,
            (false, false) => Agreement::BothRefuse,
            (true, false) => Agreement::Unsound,
            (false, true) => Agreement::TooStrict,
        }
    }
}

/// Our verifier's verdict.
pub fn ours(linked: &Linked) -> Verdict<Box<Verified>> {
    ours_within(linked, None)
}

/// The same, giving up after so many instructions.
pub fn ours_within(linked: &Linked, insns_max: Option<u64>) -> Verdict<Box<Verified>> {
    let mut options = Options::default();
    options.insns_processed_max = insns_max.unwrap_or(options.insns_processed_max);
    match verifier::verify(linked.clone(), &options) {
        Ok(verified) => Verdict::Accepted(Box::new(verified)),
        Err(rejection) => {
            let place = rejection.insn.as_ref().map(|insn| format!("{}: ", insn.index));
            Verdict::Refused(format!("{}{}", place.unwrap_or_default(), rejection.message))
        }
    }
}

/// The running kernel's verdict. `explain` asks for the log of a refusal.
pub fn kernel(
    kernel: &Kernel,
    linked: &Linked,
    maps: &MapSet,
    explain: bool,
) -> Verdict<KernelProgram> {
    let mut options = LoadOptions::default();
    options.log_refusals = explain;
    match kernel.load_with(linked, maps, &options) {
        Ok(program) => Verdict::Accepted(program),
        Err(error) => Verdict::Refused(match error.errno() {
            Some(errno) => format!("{}: {}", errno.name().unwrap_or("?"), complaint(error.log())),
            None => error.to_string(),
        }),
    }
}

/// The line of a verifier log that says what is wrong: the last before the statistics.
fn complaint(log: &str) -> &str {
    log.lines()
        .rev()
        .find(|line| !line.is_empty() && !line.starts_with("processed ") && !is_summary(line))
        .unwrap_or_default()
}

fn is_summary(line: &str) -> bool {
    ["verification time", "stack depth", "insns ", "last_idx", "regs=", "mark_precise"]
        .iter()
        .any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_complaint_is_the_last_line_that_is_not_statistics() {
        let log = "0: (bf) r0 = r3\nR3 !read_ok\nprocessed 1 insns (limit 1000000)\n";
        assert_eq!(complaint(log), "R3 !read_ok");
        assert_eq!(complaint(""), "");
    }
}
