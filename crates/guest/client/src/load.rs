//! Loads an object file at the host: the same file that would be loaded natively.

use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::btf::emit::{Emitter, func_info, line_info};
use towpath_bpf::insn::{PSEUDO_MAP_FD, PSEUDO_MAP_VALUE};
use towpath_bpf::map::flags::BPF_F_RDONLY_PROG;
use towpath_bpf::map::{Types, Values};
use towpath_bpf::object::{ObjectError, SelectError};
use towpath_bpf::program::{DataSection, SlotInit};
use towpath_bpf::{Env, Linked, MapDef, Object};

use crate::client::{Client, ClientError, MapSpec, ProgramSpec};

/// An object file loaded at the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Handle of the program.
    pub program: u32,
    /// Name of the program.
    pub name: String,
    /// Names and handles of the maps, in the object's order.
    pub maps: Vec<(String, u32)>,
}

/// Reason why an object file was not loaded. All parts that were loaded are freed again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is invalid.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The object has no such program, or several.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The host refused a part of the object.
    #[error("{what}: {source}")]
    Refused {
        /// Name of the part.
        what: String,
        /// The host's refusal.
        source: ClientError,
    },
    /// The object has an error that is independent of the host.
    #[error("{0}")]
    Wrong(String),
}

/// Links the program of that name (or the only one) of an object file, and loads it with its maps.
///
/// # Errors
///
/// Fails if the file has an error, or if the host refuses it.
pub fn load(
    client: &mut Client,
    object: &Object,
    program: Option<&str>,
) -> Result<Loaded, LoadError> {
    let env = Env::builtin();
    let index = object.select(program, None)?;
    let linked = object.link(index, &env)?;
    let cpus = client.features().cpus as usize;
    let mut loading = Loading {
        client,
        object,
        env: &env,
        cpus,
        types: None,
        loaded_types: Vec::new(),
        maps: Vec::new(),
        made: Vec::new(),
    };
    let loaded = loading.all(&linked);
    if loaded.is_err() {
        // The last ones first, as they refer to earlier ones.
        let made = std::mem::take(&mut loading.made);
        made.into_iter().rev().for_each(|handle| {
            let _gone = loading.client.close(handle);
        });
    }
    loaded
}

struct Loading<'a> {
    client: &'a mut Client,
    object: &'a Object,
    env: &'a Env,
    cpus: usize,
    /// The object's types, and their handle at the host.
    types: Option<(Arc<Btf>, u32)>,
    /// Handles of all loaded types.
    loaded_types: Vec<u32>,
    maps: Vec<u32>,
    made: Vec<u32>,
}

impl Loading<'_> {
    fn all(&mut self, linked: &Linked) -> Result<Loaded, LoadError> {
        for def in linked.maps.iter() {
            let handle = self.map(def)?;
            self.maps.push(handle);
        }
        for (index, def) in linked.maps.iter().enumerate() {
            self.fill(def, self.maps[index])?;
        }
        let program = self.program(linked)?;
        self.slots_of_programs(linked)?;
        self.close_unused_types();
        let names = linked.maps.iter().map(|def| def.name.clone());
        let maps = names.zip(self.maps.iter().copied()).collect();
        Ok(Loaded { program, name: linked.name.clone(), maps })
    }

    fn map(&mut self, def: &MapDef) -> Result<u32, LoadError> {
        let inner_map = match &def.inner {
            Some(inner) => Some(self.map(inner)?),
            None => None,
        };
        let constant = def.section.is_some_and(DataSection::is_constant);
        let mut spec = MapSpec {
            name: def.name.clone(),
            kind: def.kind as u32,
            key_size: def.key_size,
            value_size: def.value_size,
            max_entries: def.kind.entries_of(def.max_entries, self.cpus),
            flags: def.flags | if constant { BPF_F_RDONLY_PROG } else { 0 },
            extra: def.map_extra,
            inner_map,
            types: None,
        };
        let has_types = def.kind.spec().types != Types::Refused
            && matches!(def.kind.values(), Values::Bytes | Values::PerCpu);
        if let Some(btf) = def.btf.as_ref().filter(|_| has_types) {
            let types = self.types(btf, None)?;
            spec.types = Some((types, def.key_type, def.value_type));
        }
        let mut made = self.client.create_map(&spec);
        if made.is_err() && spec.types.is_some() {
            // libbpf does the same: a map that needs no types must not fail for bad ones.
            let plain = MapSpec { types: None, ..spec };
            made = self.client.create_map(&plain).or(made);
        }
        let handle = made.map_err(refused(|| format!("map {}", def.name)))?;
        self.made.push(handle);
        Ok(handle)
    }

    /// The object's types, loaded once: elements of lists and trees must have the types of one
    /// load.
    fn types(&mut self, btf: &Arc<Btf>, bytes: Option<Vec<u8>>) -> Result<u32, LoadError> {
        if let Some((known, handle)) = &self.types
            && bytes.is_none()
            && Arc::ptr_eq(known, btf)
        {
            return Ok(*handle);
        }
        let bytes = bytes.unwrap_or_else(|| Emitter::new(btf).finish());
        let handle = self.client.load_types(&bytes).map_err(refused(|| "types".to_owned()))?;
        self.made.push(handle);
        self.loaded_types.push(handle);
        self.types = Some((Arc::clone(btf), handle));
        Ok(handle)
    }

    /// Frees types that no map uses: nothing refers to them, so they would stay at the host after
    /// the program.
    fn close_unused_types(&mut self) {
        for handle in std::mem::take(&mut self.loaded_types) {
            // The host refuses to free types that are in use.
            let _is_in_use = self.client.close(handle);
        }
    }

    /// Stores a data section's bytes, and slots that refer to maps.
    fn fill(&mut self, def: &MapDef, map: u32) -> Result<(), LoadError> {
        let failed = |client: Result<(), ClientError>| {
            client.map_err(refused(|| format!("first contents of map {}", def.name)))
        };
        if let Some(initial) = &def.initial {
            let element = (0u32.to_le_bytes().to_vec(), initial.clone());
            failed(self.client.update(map, &[element], 0))?;
        }
        if def.section.is_some_and(DataSection::is_constant) {
            failed(self.client.freeze(map))?;
        }
        for (slot, init) in &def.slots {
            let SlotInit::Map(index) = init else { continue };
            let inner = self.maps.get(*index).copied().ok_or_else(|| {
                LoadError::Wrong(format!("map {}: slot {slot} names no map", def.name))
            })?;
            failed(self.client.update(map, &[slot_of(*slot, inner)], 0))?;
        }
        Ok(())
    }

    fn program(&mut self, linked: &Linked) -> Result<u32, LoadError> {
        let mut program = ProgramSpec {
            name: linked.name.clone(),
            insns: self.instructions(linked)?,
            license: linked.license.clone(),
            has_frags: linked.has_frags,
            ..ProgramSpec::default()
        };
        if let Some(btf) = &linked.btf {
            let mut emitter = Emitter::new(btf);
            program.func_info = func_info(linked);
            if !program.func_info.is_empty() {
                program.line_info = line_info(linked, &mut emitter);
                // The types with the strings of the program's lines.
                program.btf = Some(self.types(btf, Some(emitter.finish()))?);
            }
        }
        let loaded = self.client.load_program(&program);
        let handle = loaded.map_err(refused(|| format!("program {}", linked.name)))?;
        self.made.push(handle);
        Ok(handle)
    }

    /// Stores programs that the file puts into program arrays.
    fn slots_of_programs(&mut self, linked: &Linked) -> Result<(), LoadError> {
        let mut loaded: Vec<(String, u32)> = Vec::new();
        for (index, def) in linked.maps.iter().enumerate() {
            for (slot, init) in &def.slots {
                let SlotInit::Program(name) = init else { continue };
                let known = loaded.iter().find(|(known, _)| known == name);
                let handle = match known.map(|(_, handle)| *handle) {
                    Some(handle) => handle,
                    None => {
                        let other = self.object.select(Some(name), None)?;
                        let other = self.object.link(other, self.env)?;
                        let handle = self.program(&other)?;
                        loaded.push((name.clone(), handle));
                        handle
                    }
                };
                let map = self.maps[index];
                let stored = self.client.update(map, &[slot_of(*slot, handle)], 0);
                stored.map_err(refused(|| format!("slot {slot} of map {}", def.name)))?;
            }
        }
        Ok(())
    }

    /// Instructions that refer to maps by handle.
    fn instructions(&self, linked: &Linked) -> Result<Vec<u8>, LoadError> {
        let mut bytes = Vec::with_capacity(linked.insns.len() * 8);
        let mut is_second = false;
        for (at, &insn) in linked.insns.iter().enumerate() {
            let mut insn = insn;
            if !is_second && insn.names_map() {
                let map = usize::try_from(insn.imm).ok().and_then(|index| self.maps.get(index));
                let map = map.ok_or_else(|| {
                    LoadError::Wrong(format!("instruction {at} names map {}, of none", insn.imm))
                })?;
                insn.src = if insn.is_map_ref() { PSEUDO_MAP_FD } else { PSEUDO_MAP_VALUE };
                insn.imm = map.cast_signed();
            }
            is_second = !is_second && insn.is_ld_imm64();
            bytes.extend(insn.to_le_bytes());
        }
        Ok(bytes)
    }
}

fn slot_of(slot: u32, handle: u32) -> (Vec<u8>, Vec<u8>) {
    (slot.to_le_bytes().to_vec(), handle.to_le_bytes().to_vec())
}

fn refused(what: impl Fn() -> String) -> impl Fn(ClientError) -> LoadError {
    move |source| LoadError::Refused { what: what(), source }
}
