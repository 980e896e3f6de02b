//! `BPF_PROG_TEST_RUN`: a program on one frame, apart from all devices.
//!
//! Kernel counterpart: `bpf_prog_test_run_xdp`. The owner of the devices makes the runs
//! ([`Devices`](crate::Devices)): on a worker, or with live frames, which then go where the program
//! says.

use std::time::Duration;

use towpath_bpf::Errno;
use towpath_xdp::Frame;

use crate::object::contents::Bytes;
use crate::object::program::{ATTACH_XDP_CPUMAP, ATTACH_XDP_DEVMAP, PROG_TYPE_XDP, ProgramObject};
use crate::objects::Objects;
use crate::test_run::{LiveRun, TestRun};

/// `struct xdp_md`, with addresses as offsets from the metadata's start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Context {
    pub(crate) data: u32,
    pub(crate) data_end: u32,
    pub(crate) data_meta: u32,
    pub(crate) ingress_ifindex: u32,
    pub(crate) rx_queue_index: u32,
    pub(crate) egress_ifindex: u32,
}

/// Input of a test run.
pub(crate) struct RunRequest<'a> {
    /// 0 or [`LIVE_FRAMES`].
    pub(crate) flags: u32,
    /// Number of live frames that run before they are sent together; 0 is 64.
    pub(crate) batch: u32,
    /// 0 is once.
    pub(crate) repeat: u32,
    /// Bytes of metadata and packet.
    pub(crate) size: u32,
    /// The bytes of the packet.
    pub(crate) data: Bytes<'a>,
    pub(crate) context: Option<Context>,
    /// Whether the caller wants the frame or the context back.
    pub(crate) takes_back: bool,
}

/// Results of a test run.
pub(crate) struct Outcome {
    /// As the last run left it; live frames as they arrived.
    pub(crate) frame: Frame,
    /// Return value of the last run; 0 for live frames.
    pub(crate) returned: u32,
    /// The time of one run, on average.
    pub(crate) took: Duration,
}

impl RunRequest<'_> {
    /// Whether the program can be run with this request.
    pub(crate) fn check(&self, program: &ProgramObject) -> Result<(), Errno> {
        if program.kind() != PROG_TYPE_XDP {
            return Err(Errno::ENOTSUPP);
        }
        let attach = program.expected_attach_type();
        let of_entries = matches!(attach, ATTACH_XDP_DEVMAP | ATTACH_XDP_CPUMAP);
        if of_entries || self.flags & !LIVE_FRAMES != 0 || program.bound_to().is_some() {
            return Err(Errno::EINVAL);
        }
        match (self.is_live(), self.batch) {
            (false, 0) => Ok(()),
            (false, _) => Err(Errno::EINVAL),
            (true, batch) if batch > LIVE_BATCH_MAX => Err(Errno::E2BIG),
            (true, _) => Ok(()),
        }
    }

    fn is_live(&self) -> bool {
        self.flags & LIVE_FRAMES != 0
    }

    /// The frame as it arrives.
    fn frame(&self) -> Result<Frame, Errno> {
        let mut metadata = 0;
        if let Some(context) = &self.context {
            let wrong = context.data_meta != 0
                || context.data_end != self.size
                || context.data > context.data_end
                || self.is_live() && self.takes_back;
            if wrong {
                return Err(Errno::EINVAL);
            }
            metadata = context.data;
        }
        let longest = match self.is_live() {
            true => LIVE_BYTES_MAX + metadata,
            false => FRAME_BYTES_MAX,
        };
        if self.size.saturating_sub(metadata) < ETH_HLEN || self.size > longest {
            return Err(Errno::EINVAL);
        }
        let bytes = (self.data)(self.size as usize)?;
        let frame = Frame::with_metadata(&bytes, metadata as usize);
        frame.map_err(|_too_long_or_metadata| Errno::EINVAL)
    }
}

impl Objects {
    /// Runs a program as a request that was checked says.
    pub(crate) fn run(
        &self,
        program: &ProgramObject,
        request: &RunRequest<'_>,
    ) -> Result<Outcome, Errno> {
        let mut frame = request.frame()?;
        if let Some(context) = &request.context {
            self.receive(&mut frame, context)?;
        }
        if request.is_live() {
            let took = self.run_live(program, &frame, request)?;
            return Ok(Outcome { frame, returned: 0, took });
        }
        let run = TestRun::new(program.program(), frame, request.repeat);
        let (frame, returned, took) = self.made(run)?.outcome()?;
        Ok(Outcome { frame, returned, took })
    }

    /// Has a test run made by the owner of the devices, or here if there is none.
    fn made(&self, run: TestRun) -> Result<TestRun, Errno> {
        let mut run = self.attachments.devices().test_run(run)?;
        if !run.is_begun() {
            let _alone = self.lock_test_worker();
            let mut worker = run.program().worker(self.test_worker);
            while !run.step(&mut worker) {}
        }
        Ok(run)
    }

    /// Calls a program of the type that users call; returns its result, and the context as it left
    /// it.
    ///
    /// # Errors
    ///
    /// `ENOTSUPP`: it is of another type. `EINVAL`: it accesses more bytes. `EFAULT`: it is halted,
    /// or did something that no verified program does.
    pub(crate) fn call(
        &self,
        program: &ProgramObject,
        context: Vec<u8>,
    ) -> Result<(u32, Vec<u8>), Errno> {
        self.made(TestRun::call(program.program(), context))?.outcome_of_call()
    }

    /// Sets the device and queue from which the frame appears to come (`xdp_convert_md_to_buff`).
    fn receive(&self, frame: &mut Frame, context: &Context) -> Result<(), Errno> {
        let &Context { ingress_ifindex, rx_queue_index, egress_ifindex, .. } = context;
        if egress_ifindex != 0 || ingress_ifindex == 0 && rx_queue_index != 0 {
            return Err(Errno::EINVAL);
        }
        if ingress_ifindex != 0 {
            let device = self.attachments.devices().device(ingress_ifindex);
            if rx_queue_index >= device.ok_or(Errno::ENODEV)?.queues {
                return Err(Errno::EINVAL);
            }
            frame.rx.ifindex = ingress_ifindex;
            frame.rx.queue_index = rx_queue_index;
        }
        Ok(())
    }

    /// Runs the program on live frames (`bpf_test_run_xdp_live`); returns the time that one took.
    fn run_live(
        &self,
        program: &ProgramObject,
        frame: &Frame,
        request: &RunRequest<'_>,
    ) -> Result<Duration, Errno> {
        let ingress = request.context.map_or(0, |context| context.ingress_ifindex);
        let run = LiveRun {
            program: program.program(),
            frame,
            ingress: Some(ingress).filter(|&ifindex| ifindex != 0),
            repeat: request.repeat.max(1),
            batch: Some(request.batch).filter(|&it| it != 0).unwrap_or(LIVE_BATCH),
        };
        let took = match self.attachments.devices().live_run(&run)? {
            Some(took) => took,
            None => {
                let _alone = self.lock_test_worker();
                run.alone(&mut program.program().worker(self.test_worker))?
            }
        };
        Ok(took / run.repeat)
    }
}

const ETH_HLEN: u32 = 14;
/// Largest size that is accepted, more than any frame has.
const FRAME_BYTES_MAX: u32 = 1 << 17;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`
pub(crate) const LIVE_FRAMES: u32 = 2;
/// `TEST_XDP_MAX_BATCH`
const LIVE_BATCH_MAX: u32 = 256;
/// `NAPI_POLL_WEIGHT`
const LIVE_BATCH: u32 = 64;
/// Largest packet of a live frame: the room that the kernel's `struct xdp_page_head` leaves in a
/// page.
const LIVE_BYTES_MAX: u32 = 4096 - 112 - 256 - 320;
