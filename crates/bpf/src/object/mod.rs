//! Object files: ELF with BPF programs, maps, types and relocations, and linking one program of it.
//!
//! Opening keeps every reference symbolic; [`Object::link`] resolves those of one program against
//! an [`Env`]. So an object opens with any section names and any other contents, and an error in
//! one program does not affect others. No I/O: the caller reads files.

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
    /// By program: index of its function in `code`.
    entries: Vec<usize>,
    code: code::Code,
    externs: externs::Externs,
    /// Index of the map that holds kernel configuration values.
    config_map: Option<usize>,
}

/// A program in an object file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Name of the C function.
    pub name: String,
    /// Name of its section.
    pub section: String,
    /// Kind of program by the name of its section.
    pub kind: ProgramKind,
    /// Hook that it may be attached to.
    pub attach: AttachType,
    /// Whether it handles frames of several buffers.
    pub has_frags: bool,
    /// Number of instruction slots, without the functions it calls.
    pub insn_count: usize,
}

/// A global variable in one of the data sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// Name of the variable.
    pub name: String,
    /// Index of the map of its section.
    pub map: usize,
    /// Kind of section.
    pub section: DataSection,
    /// Offset in the section, in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Type in [`Object::btf`]; 0 if unknown.
    pub ty: TypeId,
    /// C declaration, e.g. `__u32 limits[4]`; the name alone if the type is unknown.
    pub declaration: String,
}

/// A value for a global variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GlobalValue {
    /// An integer, for integers, enums and booleans of any width.
    Int(i128),
    /// Bytes, for any variable: exactly as many as the variable has.
    Bytes(Vec<u8>),
}

impl Object {
    /// Opens an object file; `name` is its name in error messages.
    pub fn open(bytes: &[u8], name: &str) -> Result<Object, ObjectError> {
        open::open(bytes, name)
    }

    /// Name that the caller gave.
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

    /// Text of the licence section; empty if there is none.
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

    /// Sets the number of elements of a map (bytes or pages, for kinds that count these), in all
    /// programs linked from now on: objects leave sizes that depend on the machine to their
    /// loaders.
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

    /// Constants that are all zeros: usually their loader should have set them.
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

    /// Index of the program with this name or in this section; without either, of the only one.
    pub fn select(&self, name: Option<&str>, section: Option<&str>) -> Result<usize, SelectError> {
        select::select(&self.programs, name, section)
    }

    /// Links one program against `env`.
    pub fn link(&self, program: usize, env: &Env) -> Result<Linked, ObjectError> {
        link::link(self, program, env)
    }
}
