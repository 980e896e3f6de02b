//! The guest: a virtio-net driver in a thread, which runs a program on what it receives or not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::anyhow;
use rustix::thread::{CpuSet, sched_setaffinity};
use towpath_workload::virtio::{Guest, GuestOptions};
use towpath_xdp::Program;
use towpath_xdp::frame::external::CHUNK_BYTES;

use crate::driver::Driver;

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
        let buffer = CHUNK_BYTES as u32;
        let options = GuestOptions { size: 1024, buffer, ..GuestOptions::default() };
        let mut guest = Guest::connect(path, options)?;
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
    let mut driver = match duty {
        Duty::Judge(program) => Some(Driver::new(guest, program)?),
        Duty::Receive => None,
    };
    while !stop.load(Ordering::Relaxed) {
        let count = match &mut driver {
            Some(driver) => driver.round(guest)?,
            None => received(guest),
        };
        match count {
            0 => std::hint::spin_loop(),
            count => _ = judged.fetch_add(count as u64, Ordering::Relaxed),
        }
    }
    Ok(())
}

/// Receives a burst and looks at none of it.
fn received(guest: &mut Guest) -> usize {
    let count = (0..BURST).take_while(|_| guest.rx[0].reap().is_some()).count();
    guest.refill(0);
    count
}

/// Its address.
pub(crate) const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const BURST: usize = 64;
