//! The environment of compiled code: its maps and the functions that it calls.

use std::sync::Arc;

use towpath_bpf::Linked;
use towpath_bpf::interp::Resolver;
use towpath_maps::{Arena, Layout, Map, ProgramSlots};

use crate::machine_unsafe::Callees;
use crate::xir::MapMeta;

/// The environment of one compilation. Its addresses end up in the code, so all of it has to
/// outlive the code; [`crate::Program`] keeps maps and slots alive, the caller the rest.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The program being compiled.
    pub linked: &'a Linked,
    /// Addresses of maps, map values and variables, and numbers of kfuncs, as for the interpreter.
    pub resolver: &'a dyn Resolver,
    /// The program's maps, by index.
    pub maps: &'a [Arc<Map>],
    /// Slots of the maps that are program arrays, for tail calls: addresses of
    /// [`crate::TailCallTarget`]. Without them, tail calls ask the runtime.
    pub slots: &'a [Option<Arc<ProgramSlots>>],
    /// Functions of the runtime.
    pub callees: Callees,
}

impl Environment<'_> {
    /// The register value that refers to a map.
    pub(crate) fn map_handle(&self, map: u32) -> u64 {
        self.resolver.map(map as usize).unwrap_or(0)
    }

    /// Address of the value of a map of one entry.
    pub(crate) fn map_value(&self, map: u32) -> u64 {
        self.resolver.map_value(map as usize, 0).unwrap_or(0)
    }

    /// Address of a part of a map; 0 if the map has no such part.
    pub(crate) fn map_meta(&self, map: u32, what: MapMeta) -> u64 {
        let number = map;
        let Some(map) = self.maps.get(map as usize) else { return 0 };
        let part = match what {
            MapMeta::HashView => map.hash_view().map(|view| std::ptr::from_ref(view) as u64),
            MapMeta::Handles => match map.layout() {
                Some(Layout::Handles { base, .. }) => Some(base),
                _ => None,
            },
            MapMeta::Targets => match map.layout() {
                Some(Layout::Targets { base, .. }) => Some(base),
                _ => None,
            },
            MapMeta::Programs => self.slots_of(number).map(ProgramSlots::base),
            MapMeta::ArenaMemory => map.arena().map(Arena::memory),
            MapMeta::ArenaPages => map.arena().map(Arena::page_table),
            MapMeta::ArenaUser => map.arena().map(Arena::user_half),
            MapMeta::Keys => Some(KEYS.as_ptr() as u64),
        };
        part.unwrap_or(0)
    }

    /// The slots of a program array, if compiled code can read them.
    pub(crate) fn slots_of(&self, map: u32) -> Option<&ProgramSlots> {
        self.slots.get(map as usize)?.as_deref()
    }

    /// The runtime's number of a kfunc; an impossible one if it is unknown (a weak reference).
    pub(crate) fn kfunc_number(&self, kfunc: u32) -> u32 {
        let kfunc = self.linked.kfuncs.get(kfunc as usize);
        kfunc.and_then(|kfunc| self.resolver.kfunc(kfunc)).unwrap_or(u32::MAX)
    }
}

/// Largest number of entries of an array whose keys are kept in memory.
pub(crate) const KEYS_MAX: u32 = 4096;

/// Keys of arrays: a callback takes a pointer to its key, and arrays keep no keys in memory.
static KEYS: [u32; KEYS_MAX as usize] = {
    let mut keys = [0; KEYS_MAX as usize];
    let mut next = 0;
    while next < KEYS_MAX {
        keys[next as usize] = next;
        next += 1;
    }
    keys
};
