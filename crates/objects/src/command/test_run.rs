//! `BPF_PROG_TEST_RUN` as it comes from a caller's memory.
//!
//! Kernel counterpart: the start and the end of `bpf_prog_test_run_xdp`; the part between them is
//! in [`crate::run`].

use towpath_bpf::Errno;

use super::Call;
use crate::attr::{check_tail, test_run as field};
use crate::caller::copy_in;
use crate::object::program::{PROG_TYPE_SYSCALL, ProgramObject};
use crate::run::{Context, Outcome, RunRequest};

impl Call<'_> {
    /// `bpf_prog_test_run`
    pub(super) fn test_run(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        for (size, address) in
            [(field::CTX_SIZE_IN, field::CTX_IN), (field::CTX_SIZE_OUT, field::CTX_OUT)]
        {
            if (self.u32(size) == 0) != (self.u64(address) == 0) {
                return Err(Errno::EINVAL);
            }
        }
        let handle = self.caller.handle(self.u32(field::PROG_FD))?;
        let program = handle.program()?;
        if program.kind() == PROG_TYPE_SYSCALL {
            return self.call_program(program);
        }
        let data = |size| copy_in(self.caller, self.u64(field::DATA_IN), size);
        let mut request = RunRequest {
            flags: self.u32(field::FLAGS),
            batch: self.u32(field::BATCH_SIZE),
            repeat: self.u32(field::REPEAT),
            size: self.u32(field::DATA_SIZE_IN),
            data: &data,
            context: None,
            takes_back: self.u64(field::DATA_OUT) != 0 || self.u64(field::CTX_OUT) != 0,
        };
        request.check(program)?;
        let given = self.context()?;
        request.context = given;
        let outcome = self.objects.run(program, &request)?;
        self.give_back(&outcome, given)
    }

    /// `bpf_prog_test_run_syscall`: the context comes from the caller's memory and goes back there.
    fn call_program(&mut self, program: &ProgramObject) -> Result<u32, Errno> {
        let unused = [field::DURATION, field::REPEAT, field::FLAGS, field::BATCH_SIZE];
        let unused_addresses = [field::DATA_IN, field::DATA_OUT, field::CTX_OUT];
        if unused.iter().any(|&field| self.u32(field) != 0)
            || unused_addresses.iter().any(|&field| self.u64(field) != 0)
        {
            return Err(Errno::EINVAL);
        }
        let (address, size) = (self.u64(field::CTX_IN), self.u32(field::CTX_SIZE_IN) as usize);
        if size > CALL_CONTEXT_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let mut context = vec![0; size];
        let least = program.program().verified().map_or(0, |it| it.context_bytes());
        if size > 0 && size >= least as usize {
            context = copy_in(self.caller, address, size)?;
        }
        let (returned, context) = self.objects.call(program, context)?;
        self.attr.answer(self.caller, field::RETVAL, returned)?;
        if size > 0 {
            self.caller.write(address, &context)?;
        }
        Ok(0)
    }

    /// `bpf_ctx_init`
    fn context(&self) -> Result<Option<Context>, Errno> {
        let (address, size) = (self.u64(field::CTX_IN), self.u32(field::CTX_SIZE_IN));
        if address == 0 {
            let linear = Context { data_end: self.u32(field::DATA_SIZE_IN), ..Context::default() };
            return Ok((self.u64(field::CTX_OUT) != 0).then_some(linear));
        }
        check_tail(self.caller, address, CONTEXT_BYTES, size)?;
        let mut bytes = copy_in(self.caller, address, (size as usize).min(CONTEXT_BYTES))?;
        bytes.resize(CONTEXT_BYTES, 0);
        let word = |at: usize| bytes[at * 4..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
        Ok(Some(Context {
            data: word(0),
            data_end: word(1),
            data_meta: word(2),
            ingress_ifindex: word(3),
            rx_queue_index: word(4),
            egress_ifindex: word(5),
        }))
    }

    /// `bpf_test_finish`, `bpf_ctx_finish`
    fn give_back(&mut self, outcome: &Outcome, given: Option<Context>) -> Result<u32, Errno> {
        let Outcome { frame, returned, took } = outcome;
        let duration = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX);
        let bytes = frame.to_vec_with_metadata();
        let room = self.u32(field::DATA_SIZE_OUT) as usize;
        let mut fits = room == 0 || bytes.len() <= room;
        if self.u64(field::DATA_OUT) != 0 {
            let copied = if room == 0 { bytes.len() } else { bytes.len().min(room) };
            self.caller.write(self.u64(field::DATA_OUT), &bytes[..copied])?;
        }
        let answers = [
            (field::DATA_SIZE_OUT, bytes.len() as u32),
            (field::RETVAL, *returned),
            (field::DURATION, duration),
        ];
        for (at, value) in answers {
            self.attr.answer(self.caller, at, value)?;
        }
        if let (Some(context), true) = (given, self.u64(field::CTX_OUT) != 0) {
            let data = frame.metadata_len() as u32;
            let words = [
                data,
                data + frame.linear_len() as u32,
                0,
                context.ingress_ifindex,
                context.rx_queue_index,
                context.egress_ifindex,
            ];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let room = self.u32(field::CTX_SIZE_OUT) as usize;
            self.caller.write(self.u64(field::CTX_OUT), &bytes[..room.min(CONTEXT_BYTES)])?;
            self.attr.answer(self.caller, field::CTX_SIZE_OUT, CONTEXT_BYTES as u32)?;
            fits &= room >= CONTEXT_BYTES;
        }
        if fits { Ok(0) } else { Err(Errno::ENOSPC) }
    }
}

/// Most bytes of the context of a program that users call.
const CALL_CONTEXT_BYTES_MAX: usize = u16::MAX as usize;
/// Bytes of `struct xdp_md`.
const CONTEXT_BYTES: usize = 24;
