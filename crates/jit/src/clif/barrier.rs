//! Speculation barriers: no instruction behind a barrier is executed, not even speculatively,
//! before all results in front of it are known, among them branches and addresses of stores.
//!
//! Cranelift has no such instruction. Its fences order memory, and on x86-64 `mfence` does not keep
//! later instructions from being executed; but it is as long as `lfence`, which does (Intel's and
//! AMD's manuals, and the kernel's `barrier_nospec`). So a barrier is compiled as fences with a
//! source location of their own, and the finished code is patched at these locations.

use cranelift_codegen::ir::{InstBuilder, SourceLoc};
use cranelift_frontend::FunctionBuilder;

/// Flag in a source location that belongs to a barrier. Slots of BPF instructions are smaller.
const MARK: u32 = 1 << 31;

/// Encodings of one machine.
struct Form {
    /// The fence that Cranelift emits.
    fence: &'static [u8],
    /// The instructions of a barrier, each as long as a fence.
    barrier: &'static [&'static [u8]],
}

/// Fence `mfence`, barrier `lfence`.
const X86_64: Form = Form { fence: &[0x0f, 0xae, 0xf0], barrier: &[&[0x0f, 0xae, 0xe8]] };

/// Fence `dmb ish`, barrier `dsb sy`, `isb`.
const AARCH64: Form = Form {
    fence: &[0xbf, 0x3b, 0x03, 0xd5],
    barrier: &[&[0x9f, 0x3f, 0x03, 0xd5], &[0xdf, 0x3f, 0x03, 0xd5]],
};

/// The encodings of this machine, if known.
fn form() -> Option<&'static Form> {
    match std::env::consts::ARCH {
        "x86_64" => Some(&X86_64),
        "aarch64" => Some(&AARCH64),
        _ => None,
    }
}

/// Whether code for this machine can be masked.
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

/// The BPF instruction of a location, and whether the location is a barrier's.
pub(super) fn origin(location: SourceLoc) -> (u32, bool) {
    (location.bits() & !MARK, location.bits() & MARK != 0)
}

/// Replaces the fences in a piece of code, which has only fences and moves, by barriers.
///
/// # Errors
///
/// Fails if the number of fences doesn't fit that of a barrier's instructions.
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
