//! A walk over the product of faults and features: a daemon, numbered frames, and a model that
//! knows which of them may pass, what must be kept, and what `status` has to say.
//!
//! Each walk has a seed, which gives the same steps again:
//!
//! ```text
//! CHAOS_SEED=7 CHAOS_STEPS=250 cargo test -p towpath-cli --test chaos
//! ```
//!
//! `CHAOS_SHRINK=1` looks for fewer steps that come to the same, `CHAOS_VERBOSE=1` prints each.

#![expect(clippy::print_stdout, reason = "a test says what it found")]

mod daemon;
mod machine;
mod model;
mod past;
mod pipe_unsafe;
mod shrink;
mod steps;
mod strangers;
mod traffic;
mod walk;
mod wire_unsafe;
mod world;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use walk::{Finding, Seen};

/// What goes wrong is said in a sentence.
pub(crate) type Outcome<T = ()> = Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|it| it == "--list") {
        println!("chaos: test");
        return ExitCode::SUCCESS;
    }
    let mut filters = arguments.iter().filter(|it| !it.starts_with('-'));
    if filters.clone().count() > 0 && !filters.any(|it| "chaos".contains(it.as_str())) {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(INSIDE).is_some() {
        return walks();
    }
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        println!("chaos: skipped: interfaces and disks of its own need root and /dev/net/tun");
        return ExitCode::SUCCESS;
    }
    enter()
}

/// The same with network, mounts and processes of its own, which end with it.
fn enter() -> ExitCode {
    let own = std::env::current_exe().expect("it was started");
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    let status = command
        .arg(own)
        .env(INSIDE, std::process::id().to_string())
        .status()
        .expect("util-linux is installed");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn walks() -> ExitCode {
    prepare();
    let (start, mut all, mut findings) = (Instant::now(), Seen::default(), 0);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("chaos-{}", std::env::var(INSIDE).unwrap_or_default()));
    let mut note = |result: Result<Seen, Box<Finding>>| match result {
        Ok(seen) => all.add(seen),
        Err(finding) => {
            findings += 1;
            tell(&finding);
            if std::env::var_os("CHAOS_SHRINK").is_some() {
                println!("chaos: with fewer steps:");
                tell(&shrink::shrink(&dir, finding));
            }
        }
    };
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let plan = plan(number("CHAOS_SEED"), number("CHAOS_STEPS"));
    if plan == SHORT {
        for (name, lanes, steps) in past::all() {
            println!("chaos: {name}");
            note(walk::again(&dir, &lanes, steps));
        }
    }
    let is_short = plan == SHORT;
    for (seed, steps) in plan {
        if is_short && start.elapsed() > SHORT_TIME {
            println!("chaos: seed {seed} and those after it are left out: time is over");
            break;
        }
        note(walk::walk(&dir, seed, steps));
    }
    let Seen { steps, sent, passed } = all;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "chaos: {steps} steps, {sent} frames in, {passed} out, {findings} findings, {seconds:.0} s"
    );
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Seeds, and steps from each.
fn plan(seed: Option<u64>, steps: Option<u64>) -> Vec<(u64, u64)> {
    match (seed, steps) {
        (Some(seed), steps) => vec![(seed, steps.unwrap_or(STEPS_OF_A_WALK))],
        (None, Some(steps)) => {
            let walks = steps.div_ceil(STEPS_OF_A_WALK);
            (0..walks).map(|walk| (LONG + walk, STEPS_OF_A_WALK)).collect()
        }
        (None, None) => SHORT.to_vec(),
    }
}

/// Interfaces that speak only when they are spoken to, and whose files are those of this network.
fn prepare() {
    for line in ["mount -t sysfs none /sys", "ip link set lo up"] {
        if let Err(why) = world::run(line) {
            println!("chaos: {why}");
        }
    }
    for which in ["default", "all"] {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        // Without IPv6 there is nothing to silence.
        let _absent = std::fs::write(path, "1");
    }
}

fn tell(finding: &Finding) {
    let Finding { seed, lanes, steps, why, model, log } = finding;
    println!("chaos: seed {seed:?}, step {}: {why}", steps.len());
    lanes.iter().for_each(|lane| println!("  {:?} {}", lane.kind, lane.file.mask));
    for (number, step) in steps.iter().enumerate() {
        println!("  {}: {step:?}", number + 1);
    }
    println!("{model}\n{log}");
    if let Some(seed) = seed {
        println!("again: CHAOS_SEED={seed} CHAOS_STEPS={}", steps.len());
    }
}

const INSIDE: &str = "CHAOS_INSIDE";
/// A world is left after so many steps, and another one made, with other ports.
const STEPS_OF_A_WALK: u64 = 250;
/// The first seed of the long walk.
const LONG: u64 = 29_000;
/// Seeds and steps of the short one.
const SHORT: [(u64, u64); 10] =
    [(1, 60), (2, 60), (3, 60), (4, 60), (5, 60), (6, 60), (7, 60), (8, 60), (9, 60), (10, 60)];
/// No other walk of the short one begins after that.
const SHORT_TIME: Duration = Duration::from_secs(45);
