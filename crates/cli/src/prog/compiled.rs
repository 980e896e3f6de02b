//! `towpath prog dump OBJ xir|clif|llvm|jited`: the forms of a program of a file on its way to
//! machine code.

use std::time::Duration;

use towpath_daemon::code::{CodeForm, CodeView, MachineView, TextView};
use towpath_xdp::CompileError;
use towpath_xdp::program::{Form, LoadOptions, Program, Select};

use crate::args::{DumpArgs, RunExec};
use crate::error::CliError;
use crate::output::Output;
use crate::program::{Opened, check_passes};

/// The code in a form that only compiled programs have.
pub(super) fn code(
    args: &DumpArgs,
    form: CodeForm,
    opened: &Opened,
    output: &Output,
) -> Result<CodeView, CliError> {
    check_passes(&args.without)?;
    let name = opened.program_name(opened.select(&args.selection)?);
    let mut loading = LoadOptions { exec: args.exec.into(), ..LoadOptions::default() };
    args.trust.apply(&mut loading);
    loading.jit.passes.without = args.without.iter().cloned().collect();
    let program = Program::load(&opened.object, Select::Name(name), opened.env(), &loading);
    let program = program.map_err(|source| opened.load_error(source))?;
    let failed = |source: CompileError| CliError::Compile {
        path: opened.path.clone(),
        program: name.to_owned(),
        source: Box::new(source),
    };
    let as_text = match form {
        CodeForm::Clif => Form::Clif,
        CodeForm::Llvm => Form::Llvm,
        CodeForm::Jited => {
            if args.exec == RunExec::Llvm && !program.wait_for_tier2(TIER2_TIMEOUT) {
                let reason = program.exec_status().fallback.unwrap_or_default();
                output.note(&format!("not LLVM's code but Cranelift's: {reason}"));
            }
            let code = program.code_listing(&loading.jit).map_err(failed)?;
            let linked = program.verified().map(|verified| verified.linked());
            let linked = linked.ok_or_else(|| failed(CompileError::Unverified))?;
            return Ok(CodeView::Machine(MachineView::of(linked, &code, program.maps())));
        }
        _ => Form::Xir,
    };
    let text = program.listing(as_text, &loading.jit).map_err(failed)?;
    Ok(CodeView::Text(TextView { program: name.to_owned(), form, text }))
}

/// LLVM takes a second for the longest programs on an idle machine.
const TIER2_TIMEOUT: Duration = Duration::from_secs(60);
