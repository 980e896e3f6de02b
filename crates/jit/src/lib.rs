//! Verified programs to machine code, faster than the kernel's: through one intermediate
//! representation that both compiler tiers share.
//!
//! ```text
//! Verified -> xir::build -> passes::run -> clif::compile -> Program          tier 1
//!                                       -> llvm (background) -> Upgrade    tier 2
//! ```

#![deny(unsafe_code)]

mod ahead;
mod bridge;
mod clif;
mod code_unsafe;
mod enter_unsafe;
mod environment;
mod error;
mod fault_unsafe;
mod icache_unsafe;
mod llvm;
mod machine_unsafe;
pub mod passes;
mod perf;
mod program;
mod ranges;
mod run_unsafe;
mod runtime_unsafe;
mod sample_unsafe;
mod slots;
mod sums_unsafe;
mod tier2;
mod trust;
pub mod xir;

pub use bridge::Bridge;
pub use environment::Environment;
pub use error::CompileError;
pub use fault_unsafe::{CodeFault, interrupt};
pub use llvm::{LLVM_INSTS_MAX, LlvmForm, LlvmLibrary, llvm_library};
pub use machine_unsafe::{
    Batch, Callee, Callees, Direct, Machine, Packet, RedirectCell, TailCallTarget,
};
pub use program::{
    CodeCache, Options, Origin, Program, Tier, XIR_INSTS_MAX, clif_text, llvm_text, optimized,
};
pub use sample_unsafe::{SAMPLES_MAX, Sample, Sampler};
pub use tier2::{Upgrade, stop_compiling};
pub use trust::{CALL_COST, GUEST_BUDGET, Trust};
