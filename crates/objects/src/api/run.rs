//! Test runs: bpftool's `prog run`.

use std::time::Duration;

use super::{ApiError, Selector, Session};
use crate::run::{Context, LIVE_FRAMES, Outcome, RunRequest};

/// Input of a test run (`BPF_PROG_TEST_RUN`).
#[derive(Debug, Clone, Copy, Default)]
pub struct Run<'a> {
    /// Metadata, and the packet behind it.
    pub data: &'a [u8],
    /// Bytes of metadata.
    pub metadata: u32,
    /// The device from which it appears to come; 0 for none.
    pub ingress: u32,
    /// The device's receive queue.
    pub rx_queue: u32,
    /// Number of runs; 0 is once.
    pub repeat: u32,
    /// If set, the frames are live: they go where the program says (`BPF_F_TEST_XDP_LIVE_FRAMES`).
    /// The number is how many frames run before they are sent together; 0 is 64.
    pub live: Option<u32>,
}

/// Results of a test run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunResult {
    /// Return value of the last run; 0 for live frames.
    pub returned: u32,
    /// Metadata and packet as the last run left them; empty for live frames.
    pub data: Vec<u8>,
    /// Bytes of metadata.
    pub metadata: u32,
    /// End of the packet's linear part in `data`.
    pub linear_end: u32,
    /// The time of one run, on average.
    pub duration: Duration,
}

impl Session {
    /// Calls a program of the type that users call (`BPF_PROG_TYPE_SYSCALL`); returns its result,
    /// and the context as it left it.
    ///
    /// # Errors
    ///
    /// Fails if no program, or more than one, is selected; also with the answer of
    /// `BPF_PROG_TEST_RUN`.
    pub fn call(&mut self, program: &Selector, context: &[u8]) -> Result<(u32, Vec<u8>), ApiError> {
        let program = self.program(program)?;
        let called = self.objects.call(&program, context.to_vec());
        let what = "the program can't be called";
        called.map_err(|errno| ApiError::Refused { what, errno })
    }

    /// Runs a program on a packet, or on live frames.
    ///
    /// # Errors
    ///
    /// Fails if no program, or more than one, is selected; also with the answer of
    /// `BPF_PROG_TEST_RUN`.
    pub fn run(&mut self, program: &Selector, run: &Run<'_>) -> Result<RunResult, ApiError> {
        let program = self.program(program)?;
        let size = run.data.len() as u32;
        let context = Context {
            data: run.metadata,
            data_end: size,
            ingress_ifindex: run.ingress,
            rx_queue_index: run.rx_queue,
            ..Context::default()
        };
        let request = RunRequest {
            flags: if run.live.is_some() { LIVE_FRAMES } else { 0 },
            batch: run.live.unwrap_or(0),
            repeat: run.repeat,
            size,
            data: &|_size| Ok(run.data.to_vec()),
            context: Some(context),
            takes_back: false,
        };
        let what = "the program can't be run";
        let refused = |errno| ApiError::Refused { what, errno };
        request.check(&program).map_err(refused)?;
        let Outcome { frame, returned, took } =
            self.objects.run(&program, &request).map_err(refused)?;
        let metadata = frame.metadata_len() as u32;
        let linear_end = metadata + frame.linear_len() as u32;
        let (data, metadata, linear_end) = match run.live {
            Some(_) => (Vec::new(), 0, 0),
            None => (frame.to_vec_with_metadata(), metadata, linear_end),
        };
        Ok(RunResult { returned, data, metadata, linear_end, duration: took })
    }
}
