//! Our maps beside the running kernel's: the same operations must give the same answers.
//!
//! Needs a kernel with `bpf(2)` and the privilege to use it; without, each test says so and passes.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod create;
mod operations;

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

/// xorshift64*, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
