//! PROG_ARRAY: the programs a tail call may go to.
//!
//! Kernel counterpart: `prog_array_map_ops` in `kernel/bpf/arraymap.c`. A slot holds the id of a
//! program, because the runtime knows programs by id; compiled code reads [`ProgramSlots`].
//!
//! Which programs may be in one array (`__bpf_prog_map_compatible`: same type, all compiled or
//! none, same support of frags) is decided by `MapObject::admit` in
//! `crates/objects/src/object/map.rs`.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};

use crate::array::next_index;
use crate::environment::{Environment, ProgramIndex};
use crate::flags::BPF_ANY;
use crate::map::Map;
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
    /// Locked for each change.
    shown: Mutex<Shown>,
}

/// Changes of a program array, for its readers.
#[derive(Debug, Default)]
struct Shown {
    /// The slots that are not empty.
    filled: BTreeSet<u32>,
    views: Vec<Weak<ProgramSlots>>,
}

impl ProgArray {
    pub(crate) fn new(def: &MapDef, environment: Arc<dyn Environment>) -> Result<Self, Errno> {
        let slots = Region::new(u64::from(def.max_entries) * 4)?;
        Ok(ProgArray { slots, entries: def.max_entries, environment, shown: Mutex::default() })
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

    /// Sets a slot to an id without asking the environment, as the object loader does. Returns the
    /// id that was there.
    pub(crate) fn set(&self, index: u32, id: u32) -> Result<u32, Errno> {
        let slot = self.slot(index).ok_or(Errno::E2BIG)?;
        let mut shown = self.shown.lock();
        let old = slot.swap(id, Ordering::AcqRel);
        match id {
            0 => shown.filled.remove(&index),
            _ => shown.filled.insert(index),
        };
        for view in shown.views.iter().filter_map(Weak::upgrade) {
            view.show(index, id);
        }
        Ok(old)
    }
}

/// A program array as compiled code reads it: a word a slot, the address that stands for the
/// program in it, or 0 where there is none. It follows the array's changes.
///
/// Ids are those of one [`ProgramIndex`]. Each index looks at the array through slots of its own.
#[derive(Debug)]
pub struct ProgramSlots {
    array: Arc<Map>,
    words: Region,
    index: Weak<dyn ProgramIndex>,
}

impl ProgramSlots {
    /// The slots of a program array; `None` for maps of other kinds.
    ///
    /// # Errors
    ///
    /// Fails with `ENOMEM`.
    pub fn new(
        array: &Arc<Map>,
        index: Weak<dyn ProgramIndex>,
    ) -> Result<Option<Arc<ProgramSlots>>, Errno> {
        let Some(programs) = array.programs() else { return Ok(None) };
        let words = Region::new(u64::from(programs.entries) * 8)?;
        let slots = Arc::new(ProgramSlots { array: Arc::clone(array), words, index });
        let mut shown = programs.shown.lock();
        for &slot in &shown.filled {
            slots.show(slot, programs.program(slot).unwrap_or(0));
        }
        shown.views.retain(|view| view.strong_count() > 0);
        shown.views.push(Arc::downgrade(&slots));
        drop(shown);
        Ok(Some(slots))
    }

    /// The array.
    pub fn array(&self) -> &Arc<Map> {
        &self.array
    }

    /// Address of the first word.
    pub fn base(&self) -> u64 {
        self.words.base()
    }

    /// Queries the index again for the address of a program, in all slots that hold the program.
    /// Afterwards no slot has an address that the index returned before; workers that were not
    /// quiescent since may still use one.
    pub fn refresh(&self, id: u32) {
        let Some(programs) = self.array.programs() else { return };
        let shown = programs.shown.lock();
        for &slot in &shown.filled {
            if programs.program(slot) == Some(id) {
                self.show(slot, id);
            }
        }
    }

    fn show(&self, slot: u32, id: u32) {
        let index = self.index.upgrade().filter(|_| id != 0);
        let address = index.map_or(0, |index| index.address(id));
        // A reader of the address also sees the memory behind it, which was written before.
        self.words.word(slot as usize * 8).store(address, Ordering::Release);
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
        self.set(index, self.environment.program(number, MapType::ProgArray)?)?;
        Ok(())
    }

    fn delete(&self, _worker: usize, key: &[u8]) -> Result<(), Errno> {
        if self.set(number(key), 0)? == 0 { Err(Errno::ENOENT) } else { Ok(()) }
    }

    fn read(&self, key: &[u8], _locked: bool) -> Result<Value, Errno> {
        let id = self.program(number(key)).ok_or(Errno::ENOENT)?;
        Ok(Value::One(id.to_ne_bytes().to_vec()))
    }

    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        next_index(key, self.entries)
    }
}

/// A 4-byte key or value as a number; the first 4 bytes of a longer one, 0 for a shorter one.
pub fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use crate::map::{CreateOptions, Map};
    use crate::qsbr::Domain;
    use crate::testing::def;

    use super::*;

    fn array() -> Arc<Map> {
        let def = def(MapType::ProgArray, 4, 4, 2, 0);
        Map::create(&def, &CreateOptions::new(Domain::new(1))).unwrap()
    }

    /// Programs with these ids; each is at address 1000 plus its id.
    #[derive(Debug)]
    struct Known(Mutex<Vec<u32>>);

    impl ProgramIndex for Known {
        fn address(&self, id: u32) -> u64 {
            let known = self.0.lock();
            if known.contains(&id) { 1000 + u64::from(id) } else { 0 }
        }
    }

    #[test]
    fn addresses_follow_slots_and_programs() {
        let map = array();
        map.set_program(0, 1).unwrap();
        let known = Arc::new(Known(Mutex::new(vec![1, 2])));
        let index: Weak<dyn ProgramIndex> = Arc::downgrade(&(known.clone() as Arc<_>));
        let slots = ProgramSlots::new(&map, index).unwrap().unwrap();
        let words = || [0, 8].map(|place| slots.words.word(place).load(Ordering::Relaxed));
        assert_eq!(words(), [1001, 0]);
        map.set_program(1, 3).unwrap();
        assert_eq!(words(), [1001, 0], "nobody has that id");
        known.0.lock().push(3);
        slots.refresh(3);
        assert_eq!(words(), [1001, 1003]);
        known.0.lock().clear();
        slots.refresh(1);
        assert_eq!(words(), [0, 1003], "only that one was asked for");
        map.user().delete(&1u32.to_ne_bytes()).unwrap();
        assert_eq!(words(), [0, 0]);
        drop(known);
        map.set_program(0, 2).unwrap();
        assert_eq!(words(), [0, 0], "who knew programs is gone");
        let other = def(MapType::Array, 4, 4, 2, 0);
        let other = Map::create(&other, &CreateOptions::new(Domain::new(1))).unwrap();
        let index: Weak<dyn ProgramIndex> = Weak::<Known>::new();
        assert!(ProgramSlots::new(&other, index).unwrap().is_none());
    }

    #[test]
    fn slots_hold_program_ids() {
        let map = array();
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
