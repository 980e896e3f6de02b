//! PROG_ARRAY: the programs a tail call may go to.
//!
//! Kernel counterpart: `prog_array_map_ops` in `kernel/bpf/arraymap.c`. A slot holds the id of a
//! program, because the runtime knows programs by id and a 32-bit load is all a tail call needs.

use std::sync::Arc;

use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};

use crate::array::next_index;
use crate::environment::Environment;
use crate::flags::BPF_ANY;
use crate::layout::Layout;
use crate::memory::Region;
use crate::store::Store;
use crate::sync::{AtomicU32, Ordering};
use crate::user::Value;

/// Program ids by index; 0 is an empty slot.
#[doc(alias = "BPF_MAP_TYPE_PROG_ARRAY")]
pub(crate) struct ProgArray {
    /// A 32-bit id a slot.
    slots: Region,
    entries: u32,
    environment: Arc<dyn Environment>,
}

impl ProgArray {
    pub(crate) fn new(def: &MapDef, environment: Arc<dyn Environment>) -> Result<Self, Errno> {
        let slots = Region::new(u64::from(def.max_entries) * 4)?;
        Ok(ProgArray { slots, entries: def.max_entries, environment })
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&AtomicU32> {
        (index < self.entries).then(|| self.slots.half(index as usize * 4))
    }

    /// The id of the program in a slot, if there is one.
    #[inline]
    pub(crate) fn program(&self, index: u32) -> Option<u32> {
        let id = self.slot(index)?.load(Ordering::Acquire);
        (id != 0).then_some(id)
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::Programs { base: self.slots.base(), entries: self.entries }
    }

    /// Sets a slot to an id without asking the environment, as the object loader does.
    pub(crate) fn set(&self, index: u32, id: u32) -> Result<(), Errno> {
        self.slot(index).ok_or(Errno::E2BIG)?.store(id, Ordering::Release);
        Ok(())
    }
}

impl Store for ProgArray {
    fn update(&self, _worker: usize, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        if flags != BPF_ANY {
            return Err(Errno::EINVAL);
        }
        let (index, number) = (number(key), number(value));
        if index >= self.entries {
            return Err(Errno::E2BIG);
        }
        self.set(index, self.environment.program(number, MapType::ProgArray)?)
    }

    fn delete(&self, _worker: usize, key: &[u8]) -> Result<(), Errno> {
        let slot = self.slot(number(key)).ok_or(Errno::E2BIG)?;
        if slot.swap(0, Ordering::AcqRel) == 0 { Err(Errno::ENOENT) } else { Ok(()) }
    }

    fn read(&self, key: &[u8], _locked: bool) -> Result<Value, Errno> {
        let id = self.program(number(key)).ok_or(Errno::ENOENT)?;
        Ok(Value::One(id.to_ne_bytes().to_vec()))
    }

    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        next_index(key, self.entries)
    }
}

/// A 4-byte key or value as a number. Sizes are checked before a kind is asked.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use crate::map::{CreateOptions, Map};
    use crate::qsbr::Domain;
    use crate::testing::def;

    use super::*;

    #[test]
    fn slots_hold_program_ids() {
        let def = def(MapType::ProgArray, 4, 4, 2, 0);
        let map = Map::create(&def, &CreateOptions::new(Domain::new(1))).unwrap();
        let user = map.user();
        let program = Value::from(&7u32.to_ne_bytes()[..]);
        let key = |index: u32| index.to_ne_bytes();
        assert_eq!(user.update(&key(1), &program, BPF_ANY), Ok(()));
        assert_eq!(user.update(&key(1), &program, 1), Err(Errno::EINVAL));
        assert_eq!(user.update(&key(2), &program, BPF_ANY), Err(Errno::E2BIG));
        assert_eq!((map.program(0), map.program(1), map.program(2)), (None, Some(7), None));
        assert_eq!(user.lookup(&key(1), 0), Ok(program));
        assert_eq!(user.lookup(&key(0), 0), Err(Errno::ENOENT));
        assert_eq!(user.delete(&key(0)), Err(Errno::ENOENT));
        assert_eq!(user.delete(&key(1)), Ok(()));
        assert_eq!(map.program(1), None);
    }
}
