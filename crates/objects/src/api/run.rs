//! Test runs: bpftool's `prog run`.

use std::time::Duration;

use super::call::{Arg, Request};
use super::{ApiError, Selector, Session};
use crate::attr::test_run as field;
use crate::command::Command;
use crate::command::test_run::{CONTEXT_BYTES, LIVE_FRAMES};
use crate::object::Object;

/// What a program is to be run on (`BPF_PROG_TEST_RUN`).
#[derive(Debug, Clone, Copy, Default)]
pub struct Run<'a> {
    /// Metadata, and the packet behind it.
    pub data: &'a [u8],
    /// Bytes of metadata.
    pub metadata: u32,
    /// The device that it seems to come from; 0 for none.
    pub ingress: u32,
    /// That device's receive queue.
    pub rx_queue: u32,
    /// How often it runs; 0 is once.
    pub repeat: u32,
    /// Whether these are frames that then go where the program says
    /// (`BPF_F_TEST_XDP_LIVE_FRAMES`), and if so how many are judged before all of them are sent; 0
    /// is 64.
    pub live: Option<u32>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunResult {
    /// What the last run returned; 0 of live frames.
    pub returned: u32,
    /// Metadata and packet as the last run left them; nothing of live frames.
    pub data: Vec<u8>,
    /// Bytes of metadata.
    pub metadata: u32,
    /// Where the packet's linear part ends in `data`.
    pub linear_end: u32,
    /// The time of one run, on average.
    pub duration: Duration,
}

impl Session {
    /// Runs a program on a packet, or on live frames.
    ///
    /// # Errors
    ///
    /// No, or more than one, program is selected; the answer of `BPF_PROG_TEST_RUN`.
    pub fn run(&mut self, program: &Selector, run: &Run<'_>) -> Result<RunResult, ApiError> {
        let program = self.program(program)?;
        let descriptor = self.install(Object::Program(program))?;
        let size = run.data.len() as u32;
        let context = [run.metadata, size, 0, run.ingress, run.rx_queue, 0];
        let context: Vec<u8> = context.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut request = Request::new(Command::ProgTestRun)
            .number(field::PROG_FD, descriptor)
            .number(field::DATA_SIZE_IN, size)
            .arg(field::DATA_IN, Arg::In(run.data))
            .number(field::REPEAT, run.repeat)
            .number(field::CTX_SIZE_IN, CONTEXT_BYTES as u32)
            .arg(field::CTX_IN, Arg::In(&context));
        request = match run.live {
            Some(batch) => {
                request.number(field::FLAGS, LIVE_FRAMES).number(field::BATCH_SIZE, batch)
            }
            None => request
                .number(field::DATA_SIZE_OUT, size + GROWTH_MAX)
                .arg(field::DATA_OUT, Arg::Out((size + GROWTH_MAX) as usize))
                .number(field::CTX_SIZE_OUT, CONTEXT_BYTES as u32)
                .arg(field::CTX_OUT, Arg::Out(CONTEXT_BYTES)),
        };
        let reply = self.call("the program can't be run", request);
        self.close(descriptor);
        let reply = reply?;
        let (returned, len) = (reply.answer(field::RETVAL), reply.answer(field::DATA_SIZE_OUT));
        let duration = Duration::from_nanos(reply.answer(field::DURATION).into());
        let mut outputs = reply.outputs.into_iter();
        let (mut data, context) = (outputs.next().unwrap_or_default(), outputs.next());
        data.truncate(len as usize);
        let context = context.unwrap_or_default();
        let word = |index: usize| {
            let bytes = context.get(index * 4..).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
        };
        Ok(RunResult { returned, data, metadata: word(0), linear_end: word(1), duration })
    }
}

/// A frame has no more room than this around what it came with: head, metadata, and the tail of its
/// last buffer.
const GROWTH_MAX: u32 = 1 << 14;
