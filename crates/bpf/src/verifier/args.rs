//! What global functions take, from their BTF: they are verified once, for all such arguments.

use super::reg::{BtfRef, DynptrKind};

/// The arguments of a global function, checked (`btf_prepare_func_args`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubprogArgs {
    pub(crate) args: Vec<ArgKind>,
    /// Returns nothing that may be read.
    pub(crate) returns_void: bool,
}

/// One argument of a global function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgKind {
    /// Any number (or pointer, to the callee a number).
    Anything,
    Ctx,
    /// Memory of so many bytes.
    Mem {
        size: u32,
        nullable: bool,
    },
    Dynptr(DynptrKind),
    Arena,
    /// A typed kernel pointer.
    Trusted {
        ty: BtfRef,
        nullable: bool,
        untrusted: bool,
    },
    /// Memory read with probe semantics.
    UntrustedMem {
        size: u32,
    },
}
