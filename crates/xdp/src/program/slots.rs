//! Programs in program arrays, by map and index.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use towpath_bpf::Errno;
use towpath_bpf::interp::Code;
use towpath_bpf::program::MapType;
use towpath_maps::Map;

use super::Program;

/// What tail calls find. A map holds no programs itself, because `crates/maps` knows none.
#[derive(Debug, Default)]
pub struct Slots {
    by_place: RwLock<HashMap<(u32, u32), Arc<Code>>>,
}

impl Slots {
    /// Puts a program into a slot of a program array. `E2BIG` behind the array's end, `EINVAL` for
    /// a map of another kind.
    pub fn set(&self, map: &Map, index: u32, program: &Program) -> Result<(), Errno> {
        self.set_code(map, index, Arc::clone(program.code()))
    }

    /// Empties a slot. `ENOENT` when it is empty already.
    pub fn clear(&self, map: &Map, index: u32) -> Result<(), Errno> {
        check(map, index)?;
        let mut slots = self.by_place.write().unwrap_or_else(PoisonError::into_inner);
        slots.remove(&(map.id(), index)).map(drop).ok_or(Errno::ENOENT)
    }

    pub(super) fn set_code(&self, map: &Map, index: u32, code: Arc<Code>) -> Result<(), Errno> {
        check(map, index)?;
        let mut slots = self.by_place.write().unwrap_or_else(PoisonError::into_inner);
        slots.insert((map.id(), index), code);
        Ok(())
    }

    /// What is in a slot.
    pub(crate) fn slot(&self, map: &Map, index: u32) -> Option<Arc<Code>> {
        let slots = self.by_place.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(&(map.id(), index)).cloned()
    }
}

fn check(map: &Map, index: u32) -> Result<(), Errno> {
    if map.kind() != MapType::ProgArray {
        return Err(Errno::EINVAL);
    }
    if index < map.max_entries() { Ok(()) } else { Err(Errno::E2BIG) }
}
