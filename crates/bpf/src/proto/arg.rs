//! Requirements on a helper's arguments, and properties of its result.
//!
//! The same model as the kernel's `enum bpf_arg_type`: a base kind, flags that modify it, and for a
//! few kinds a size or the name of a kernel structure. Names stand where the kernel has BTF ids, so
//! that the tables are the same whatever kernel BTF a program is linked against.

use std::fmt;
use std::ops::BitOr;

/// Modifiers of an argument or result (`enum bpf_type_flag`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Flags(pub u16);

impl Flags {
    /// No flags.
    pub const NONE: Flags = Flags(0);
    /// May be null (`PTR_MAYBE_NULL`).
    pub const NULL: Flags = Flags(1 << 0);
    /// The callee only reads (`MEM_RDONLY`).
    pub const RDONLY: Flags = Flags(1 << 1);
    /// The callee writes (`MEM_WRITE`).
    pub const WRITE: Flags = Flags(1 << 2);
    /// Needs no initialisation by the caller (`MEM_UNINIT`).
    pub const UNINIT: Flags = Flags(1 << 3);
    /// The call ends the reference (`OBJ_RELEASE`).
    pub const RELEASE: Flags = Flags(1 << 4);
    /// The size is in [`Arg::size`] instead of the next argument (`MEM_FIXED_SIZE`).
    pub const FIXED: Flags = Flags(1 << 5);
    /// Must be aligned to its size (`MEM_ALIGNED`).
    pub const ALIGNED: Flags = Flags(1 << 6);
    /// A dynptr over plain memory (`DYNPTR_TYPE_LOCAL`).
    pub const DYNPTR_LOCAL: Flags = Flags(1 << 7);
    /// A dynptr over a ring buffer record (`DYNPTR_TYPE_RINGBUF`).
    pub const DYNPTR_RINGBUF: Flags = Flags(1 << 8);
    /// A dynptr over a frame (`DYNPTR_TYPE_XDP`).
    pub const DYNPTR_XDP: Flags = Flags(1 << 9);
    /// Memory of a ring buffer record (`MEM_RINGBUF`).
    pub const RINGBUF: Flags = Flags(1 << 10);
    /// A kernel object the caller may rely on (`PTR_TRUSTED`).
    pub const TRUSTED: Flags = Flags(1 << 11);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of both.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        self.with(other)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (bit, name) in FLAG_NAMES.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                write!(f, "{}{name}", if first { "" } else { "|" })?;
                first = false;
            }
        }
        if first { f.write_str("-") } else { Ok(()) }
    }
}

/// The base kind of a helper's argument (`enum bpf_arg_type` without its flags).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ArgKind {
    /// `ARG_CONST_MAP_PTR`: a map.
    ConstMapPtr,
    /// `ARG_PTR_TO_MAP_KEY`: readable memory of the map's key size.
    MapKey,
    /// `ARG_PTR_TO_MAP_VALUE`: memory of the map's value size.
    MapValue,
    /// `ARG_PTR_TO_MEM`: memory whose size is the next argument, or fixed.
    Mem,
    /// `ARG_CONST_SIZE`: size in bytes of the memory in the argument before, at least 1.
    ConstSize,
    /// `ARG_CONST_SIZE_OR_ZERO`: as [`ArgKind::ConstSize`], or 0.
    ConstSizeOrZero,
    /// `ARG_PTR_TO_CTX`: the program's context.
    Ctx,
    /// `ARG_ANYTHING`: any initialised scalar, or a pointer of a program that may leak them.
    Anything,
    /// `ARG_PTR_TO_SPIN_LOCK`: a spin lock.
    SpinLock,
    /// `ARG_PTR_TO_BTF_ID_SOCK_COMMON`: any socket, also one reached through BTF.
    BtfIdSockCommon,
    /// `ARG_PTR_TO_SOCK_COMMON`: any socket that a helper returned.
    SockCommon,
    /// `ARG_PTR_TO_BTF_ID`: a kernel object of the type that [`Arg::btf`] names.
    BtfId,
    /// `ARG_PTR_TO_RINGBUF_MEM`: the start of a reserved record.
    RingbufMem,
    /// `ARG_CONST_ALLOC_SIZE_OR_ZERO`: size of the memory that the call returns.
    ConstAllocSizeOrZero,
    /// `ARG_PTR_TO_PERCPU_BTF_ID`: a per-cpu kernel variable or allocated per-cpu object.
    PercpuBtfId,
    /// `ARG_PTR_TO_FUNC`: a callback.
    Func,
    /// `ARG_PTR_TO_STACK`: the callback's context.
    Stack,
    /// `ARG_PTR_TO_CONST_STR`: a zero-terminated string in a frozen read-only map.
    ConstStr,
    /// `ARG_PTR_TO_TIMER`: a timer.
    Timer,
    /// `ARG_KPTR_XCHG_DEST`: a kptr field of a map value or of an allocated object.
    KptrXchgDest,
    /// `ARG_PTR_TO_DYNPTR`: a dynptr.
    Dynptr,
}

/// One argument of a helper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arg {
    /// Base kind.
    pub kind: ArgKind,
    /// Modifiers.
    pub flags: Flags,
    /// Size in bytes of [`Flags::FIXED`] memory.
    pub size: u32,
    /// Kernel structure, for [`ArgKind::BtfId`].
    pub btf: Option<&'static str>,
}

impl Arg {
    /// An argument without modifiers.
    pub const fn new(kind: ArgKind) -> Arg {
        Arg { kind, flags: Flags::NONE, size: 0, btf: None }
    }

    /// Adds modifiers.
    pub const fn with(self, flags: Flags) -> Arg {
        Arg { flags: self.flags.with(flags), ..self }
    }

    /// Memory of a fixed number of bytes.
    pub const fn fixed(size: u32) -> Arg {
        Arg { size, ..Arg::new(ArgKind::Mem).with(Flags::FIXED) }
    }

    /// A kernel object of the named structure.
    pub const fn btf(name: &'static str) -> Arg {
        Arg { btf: Some(name), ..Arg::new(ArgKind::BtfId) }
    }
}

/// The base kind of a helper's result (`enum bpf_return_type` without its flags).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum RetKind {
    /// A scalar.
    Integer,
    /// Nothing: r0 is unreadable afterwards.
    Void,
    /// A value of the map argument.
    MapValue,
    /// `PTR_TO_SOCKET`: a full socket.
    Socket,
    /// `PTR_TO_SOCK_COMMON`: a socket of any sort.
    SockCommon,
    /// Memory of the size that the [`ArgKind::ConstAllocSizeOrZero`] argument gave.
    Mem,
    /// The contents of the per-cpu variable in the argument: a structure, or plain memory.
    MemOrBtfId,
    /// A kernel object of the named structure; the name is empty for `bpf_kptr_xchg`, whose field
    /// defines the type.
    BtfId(&'static str),
}

/// The result of a helper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ret {
    /// Base kind.
    pub kind: RetKind,
    /// Modifiers.
    pub flags: Flags,
}

impl Ret {
    /// A result without modifiers.
    pub const fn new(kind: RetKind) -> Ret {
        Ret { kind, flags: Flags::NONE }
    }

    /// Adds modifiers.
    pub const fn with(self, flags: Flags) -> Ret {
        Ret { flags: self.flags.with(flags), ..self }
    }
}

const FLAG_NAMES: [&str; 12] = [
    "OR_NULL",
    "RDONLY",
    "WRITE",
    "UNINIT",
    "RELEASE",
    "FIXED_SIZE",
    "ALIGNED",
    "LOCAL",
    "RINGBUF_DYNPTR",
    "XDP",
    "RINGBUF",
    "TRUSTED",
];
