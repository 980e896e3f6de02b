//! Speculation barriers: what follows one is not executed, not even ahead, before everything in
//! front of it is known, branches and addresses of stores among it.
//!
//! Cranelift has no such instruction. Its fences order memory, and on x86-64 `mfence` does not keep
//! later instructions from being executed; but it is as long as `lfence`, which does (Intel's and
//! AMD's manuals, and the kernel's `barrier_nospec`). So barriers are written as fences that say
//! where they are, by a source location of their own, and are made what they should be in the
//! finished code.

use cranelift_codegen::ir::{InstBuilder, SourceLoc};
use cranelift_frontend::FunctionBuilder;

/// Marks the origin of a barrier. Slots of BPF instructions are smaller numbers.
const MARK: u32 = 1 << 31;

/// What one machine has.
struct Form {
    /// Cranelift's fence.
    fence: &'static [u8],
    /// The instructions of a barrier, each as long as a fence.
    barrier: &'static [&'static [u8]],
}

/// `mfence`, `lfence`
const X86_64: Form = Form { fence: &[0x0f, 0xae, 0xf0], barrier: &[&[0x0f, 0xae, 0xe8]] };

/// `dmb ish`; `dsb sy`, `isb`
const AARCH64: Form = Form {
    fence: &[0xbf, 0x3b, 0x03, 0xd5],
    barrier: &[&[0x9f, 0x3f, 0x03, 0xd5], &[0xdf, 0x3f, 0x03, 0xd5]],
};

/// The barrier of this machine, if it is known.
fn form() -> Option<&'static Form> {
    match std::env::consts::ARCH {
        "x86_64" => Some(&X86_64),
        "aarch64" => Some(&AARCH64),
        _ => None,
    }
}

/// Whether code can be masked on this machine.
pub(super) fn is_known() -> bool {
    form().is_some()
}

/// Writes a barrier that belongs to a BPF instruction.
pub(super) fn write(builder: &mut FunctionBuilder<'_>, origin: Option<u32>) {
    let before = origin.map_or(SourceLoc::default(), SourceLoc::new);
    builder.set_srcloc(SourceLoc::new(origin.unwrap_or(0) | MARK));
    for _ in form().map_or(&[][..], |form| form.barrier) {
        builder.ins().fence();
    }
    builder.set_srcloc(before);
}

/// The BPF instruction that a location is about, and whether it is that of barriers.
pub(super) fn origin(location: SourceLoc) -> (u32, bool) {
    (location.bits() & !MARK, location.bits() & MARK != 0)
}

/// Makes barriers of the fences in a piece of code, which are all that is there but moves.
///
/// # Errors
///
/// There are not as many fences as barriers are made of.
pub(super) fn finish(code: &mut [u8]) -> Result<(), String> {
    form().map_or(Ok(()), |form| form.finish(code))
}

impl Form {
    fn finish(&self, code: &mut [u8]) -> Result<(), String> {
        let mut wanted = self.barrier.iter().cycle();
        let (mut at, mut found) = (0, 0);
        while let Some(place) = code.get_mut(at..at + self.fence.len()) {
            if place != self.fence {
                at += 1;
                continue;
            }
            place.copy_from_slice(wanted.next().ok_or("no barrier is known")?);
            (at, found) = (at + self.fence.len(), found + 1);
        }
        if found == 0 || found % self.barrier.len() != 0 {
            return Err(format!("{found} fences where a barrier is to be"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_become_barriers() {
        // mfence; mov rbx, rcx; mfence
        let mut code = [0x0f, 0xae, 0xf0, 0x48, 0x89, 0xcb, 0x0f, 0xae, 0xf0];
        X86_64.finish(&mut code).unwrap();
        assert_eq!(code, [0x0f, 0xae, 0xe8, 0x48, 0x89, 0xcb, 0x0f, 0xae, 0xe8]);
        assert!(X86_64.finish(&mut code).is_err(), "no fence is left");

        let mut code = [AARCH64.fence, AARCH64.fence].concat();
        AARCH64.finish(&mut code).unwrap();
        assert_eq!(code, AARCH64.barrier.concat());
        assert!(AARCH64.finish(&mut AARCH64.fence.to_vec()).is_err(), "half of one");
    }
}
