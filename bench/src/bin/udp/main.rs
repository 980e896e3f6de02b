//! `bench/udp`: UDP sockets of Towpath beside those of the kernel, over a veth.
//!
//! The far host, with the kernel's stack, keeps to the first core. The near host's application
//! keeps to the second, and uses Towpath's sockets or the kernel's; the sides take turns. The
//! figure is processor time of the near side for each datagram: the application, Towpath's worker,
//! and softirqs of the whole machine, among them those of the far host.
//!
//! The far host floods the near one with frames that its kernel makes; a receiver may lose some.
//!
//! The kernel's sockets are used as well as they can be: `recvmmsg` with generic receive offload,
//! `sendmmsg`, and `sendmsg` with segmentation offload. Needs root and `scripts/install-deps.sh
//! net`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod receiving;
mod sending;

use std::time::{Duration, Instant};

use clap::Parser;
use towpath_bench::hosts::{Hosts, Link, unavailable};
use towpath_bench::{WORKERS, median, own_threads_cpu_ns, softirq_ns};

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
    /// Microseconds for which Towpath's worker polls before it sleeps.
    #[arg(long, default_value_t = 50)]
    spin: u64,
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

/// A comparison of Towpath's sockets with one use of the kernel's.
struct Case {
    name: &'static str,
    way: Way,
    bytes: usize,
    link: Link,
    /// The kernel's way; the other side is Towpath.
    kernel: Side,
}

/// The direction of datagrams at the near host.
#[derive(Debug, Clone, Copy)]
enum Way {
    Sends,
    /// The far host sends as fast as it can.
    IsFlooded,
    /// The far host sends this number of datagrams a second.
    Receives(u64),
}

/// Result of one measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    /// Nanoseconds of processor time a datagram of the application, of Towpath's worker and of
    /// softirqs.
    pub(crate) ns: [f64; 3],
    /// Millions of datagrams a second.
    pub(crate) rate: f64,
}

impl Counted {
    fn total(&self) -> f64 {
        self.ns.iter().sum()
    }
}

const CASES: [Case; 6] = [
    Case::new("receive 1400 B", Way::IsFlooded, 1400, Link::CutAndGro, Side::KernelOffload),
    Case::new("receive 64 B", Way::IsFlooded, 64, Link::CutAndGro, Side::KernelOffload),
    Case::new(
        "receive 1400 B, 300,000 a second",
        Way::Receives(300_000),
        1400,
        Link::CutAndGro,
        Side::KernelOffload,
    ),
    Case::new(
        "receive 64 B, 30,000 a second",
        Way::Receives(30_000),
        64,
        Link::CutAndGro,
        Side::KernelOffload,
    ),
    Case::new("send 1400 B, sendmmsg", Way::Sends, 1400, Link::Cut, Side::Kernel),
    Case::new("send 1400 B, GSO", Way::Sends, 1400, Link::Cut, Side::KernelOffload),
];

impl Case {
    const fn new(name: &'static str, way: Way, bytes: usize, link: Link, kernel: Side) -> Case {
        Case { name, way, bytes, link, kernel }
    }

    fn measure(&self, side: Side, args: &Args) -> anyhow::Result<Counted> {
        let window = Duration::from_millis(args.window);
        let hosts = match side {
            Side::Towpath => Hosts::of_towpath(self.link, args.spin)?,
            Side::Kernel | Side::KernelOffload => Hosts::of_kernel(self.link)?,
        };
        match self.way {
            Way::Sends => sending::measure(&hosts, side, self.bytes, window),
            Way::IsFlooded => receiving::measure(&hosts, side, self.bytes, None, window),
            Way::Receives(rate) => receiving::measure(&hosts, side, self.bytes, Some(rate), window),
        }
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(why) = unavailable() {
        println!("skipped: {why}");
        return Ok(());
    }
    println!(
        "UDP over a veth; ns of processor time a datagram at the near side, median (least .. most)\n"
    );
    for case in CASES.iter().filter(|case| case.name.starts_with(&args.only)) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            ours.push(case.measure(Side::Towpath, &args)?);
            theirs.push(case.measure(case.kernel, &args)?);
        }
        println!("  {}", case.name);
        let (a, b) = (print_side("towpath", &ours), print_side("kernel", &theirs));
        println!("    {:.2}x", b / a);
    }
    Ok(())
}

/// Prints the figures of one side; gives its median.
fn print_side(name: &str, rounds: &[Counted]) -> f64 {
    let figures = |read: &dyn Fn(&Counted) -> f64| rounds.iter().map(read).collect::<Vec<_>>();
    let (total, least, most) = median(&figures(&Counted::total));
    let part = |number: usize| median(&figures(&|it| it.ns[number])).0;
    let rate = median(&figures(&|it| it.rate)).0;
    println!(
        "    {name:8} {total:6.0} ({least:.0} .. {most:.0})   application {:5.0}, worker {:5.0}, \
         softirq {:5.0}   {rate:6.3} M/s",
        part(0),
        part(1),
        part(2)
    );
    total
}

/// Counts what happens in a window after a while to settle. `count` gives the number of datagrams
/// so far; the thread named `near` is the application.
pub(crate) fn count(
    window: Duration,
    count: impl Fn() -> anyhow::Result<u64>,
) -> anyhow::Result<Counted> {
    std::thread::sleep(Duration::from_millis(200));
    let cpu = || -> anyhow::Result<[u64; 3]> {
        Ok([own_threads_cpu_ns("near")?, own_threads_cpu_ns(WORKERS)?, softirq_ns()?])
    };
    let (start, cpu_before, before) = (Instant::now(), cpu()?, count()?);
    std::thread::sleep(window);
    let (done, cpu_after) = (count()? - before, cpu()?);
    let seconds = start.elapsed().as_secs_f64();
    let spent = |part: usize| (cpu_after[part] - cpu_before[part]) as f64 / done.max(1) as f64;
    Ok(Counted { ns: [0, 1, 2].map(spent), rate: done as f64 / seconds / 1e6 })
}
