//! The batch commands of `bpf(2)`: many elements with one call.
//!
//! Kernel counterpart: `generic_map_{lookup,update,delete}_batch` in `kernel/bpf/syscall.c`, here
//! for hash tables too: the kernel walks those by bucket, which only shows in what a cursor is.

use towpath_bpf::Errno;
use towpath_bpf::program::MapType;

use crate::flags::BPF_F_LOCK;
use crate::user::{User, Value};

/// A batch that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Keys and values.
    pub entries: Vec<(Vec<u8>, Value)>,
    /// Where the next batch starts; `None` after the last element.
    pub next: Option<Vec<u8>>,
}

/// A batch that stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{done} elements done, then {errno}")]
pub struct BatchError {
    /// Elements that were done before.
    pub done: usize,
    /// What the next one failed with.
    pub errno: Errno,
}

impl User<'_> {
    /// `BPF_MAP_LOOKUP_BATCH`: up to `count` elements, from the start or from where the last batch
    /// ended. `flags`: 0 or `BPF_F_LOCK`.
    pub fn lookup_batch(
        &self,
        cursor: Option<&[u8]>,
        count: usize,
        flags: u64,
    ) -> Result<Batch, Errno> {
        self.check_batch(flags)?;
        let mut batch = Batch { entries: Vec::new(), next: cursor.map(<[u8]>::to_vec) };
        while batch.entries.len() < count {
            let key = match self.next_key(batch.next.as_deref()) {
                Ok(key) => key,
                Err(Errno::ENOENT) => return Ok(Batch { next: None, ..batch }),
                Err(errno) => return Err(errno),
            };
            match self.lookup(&key, flags) {
                Ok(value) => batch.entries.push((key.clone(), value)),
                // Deleted meanwhile.
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
            batch.next = Some(key);
        }
        Ok(batch)
    }

    /// `BPF_MAP_LOOKUP_AND_DELETE_BATCH`, for hash tables: up to `count` elements, which are gone
    /// afterwards.
    pub fn lookup_and_delete_batch(
        &self,
        count: usize,
        flags: u64,
    ) -> Result<Vec<(Vec<u8>, Value)>, Errno> {
        self.check_batch(flags)?;
        if !is_hash(self.map.kind()) {
            return Err(Errno::ENOTSUPP);
        }
        let mut taken = Vec::new();
        while taken.len() < count {
            let key = match self.next_key(None) {
                Ok(key) => key,
                Err(Errno::ENOENT) => break,
                Err(errno) => return Err(errno),
            };
            match self.lookup_and_delete(&key, flags) {
                Ok(value) => taken.push((key, value)),
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(taken)
    }

    /// `BPF_MAP_UPDATE_BATCH`: `BPF_ANY` for each. `flags`: 0 or `BPF_F_LOCK`.
    pub fn update_batch(&self, entries: &[(Vec<u8>, Value)], flags: u64) -> Result<(), BatchError> {
        self.check_batch(flags).map_err(|errno| BatchError { done: 0, errno })?;
        for (done, (key, value)) in entries.iter().enumerate() {
            self.update(key, value, flags).map_err(|errno| BatchError { done, errno })?;
        }
        Ok(())
    }

    /// `BPF_MAP_DELETE_BATCH`.
    pub fn delete_batch(&self, keys: &[Vec<u8>]) -> Result<(), BatchError> {
        self.check_batch(0).map_err(|errno| BatchError { done: 0, errno })?;
        for (done, key) in keys.iter().enumerate() {
            self.delete(key).map_err(|errno| BatchError { done, errno })?;
        }
        Ok(())
    }

    fn check_batch(&self, flags: u64) -> Result<(), Errno> {
        let kind = self.map.kind();
        let known = is_hash(kind)
            || matches!(kind, MapType::Array | MapType::PercpuArray | MapType::LpmTrie);
        if !known {
            return Err(Errno::ENOTSUPP);
        }
        if flags & !BPF_F_LOCK != 0 { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

fn is_hash(kind: MapType) -> bool {
    matches!(
        kind,
        MapType::Hash
            | MapType::PercpuHash
            | MapType::LruHash
            | MapType::LruPercpuHash
            | MapType::Rhash
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::map::{CreateOptions, Map};
    use crate::qsbr::Domain;
    use crate::testing::def;

    use super::*;

    fn create(kind: MapType) -> Arc<Map> {
        Map::create(&def(kind, 4, 4, 10, 0), &CreateOptions::new(Domain::new(1))).unwrap()
    }

    #[test]
    fn batches_cover_a_table_once() {
        let map = create(MapType::Hash);
        let user = map.user();
        let all: Vec<_> = (0u32..10)
            .map(|key| (key.to_ne_bytes().to_vec(), Value::from(&[key as u8; 4][..])))
            .collect();
        user.update_batch(&all, 0).unwrap();
        let first = user.lookup_batch(None, 7, 0).unwrap();
        let second = user.lookup_batch(first.next.as_deref(), 7, 0).unwrap();
        assert_eq!((first.entries.len(), second.entries.len()), (7, 3));
        assert_eq!(second.next, None);
        let mut found = [first.entries, second.entries].concat();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found, all);

        let keys: Vec<_> = all.iter().take(4).map(|(key, _)| key.clone()).collect();
        user.delete_batch(&keys).unwrap();
        let again = user.delete_batch(&keys).unwrap_err();
        assert_eq!(again, BatchError { done: 0, errno: Errno::ENOENT });
        assert_eq!(user.lookup_and_delete_batch(100, 0).unwrap().len(), 6);
        assert_eq!(map.count(), Some(0));
    }

    #[test]
    fn kinds_without_batches_say_so() {
        let map = create(MapType::ProgArray);
        assert_eq!(map.user().lookup_batch(None, 1, 0), Err(Errno::ENOTSUPP));
        let map = create(MapType::Array);
        assert_eq!(map.user().lookup_and_delete_batch(1, 0), Err(Errno::ENOTSUPP));
        assert_eq!(map.user().lookup_batch(None, 1, 1), Err(Errno::EINVAL));
    }
}
