//! Verified programs to machine code, faster than the kernel's: through one intermediate
//! representation that both compiler tiers share.

#![forbid(unsafe_code)]

pub mod passes;

pub mod xir;
