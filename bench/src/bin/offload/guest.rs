//! The guest: a virtio-net driver in a thread, which runs a program on what it receives or not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::anyhow;
use rustix::thread::{CpuSet, sched_setaffinity};
use towpath_workload::virtio::{Guest, GuestOptions, HEADER_BYTES};
use towpath_xdp::{Action, Arena, Burst, Frame, Pool, Program};

/// What it does with what it receives.
pub(crate) enum Duty {
    /// Counts it.
    Receive,
    /// Runs this on it, and sends back what that sends back.
    Judge(Program),
}

/// The thread.
pub(crate) struct Machine {
    judged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Machine {
    /// Brings the driver up, whose address its port's bridge knows then.
    pub(crate) fn start(path: &Path, duty: Duty) -> anyhow::Result<Machine> {
        let mut guest =
            Guest::connect(path, GuestOptions { size: 1024, ..GuestOptions::default() })?;
        let mut hello = [0; 60];
        hello[..6].fill(0xff);
        hello[6..12].copy_from_slice(&ADDRESS);
        guest.send(0, &[0; 12], &hello);
        let (judged, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counting, stopping) = (Arc::clone(&judged), Arc::clone(&stop));
        let thread = std::thread::spawn(move || run(&mut guest, &duty, &counting, &stopping));
        Ok(Machine { judged, stop, thread })
    }

    /// Frames so far.
    pub(crate) fn judged(&self) -> u64 {
        self.judged.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_panic| anyhow!("the guest panicked"))?
    }
}

fn run(
    guest: &mut Guest,
    duty: &Duty,
    judged: &AtomicU64,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut own = CpuSet::new();
    own.set(1);
    // Where there is only one, the sides share it.
    let _only_one = sched_setaffinity(None, &own);
    let arena = Arena::new(256)?;
    let (mut pool, mut burst) = (Pool::new(&arena), Burst::default());
    let mut frames: Vec<Frame> = Vec::with_capacity(BURST);
    let mut worker = match duty {
        Duty::Judge(program) => Some(program.worker(0)),
        Duty::Receive => None,
    };
    let mut bytes = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        let mut count = 0;
        while count < BURST
            && let Some((buffer, len)) = guest.rx[0].reap()
        {
            count += 1;
            if worker.is_some() {
                let at = guest.rx[0].buffer(buffer) + HEADER_BYTES as usize;
                let len = len.saturating_sub(HEADER_BYTES) as usize;
                // A driver's program sees the buffer itself; this copy stands for the skb or page
                // that it would be in.
                guest.memory.read(at, &mut bytes[..len]);
                frames.extend(pool.frame(&bytes[..len]).ok().flatten());
            }
        }
        if count == 0 {
            std::hint::spin_loop();
            continue;
        }
        guest.refill(0);
        if let (Duty::Judge(program), Some(worker)) = (duty, &mut worker) {
            program.run_burst(worker, &mut frames, &mut burst)?;
            send_back(guest, &frames, &burst, &mut bytes);
            pool.give_all(&mut frames);
        }
        judged.fetch_add(count as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Queues what the program sends back, and tells the device once.
fn send_back(guest: &mut Guest, frames: &[Frame], burst: &Burst, bytes: &mut [u8]) {
    let queue = &mut guest.tx[0];
    while queue.reap().is_some() {}
    let mut is_any = false;
    for (index, frame) in frames.iter().enumerate() {
        if burst.action(index) != Action::Tx || queue.room() == 0 {
            continue;
        }
        let packet = &*frame.linear();
        let at = queue.buffer(queue.next_buffer());
        bytes[..12].fill(0);
        guest.memory.write(at, &bytes[..12]);
        guest.memory.write(at + HEADER_BYTES as usize, packet);
        queue.post(HEADER_BYTES + packet.len() as u32);
        is_any = true;
    }
    if is_any {
        queue.publish();
        guest.kick(1);
    }
}

/// Its address.
pub(crate) const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const BURST: usize = 64;
