//! Why an object file, a program in it or a choice among its programs was refused.

use thiserror::Error;

use crate::btf::BtfError;

/// Why an object file could not be opened or one of its programs not be linked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// Not an ELF file of the right kind.
    #[error("{name}: {what}")]
    File {
        /// The object's name.
        name: String,
        /// What was found and what was expected.
        what: String,
    },
    /// A section that contradicts the format.
    #[error("section {section}: {what}")]
    Section {
        /// Name of the section.
        section: String,
        /// What is wrong, with the offset.
        what: String,
    },
    /// The `.BTF` section.
    #[error("section .BTF: {0}")]
    Btf(#[from] BtfError),
    /// A map definition.
    #[error("map {map}: {what}")]
    Map {
        /// Name of the map.
        map: String,
        /// What is wrong and what was expected.
        what: String,
    },
    /// A reference from an instruction that leads nowhere.
    #[error("section {section}, offset {offset:#x}, symbol {symbol}: {what}")]
    Relocation {
        /// Section of the instruction.
        section: String,
        /// Byte offset of the instruction in the section.
        offset: u64,
        /// What it refers to.
        symbol: String,
        /// What was expected.
        what: String,
    },
    /// An extern variable that has no value.
    #[error("extern {name}: {what}")]
    Extern {
        /// Name of the variable.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// More or larger than any real object has.
    #[error("{what}: {count}, more than the limit of {max}")]
    Limit {
        /// What there is too much of.
        what: String,
        /// How much.
        count: u64,
        /// The most that is accepted.
        max: u64,
    },
    /// No program of that index.
    #[error("there is no program number {index}: the object has {count}")]
    NoProgram {
        /// What was asked for.
        index: usize,
        /// Number of programs.
        count: usize,
    },
}

/// Why no program, or no single one, was selected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SelectError {
    /// No program in the object.
    #[error("the object has no programs")]
    Empty,
    /// Nothing matches.
    #[error("no program {wanted}; the object has: {candidates}")]
    Missing {
        /// What was asked for.
        wanted: String,
        /// `name (section)`, comma separated.
        candidates: String,
    },
    /// Several match.
    #[error("{count} programs match, choose one by {by}: {candidates}")]
    Ambiguous {
        /// How many.
        count: usize,
        /// The property that tells the programs apart: `name` or `section`.
        by: &'static str,
        /// `name (section)`, comma separated.
        candidates: String,
    },
}

/// A size for a map that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no map {name}; the object has: {candidates}")]
pub struct MapSizeError {
    /// What was asked for.
    pub name: String,
    /// Names, comma separated.
    pub candidates: String,
}

/// Why a global variable was not set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GlobalError {
    /// No such variable.
    #[error("no global variable {name}; the object has: {candidates}")]
    Missing {
        /// What was asked for.
        name: String,
        /// Names, comma separated.
        candidates: String,
    },
    /// Bytes of the wrong number.
    #[error("global {name} ({declaration}) has {size} bytes, {given} were given")]
    Size {
        /// The variable.
        name: String,
        /// Its C declaration.
        declaration: String,
        /// Its size.
        size: u64,
        /// What was given.
        given: u64,
    },
    /// An integer that doesn't fit, or a variable that isn't an integer.
    #[error("global {name} ({declaration}) can't hold {value}")]
    Value {
        /// The variable.
        name: String,
        /// Its C declaration.
        declaration: String,
        /// What was given.
        value: String,
    },
}
