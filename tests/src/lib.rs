//! What crosses crates: parity with the running kernel, program by program.
//!
//! The kernel is the arbiter. Three sources of programs (the kernel's own verifier tables, object
//! files, random programs) go through both verifiers, and what both accept runs through
//! `BPF_PROG_TEST_RUN`, the interpreter and each compiler tier on the same packets; verdicts, bytes
//! and maps must be equal. `README.md` says how to run it and how to read what it prints.

#![forbid(unsafe_code)]

pub mod compare;
pub mod ends;
pub mod execution;
pub mod history;
pub mod known;
pub mod masks;
pub mod programs;
pub mod sources;
pub mod tables;
pub mod verdict;
pub mod ways;

pub use towpath_workload::{packets, random};
