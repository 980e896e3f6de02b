//! BTF: the type information that travels in object files and that the kernel publishes.
//!
//! A [`Btf`] is parsed once, with every id, string offset and nesting depth checked, so that
//! accessors can't fail or loop on a type that exists. Names are shared (`Arc<str>`, one for each
//! distinct string), because a kernel publishes more than 100,000 types; the kernel's types are
//! read at the first access to one of them (`Env::later`). Format: the kernel's
//! `Documentation/bpf/btf.rst`.

mod check;
pub mod emit;
mod error;
mod parse;
mod print;
mod query;
mod strings;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, LazyLock, OnceLock};

pub use emit::Emitter;
pub use error::BtfError;
pub use query::{FoundMember, essential_name};
use query::{NameIndex, TagIndex};
pub(crate) use strings::Strings;

/// Index of a type in one [`Btf`]; 0 is `void`.
pub type TypeId = u32;

/// A name from a BTF blob, shared by all its users.
pub type Name = Arc<str>;

/// All types of one blob, or of a blob on top of a base (as kernel modules have).
#[derive(Debug, Default, Clone)]
pub struct Btf {
    /// Types that come before the first of `types`.
    base: Option<Arc<Btf>>,
    /// Own types: `types[id - base.len()]`. Without a base, `types[0]` is `void`.
    types: Vec<Type>,
    /// Ids by name, built at the first search.
    index: OnceLock<NameIndex>,
    /// Declaration tags by the types that they are attached to, built at the first search.
    tags: OnceLock<TagIndex>,
    /// Source of types that are read at the first access; it replaces all fields above.
    later: Option<Later>,
}

/// Types that are read at the first access, once for all copies.
#[derive(Debug, Clone)]
struct Later(Arc<LazyLock<Btf, Box<dyn FnOnce() -> Btf + Send>>>);

// A panic during the read leaves no partial state: the lock is poisoned.
impl UnwindSafe for Later {}
impl RefUnwindSafe for Later {}

/// One type: its name (empty if anonymous) and its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    /// Name; empty for anonymous types and for kinds without names. A tag has its text as name.
    pub name: Name,
    /// Kind and contents.
    pub kind: Kind,
}

/// Kind and contents of a type (`BTF_KIND_*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Type 0, `void`.
    Void,
    /// An integer of `size` bytes; `bits` of them used, starting at bit `offset`.
    Int {
        /// Size in bytes.
        size: u32,
        /// Number of used bits.
        bits: u8,
        /// First used bit.
        offset: u8,
        /// Signed.
        signed: bool,
        /// `_Bool`.
        boolean: bool,
        /// `char`.
        char: bool,
    },
    /// A pointer to this type.
    Ptr(TypeId),
    /// `count` elements of `elem`.
    Array {
        /// Element type.
        elem: TypeId,
        /// Type of the index.
        index: TypeId,
        /// Number of elements; 0 for a flexible array.
        count: u32,
    },
    /// A struct or union of `size` bytes.
    Composite {
        /// A union, not a struct.
        union: bool,
        /// Size in bytes.
        size: u32,
        /// Members, in source order.
        members: Box<[Member]>,
    },
    /// An enumeration of `size` bytes (`BTF_KIND_ENUM` and `ENUM64`).
    Enum {
        /// Size in bytes: 1, 2, 4 or 8; 0 if only declared.
        size: u32,
        /// Signed values.
        signed: bool,
        /// Written as `BTF_KIND_ENUM64`.
        wide: bool,
        /// Name and value (sign-extended when `signed`).
        values: Box<[(Name, i64)]>,
    },
    /// Forward declaration of a struct (or of a union).
    Fwd {
        /// A union, not a struct.
        union: bool,
    },
    /// Another name for a type.
    Typedef(TypeId),
    /// `volatile`.
    Volatile(TypeId),
    /// `const`.
    Const(TypeId),
    /// `restrict`.
    Restrict(TypeId),
    /// A function; its type is a `FuncProto`.
    Func {
        /// The prototype.
        proto: TypeId,
        /// Linkage, which decides how it may be called from outside.
        linkage: Linkage,
    },
    /// A function's parameters and result.
    FuncProto {
        /// Result type; 0 for `void`.
        ret: TypeId,
        /// Name and type; a last parameter of type 0 without a name means `...`.
        params: Box<[(Name, TypeId)]>,
    },
    /// A global variable.
    Var {
        /// Type of the variable.
        ty: TypeId,
        /// Static, global or extern.
        linkage: Linkage,
    },
    /// A section of variables.
    Datasec {
        /// Size in bytes.
        size: u32,
        /// The variables, by offset.
        vars: Box<[SecVar]>,
    },
    /// A floating-point number of this size in bytes.
    Float(u32),
    /// An attribute of a type, or of one of its members or parameters.
    DeclTag {
        /// Type that the tag is attached to.
        ty: TypeId,
        /// Member or parameter index; -1 for the type itself.
        component: i32,
    },
    /// An attribute of a pointed-to type (`__kptr`, `__rcu`, `__user`, ...).
    TypeTag(TypeId),
}

/// A member of a struct or union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name; empty for an anonymous struct or union.
    pub name: Name,
    /// Type of the member.
    pub ty: TypeId,
    /// Offset from the start of the composite, in bits.
    pub bit_offset: u32,
    /// Width in bits of a bit-field; 0 for an ordinary member.
    pub bit_size: u32,
}

/// A variable's place in its section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecVar {
    /// Id of the `Var`.
    pub ty: TypeId,
    /// Offset in the section, in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// Linkage of a function or variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linkage {
    /// Visible in its own object only; verified in the context of each call.
    Static,
    /// Visible outside; a function is verified once, on its own.
    Global,
    /// Defined elsewhere: a ksym, a kconfig value or a kfunc.
    Extern,
}
