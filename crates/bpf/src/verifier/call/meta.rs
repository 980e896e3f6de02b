//! Data collected about one call while its arguments are checked.

use super::super::reg::{BtfRef, DynptrKind, MapRef, Reg};
use super::field::Field;

/// `struct bpf_call_arg_meta` and `struct bpf_kfunc_call_arg_meta` in one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallMeta {
    /// The map argument, and the number of the inner map.
    pub(super) map: Option<(MapRef, u32)>,
    /// The map of the timer or work queue argument, to be compared with the map argument.
    pub(super) field_map: Option<(MapRef, u32)>,
    /// Number of the argument whose reference the call ends.
    pub(super) release_regno: Option<u8>,
    /// The reference among the arguments.
    pub(super) ref_id: u32,
    /// Memory on the stack that the call fills: register and size in bytes.
    pub(super) raw: Option<(u8, u32)>,
    /// Whether the memory argument before a size needs no initial contents.
    pub(super) raw_mode: bool,
    /// Largest value of the size argument.
    pub(super) size_max: u64,
    /// Size in bytes of the memory that the call returns.
    pub(super) ret_size: u32,
    /// The type that the call returns.
    pub(super) ret_btf: Option<BtfRef>,
    /// The function that the call calls back.
    pub(super) subprog: Option<usize>,
    /// The kptr field of `bpf_kptr_xchg`.
    pub(super) kptr: Option<Field>,
    /// The key, if it is constant and the kind of map makes use of that.
    pub(super) const_key: Option<u64>,
    /// The known constant argument of a kfunc (`__k`, `__szk`).
    pub(super) constant: Option<u64>,
    /// The initialised dynptr argument.
    pub(super) dynptr: Option<DynptrArg>,
    /// The list head or tree root.
    pub(super) root: Option<Field>,
    /// The type of the object argument.
    pub(super) arg_btf: Option<BtfRef>,
    /// Whether the object argument is an owning reference.
    pub(super) owning: bool,
    /// The buffer that the result may point to.
    pub(super) buffer: Option<Reg>,
    /// Frame and slot of the iterator.
    pub(super) iter: Option<(usize, usize)>,
}

/// An initialised dynptr among the arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct DynptrArg {
    pub(super) kind: DynptrKind,
    pub(super) id: u32,
    pub(super) ref_id: u32,
    /// The call that it belongs to, in the form of [`Reg::frame`].
    pub(super) frame: u32,
}
