//! Our maps beside the running kernel's: the same operations must give the same answers.
//!
//! Needs a kernel with `bpf(2)` and the privilege to use it; without, each test says so and passes.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod create;
mod memory;
mod operations;

use fastrand::Rng;
use towpath_bpf::MapDef;
use towpath_bpf::program::MapType;
use towpath_kernel::Kernel;

/// The kernel, or `None` after saying why not.
fn kernel() -> Option<Kernel> {
    match Kernel::open() {
        Ok(kernel) => Some(kernel),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

fn def(kind: MapType, key: u32, value: u32, entries: u32, flags: u32) -> MapDef {
    MapDef { flags, ..MapDef::new("m", kind, key, value, entries) }
}

fn pick<T: Copy>(random: &mut Rng, from: &[T]) -> T {
    from[random.usize(..from.len())]
}
