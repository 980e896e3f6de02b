//! `BPF_PROG_TEST_RUN`: a program on one frame, apart from all devices.
//!
//! Kernel counterpart: `bpf_prog_test_run_xdp`. Who has devices makes the runs
//! ([`Devices`](crate::Devices)): on a worker, or with live frames, which then go where the program
//! says.

use std::time::Duration;

use towpath_bpf::Errno;
use towpath_xdp::Frame;

use super::Call;
use crate::attr::{check_tail, test_run as field};
use crate::caller::copy_in;
use crate::object::program::{ATTACH_XDP_CPUMAP, ATTACH_XDP_DEVMAP, PROG_TYPE_XDP, ProgramObject};
use crate::test_run::{LiveRun, TestRun};

/// `struct xdp_md`, with addresses as offsets from the metadata's start.
#[derive(Debug, Clone, Copy, Default)]
struct Context {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

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
        if program.kind() != PROG_TYPE_XDP {
            return Err(Errno::ENOTSUPP);
        }
        self.check_run(program)?;
        let (frame, context) = self.frame()?;
        if self.is_live() {
            let took = self.run_live(program, &frame, context.as_ref())?;
            return self.give_back(&frame, context, 0, took);
        }
        let (frame, returned, took) = self.run(program, frame)?;
        self.give_back(&frame, context, returned, took)
    }

    fn is_live(&self) -> bool {
        self.u32(field::FLAGS) & LIVE_FRAMES != 0
    }

    fn check_run(&self, program: &ProgramObject) -> Result<(), Errno> {
        let attach = program.expected_attach_type();
        let flags = self.u32(field::FLAGS);
        if matches!(attach, ATTACH_XDP_DEVMAP | ATTACH_XDP_CPUMAP) || flags & !LIVE_FRAMES != 0 {
            return Err(Errno::EINVAL);
        }
        if program.bound_to().is_some() {
            return Err(Errno::EINVAL);
        }
        match (self.is_live(), self.u32(field::BATCH_SIZE)) {
            (false, 0) => Ok(()),
            (false, _) => Err(Errno::EINVAL),
            (true, batch) if batch > LIVE_BATCH_MAX => Err(Errno::E2BIG),
            (true, _) => Ok(()),
        }
    }

    /// The frame as it arrives, and the context that came with it.
    fn frame(&self) -> Result<(Frame, Option<Context>), Errno> {
        let size = self.u32(field::DATA_SIZE_IN);
        let context = self.context()?;
        let mut metadata = 0;
        if let Some(context) = &context {
            let takes_back = self.u64(field::DATA_OUT) != 0 || self.u64(field::CTX_OUT) != 0;
            let wrong = context.data_meta != 0
                || context.data_end != size
                || context.data > context.data_end
                || self.is_live() && takes_back;
            if wrong {
                return Err(Errno::EINVAL);
            }
            metadata = context.data;
        }
        let longest = match self.is_live() {
            true => LIVE_BYTES_MAX + metadata,
            false => FRAME_BYTES_MAX,
        };
        if size.saturating_sub(metadata) < ETH_HLEN || size > longest {
            return Err(Errno::EINVAL);
        }
        let bytes = copy_in(self.caller, self.u64(field::DATA_IN), size as usize)?;
        let frame = Frame::with_metadata(&bytes, metadata as usize);
        let mut frame = frame.map_err(|_too_long_or_metadata| Errno::EINVAL)?;
        if let Some(context) = &context {
            self.receive(&mut frame, context)?;
        }
        Ok((frame, context))
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

    /// Where the frame seems to come from (`xdp_convert_md_to_buff`).
    fn receive(&self, frame: &mut Frame, context: &Context) -> Result<(), Errno> {
        let &Context { ingress_ifindex, rx_queue_index, egress_ifindex, .. } = context;
        if egress_ifindex != 0 || ingress_ifindex == 0 && rx_queue_index != 0 {
            return Err(Errno::EINVAL);
        }
        if ingress_ifindex != 0 {
            let device = self.objects.attachments.devices().device(ingress_ifindex);
            if rx_queue_index >= device.ok_or(Errno::ENODEV)?.queues {
                return Err(Errno::EINVAL);
            }
            frame.rx.ifindex = ingress_ifindex;
            frame.rx.queue_index = rx_queue_index;
        }
        Ok(())
    }

    /// Runs the program as often as asked: the frame after the last run, what that returned, and
    /// the time that one took.
    fn run(&self, program: &ProgramObject, frame: Frame) -> Result<(Frame, u32, Duration), Errno> {
        let run = TestRun::new(program.program(), frame, self.u32(field::REPEAT));
        let mut run = self.objects.attachments.devices().test_run(run)?;
        if !run.is_begun() {
            let _alone = self.objects.lock_test_worker();
            let mut worker = program.program().worker(self.objects.test_worker);
            while !run.step(&mut worker) {}
        }
        run.outcome()
    }

    /// Runs it on frames that go on (`bpf_test_run_xdp_live`); the time that one took.
    fn run_live(
        &self,
        program: &ProgramObject,
        frame: &Frame,
        context: Option<&Context>,
    ) -> Result<Duration, Errno> {
        let ingress = context.map_or(0, |context| context.ingress_ifindex);
        let run = LiveRun {
            program: program.program(),
            frame,
            ingress: Some(ingress).filter(|&ifindex| ifindex != 0),
            repeat: self.u32(field::REPEAT).max(1),
            batch: Some(self.u32(field::BATCH_SIZE)).filter(|&it| it != 0).unwrap_or(LIVE_BATCH),
        };
        let took = match self.objects.attachments.devices().live_run(&run)? {
            Some(took) => took,
            None => {
                let _alone = self.objects.lock_test_worker();
                run.alone(&mut program.program().worker(self.objects.test_worker))?
            }
        };
        Ok(took / run.repeat)
    }

    /// `bpf_test_finish`, `bpf_ctx_finish`
    fn give_back(
        &mut self,
        frame: &Frame,
        context: Option<Context>,
        returned: u32,
        took: Duration,
    ) -> Result<u32, Errno> {
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
            (field::RETVAL, returned),
            (field::DURATION, duration),
        ];
        for (at, value) in answers {
            self.attr.answer(self.caller, at, value)?;
        }
        if let (Some(context), true) = (context, self.u64(field::CTX_OUT) != 0) {
            let data = frame.metadata().len() as u32;
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

/// Bytes of `struct xdp_md`.
pub(crate) const CONTEXT_BYTES: usize = 24;
const ETH_HLEN: u32 = 14;
/// More than any frame has.
const FRAME_BYTES_MAX: u32 = 1 << 17;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`
pub(crate) const LIVE_FRAMES: u32 = 2;
/// `TEST_XDP_MAX_BATCH`
const LIVE_BATCH_MAX: u32 = 256;
/// `NAPI_POLL_WEIGHT`
const LIVE_BATCH: u32 = 64;
/// Of a live frame's packet: what the kernel's `struct xdp_page_head` leaves in a page.
const LIVE_BYTES_MAX: u32 = 4096 - 112 - 256 - 320;
