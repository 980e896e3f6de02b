//! Object files: ELF with BPF programs, maps, types and relocations, and linking one program of it.
//!
//! Opening keeps every reference symbolic; [`Object::link`] resolves those of one program against
//! an [`Env`]. So an object opens whatever its sections are called and whatever else is in it, and
//! what is wrong with one program doesn't matter to another. No I/O: the caller reads files.

mod builtin;
mod code;
mod core;
mod data;
mod elf;
mod env;
mod error;
mod ext;
mod externs;
mod legacy;
mod link;
mod maps;
mod open;
pub mod section;
mod select;

use std::sync::Arc;

use crate::btf::{Btf, TypeId};
use crate::program::{AttachType, DataSection, Linked, MapDef};

pub use self::core::POISON_CALL;
pub use env::{CONFIG_DEFAULT, Env, KERNEL_VERSION_DEFAULT};
pub use error::{GlobalError, MapSizeError, ObjectError, SelectError};
pub use section::{ProgramKind, SectionMeaning, meaning_of};

/// An opened object file.
#[derive(Debug, Clone)]
pub struct Object {
    name: String,
    license: String,
    btf: Option<Arc<Btf>>,
    programs: Vec<Program>,
    maps: Arc<[MapDef]>,
    globals: Vec<Global>,
    /// By program: its function in `code`.
    entries: Vec<usize>,
    code: code::Code,
    externs: externs::Externs,
    /// The map that holds kernel configuration values.
    config_map: Option<usize>,
}

/// A program in an object file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The C function's name.
    pub name: String,
    /// The section it is in.
    pub section: String,
    /// What the section's name says it is.
    pub kind: ProgramKind,
    /// Where it may be attached.
    pub attach: AttachType,
    /// Handles frames of several buffers.
    pub has_frags: bool,
    /// Instruction slots, without the functions it calls.
    pub insn_count: usize,
}

/// A global variable in one of the data sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// Name of the variable.
    pub name: String,
    /// Index of its section's map.
    pub map: usize,
    /// Kind of section.
    pub section: DataSection,
    /// Bytes from the start of the section.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// Type in [`Object::btf`]; 0 when unknown.
    pub ty: TypeId,
    /// As C writes it, e.g. `__u32 limits[4]`; the name alone when the type is unknown.
    pub declaration: String,
}

/// A value for a global variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GlobalValue {
    /// For integers, enums and booleans of any width.
    Int(i128),
    /// For anything: exactly as many bytes as the variable has.
    Bytes(Vec<u8>),
}

impl Object {
    /// Opens an object file; `name` is what error messages call it.
    pub fn open(bytes: &[u8], name: &str) -> Result<Object, ObjectError> {
        open::open(bytes, name)
    }

    /// What the caller called it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Every program, in the order of the file.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// Every map, data sections included.
    pub fn maps(&self) -> &Arc<[MapDef]> {
        &self.maps
    }

    /// Text of the licence section; empty when there is none.
    pub fn license(&self) -> &str {
        &self.license
    }

    /// The object's types.
    pub fn btf(&self) -> Option<&Arc<Btf>> {
        self.btf.as_ref()
    }

    /// Variables in data sections.
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// Sets the initial value of a global variable, in all programs linked from now on.
    pub fn set_global(&mut self, name: &str, value: &GlobalValue) -> Result<(), GlobalError> {
        let Some(global) = self.globals.iter().find(|global| global.name == name) else {
            let candidates = self.globals.iter().map(|global| global.name.as_str());
            let candidates = candidates.collect::<Vec<_>>().join(", ");
            return Err(GlobalError::Missing { name: name.to_owned(), candidates });
        };
        let bytes = data::encode(global, value, self.btf.as_deref())?;
        let (map, start) = (global.map, global.offset as usize);
        let initial = Arc::make_mut(&mut self.maps).get_mut(map).and_then(|m| m.initial.as_mut());
        if let Some(place) = initial.and_then(|data| data.get_mut(start..start + bytes.len())) {
            place.copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Sets how many elements a map has (bytes or pages, for kinds that count these), in all
    /// programs linked from now on: objects leave to their loaders what depends on the machine.
    pub fn set_map_size(&mut self, name: &str, entries: u32) -> Result<(), MapSizeError> {
        let maps = Arc::make_mut(&mut self.maps);
        let mut own = maps.iter_mut().filter(|map| map.section.is_none());
        match own.find(|map| map.name == name) {
            Some(map) => map.max_entries = entries,
            None => {
                let own = self.maps.iter().filter(|map| map.section.is_none());
                let candidates = own.map(|map| map.name.as_str()).collect::<Vec<_>>().join(", ");
                return Err(MapSizeError { name: name.to_owned(), candidates });
            }
        }
        Ok(())
    }

    /// Constants that are all zeros: what a loader was to set, more often than not.
    pub fn unset_constants(&self) -> impl Iterator<Item = &str> {
        let is_zero = |global: &&Global| {
            let (start, size) = (global.offset as usize, global.size as usize);
            let initial = self.maps.get(global.map).and_then(|map| map.initial.as_ref());
            let bytes = initial.and_then(|data| data.get(start..start + size));
            bytes.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0))
        };
        let constants = self.globals.iter().filter(|it| it.section == DataSection::Rodata);
        constants.filter(is_zero).map(|global| global.name.as_str())
    }

    /// The index of the program with this name or in this section; without either, the only one.
    pub fn select(&self, name: Option<&str>, section: Option<&str>) -> Result<usize, SelectError> {
        select::select(&self.programs, name, section)
    }

    /// Links one program against `env`.
    pub fn link(&self, program: usize, env: &Env) -> Result<Linked, ObjectError> {
        link::link(self, program, env)
    }
}
