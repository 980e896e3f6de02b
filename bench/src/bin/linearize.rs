//! `bench/linearize`: what a frame costs when it must be made linear for its program, and when not.
//!
//! The measurement of the non-linear frames proposal: one program, frames of an MTU of 1500 and of
//! 9000 bytes in buffers as a receiver gets them (filled page after page) and as a sender's stack
//! makes them (headers in the first buffer, payload in the others). Nanoseconds a frame, of the
//! program's run with what has to be done to the frame first; frames come in bursts of 16, and the
//! percentiles are over bursts.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::Instant;

use clap::Parser;
use towpath_bench::load;
use towpath_workload::small;
use towpath_xdp::frame::LINEAR_BYTES_MAX;
use towpath_xdp::{Arena, Burst, Frame, Pool, Program};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Frames of each kind.
    #[arg(long, default_value_t = 200_000)]
    frames: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let program = load(small::returns_byte(14), 1)?;
    println!("ns per frame, program included: p50 / p90 / p99\n");
    println!("  {:>5} {:10} {:>24} {:>24} {:>7}", "MTU", "side", "linearize", "as it is", "p50");
    for mtu in [1500, 9000] {
        for (side, head) in [("receiver", LINEAR_BYTES_MAX), ("sender", HEADERS)] {
            let [with, without] = measure(&program, mtu + 14, head, args.frames)?;
            let show = |p: [u64; 3]| format!("{} / {} / {}", p[0], p[1], p[2]);
            let ratio = with[0] as f64 / without[0].max(1) as f64;
            println!("  {mtu:>5} {side:10} {:>24} {:>24} {ratio:6.1}x", show(with), show(without));
        }
    }
    Ok(())
}

/// Percentiles with and without linearizing, taking turns.
fn measure(
    program: &Program,
    len: usize,
    head: usize,
    count: usize,
) -> anyhow::Result<[[u64; 3]; 2]> {
    let arena = Arena::new(1024)?;
    let mut pool = Pool::new(&arena);
    let (mut worker, mut burst) = (program.worker(0), Burst::default());
    let mut times = [Vec::with_capacity(count), Vec::with_capacity(count)];
    let mut frames = Vec::new();
    for round in 0..count / BURST * 2 {
        let linearize = round % 2 == 0;
        for _ in 0..BURST {
            frames.push(frame(&mut pool, len, head)?);
        }
        let start = Instant::now();
        if linearize {
            frames.iter_mut().for_each(|frame| pool.linearize(frame));
        }
        program.run_burst(&mut worker, &mut frames, &mut burst)?;
        let ns = start.elapsed().as_nanos() as u64;
        times[usize::from(!linearize)].push(ns / BURST as u64);
        anyhow::ensure!(burst.returned(0) == 1, "the program ran");
        pool.give_all(&mut frames);
    }
    Ok(times.map(|mut times| {
        times.sort_unstable();
        [50, 90, 99].map(|percent| times[times.len() * percent / 100])
    }))
}

/// A frame of `len` bytes with at most `head` of them in its first buffer.
fn frame(pool: &mut Pool, len: usize, head: usize) -> anyhow::Result<Frame> {
    let mut take = || pool.take().ok_or_else(|| anyhow::anyhow!("the arena is large enough"));
    let mut frame = take()?;
    frame.fill(&PAYLOAD[..head.min(len)]);
    for part in PAYLOAD[..len - head.min(len)].chunks(LINEAR_BYTES_MAX) {
        let mut piece = take()?;
        piece.fill(part);
        frame.append(piece).map_err(|_piece| anyhow::anyhow!("17 frags are enough"))?;
    }
    Ok(frame)
}

const BURST: usize = 16;
/// Ethernet, IPv4 and TCP with options.
const HEADERS: usize = 66;
static PAYLOAD: [u8; 9014] = [1; 9014];
