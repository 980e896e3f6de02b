//! `bench/udp`: UDP sockets of Towpath beside those of the kernel, over a veth.
//!
//! The far host, with the kernel's stack, keeps to the first core. The near host's application keeps
//! to the second, and uses Towpath's sockets or the kernel's; the sides take turns. The figure is
//! processor time of the near side for each datagram: the application, Towpath's worker, and
//! softirqs of the whole machine.
//!
//! The kernel's sockets are used as well as they can be: `recvmmsg` with generic receive offload,
//! `sendmmsg`, and `sendmsg` with segmentation offload. Needs root and `scripts/install-deps.sh net`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod receiving;
mod sending;

use std::time::{Duration, Instant};

use clap::Parser;
use towpath_bench::hosts::{Hosts, Link, has_commands};
use towpath_bench::{median, own_threads_cpu_ns, softirq_ns};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 1000)]
    window: u64,
    /// Measure only cases whose names begin with this text.
    #[arg(long, default_value = "")]
    only: String,
}

/// A way to move datagrams at the near host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Towpath's sockets.
    Towpath,
    /// The kernel's, one datagram a message.
    Kernel,
    /// The kernel's, with segmentation and receive offloads.
    KernelOffload,
}

/// One line of the table.
struct Case {
    name: &'static str,
    is_sending: bool,
    bytes: usize,
    link: Link,
    /// The kernel's way; the other side is Towpath.
    kernel: Side,
}

/// What one measurement counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    /// Nanoseconds of processor time a datagram, at the near side.
    pub(crate) ns: f64,
    /// Millions of datagrams a second.
    pub(crate) rate: f64,
}

const CASES: [Case; 8] = [
    Case::new("receive 1400 B", false, 1400, Link::CutAndGro, Side::KernelOffload),
    Case::new("receive 1400 B, passed whole", false, 1400, Link::Whole, Side::KernelOffload),
    Case::new("receive 64 B", false, 64, Link::Cut, Side::Kernel),
    Case::new("receive 64 B, put together", false, 64, Link::CutAndGro, Side::KernelOffload),
    Case::new("send 1400 B, sendmmsg", true, 1400, Link::Cut, Side::Kernel),
    Case::new("send 1400 B, GSO cut", true, 1400, Link::Cut, Side::KernelOffload),
    Case::new("send 1400 B, GSO whole", true, 1400, Link::Whole, Side::KernelOffload),
    Case::new("send 64 B, sendmmsg", true, 64, Link::Cut, Side::Kernel),
];

impl Case {
    const fn new(
        name: &'static str,
        is_sending: bool,
        bytes: usize,
        link: Link,
        kernel: Side,
    ) -> Case {
        Case { name, is_sending, bytes, link, kernel }
    }

    fn measure(&self, side: Side, window: Duration) -> anyhow::Result<Counted> {
        let hosts = match side {
            Side::Towpath => Hosts::of_towpath(self.link)?,
            Side::Kernel | Side::KernelOffload => Hosts::of_kernel(self.link)?,
        };
        match self.is_sending {
            true => sending::measure(&hosts, side, self.bytes, window),
            false => receiving::measure(&hosts, side, self.bytes, window),
        }
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Err(why) = towpath_kernel::Kernel::open() {
        println!("skipped: {why}");
        return Ok(());
    }
    if !has_commands() {
        println!("skipped: no ip, ethtool or ping");
        return Ok(());
    }
    println!(
        "UDP over a veth; ns of processor time a datagram at the near side, median (least .. most)"
    );
    println!("In brackets: millions of datagrams a second.\n");
    let window = Duration::from_millis(args.window);
    for case in CASES.iter().filter(|case| case.name.starts_with(&args.only)) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            ours.push(case.measure(Side::Towpath, window)?);
            theirs.push(case.measure(case.kernel, window)?);
        }
        let ns = |side: &[Counted]| median(&side.iter().map(|it| it.ns).collect::<Vec<_>>());
        let rate = |side: &[Counted]| median(&side.iter().map(|it| it.rate).collect::<Vec<_>>()).0;
        let ((a, a0, a1), (b, b0, b1)) = (ns(&ours), ns(&theirs));
        println!(
            "  {:30} towpath {a:7.0} ({a0:.0} .. {a1:.0}) [{:.2}]   kernel {b:7.0} ({b0:.0} .. \
             {b1:.0}) [{:.2}]   {:.2}x",
            case.name,
            rate(&ours),
            rate(&theirs),
            b / a
        );
    }
    Ok(())
}

/// Counts what happens in a window after a while to settle. `count` gives the number of datagrams so
/// far; the thread named `near` is the application.
pub(crate) fn count(
    window: Duration,
    count: impl Fn() -> anyhow::Result<u64>,
) -> anyhow::Result<Counted> {
    std::thread::sleep(Duration::from_millis(200));
    let cpu = || -> anyhow::Result<u64> {
        Ok(own_threads_cpu_ns("near")? + own_threads_cpu_ns("worker-")? + softirq_ns()?)
    };
    let (start, cpu_before, before) = (Instant::now(), cpu()?, count()?);
    std::thread::sleep(window);
    let (done, spent) = (count()? - before, cpu()? - cpu_before);
    let seconds = start.elapsed().as_secs_f64();
    Ok(Counted { ns: spent as f64 / done.max(1) as f64, rate: done as f64 / seconds / 1e6 })
}
