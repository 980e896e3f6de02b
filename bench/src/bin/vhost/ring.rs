//! The cost of a frame in a ring: the port's receivers and transmitters, called by the driver of
//! the other side, on one core.

use std::time::{Duration, Instant};

use anyhow::ensure;
use towpath_engine::port::Device as _;
use towpath_ports::vhost_user::{Options, VhostUser};
use towpath_workload::virtio::{Guest, GuestOptions, HEADER_BYTES, Layout};
use towpath_xdp::{Arena, Frame, Pool};

/// A kind of ring, and frames.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    packed: bool,
    layout: Layout,
    bytes: usize,
}

pub(crate) const CASES: &[Case] = &[
    Case { name: "split, 64 B", packed: false, layout: Layout::Single, bytes: 64 },
    Case { name: "packed, 64 B", packed: true, layout: Layout::Single, bytes: 64 },
    Case { name: "split, header apart, 64 B", packed: false, layout: Layout::Chained, bytes: 64 },
    Case { name: "packed, header apart, 64 B", packed: true, layout: Layout::Chained, bytes: 64 },
    Case { name: "split, indirect, 64 B", packed: false, layout: Layout::Indirect, bytes: 64 },
    Case { name: "split, 1500 B", packed: false, layout: Layout::Single, bytes: 1500 },
    Case { name: "packed, 1500 B", packed: true, layout: Layout::Single, bytes: 1500 },
];

/// Nanoseconds a frame: from the guest, and to it.
pub(crate) fn measure(case: &Case) -> anyhow::Result<(f64, f64)> {
    let path = std::env::temp_dir().join(format!("towpath-bench-vhost-{}", std::process::id()));
    let device = VhostUser::new(Options::new(&path))?;
    let (packed, layout) = (case.packed, case.layout);
    let options = GuestOptions { packed, layout, ..GuestOptions::default() };
    let mut guest = Guest::connect(&path, options)?;
    let arena = Arena::new(4096)?;
    let mut pool = Pool::new(&arena);
    let (mut rx, mut tx) = (device.open_rx(0, &arena)?, device.open_tx(0, &arena)?);
    let packet = vec![0x5a; case.bytes];
    let mut frames: Vec<Frame> = Vec::with_capacity(2 * BURST);
    let (mut from, mut to) = (Duration::ZERO, Duration::ZERO);
    for round in 0..WARM_UP + ROUNDS {
        let queue = &mut guest.tx[0];
        for _ in 0..BURST {
            guest.memory.write(queue.buffer(queue.next_buffer()) + HEADER_BYTES as usize, &packet);
            queue.post(HEADER_BYTES + case.bytes as u32);
        }
        queue.publish();
        let start = Instant::now();
        let count = rx.receive(&mut pool, &mut frames, BURST)?;
        let middle = Instant::now();
        ensure!(count == BURST, "{count} frames of {BURST} arrive");
        let between = Instant::now();
        tx.transmit(&mut frames, &mut pool)?;
        tx.flush(&mut pool)?;
        let end = Instant::now();
        ensure!(frames.is_empty(), "{} frames of {BURST} don't leave", frames.len());
        if round >= WARM_UP {
            from += middle - start;
            to += end - between;
        }
        let mut reaped = (0, 0);
        while guest.tx[0].reap().is_some() {
            reaped.0 += 1;
        }
        while guest.rx[0].reap().is_some() {
            reaped.1 += 1;
        }
        ensure!(reaped == (BURST, BURST), "{reaped:?} buffers come back");
        guest.refill(0);
    }
    let ns = |time: Duration| time.as_nanos() as f64 / (ROUNDS * BURST) as f64;
    Ok((ns(from), ns(to)))
}

const BURST: usize = 64;
const WARM_UP: usize = 200;
const ROUNDS: usize = 4000;
