//! `towpath prog run` without a packet: a call of a `syscall` program with a context.

use serde::Serialize;
use towpath_bpf::program::AttachType;
use towpath_daemon::globals::hex;

use super::running;
use crate::args::{ProgRunArgs, ProgRunExec, ProgramCall};
use crate::error::{CliError, Status};
use crate::files;
use crate::kernel_session::KernelSession;
use crate::output::Output;
use crate::program::Opened;
use crate::session::Session;

/// The `--json` document.
#[derive(Debug, Serialize)]
struct Document {
    retval: u32,
    context: String,
}

/// Calls a program, and shows its result.
pub(super) fn call(args: &ProgRunArgs, output: &mut Output) -> Result<Status, CliError> {
    let context = match &args.ctx_in {
        Some(path) => files::read(path, "a context", CONTEXT_BYTES_MAX)?,
        None => Vec::new(),
    };
    let (retval, context) = match running::is_meant(args)? {
        true => running::call(args, &context)?,
        false => of_file(args, context)?,
    };
    if let Some(path) = &args.ctx_out {
        files::write(path, &context)?;
    }
    if output.json {
        output.json(&Document { retval, context: hex(&context) })?;
    } else {
        output.line(&format!("returned {retval}"))?;
    }
    Ok(Status::Ok)
}

/// Calls a program of an object file.
fn of_file(args: &ProgRunArgs, context: Vec<u8>) -> Result<(u32, Vec<u8>), CliError> {
    let opened = Opened::new(args.object(), &args.program)?;
    let index = opened.select(&args.selection)?;
    if opened.object.programs()[index].attach != AttachType::Syscall {
        let message = "--data-in: the program needs a packet; only programs in section \
                       \"syscall\" are called without one";
        return Err(CliError::Usage(message.to_owned()));
    }
    let name = opened.program_name(index);
    if args.exec == ProgRunExec::Kernel {
        let mut session = KernelSession::open(&opened, &opened.link(index)?)?;
        if let Some(path) = &args.surroundings.map_init {
            session.fill(path)?;
        }
        return session.call(&ProgramCall { name: name.to_owned(), context });
    }
    Session::call(&opened, name, context, &args.surroundings)
}

/// Maximum number of bytes read from a context's file: one more than a program accepts, so that the
/// call sees and refuses a longer context.
const CONTEXT_BYTES_MAX: u64 = 65_536;
