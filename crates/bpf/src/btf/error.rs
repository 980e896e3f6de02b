//! Why a BTF blob was refused, with the type and offset.

use thiserror::Error;

use super::TypeId;
use super::check::DEPTH_MAX;
use super::parse::TYPES_MAX;

/// Why a BTF blob was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BtfError {
    /// The first bytes aren't a BTF header that we read.
    #[error("not BTF: {0}")]
    Header(&'static str),
    /// A big-endian blob.
    #[error("big-endian BTF: only little-endian types are supported (compile with -target bpfel)")]
    BigEndian,
    /// A section of the blob lies outside of it.
    #[error(
        "BTF {what} section (offset {offset}, {size} bytes) lies outside the blob of {len} bytes"
    )]
    Section {
        /// `type` or `string`.
        what: &'static str,
        /// As in the header, from the end of the header.
        offset: u32,
        /// As in the header.
        size: u32,
        /// Bytes there are.
        len: usize,
    },
    /// The string section isn't text.
    #[error("BTF string section: {0}")]
    Strings(&'static str),
    /// A type's record ends after the type section.
    #[error("BTF type {id} at offset {offset} is cut off: the type section ends inside it")]
    Truncated {
        /// Type id.
        id: TypeId,
        /// Byte offset in the type section.
        offset: usize,
    },
    /// A type of a kind that doesn't exist (yet).
    #[error("BTF type {id} at offset {offset} has unknown kind {kind}")]
    UnknownKind {
        /// Type id.
        id: TypeId,
        /// Byte offset in the type section.
        offset: usize,
        /// The number.
        kind: u32,
    },
    /// A type whose contents contradict each other.
    #[error("BTF type {id} at offset {offset}: {what}")]
    Type {
        /// Type id.
        id: TypeId,
        /// Byte offset in the type section.
        offset: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A name that isn't in the string section.
    #[error("BTF type {id}: name offset {name} {what}")]
    Name {
        /// Type id.
        id: TypeId,
        /// The offset.
        name: u32,
        /// Why not.
        what: &'static str,
    },
    /// A reference to a type that doesn't exist.
    #[error("BTF type {id} refers to type {to}, but there are only {count} types")]
    Reference {
        /// Type id.
        id: TypeId,
        /// The missing one.
        to: TypeId,
        /// How many there are.
        count: usize,
    },
    /// A type that contains itself.
    #[error("BTF type {id} contains itself")]
    Cycle {
        /// Type id.
        id: TypeId,
    },
    /// A type nested deeper than any compiler writes.
    #[error("BTF type {id} is nested more than {DEPTH_MAX} types deep")]
    Depth {
        /// Type id.
        id: TypeId,
    },
    /// More types than an id can name.
    #[error("more than {TYPES_MAX} BTF types")]
    TooMany,
}
