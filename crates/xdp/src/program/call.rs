//! Programs that users call (`BPF_PROG_TYPE_SYSCALL`), e.g. to prepare maps for other programs.
//!
//! Kernel counterpart: `bpf_prog_test_run_syscall`. Such a program gets no frame but bytes of the
//! user's, which it may change, and is interpreted.

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::interp::{self, Fault};
use towpath_bpf::program::AttachType;
use towpath_bpf::verifier::Verified;

use super::Program;
use crate::frame::Frame;
use crate::run::{Extra, Run};
use crate::worker::Worker;

/// Why a program was not called, or did not end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// It is a program of another type.
    #[error("{name} is not a program that users call: its section has to be \"syscall\"")]
    OtherType {
        /// Name of the program.
        name: String,
    },
    /// It accesses more bytes of its context than were given, or too many were given.
    #[error("{name} takes a context of {least} to {CONTEXT_BYTES_MAX} bytes, not of {given}")]
    Context {
        /// Name of the program.
        name: String,
        /// Bytes that it accesses.
        least: usize,
        /// Bytes that were given.
        given: usize,
    },
    /// It was halted, as it took too long repeatedly.
    #[error("{name} is halted")]
    Halted {
        /// Name of the program.
        name: String,
    },
    /// It did something that a verified program can't do.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl CallError {
    /// The kernel's error number.
    pub fn errno(&self) -> Errno {
        match self {
            CallError::OtherType { .. } => Errno::ENOTSUPP,
            CallError::Context { .. } => Errno::EINVAL,
            CallError::Halted { .. } | CallError::Fault(_) => Errno::EFAULT,
        }
    }
}

impl Program {
    /// Calls a program in section `syscall` with a context, which it may change; returns its
    /// result. Due timers run first.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn call(&self, worker: &mut Worker, context: &mut [u8]) -> Result<u32, CallError> {
        let name = || self.name().to_owned();
        if self.attach() != AttachType::Syscall {
            return Err(CallError::OtherType { name: name() });
        }
        let least = self.verified().map_or(0, |verified| Verified::context_bytes(verified));
        let (least, given) = (least as usize, context.len());
        if given < least || given > CONTEXT_BYTES_MAX {
            return Err(CallError::Context { name: name(), least, given });
        }
        if self.standing().halted().is_some() {
            return Err(CallError::Halted { name: name() });
        }
        self.run_due(worker, usize::MAX, None)?;
        let mut block = worker.lend(given);
        block.bytes_mut()[..given].copy_from_slice(context);
        let result = self.call_at(worker, block.addr(), given);
        context.copy_from_slice(&block.bytes_mut()[..given]);
        worker.put_away(block);
        self.maps().domain().quiesce(worker.number() as usize);
        Ok(result? as u32)
    }

    fn call_at(&self, worker: &mut Worker, addr: u64, len: usize) -> Result<u64, Fault> {
        // As a timer's, the run has no frame, and no function that it may call accesses one.
        let mut none = Frame::default();
        let brake = Arc::clone(&worker.brake);
        brake.begin(self.standing());
        worker.begin_watched(false);
        let surroundings = self.surroundings();
        let mut run = Run::new(&mut none, worker, self.maps(), surroundings);
        run.extras.push(Extra { addr, len: len as u64, writable: true });
        let result = interp::run(self.code(), addr, &mut run, &surroundings.limits);
        if result.is_err() {
            run.abandon();
        }
        brake.end();
        result
    }
}

/// Most bytes of a context.
const CONTEXT_BYTES_MAX: usize = u16::MAX as usize;

#[cfg(test)]
mod tests;
