//! Errors in BTF blobs, with the type and offset.

use thiserror::Error;

use super::TypeId;
use super::check::DEPTH_MAX;
use super::parse::TYPES_MAX;

/// Reason why a BTF blob was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BtfError {
    /// The blob does not begin with a BTF header of a supported form.
    #[error("not BTF: {0}")]
    Header(&'static str),
    /// The blob is big-endian.
    #[error("big-endian BTF: only little-endian types are supported (compile with -target bpfel)")]
    BigEndian,
    /// A section of the blob lies outside of it.
    #[error(
        "BTF {what} section (offset {offset}, {size} bytes) lies outside the blob of {len} bytes"
    )]
    Section {
        /// Name of the section: `type` or `string`.
        what: &'static str,
        /// Offset from the end of the header, as the header gives it.
        offset: u32,
        /// Size in bytes, as the header gives it.
        size: u32,
        /// Size of the blob, in bytes.
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
        /// Number of the kind.
        kind: u32,
    },
    /// A type whose contents contradict each other.
    #[error("BTF type {id} at offset {offset}: {what}")]
    Type {
        /// Type id.
        id: TypeId,
        /// Byte offset in the type section.
        offset: usize,
        /// Description of the contradiction.
        what: &'static str,
    },
    /// A name that isn't in the string section.
    #[error("BTF type {id}: name offset {name} {what}")]
    Name {
        /// Type id.
        id: TypeId,
        /// Offset of the name in the string section.
        name: u32,
        /// Reason why the offset is wrong.
        what: &'static str,
    },
    /// A reference to a type that doesn't exist.
    #[error("BTF type {id} refers to type {to}, but there are only {count} types")]
    Reference {
        /// Type id.
        id: TypeId,
        /// Id of the missing type.
        to: TypeId,
        /// Number of types.
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
