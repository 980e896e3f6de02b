//! Errors as Python exceptions.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use towpath::verifier::Rejection;
use towpath::{Errno, LoadError, interp};

create_exception!(
    towpath,
    Error,
    PyException,
    "The error for anything that Towpath refuses; its text is the reason."
);
create_exception!(towpath, ObjectError, Error, "An object file that can't be opened or linked.");
create_exception!(
    towpath,
    VerifierError,
    Error,
    "A program that can't be proved safe.\n\nAttributes: program, reason (the kernel's words), hint, \
     errno (a name), insn (index or None), instruction, file, line, column, source, registers."
);
create_exception!(
    towpath,
    Fault,
    Error,
    "A run with behaviour that is impossible for a verified program."
);

/// The exception for an object or program that is refused.
pub(crate) fn refused(py: Python<'_>, path: &str, error: &LoadError) -> PyErr {
    match error {
        LoadError::Rejected { program, rejection } => match rejected(py, program, rejection) {
            Ok(error) | Err(error) => error,
        },
        LoadError::Map(error) => Error::new_err(error.to_string()),
        error => ObjectError::new_err(format!("{path}: {error}")),
    }
}

fn rejected(py: Python<'_>, program: &str, rejection: &Rejection) -> PyResult<PyErr> {
    let error = VerifierError::new_err(format!("program {program} is rejected: {rejection}"));
    let value = error.value(py);
    value.setattr("program", program)?;
    value.setattr("reason", &rejection.message)?;
    value.setattr("hint", &rejection.hint)?;
    value.setattr("errno", rejection.errno.name())?;
    value.setattr("registers", &rejection.registers)?;
    let insn = rejection.insn.as_ref();
    let source = insn.and_then(|insn| insn.source.as_ref());
    value.setattr("insn", insn.map(|insn| insn.index))?;
    value.setattr("instruction", insn.map(|insn| insn.text.as_str()))?;
    value.setattr("file", source.map(|source| &*source.file))?;
    value.setattr("line", source.map(|source| source.line))?;
    value.setattr("column", source.map(|source| source.column))?;
    value.setattr("source", source.map(|source| &*source.text))?;
    Ok(error)
}

/// The exception for a run that ended by a fault.
pub(crate) fn faulted(fault: &interp::Fault) -> PyErr {
    Fault::new_err(fault.to_string())
}

/// The exception for an error of a map.
pub(crate) fn map(name: &str, errno: Errno) -> PyErr {
    Error::new_err(format!("map {name}: {errno}"))
}
