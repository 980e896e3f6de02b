//! Findings about memory passed to a call, and about registers.

use std::sync::Arc;

use towpath_bpf::Linked;
use towpath_bpf::btf::{Btf, TypeId};

use super::Sanitizer;
use super::finding::{Finding, Kind};
use super::layout::{byte_numbers, listed, names};
use super::shadow::{ByteShadow, Place};
use super::text;

/// Memory that an argument of a call points to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Region {
    /// Name of the called function.
    pub(super) function: &'static str,
    pub(super) argument: u8,
    pub(super) addr: u64,
    pub(super) len: u64,
}

impl Sanitizer {
    /// Checks memory that must be defined.
    #[inline]
    pub(super) fn region(
        &mut self,
        kind: Kind,
        subject: &str,
        ty: Option<(&Btf, TypeId)>,
        region: Region,
    ) {
        self.region_but(kind, subject, ty, region, &[]);
    }

    /// As [`Sanitizer::region`], but for some bytes (offset and length).
    pub(super) fn region_but(
        &mut self,
        kind: Kind,
        subject: &str,
        ty: Option<(&Btf, TypeId)>,
        region: Region,
        but: &[(u64, u64)],
    ) {
        let Region { function, argument, addr, len } = region;
        if len == 0 || len > REGION_BYTES_MAX || self.shadow.is_defined(addr, len) {
            return;
        }
        let is_left_out = |at: u64| but.iter().any(|&(start, len)| at >= start && at - start < len);
        let byte = |at: u64| match is_left_out(at) {
            true => ByteShadow::default(),
            false => self.shadow.byte(addr + at),
        };
        let mut bytes: Vec<ByteShadow> = (0..len).map(byte).collect();
        if function == SUBMIT {
            self.leave_out_rests(&mut bytes);
        }
        if bytes.iter().all(|byte| byte.bits == 0) || self.is_known(kind, argument) {
            return;
        }
        let shown = self.argument_text(function, argument);
        let shown_text = shown.as_ref().map_or(String::new(), |text| format!(", `{text}`"));
        let subject = format!("{subject} (argument {argument} of {function}{shown_text})");
        let variable = shown.as_deref().and_then(text::variable).map(str::to_owned);
        self.unset(kind, &subject, ty, &bytes, addr, variable.as_deref());
    }

    /// Reports which bytes of a memory region were never set, and where the others were set.
    pub(super) fn unset(
        &mut self,
        kind: Kind,
        subject: &str,
        ty: Option<(&Btf, TypeId)>,
        bytes: &[ByteShadow],
        addr: u64,
        variable: Option<&str>,
    ) {
        let bits: Vec<u8> = bytes.iter().map(|byte| byte.bits).collect();
        let named = ty.map(|(btf, ty)| names(btf, ty, &bits)).unwrap_or_default();
        let number = byte_numbers(&bits);
        let verb = if number.starts_with("byte ") { "was" } else { "were" };
        let which = match named.is_empty() {
            true => format!("{number} {verb} never set"),
            false => format!("{} was never set ({number})", shortened(&named)),
        };
        let padding = named.iter().all(|name| name.contains("padding")) && !named.is_empty();
        let advice = self.advice(kind, variable, padding);
        let related = self.related(bytes, addr);
        self.found(kind, format!("{subject}: {which}"), related, advice);
    }

    /// Bytes of a record after those filled by one instruction, a call or a loop, are the unused
    /// rest of a buffer. User space has already seen their contents in older records.
    fn leave_out_rests(&self, bytes: &mut [ByteShadow]) {
        for at in 1..bytes.len() {
            if bytes[at].bits == 0 || bytes[at - 1].bits != 0 {
                continue;
            }
            let writer = bytes[at - 1].by;
            let filled = bytes[..at].iter().rev().take_while(|byte| byte.by == writer).count();
            if filled > 8 || self.is_call(writer) {
                let rest = bytes[at..].iter().take_while(|byte| byte.bits != 0).count();
                bytes[at..at + rest].fill(ByteShadow::default());
            }
        }
    }

    fn is_call(&self, place: Place) -> bool {
        let insn = place.get().and_then(|(program, slot)| self.programs[program].insns.get(slot));
        insn.is_some_and(|insn| insn.is_helper_call() || insn.is_kfunc_call())
    }

    fn advice(&self, kind: Kind, variable: Option<&str>, padding: bool) -> String {
        let name = variable.unwrap_or("it");
        let clear = match variable {
            Some(name) => format!("__builtin_memset(&{name}, 0, sizeof({name}));"),
            None => "__builtin_memset of the whole structure".to_owned(),
        };
        let why = match kind {
            Kind::Key => "a look-up compares every byte",
            Kind::Value | Kind::Record => {
                "user space gets every byte, and so old contents of the kernel's stack"
            }
            Kind::Packet => "every receiver gets every byte",
            _ => "the contents differ from call to call",
        };
        let padding = if padding { "; `= {}` may leave padding as it is" } else { "" };
        format!("set all of {name} first, with {clear} ({why}{padding})")
    }

    /// Where the other bytes were set, and where undefined ones were copied.
    fn related(&self, bytes: &[ByteShadow], addr: u64) -> Vec<String> {
        let mut set: Vec<u32> = Vec::new();
        let mut copied: Vec<Place> = Vec::new();
        for (at, byte) in bytes.iter().enumerate() {
            let writer = byte.by;
            match byte.bits {
                0 => set.extend(self.line_of(writer)),
                _ if writer.get().is_some() => {
                    copied.push(self.shadow.source(addr + at as u64).unwrap_or(writer));
                }
                _ => {}
            }
        }
        set.sort_unstable();
        set.dedup();
        copied.dedup();
        let mut related = Vec::new();
        if !set.is_empty() {
            let lines: Vec<String> = set.iter().take(LINES_MAX).map(u32::to_string).collect();
            let word = if lines.len() == 1 { "line" } else { "lines" };
            related.push(format!("the rest was set in {word} {}", listed(&lines)));
        }
        let copied = copied.into_iter().take(SOURCES_MAX);
        related.extend(copied.filter_map(|place| self.told("came from", place)));
        related
    }

    /// Checks a register that must be defined.
    #[cold]
    pub(super) fn of_register(
        &mut self,
        kind: Kind,
        register: usize,
        argument: u8,
        message: String,
    ) {
        let source = self.sources[register];
        self.bits[register] = 0;
        if self.is_known(kind, argument) {
            return;
        }
        let related = match source == self.place {
            true => None,
            false => self.told("they were read in", source),
        };
        let advice = "set it on every path to this line, or check the result of a function before \
                      using the memory that it fills";
        self.found(kind, message, related.into_iter().collect(), advice.to_owned());
    }

    /// "WORD line N: TEXT"
    pub(super) fn told(&self, word: &str, place: Place) -> Option<String> {
        let (program, slot) = place.get()?;
        let line = self.programs.get(program)?.nearest_line_of(slot)?;
        Some(format!("{word} line {}: {}", line.line, line.text))
    }

    /// Adds a finding at the next instruction.
    pub(super) fn found(
        &mut self,
        kind: Kind,
        message: String,
        related: Vec<String>,
        advice: String,
    ) {
        self.found_at(self.place, kind, message, related, advice);
    }

    /// Adds a finding at an instruction.
    pub(super) fn found_at(
        &mut self,
        place: Place,
        kind: Kind,
        message: String,
        related: Vec<String>,
        advice: String,
    ) {
        let Some((program, insn)) = place.get() else { return };
        let Some(linked) = self.programs.get(program) else { return };
        let line = linked.nearest_line_of(insn);
        self.findings.push(Finding {
            kind,
            program: linked.name.clone(),
            insn,
            line: line.map(|line| (Arc::clone(&line.file), line.line)),
            text: line.map_or_else(|| Arc::from(""), |line| Arc::clone(&line.text)),
            message,
            related,
            advice,
        });
    }

    /// Whether this was reported before; marks it as reported.
    pub(super) fn is_known(&mut self, kind: Kind, argument: u8) -> bool {
        !self.known.insert((self.place, kind, argument))
    }

    /// The kernel's types.
    pub(super) fn kernel(&self) -> Option<&Btf> {
        self.programs.get(self.program).map(|linked: &Arc<Linked>| &*linked.kernel_btf)
    }

    fn argument_text(&self, function: &str, argument: u8) -> Option<String> {
        let (program, slot) = self.place.get()?;
        text::argument(self.programs.get(program)?, slot, function, argument)
    }

    fn line_of(&self, place: Place) -> Option<u32> {
        let (program, slot) = place.get()?;
        Some(self.programs.get(program)?.nearest_line_of(slot)?.line)
    }
}

/// The first few of many names.
fn shortened(names: &[String]) -> String {
    if names.len() <= NAMES_MAX {
        return listed(names);
    }
    format!("{} and {} more", names[..NAMES_MAX].join(", "), names.len() - NAMES_MAX)
}

/// The call that hands over a record which the program wrote in place.
const SUBMIT: &str = "bpf_ringbuf_submit";
const NAMES_MAX: usize = 5;
const LINES_MAX: usize = 8;
const SOURCES_MAX: usize = 3;
/// Longest checked memory: no key, value or record on a program's stack is longer.
const REGION_BYTES_MAX: u64 = 1 << 16;
