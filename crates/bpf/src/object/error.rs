//! Errors of object files, of programs in them, and of choices among these programs.

use thiserror::Error;

use crate::btf::BtfError;

/// Reason why an object file could not be opened, or one of its programs not be linked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The file is not an ELF file of the right kind.
    #[error("{name}: {what}")]
    File {
        /// The object's name.
        name: String,
        /// Found and expected contents.
        what: String,
    },
    /// A section that contradicts the format.
    #[error("section {section}: {what}")]
    Section {
        /// Name of the section.
        section: String,
        /// Description of the contradiction, with the offset.
        what: String,
    },
    /// The `.BTF` section is invalid.
    #[error("section .BTF: {0}")]
    Btf(#[from] BtfError),
    /// A map definition is invalid.
    #[error("map {map}: {what}")]
    Map {
        /// Name of the map.
        map: String,
        /// The wrong and the expected value.
        what: String,
    },
    /// A reference of an instruction can't be resolved.
    #[error("section {section}, offset {offset:#x}, symbol {symbol}: {what}")]
    Relocation {
        /// Section of the instruction.
        section: String,
        /// Byte offset of the instruction in the section.
        offset: u64,
        /// Symbol that the instruction refers to.
        symbol: String,
        /// Expected target.
        what: String,
    },
    /// An extern variable that has no value.
    #[error("extern {name}: {what}")]
    Extern {
        /// Name of the variable.
        name: String,
        /// Reason why there is no value.
        what: String,
    },
    /// A count or size exceeds that of any real object.
    #[error("{what}: {count}, more than the limit of {max}")]
    Limit {
        /// Name of the counted items.
        what: String,
        /// The count.
        count: u64,
        /// Largest accepted count.
        max: u64,
    },
    /// The object has no program of this index.
    #[error("there is no program number {index}: the object has {count}")]
    NoProgram {
        /// Requested index.
        index: usize,
        /// Number of programs.
        count: usize,
    },
}

/// Reason why no program, or no single one, was selected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The object has no program.
    #[error("the object has no programs")]
    Empty,
    /// No program matches.
    #[error("no program {wanted}; the object has: {candidates}")]
    Missing {
        /// The requested name or section.
        wanted: String,
        /// `name (section)`, comma separated.
        candidates: String,
    },
    /// Several programs match.
    #[error("{count} programs match, choose one by {by}: {candidates}")]
    Ambiguous {
        /// Number of programs that match.
        count: usize,
        /// The property that tells the programs apart: `name` or `section`.
        by: &'static str,
        /// `name (section)`, comma separated.
        candidates: String,
    },
}

/// A size was given for a map that the object does not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no map {name}; the object has: {candidates}")]
pub struct MapSizeError {
    /// The requested name.
    pub name: String,
    /// Names of the object's maps, comma separated.
    pub candidates: String,
}

/// Reason why a global variable was not set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GlobalError {
    /// The object has no such variable.
    #[error("no global variable {name}; the object has: {candidates}")]
    Missing {
        /// The requested name.
        name: String,
        /// Names of the object's variables, comma separated.
        candidates: String,
    },
    /// The number of bytes is wrong.
    #[error("global {name} ({declaration}) has {size} bytes, {given} were given")]
    Size {
        /// Name of the variable.
        name: String,
        /// Its C declaration.
        declaration: String,
        /// Size of the variable, in bytes.
        size: u64,
        /// Number of bytes that were given.
        given: u64,
    },
    /// An integer doesn't fit, or the variable isn't an integer.
    #[error("global {name} ({declaration}) can't hold {value}")]
    Value {
        /// Name of the variable.
        name: String,
        /// Its C declaration.
        declaration: String,
        /// The value that was given.
        value: String,
    },
}
