//! Stores rows in a map while programs and users keep using it. All changes are planned before the
//! first one: keys that exist before and after the load are never absent in between.

use towpath_bpf::Errno;
use towpath_bpf::map::{Keys, Values};
use towpath_bpf::program::MapType;

use super::Rows;
use crate::flags::{BPF_F_LOCK, BPF_F_RDONLY, BPF_F_WRONLY};
use crate::map::Map;
use crate::user::Value;

/// Statistics of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Rows, each key once.
    pub rows: usize,
    /// Number of rows that were written.
    pub written: usize,
    /// Number of rows that the map already had with this value.
    pub unchanged: usize,
    /// Elements that were not among the rows and were removed; in arrays, those that became zero.
    pub deleted: usize,
}

/// The reason why rows are not, or not all, in a map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There are too many rows; the map is unchanged.
    #[error("it has room for {places} entries, and is to have {wanted} (E2BIG): nothing changed")]
    NoRoom {
        /// Entries that it may have.
        places: u32,
        /// The number of elements that it would have.
        wanted: u64,
    },
    /// It can't be written, or its contents can't be read; the map is unchanged.
    #[error("{0} ({1}): nothing changed")]
    Refused(&'static str, Errno),
    /// Fails if others filled the map meanwhile.
    #[error("{stored} of {rows} rows are in it, then it refused one ({errno}); load it again")]
    Partly {
        /// Rows that are in it.
        stored: usize,
        /// All rows.
        rows: usize,
        /// The map's error.
        errno: Errno,
    },
}

/// The planned changes of a map.
#[derive(Debug)]
pub struct Plan<'a> {
    map: &'a Map,
    rows: &'a Rows,
    is_replace: bool,
    /// Rows to be written.
    writes: Vec<u32>,
    unchanged: usize,
    /// Keys of elements to be removed, one after another.
    gone: Vec<u8>,
    deleted: usize,
}

impl<'a> Plan<'a> {
    /// Compares rows with the contents of the map; with `is_replace` the map will have only these
    /// rows.
    ///
    /// # Errors
    ///
    /// Fails if the map is too small, or can't be written or read by users.
    pub fn new(map: &'a Map, rows: &'a Rows, is_replace: bool) -> Result<Plan<'a>, LoadError> {
        may_load(map, is_replace)?;
        // The file's order decides which rows an LRU map keeps; neighbours in a trie are found
        // together.
        let is_lru = map.kind().spec().lru;
        let mut plan = Plan {
            map,
            rows,
            is_replace,
            writes: if is_lru { rows.in_order.clone() } else { rows.by_key.clone() },
            unchanged: 0,
            gone: Vec::new(),
            deleted: 0,
        };
        let places = map.max_entries();
        let no_room = |wanted: u64| Err(LoadError::NoRoom { places, wanted });
        let has_limit = !map.kind().spec().lru && map.kind().values() != Values::Members;
        if has_limit && rows.len() > places as usize {
            return no_room(rows.len() as u64);
        }
        if map.kind().keys() == Keys::None {
            let queued = map.user().queued().map_or(0, |values| values.len());
            let wanted = (rows.len() + if is_replace { 0 } else { queued }) as u64;
            return if has_limit && wanted > places.into() { no_room(wanted) } else { Ok(plan) };
        }
        let is_array = map.kind().keys() == Keys::Index;
        let most = map.count().map_or(u64::MAX, |count| count + rows.len() as u64);
        let fits = is_array || !has_limit || most <= places.into();
        if is_replace || !fits {
            let there = plan.compare();
            let new = (rows.len() - there) as u64;
            let wanted = map.count().unwrap_or(0) + new;
            if !is_replace && !fits && wanted > places.into() {
                return no_room(wanted);
            }
        }
        Ok(plan)
    }

    /// Finds the differences; returns the number of rows' keys that are there.
    fn compare(&mut self) -> usize {
        let (rows, is_replace) = (self.rows, self.is_replace);
        let is_array = self.map.kind().keys() == Keys::Index;
        let mut found = vec![Found::Not; rows.len()];
        let gone = &mut self.gone;
        walk(self.map, &mut |key, value| match rows.place(key) {
            Some(place) => {
                let row = rows.by_key.get(place).copied().unwrap_or_default();
                let is_same = rows.has_value(row, value);
                found[place] = if is_same { Found::Same } else { Found::Other };
            }
            None if is_replace && !(is_array && is_zero(value)) => gone.extend_from_slice(key),
            None => {}
        });
        let there = found.iter().filter(|found| **found != Found::Not).count();
        let written = rows.by_key.iter().zip(&found).filter(|(_, found)| **found != Found::Same);
        self.writes = written.map(|(row, _)| *row).collect();
        if self.map.kind().spec().lru {
            self.writes.sort_unstable();
        }
        self.unchanged = rows.len() - self.writes.len();
        there
    }

    /// Makes the planned changes.
    ///
    /// # Errors
    ///
    /// Fails if others filled the map meanwhile.
    pub fn apply(mut self) -> Result<Loaded, LoadError> {
        if self.map.kind().keys() == Keys::None {
            return self.push();
        }
        if self.map.kind().spec().lru {
            // An insertion into a full map would evict an element that is to stay.
            self.delete(usize::MAX);
        }
        let writes = std::mem::take(&mut self.writes);
        for (done, row) in writes.iter().enumerate() {
            self.store(*row).map_err(|errno| self.partly(self.unchanged + done, errno))?;
        }
        self.delete(usize::MAX);
        self.settle();
        Ok(self.loaded(writes.len()))
    }

    fn loaded(&self, written: usize) -> Loaded {
        let Plan { unchanged, deleted, .. } = *self;
        Loaded { rows: self.rows.len(), written, unchanged, deleted }
    }

    fn partly(&self, stored: usize, errno: Errno) -> LoadError {
        LoadError::Partly { stored, rows: self.rows.len(), errno }
    }

    /// Stores a row; if there is no room, elements to be removed are removed now.
    fn store(&mut self, row: u32) -> Result<(), Errno> {
        let (key, value) = (self.rows.key(row), self.rows.value(row));
        let flags = if self.is_locked() { BPF_F_LOCK } else { 0 };
        loop {
            match self.map.user().update(key, &value, flags) {
                Err(Errno::E2BIG | Errno::ENOSPC | Errno::ENOMEM) if self.make_room() => {}
                stored => return stored,
            }
        }
    }

    /// Whether values are written with their lock held: values of arrays are written in place, and
    /// readers see whole ones only then.
    fn is_locked(&self) -> bool {
        self.map.has_lock() && self.map.kind().is_array()
    }

    /// Deletes some of the elements to be removed; returns whether one was removed.
    fn make_room(&mut self) -> bool {
        if !self.is_replace {
            return false;
        }
        if self.gone.is_empty() {
            // Programs stored an element there meanwhile.
            self.gone = self.others();
        }
        let before = self.deleted;
        self.delete(BATCH);
        self.deleted > before
    }

    /// Deletes some of the elements to be removed.
    fn delete(&mut self, most: usize) {
        let size = self.rows.key_bytes.max(1);
        let count = most.min(self.gone.len() / size);
        let gone = self.gone.split_off(self.gone.len() - count * size);
        for key in gone.chunks(size) {
            let user = self.map.user();
            let went = match self.map.kind().keys() {
                Keys::Index => user.update(key, &self.zero(), 0),
                _ => user.delete(key),
            };
            self.deleted += usize::from(went.is_ok());
        }
    }

    fn zero(&self) -> Value {
        let zeroes = vec![0; self.rows.value_bytes];
        match self.rows.is_percpu {
            true => Value::PerCpu(vec![zeroes; self.rows.cpus]),
            false => Value::One(zeroes),
        }
    }

    /// A walk over a map that programs change may miss some elements: looks again, if there are
    /// more than there should be.
    fn settle(&mut self) {
        let has_others = || self.map.count().is_none_or(|count| count > self.rows.len() as u64);
        for _ in 0..LOOKS {
            if !self.is_replace || self.map.kind().keys() == Keys::Index || !has_others() {
                return;
            }
            self.gone = self.others();
            self.delete(usize::MAX);
        }
    }

    /// Keys that no row has.
    fn others(&self) -> Vec<u8> {
        let mut others = Vec::new();
        walk(self.map, &mut |key, _| {
            if !self.rows.has(key) {
                others.extend_from_slice(key);
            }
        });
        others
    }

    /// Puts values into a kind without keys, so that they come out in the order of the rows.
    fn push(mut self) -> Result<Loaded, LoadError> {
        if self.is_replace {
            let waiting = self.map.user().queued().map_or(0, |values| values.len());
            while self.deleted < waiting && self.map.user().lookup_and_delete(&[], 0).is_ok() {
                self.deleted += 1;
            }
        }
        let mut order = std::mem::take(&mut self.writes);
        if self.map.kind() == MapType::Stack {
            order.reverse();
        }
        for (done, row) in order.iter().enumerate() {
            let pushed = self.map.user().update(&[], &self.rows.value(*row), 0);
            pushed.map_err(|errno| self.partly(done, errno))?;
        }
        Ok(self.loaded(order.len()))
    }
}

/// The present element at a row's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Not,
    Same,
    Other,
}

fn may_load(map: &Map, is_replace: bool) -> Result<(), LoadError> {
    if map.flags() & BPF_F_RDONLY != 0 {
        return Err(LoadError::Refused("only programs may write to it", Errno::EPERM));
    }
    if map.is_frozen() {
        return Err(LoadError::Refused("it is frozen", Errno::EPERM));
    }
    if is_replace && map.flags() & BPF_F_WRONLY != 0 {
        let why = "its contents can't be read, and so not be replaced";
        return Err(LoadError::Refused(why, Errno::EPERM));
    }
    if is_replace && map.kind().values() == Values::Members {
        let why = "nothing can be taken out of a bloom filter, so it can't be replaced";
        return Err(LoadError::Refused(why, Errno::EOPNOTSUPP));
    }
    Ok(())
}

/// Passes each element to a function, some of them twice if elements come and go meanwhile.
pub(super) fn walk(map: &Map, visit: &mut dyn FnMut(&[u8], &Value)) {
    let (mut last, mut left) = (None, u64::from(map.max_entries()) * 2);
    while left > 0 {
        // A reader keeps removed elements from being reused, so pieces are short.
        let user = map.user();
        for _ in 0..BATCH {
            let Ok(key) = user.next_key(last.as_deref()) else { return };
            if let Ok(value) = user.lookup(&key, 0) {
                visit(&key, &value);
            }
            last = Some(key);
            left = left.saturating_sub(1);
        }
    }
}

fn is_zero(value: &Value) -> bool {
    value.cpus().iter().all(|bytes| bytes.iter().all(|byte| *byte == 0))
}

/// Elements that are read, or deleted, at a time.
const BATCH: usize = 256;
/// Most searches for elements that should not be in the map.
const LOOKS: usize = 3;
