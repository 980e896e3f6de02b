//! DEVMAP, DEVMAP_HASH, CPUMAP and XSKMAP: the targets to which `bpf_redirect_map` may send a
//! frame.
//!
//! Kernel counterparts: `kernel/bpf/{devmap,cpumap}.c`, `net/xdp/xskmap.c`. An entry is one word,
//! so a reader sees it whole: a number (ifindex, queue size, queue) and the id of a program or
//! socket.

use std::ptr::NonNull;
use std::sync::Arc;

use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};

use crate::access::{Access, Span};
use crate::array::next_index;
use crate::environment::Environment;
use crate::fields::Fields;
use crate::flags::{BPF_ANY, BPF_EXIST, BPF_NOEXIST};
use crate::hash::{HashTable, Hasher};
use crate::layout::Layout;
use crate::memory::Region;
use crate::prog_array::number;
use crate::qsbr::Domain;
use crate::store::{Store, USER};
use crate::sync::Ordering;
use crate::user::Value;

/// Most frames a CPU's queue may hold.
const CPUMAP_QUEUE_MAX: u32 = 16384;

/// An entry of a map of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetEntry {
    /// Device maps: the ifindex. CPU maps: the size of the queue. Socket maps: the queue's number.
    pub number: u32,
    /// Device and CPU maps: the id of the program to run there, 0 for none. Socket maps: the id of
    /// the socket.
    pub id: u32,
}

impl TargetEntry {
    /// The word that represents it in a map, not 0.
    pub fn to_word(self) -> u64 {
        u64::from(self.number) | u64::from(self.id) << 32
    }

    fn from_word(word: u64) -> Self {
        TargetEntry { number: word as u32, id: (word >> 32) as u32 }
    }

    fn is_empty(self) -> bool {
        self.number == 0 && self.id == 0
    }
}

/// DEVMAP, CPUMAP or XSKMAP: entries by index.
pub(crate) struct TargetArray {
    kind: MapType,
    /// A word an entry, 0 when empty.
    region: Region,
    entries: u32,
    value_size: usize,
    environment: Arc<dyn Environment>,
}

impl TargetArray {
    pub(crate) fn new(def: &MapDef, environment: Arc<dyn Environment>) -> Result<Self, Errno> {
        Ok(TargetArray {
            kind: def.kind,
            region: Region::new(u64::from(def.max_entries) * 8)?,
            entries: def.max_entries,
            value_size: def.value_size as usize,
            environment,
        })
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::Targets { base: self.region.base(), entries: self.entries }
    }

    #[inline]
    pub(crate) fn target(&self, index: u32) -> Option<TargetEntry> {
        if index >= self.entries {
            return None;
        }
        let target =
            TargetEntry::from_word(self.region.word(index as usize * 8).load(Ordering::Acquire));
        (!target.is_empty()).then_some(target)
    }

    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(u32, TargetEntry)) {
        let entry = |index| Some((index, self.target(index)?));
        (0..self.entries).filter_map(entry).for_each(|(index, target)| visit(index, target));
    }

    /// Clears the entries with that id. An entry that is replaced at the same time stays.
    pub(crate) fn forget(&self, id: u32) {
        self.for_each(&mut |index, target| {
            if target.id == id {
                let word = self.region.word(index as usize * 8);
                let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
                let _replaced = word.compare_exchange(target.to_word(), 0, release, relaxed);
            }
        });
    }

    fn store(&self, index: u32, target: TargetEntry) {
        debug_assert!(index < self.entries, "the index was checked");
        self.region.word(index as usize * 8).store(target.to_word(), Ordering::Release);
    }

    /// The target of a value; an empty one clears the entry.
    fn resolve(&self, index: u32, value: &[u8]) -> Result<TargetEntry, Errno> {
        match self.kind {
            MapType::Devmap => device(&*self.environment, value, MapType::Devmap),
            MapType::Cpumap => self.cpu(index, value),
            _ => {
                let (id, queue) = self.environment.socket(number(value))?;
                Ok(TargetEntry { number: queue, id })
            }
        }
    }

    /// `cpu_map_update_elem`
    fn cpu(&self, cpu: u32, value: &[u8]) -> Result<TargetEntry, Errno> {
        let queue = number(value);
        if queue > CPUMAP_QUEUE_MAX {
            return Err(Errno::EOVERFLOW);
        }
        if !self.environment.has_cpu(cpu) {
            return Err(Errno::ENODEV);
        }
        if queue == 0 {
            return Ok(TargetEntry { number: 0, id: 0 });
        }
        // The kernel has one answer for everything that goes wrong here.
        let id = program(&*self.environment, value, MapType::Cpumap)
            .map_err(|_whatever| Errno::ENOMEM)?;
        Ok(TargetEntry { number: queue, id })
    }
}

impl Store for TargetArray {
    fn spans(&self) -> Vec<Span> {
        let bytes = u64::from(self.entries) * 8;
        vec![Span::values(self.region.base(), bytes, 8, self.value_size as u64, Access::Read)]
    }

    fn lookup(&self, _worker: usize, key: &[u8]) -> Option<NonNull<u8>> {
        let index = number(key);
        self.target(index).map(|_present| self.region.at(index as usize * 8))
    }

    fn update(&self, _worker: usize, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        let index = number(key);
        if flags > BPF_EXIST {
            return Err(Errno::EINVAL);
        }
        if index >= self.entries {
            return Err(Errno::E2BIG);
        }
        let is_xsk = self.kind == MapType::Xskmap;
        if flags == BPF_NOEXIST && !is_xsk {
            return Err(Errno::EEXIST);
        }
        let target = self.resolve(index, value)?;
        if is_xsk {
            // `xsk_map_update_elem`: the same socket again is fine whatever the flags.
            let old = self.target(index);
            if old == Some(target) {
                return Ok(());
            }
            match (old, flags) {
                (Some(_), BPF_NOEXIST) => return Err(Errno::EEXIST),
                (None, BPF_EXIST) => return Err(Errno::ENOENT),
                _ => {}
            }
        }
        self.store(index, target);
        Ok(())
    }

    fn delete(&self, _worker: usize, key: &[u8]) -> Result<(), Errno> {
        let index = number(key);
        if index >= self.entries {
            return Err(Errno::EINVAL);
        }
        self.store(index, TargetEntry { number: 0, id: 0 });
        Ok(())
    }

    fn read(&self, key: &[u8], _locked: bool) -> Result<Value, Errno> {
        let target = self.target(number(key)).ok_or(Errno::ENOENT)?;
        Ok(Value::One(target.to_word().to_ne_bytes()[..self.value_size].to_vec()))
    }

    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        next_index(key, self.entries)
    }
}

/// DEVMAP_HASH: devices by any 32-bit key.
#[doc(alias = "BPF_MAP_TYPE_DEVMAP_HASH")]
pub(crate) struct DevmapHash {
    table: HashTable,
    value_size: usize,
    environment: Arc<dyn Environment>,
}

impl DevmapHash {
    pub(crate) fn new(
        def: &MapDef,
        domain: &Arc<Domain>,
        environment: Arc<dyn Environment>,
    ) -> Result<Self, Errno> {
        let value_size = def.value_size as usize;
        let def = MapDef { value_size: 8, flags: 0, ..def.clone() };
        // The kernel takes the low bits of the key as bucket, which users see in the key order.
        let table = HashTable::with_hasher(&def, domain, Fields::default(), Hasher::Number)?;
        Ok(DevmapHash { table, value_size, environment })
    }

    #[inline]
    pub(crate) fn target(&self, key: u32) -> Option<TargetEntry> {
        self.table.word_of_number(key).map(TargetEntry::from_word)
    }

    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(u32, TargetEntry)) {
        let mut last: Option<[u8; 4]> = None;
        // Bounded by the count at the start, because entries may be added all the time.
        for _ in 0..self.table.count().unwrap_or(0) {
            let mut key = [0; 4];
            if !self.table.next_key_into(last.as_ref().map(|key| &key[..]), &mut key) {
                return;
            }
            let number = number(&key);
            if let Some(target) = self.target(number) {
                visit(number, target);
            }
            last = Some(key);
        }
    }
}

impl Store for DevmapHash {
    fn spans(&self) -> Vec<Span> {
        let readable = |span: Span| Span {
            access: Access::Read,
            value: (span.value.0, self.value_size as u64),
            ..span
        };
        self.table.spans().into_iter().map(readable).collect()
    }

    fn lookup(&self, worker: usize, key: &[u8]) -> Option<NonNull<u8>> {
        self.table.lookup(worker, key)
    }

    fn update(&self, _worker: usize, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        if flags > BPF_EXIST || number(value) == 0 {
            return Err(Errno::EINVAL);
        }
        let exists = self.table.read(key, false).is_ok();
        if exists && flags == BPF_NOEXIST {
            return Err(Errno::EEXIST);
        }
        let target = device(&*self.environment, value, MapType::DevmapHash)?;
        // BPF_EXIST isn't checked: the kernel creates the entry.
        self.table.update(USER, key, &target.to_word().to_ne_bytes(), BPF_ANY)
    }

    fn delete(&self, worker: usize, key: &[u8]) -> Result<(), Errno> {
        self.table.delete(worker, key)
    }

    fn read(&self, key: &[u8], _locked: bool) -> Result<Value, Errno> {
        let value = self.table.read(key, false)?;
        Ok(Value::One(value.bytes()[..self.value_size].to_vec()))
    }

    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        self.table.next_key(key)
    }

    fn count(&self) -> Option<u64> {
        self.table.count()
    }
}

/// `__dev_map_update_elem` and `__dev_map_alloc_node`
fn device(
    environment: &dyn Environment,
    value: &[u8],
    kind: MapType,
) -> Result<TargetEntry, Errno> {
    let ifindex = number(value);
    let names_program = value.get(4..).map_or(0, number) as i32 > 0;
    if ifindex == 0 {
        let cleared = TargetEntry { number: 0, id: 0 };
        return if names_program { Err(Errno::EINVAL) } else { Ok(cleared) };
    }
    if !environment.has_device(ifindex) {
        return Err(Errno::EINVAL);
    }
    let id = program(environment, value, kind).map_err(|_whatever| Errno::EINVAL)?;
    Ok(TargetEntry { number: ifindex, id })
}

/// The id of the program that the second half of a value names; 0 and negative numbers name none.
fn program(environment: &dyn Environment, value: &[u8], kind: MapType) -> Result<u32, Errno> {
    let named = value.get(4..).map_or(0, number);
    if named as i32 > 0 { environment.program(named, kind) } else { Ok(0) }
}

#[cfg(test)]
mod tests {
    use crate::map::{CreateOptions, Map};
    use crate::testing::def;

    use super::*;

    #[derive(Debug)]
    struct TwoDevices;

    impl Environment for TwoDevices {
        fn has_device(&self, ifindex: u32) -> bool {
            ifindex <= 2
        }

        fn has_cpu(&self, cpu: u32) -> bool {
            cpu < 2
        }
    }

    fn create(kind: MapType, value_size: u32) -> Arc<Map> {
        let mut options = CreateOptions::new(Domain::new(1));
        options.environment = Arc::new(TwoDevices);
        Map::create(&def(kind, 4, value_size, 4, 0), &options).unwrap()
    }

    fn put(map: &Map, key: u32, value: &[u32], flags: u64) -> Result<(), Errno> {
        let value: Vec<u8> = value.iter().flat_map(|word| word.to_ne_bytes()).collect();
        map.user().update(&key.to_ne_bytes(), &Value::One(value), flags)
    }

    #[test]
    fn devmap_rules() {
        let map = create(MapType::Devmap, 8);
        assert_eq!(put(&map, 1, &[2, 0], 3), Err(Errno::EINVAL));
        assert_eq!(put(&map, 4, &[2, 0], 0), Err(Errno::E2BIG));
        assert_eq!(put(&map, 1, &[2, 0], BPF_NOEXIST), Err(Errno::EEXIST), "slots exist always");
        assert_eq!(put(&map, 1, &[9, 0], 0), Err(Errno::EINVAL), "no such device");
        assert_eq!(put(&map, 1, &[0, 5], 0), Err(Errno::EINVAL), "a program without a device");
        assert_eq!(put(&map, 1, &[2, 5], 0), Ok(()));
        assert_eq!(map.target(1), Some(TargetEntry { number: 2, id: 5 }));
        let address = map.lookup(0, &1u32.to_ne_bytes()).unwrap().as_ptr() as u64;
        assert_eq!(map.owns(address, 8), Some(Access::Read));
        assert_eq!(put(&map, 1, &[0, 0], 0), Ok(()), "ifindex 0 clears");
        assert_eq!(map.target(1), None);
        assert_eq!(map.user().delete(&4u32.to_ne_bytes()), Err(Errno::EINVAL));
        assert_eq!(map.user().delete(&3u32.to_ne_bytes()), Ok(()));
    }

    #[test]
    fn devmap_hash_rules() {
        let map = create(MapType::DevmapHash, 4);
        assert_eq!(put(&map, 77, &[0], 0), Err(Errno::EINVAL));
        assert_eq!(put(&map, 77, &[1], BPF_EXIST), Ok(()), "creates, as the kernel does");
        assert_eq!(put(&map, 77, &[2], BPF_NOEXIST), Err(Errno::EEXIST));
        for key in [3, 4, 5] {
            assert_eq!(put(&map, key, &[2], 0), Ok(()));
        }
        assert_eq!(put(&map, 6, &[2], 0), Err(Errno::E2BIG));
        assert_eq!(map.user().delete(&6u32.to_ne_bytes()), Err(Errno::ENOENT));
        let keys: Vec<u32> = map.targets().iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [4, 5, 77, 3], "by low bits, newest first");
    }

    #[test]
    fn cpumap_and_xskmap_rules() {
        let map = create(MapType::Cpumap, 4);
        assert_eq!(put(&map, 1, &[16385], 0), Err(Errno::EOVERFLOW));
        assert_eq!(put(&map, 2, &[64], 0), Err(Errno::ENODEV));
        assert_eq!(put(&map, 1, &[64], 0), Ok(()));
        assert_eq!(map.target(1), Some(TargetEntry { number: 64, id: 0 }));

        let map = create(MapType::Xskmap, 4);
        assert_eq!(put(&map, 1, &[0], 0), Err(Errno::EBADF));
        assert_eq!(put(&map, 1, &[3], BPF_EXIST), Err(Errno::ENOENT));
        assert_eq!(put(&map, 1, &[3], BPF_NOEXIST), Ok(()));
        assert_eq!(put(&map, 1, &[3], BPF_NOEXIST), Ok(()), "the same socket");
        assert_eq!(put(&map, 1, &[4], BPF_NOEXIST), Err(Errno::EEXIST));
        assert_eq!(map.user().lookup(&1u32.to_ne_bytes(), 0), Err(Errno::EOPNOTSUPP));
        assert_eq!(put(&map, 2, &[4], 0), Ok(()));
        map.forget(3);
        let keys: Vec<u32> = map.targets().iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [2], "a closed socket is in no map");
    }
}
