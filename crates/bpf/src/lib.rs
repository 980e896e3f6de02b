//! From a compiled object file to a program that is proved safe, and the interpreter that defines
//! what running it means. No packets and no I/O here.
//!
//! ```text
//! Object::open(bytes) -> Object          ELF, BTF, maps, relocations as data
//! Object::link(..)    -> Linked          CO-RE, globals, subprograms, map references resolved
//! verifier::verify(Linked) -> Verified | Rejection
//! interp::run(&Code, ..)                 a `Verified` with addresses, every access checked
//! ```

#![forbid(unsafe_code)]

pub mod btf;
pub mod disasm;
pub mod errno;
pub mod insn;
pub mod interp;
pub mod map;
pub mod object;
pub mod program;
pub mod proto;
pub mod suggest;
pub mod verifier;

pub use errno::Errno;
pub use insn::Insn;
pub use object::{Env, Object};
pub use program::{Linked, MapDef};
