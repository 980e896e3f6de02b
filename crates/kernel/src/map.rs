//! Maps in the kernel, made from an object's definitions.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::btf::emit::Emitter;
use towpath_bpf::map::flags::BPF_F_RDONLY_PROG;
use towpath_bpf::map::{Host, Types, Values};
use towpath_bpf::program::{DataSection, MapType, SlotInit};
use towpath_bpf::{Errno, MapDef};

use crate::program::KernelProgram;
use crate::sys_unsafe::{self, MapFd, number};
use crate::uapi::{MapCreate, NAME_BYTES};

/// The maps of one object, in the object's order.
#[derive(Debug)]
pub struct MapSet {
    maps: Vec<KernelMap>,
    /// Slots whose program is not loaded yet: map, slot, program's name.
    program_slots: Vec<(usize, u32, String)>,
    blobs: BtfCache,
}

/// Reason why a map could not be made or filled.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The kernel refused `BPF_MAP_CREATE`.
    #[error(
        "map `{name}` ({kind}, key {key_size}, value {value_size}, max_entries {max_entries}, \
         flags {flags:#x}): the kernel refuses to create it: {errno}"
    )]
    Create {
        /// Name of the map.
        name: String,
        /// Its kind, in bpftool's words.
        kind: &'static str,
        /// Size of a key, in bytes.
        key_size: u32,
        /// Size of a value, in bytes.
        value_size: u32,
        /// Capacity.
        max_entries: u32,
        /// `BPF_F_*` flags.
        flags: u32,
        /// Error number of the kernel.
        errno: Errno,
    },
    /// The first contents could not be written.
    #[error("map `{name}`: the kernel refuses its first contents{detail}: {errno}")]
    Fill {
        /// Name of the map.
        name: String,
        /// The slot or step.
        detail: String,
        /// Error number of the kernel.
        errno: Errno,
    },
    /// A map of maps without a description of its inner maps.
    #[error("map `{name}`: a map of maps needs a template of its inner maps, and has none")]
    NoTemplate {
        /// Name of the map.
        name: String,
    },
    /// A slot refers to a map that doesn't exist.
    #[error("map `{name}`, slot {slot}: no map with index {index} in this object")]
    NoSuchMap {
        /// Name of the map.
        name: String,
        /// The slot.
        slot: u32,
        /// Index of the missing map.
        index: usize,
    },
}

impl MapSet {
    pub(crate) fn create(definitions: &[MapDef], cpus: usize) -> Result<Self, MapError> {
        let mut blobs = BtfCache::default();
        let mut maps = Vec::with_capacity(definitions.len());
        for definition in definitions {
            maps.push(KernelMap::create(definition, cpus, &mut blobs)?);
        }
        let mut set = MapSet { maps, program_slots: Vec::new(), blobs };
        for (index, definition) in definitions.iter().enumerate() {
            set.fill(index, definition)?;
        }
        Ok(set)
    }

    /// All maps, in the object's order.
    pub fn maps(&self) -> &[KernelMap] {
        &self.maps
    }

    /// File descriptor of the types that the maps were made with. A program must be loaded with the
    /// same: the kernel takes the types of two loads for different ones (`btf_is_projection_of`
    /// apart), and a list's or tree's element then doesn't fit its root.
    pub(crate) fn btf_fd(&self, btf: &Arc<Btf>) -> Option<&OwnedFd> {
        let (_, fd) = self.blobs.loaded.iter().find(|(known, _)| Arc::ptr_eq(known, btf))?;
        fd.as_deref()
    }

    /// Puts a loaded program into the slots that the object file reserves for it.
    pub fn set_program(&self, program: &KernelProgram) -> Result<(), MapError> {
        for (map, slot, _) in self.program_slots.iter().filter(|(.., p)| p == program.name()) {
            let map = &self.maps[*map];
            map.set_program(*slot, program)
                .map_err(|errno| map.fill_error(&format!(", slot {slot}"), errno))?;
        }
        Ok(())
    }

    fn fill(&mut self, index: usize, definition: &MapDef) -> Result<(), MapError> {
        for (slot, init) in &definition.slots {
            let map = &self.maps[index];
            match init {
                SlotInit::Program(name) => self.program_slots.push((index, *slot, name.clone())),
                SlotInit::Map(inner) => {
                    let inner = self.maps.get(*inner).ok_or_else(|| MapError::NoSuchMap {
                        name: map.name.clone(),
                        slot: *slot,
                        index: *inner,
                    })?;
                    let value = number(inner.as_fd()).to_le_bytes();
                    map.update(&slot.to_le_bytes(), &value, 0)
                        .map_err(|errno| map.fill_error(&format!(", slot {slot}"), errno))?;
                }
            }
        }
        self.maps[index].fill_section(definition)
    }
}

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// One map in the kernel.
#[derive(Debug)]
pub struct KernelMap {
    name: String,
    kind: MapType,
    value_size: usize,
    /// For an arena: the address at which processes map it (0: anywhere), and its size in bytes.
    arena: Option<(u64, usize)>,
    fd: MapFd,
    /// The template of a map of maps; the kernel needs it only during creation, Towpath keeps it to
    /// make further inner maps of its kind.
    _inner: Option<Box<KernelMap>>,
}

/// Unit of the size of arenas, in bytes.
const PAGE_BYTES: usize = 4096;

impl KernelMap {
    pub(crate) fn arena(&self) -> Option<(u64, usize)> {
        self.arena
    }

    fn create(definition: &MapDef, cpus: usize, blobs: &mut BtfCache) -> Result<Self, MapError> {
        let kind = definition.kind;
        let of_maps = kind.values() == Values::Map;
        let inner = match &definition.inner {
            Some(inner) if of_maps => Some(Box::new(KernelMap::create(inner, cpus, blobs)?)),
            None if of_maps => return Err(MapError::NoTemplate { name: definition.name.clone() }),
            _ => None,
        };
        let mut attr = MapCreate {
            map_type: kind as u32,
            key_size: definition.key_size,
            value_size: definition.value_size,
            max_entries: kind.entries_of(definition.max_entries, cpus),
            map_flags: flags(definition),
            inner_map_fd: inner.as_deref().map_or(0, |map| number(map.as_fd())),
            map_name: object_name(&definition.name),
            map_extra: definition.map_extra,
            ..MapCreate::default()
        };
        let value_bytes = kind.user_value_bytes(definition.value_size, cpus);
        let btf = definition.btf.as_ref().filter(|_| takes_btf(kind)).and_then(|b| blobs.fd(b));
        let fd = match &btf {
            Some(btf) => {
                let plain = attr;
                attr.btf_fd = number(btf.as_fd());
                attr.btf_key_type_id = definition.key_type;
                attr.btf_value_type_id = definition.value_type;
                // libbpf does the same: a map that needs no types must not fail for bad ones.
                MapFd::create(&attr, value_bytes).or_else(|_| MapFd::create(&plain, value_bytes))
            }
            None => MapFd::create(&attr, value_bytes),
        };
        let fd = fd.map_err(|errno| create_error(definition, &attr, errno))?;
        let value_size = definition.value_size as usize;
        let name = definition.name.clone();
        let arena = (definition.map_extra, definition.max_entries as usize * PAGE_BYTES);
        let arena = (kind.values() == Values::Pages).then_some(arena);
        Ok(KernelMap { name, kind, value_size, arena, fd, _inner: inner })
    }

    /// Puts a program into a slot of a program array.
    pub(crate) fn set_program(&self, slot: u32, program: &KernelProgram) -> Result<(), Errno> {
        self.update(&slot.to_le_bytes(), &number(program.as_fd()).to_le_bytes(), 0)
    }

    /// Writes a data section's bytes; read-only sections can't change afterwards, so that the
    /// verifier may treat them as constants (`bpf_map_is_rdonly`).
    fn fill_section(&self, definition: &MapDef) -> Result<(), MapError> {
        if let Some(initial) = &definition.initial {
            self.update(&0u32.to_le_bytes(), initial, 0)
                .map_err(|errno| self.fill_error("", errno))?;
        }
        if definition.section.is_some_and(DataSection::is_constant) {
            self.fd.freeze().map_err(|errno| self.fill_error(" (freeze)", errno))?;
        }
        Ok(())
    }

    fn fill_error(&self, detail: &str, errno: Errno) -> MapError {
        MapError::Fill { name: self.name.clone(), detail: detail.to_owned(), errno }
    }

    /// Name in the object file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kind.
    pub fn kind(&self) -> MapType {
        self.kind
    }

    /// Size in bytes of a value in user space: for per-CPU kinds, all CPUs' values, each padded to
    /// 8.
    pub fn value_bytes(&self) -> usize {
        self.fd.value_bytes()
    }

    /// Size in bytes of one CPU's value among those of [`KernelMap::value_bytes`].
    pub fn cpu_value_bytes(&self) -> usize {
        self.value_size.next_multiple_of(8)
    }

    /// Puts a value at a key (`BPF_ANY` 0, `BPF_NOEXIST` 1, `BPF_EXIST` 2).
    pub fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        self.fd.update(key, value, flags)
    }

    /// The value at a key; queues and stacks take an empty key and give their head.
    pub fn lookup(&self, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; self.fd.value_bytes()];
        self.fd.lookup(key, &mut value, 0)?;
        Ok(value)
    }

    /// Removes a key.
    pub fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        self.fd.delete(key)
    }

    /// The key after `key` in the kernel's order, or the first; `None` after the last.
    pub fn next_key(&self, key: Option<&[u8]>) -> Result<Option<Vec<u8>>, Errno> {
        let mut next = vec![0; self.fd.key_bytes()];
        match self.fd.next_key(key, &mut next) {
            Ok(()) => Ok(Some(next)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// All entries, up to `limit`, in the kernel's order; entries that are removed meanwhile, and
    /// empty slots of an array of objects, are left out.
    pub fn entries(&self, limit: usize) -> Result<Vec<Entry>, Errno> {
        let mut entries = Vec::new();
        let mut key = self.next_key(None)?;
        let mut steps = 0;
        while let Some(current) = key {
            match self.lookup(&current) {
                Ok(value) => entries.push((current.clone(), value)),
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
            steps += 1;
            if steps >= limit {
                break;
            }
            key = self.next_key(Some(&current))?;
        }
        Ok(entries)
    }
}

impl AsFd for KernelMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One `BPF_BTF_LOAD` for all maps that share a [`Btf`].
#[derive(Debug, Default)]
struct BtfCache {
    loaded: Vec<(Arc<Btf>, Option<Arc<OwnedFd>>)>,
}

impl BtfCache {
    /// File descriptor of the types; `None` if the kernel refuses them, which most maps don't need.
    fn fd(&mut self, btf: &Arc<Btf>) -> Option<Arc<OwnedFd>> {
        if let Some((_, fd)) = self.loaded.iter().find(|(known, _)| Arc::ptr_eq(known, btf)) {
            return fd.clone();
        }
        let fd = sys_unsafe::btf_load(&Emitter::new(btf).finish(), &mut []).ok().map(Arc::new);
        self.loaded.push((Arc::clone(btf), fd.clone()));
        fd
    }
}

fn create_error(definition: &MapDef, attr: &MapCreate, errno: Errno) -> MapError {
    MapError::Create {
        name: definition.name.clone(),
        kind: definition.kind.name(),
        key_size: attr.key_size,
        value_size: attr.value_size,
        max_entries: attr.max_entries,
        flags: attr.map_flags,
        errno,
    }
}

/// Whether maps of this kind may have types: some kinds have no `map_check_btf` for plain programs,
/// and libbpf drops the types of the same ones (`map_is_created`, `bpf_object__create_map`).
fn takes_btf(kind: MapType) -> bool {
    let is_descriptor = matches!(kind.values(), Values::Program | Values::Host(Host::Socket));
    kind.spec().types != Types::Refused && !is_descriptor
}

fn flags(definition: &MapDef) -> u32 {
    let is_constant = definition.section.is_some_and(DataSection::is_constant);
    definition.flags | if is_constant { BPF_F_RDONLY_PROG } else { 0 }
}

/// A name as the kernel accepts it: letters, digits, `_` and `.`, at most 15 of them.
pub(crate) fn object_name(name: &str) -> [u8; NAME_BYTES] {
    let mut out = [0; NAME_BYTES];
    for (to, from) in out[..NAME_BYTES - 1].iter_mut().zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() || b"_.".contains(&from) { from } else { b'_' };
    }
    out
}

/// Number of possible CPUs of the kernel (`num_possible_cpus`), from sysfs; 1 if that is
/// unreadable.
pub(crate) fn possible_cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    count_cpus(text.trim()).unwrap_or(1)
}

/// Number of CPUs in a list like `0-3,8`.
fn count_cpus(list: &str) -> Option<usize> {
    let mut count = 0;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        count += (last + 1).checked_sub(first)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(count_cpus("0-3,8"), Some(5));
        assert_eq!(count_cpus("0"), Some(1));
        assert_eq!(count_cpus(""), None);
    }

    #[test]
    fn names_are_made_acceptable() {
        assert_eq!(&object_name("a-b.rodata.str1.1"), b"a_b.rodata.str1\0");
    }
}
