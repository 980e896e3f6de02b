//! The instruction set: each instruction in each form, over operands at corners, in every way of
//! running.

use std::sync::Arc;

use towpath_bpf::Env;
use towpath_bpf::btf::Btf;
use towpath_kernel::{Kernel, PrintedLines};
use towpath_xdp::Exec;

use super::random::trace;
use super::{Difference, Report};
use crate::execution::Trace;
use crate::programs::isa::{self, Case, RESULT};
use crate::programs::{arenas, linked, maps, printed as printing};
use crate::verdict::{self, Verdict};
use crate::ways::Way;

/// Runs every case: in the interpreter, in each way, and in the kernel when there is one.
/// `constants` adds programs in which everything can be computed beforehand.
pub fn isa(kernel: Option<&Kernel>, ways: &[Way], constants: bool) -> Report {
    let mut report = Report::new("instruction set");
    let mut court = Court::new(kernel, ways);
    let packets = isa::packets();
    let cases = isa::cases();
    for case in &cases {
        report.differences.extend(court.judge(case, &packets));
    }
    let arenas = arenas::cases();
    for (case, packets) in &arenas {
        report.differences.extend(court.judge(case, packets));
    }
    let mut count = cases.len() + arenas.len();
    if constants {
        let cases = isa::constant_cases();
        count += cases.len();
        for case in &cases {
            report.differences.extend(court.judge(case, &packets[..1]));
        }
    }
    report.figure("programs", count);
    report.figure("operands for each", packets.len());
    report.figure("programs whose results the table says", court.said);
    court.print(&mut report);
    report
}

/// What programs print: in the interpreter, in each way, and in the kernel when there is one and
/// it lets us listen.
pub fn printed(kernel: Option<&Kernel>, ways: &[Way]) -> Report {
    let mut report = Report::new("printed lines");
    let mut court = Court::new(kernel, ways);
    if kernel.is_some() {
        match PrintedLines::listen() {
            Ok(listener) => court.listener = Some(listener),
            Err(why) => report.skipped.push(format!("what the kernel prints: {why}")),
        }
    }
    let packets = isa::packets();
    let cases = printing::cases();
    for case in &cases {
        report.differences.extend(court.judge(case, &packets));
    }
    report.figure("programs", cases.len());
    report.figure("operands for each", packets.len());
    report.figure("lines that the interpreter printed", court.lines);
    court.print(&mut report);
    report.figure("  lines that the kernel printed", court.lines_of_kernel);
    report
}

struct Court<'a> {
    kernel: Option<&'a Kernel>,
    btf: Arc<Btf>,
    ways: &'a [Way],
    ran: Vec<usize>,
    in_kernel: usize,
    said: usize,
    /// Where printed lines matter.
    listener: Option<PrintedLines>,
    lines: usize,
    lines_of_kernel: usize,
}

impl<'a> Court<'a> {
    fn new(kernel: Option<&'a Kernel>, ways: &'a [Way]) -> Self {
        Court {
            kernel,
            btf: kernel.map_or(Env::builtin().kernel_btf, |kernel| Arc::clone(kernel.btf())),
            ways,
            ran: vec![0; ways.len()],
            in_kernel: 0,
            said: 0,
            listener: None,
            lines: 0,
            lines_of_kernel: 0,
        }
    }

    /// Who ran how many programs.
    fn print(&self, report: &mut Report) {
        for (way, ran) in self.ways.iter().zip(&self.ran) {
            report.figure(&format!("  really run by {way}"), ran);
        }
        match self.kernel {
            Some(_) => report.figure("  run by the kernel", self.in_kernel),
            None => report.skipped.push("the kernel: not asked".to_owned()),
        }
    }

    fn judge(&mut self, case: &Case, packets: &[Vec<u8>]) -> Option<Difference> {
        let difference = |kind: &str, kernel: String, ours: String| {
            let (name, kind) = (case.name.clone(), kind.to_owned());
            Some(Difference { name, kind, kernel, ours })
        };
        let linked = linked(case.insns.clone(), &maps(), &self.btf);
        let verified = match verdict::ours(&linked) {
            Verdict::Accepted(verified) => verified,
            Verdict::Refused(why) => return difference("refused", String::new(), why),
        };
        let interpreted = trace(&verified, &Way::interpreter(), packets, None);
        let interpreted = match interpreted {
            Ok((interpreted, _)) => interpreted,
            Err(why) => return difference("not runnable", String::new(), why),
        };
        if let Some((expected, found)) = wrong(case, packets, &interpreted) {
            return difference("result", expected, format!("interp: {found}"));
        }
        self.said += usize::from(case.expected.is_some());
        self.lines += interpreted.lines_printed();
        for (index, way) in self.ways.iter().enumerate() {
            let (other, exec) = match trace(&verified, way, packets, None) {
                Ok(ran) => ran,
                Err(why) => return difference("not runnable", String::new(), why),
            };
            self.ran[index] += usize::from(exec == way.exec);
            if let Some(found) = interpreted.differs_from(&other) {
                let kind = format!("{}, packet {}", found.kind, found.packet);
                return difference(&kind, found.kernel, format!("{way}: {}", found.ours));
            }
            if exec != way.exec && way.exec == Exec::Jit {
                return difference("not compiled", String::new(), way.to_string());
            }
        }
        let kernel = self.kernel?;
        let maps = kernel.load_maps(&linked.maps).ok()?;
        match verdict::kernel(kernel, &linked, &maps, true) {
            Verdict::Refused(why) => difference("refused", why, String::new()),
            Verdict::Accepted(program) => {
                self.in_kernel += 1;
                let theirs = Trace::of_kernel(&program, &maps, packets);
                let said = self.listener.as_mut().map(PrintedLines::take).transpose();
                let said = match said {
                    Ok(said) => said,
                    Err(why) => return difference("not heard", why.to_string(), String::new()),
                };
                let theirs = theirs.with_printed(said);
                self.lines_of_kernel += theirs.lines_printed();
                let found = theirs.differs_from(&interpreted)?;
                let kind = format!("{}, packet {}", found.kind, found.packet);
                difference(&kind, found.kernel, format!("interp: {}", found.ours))
            }
        }
    }
}

/// The first result that is not what the table says: that, and the result.
fn wrong(case: &Case, packets: &[Vec<u8>], found: &Trace) -> Option<(String, String)> {
    let expected = case.expected?;
    packets.iter().enumerate().find_map(|(index, packet)| {
        let result = found.bytes(index)?.get(RESULT as usize..RESULT as usize + 8)?;
        let expected = expected.of(packet).to_le_bytes();
        (result != expected)
            .then(|| (format!("packet {index}: {expected:02x?}"), format!("{result:02x?}")))
    })
}
