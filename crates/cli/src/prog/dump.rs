//! `towpath prog dump`: the linked instructions, alone or below the C lines they come from, and the
//! results of each step of compilation; of a program in an object file, or of one that a daemon
//! runs.

use clap::ValueEnum as _;
use towpath_daemon::code::{CodeForm, CodeView, InsnView, InsnsView, SourceView};

use crate::args::{DumpArgs, DumpForm, RunExec, RunTrust};
use crate::daemon::{self, bpftool};
use crate::error::CliError;
use crate::output::Output;
use crate::program::Opened;

use super::{compiled, machine};

/// Prints a program's instructions.
pub(crate) fn dump(args: &DumpArgs, output: &mut Output) -> Result<(), CliError> {
    let words = in_order(&args.words);
    let Wanted { which, form, lines } = split(&words, output.json)?;
    let view = match which {
        [object] => {
            let opened = Opened::new(object.as_ref(), &args.program)?;
            if matches!(form, CodeForm::Xlated | CodeForm::Source) {
                let linked = opened.link(opened.select(&args.selection)?)?;
                if form == CodeForm::Source && linked.lines.is_empty() && !output.json {
                    let name = &linked.name;
                    output.note(&format!("{name}: no line information; compile with -g"));
                }
                CodeView::Insns(InsnsView::of(&linked, form == CodeForm::Source))
            } else {
                compiled::code(args, form, &opened, output)?
            }
        }
        which => {
            if is_about_file(args) {
                let message = "-n, -s, --set, --btf, --exec, --trust and --without apply to \
                               object files only: a program of the daemon is shown as it is loaded";
                return Err(CliError::Usage(message.to_owned()));
            }
            daemon::code(which, form, &args.daemon)?
        }
    };
    print(&view, lines, output)
}

/// Parsed words of the command line.
struct Wanted<'a> {
    /// The program.
    which: &'a [String],
    form: CodeForm,
    /// Whether machine code is shown with C lines.
    lines: bool,
}

/// Words with the form last: bpftool has it first, `xlated id 7`.
fn in_order(words: &[String]) -> Vec<String> {
    match words {
        [form, which @ .., last] if !which.is_empty() && last == "linum" && is_form(form) => {
            [which, &[form.clone(), last.clone()]].concat()
        }
        [form, which @ ..] if !which.is_empty() && is_form(form) => {
            [which, std::slice::from_ref(form)].concat()
        }
        words => words.to_vec(),
    }
}

fn is_form(word: &str) -> bool {
    DumpForm::from_str(word, true).is_ok()
}

fn split(words: &[String], wants_json: bool) -> Result<Wanted<'_>, CliError> {
    let names_running = daemon::is_word(&words[0]);
    let (which, rest) = words.split_at(if names_running { 2.min(words.len()) } else { 1 });
    let (rest, lines) = match rest {
        [rest @ .., last] if last == "linum" => (rest, true),
        rest => (rest, false),
    };
    let form = match rest {
        [] => Ok(DumpForm::Xlated),
        [form] => DumpForm::from_str(form, true),
        _ => Err(format!("{}: one word too many", rest.join(" "))),
    };
    let form = form.map_err(|_unknown| {
        let known = DumpForm::value_variants().iter().filter_map(DumpForm::to_possible_value);
        let known: Vec<String> = known.map(|value| value.get_name().to_owned()).collect();
        CliError::Usage(format!("{}: expected one of {}", rest.join(" "), known.join(", ")))
    })?;
    let form = match (CodeForm::from(form), lines) {
        // bpftool's JSON always has C lines.
        (CodeForm::Xlated, lines) if lines || wants_json => CodeForm::Source,
        (form @ (CodeForm::Xir | CodeForm::Clif | CodeForm::Llvm), true) => {
            let message =
                format!("linum: line numbers go with xlated and jited, not with {form:?}");
            return Err(CliError::Usage(message));
        }
        (form, _) => form,
    };
    Ok(Wanted { which, form, lines })
}

fn is_about_file(args: &DumpArgs) -> bool {
    args.selection.is_given()
        || args.program.is_given()
        || !args.without.is_empty()
        || args.exec != RunExec::Jit
        || args.trust != RunTrust::Verified
}

fn print(view: &CodeView, lines: bool, output: &mut Output) -> Result<(), CliError> {
    match view {
        CodeView::Machine(code) => machine::print(code, lines, output),
        CodeView::Insns(insns) if output.json => output.json(&bpftool::insns(insns, lines)),
        view if output.json => output.json(view),
        CodeView::Text(text) => output.line(text.text.trim_end()),
        CodeView::Insns(insns) => insns.insns.iter().try_for_each(|it| print_insn(it, output)),
    }
}

/// Prints a C line, above the code that was made from it.
pub(super) fn print_source(source: &SourceView, output: &mut Output) -> Result<(), CliError> {
    let SourceView { file, line, text, .. } = source;
    let file = file.rsplit('/').next().unwrap_or(file);
    let (style, place) = (output.style, format!("{file}:{line}"));
    output.line(&format!("; {}  {}", style.source(text), style.dim(&place)))
}

fn print_insn(line: &InsnView, output: &mut Output) -> Result<(), CliError> {
    let style = output.style;
    if let Some(function) = &line.function {
        output.line(&format!("{}:", style.bold(function)))?;
    }
    if let Some(source) = &line.source {
        print_source(source, output)?;
    }
    if output.verbose > 0 {
        return output.line(&format!("{:5}: {:<32}  {}", line.insn, line.bytes, line.text));
    }
    output.line(&format!("{:5}: {}", line.insn, line.text))
}
