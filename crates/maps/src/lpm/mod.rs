//! LPM_TRIE: the value of the longest prefix that a key starts with.
//!
//! Kernel counterpart: `kernel/bpf/lpm_trie.c`. A binary trie whose nodes compare a whole prefix;
//! a node without a value of its own (*intermediate*) has two children. Look-ups take no lock;
//! writers take one. Replaced nodes wait for readers in the same kind of pool as hash elements.

mod jump;
mod trie;
mod walk_unsafe;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;
use towpath_bpf::{Errno, MapDef};

use crate::access::{Access, Span};
use crate::flags::{BPF_EXIST, BPF_NOEXIST};
use crate::qsbr::Domain;
use crate::store::{Store, USER};
use crate::user::Value;
use trie::{NIL, Prefix, Trie};

/// Bytes of the longest keys, length and data, that [`crate::Map::longest_prefix`] takes.
pub const PREFIX_BYTES_MAX: usize = walk_unsafe::WORDS_MAX * 8;

/// A trie of prefixes.
#[doc(alias = "BPF_MAP_TYPE_LPM_TRIE")]
pub(crate) struct LpmTrie {
    trie: Trie,
    writer: Mutex<()>,
    count: AtomicU32,
    max_entries: u32,
    value_size: usize,
    access: Access,
}

impl LpmTrie {
    pub(crate) fn new(def: &MapDef, domain: &Arc<Domain>) -> Result<Self, Errno> {
        let data_size = def.key_size as usize - 4;
        let value_size = def.value_size as usize;
        Ok(LpmTrie {
            trie: Trie::new(def.max_entries, data_size, value_size, domain.clone())?,
            writer: Mutex::default(),
            count: AtomicU32::new(0),
            max_entries: def.max_entries,
            value_size,
            access: Access::of_programs(def.flags),
        })
    }

    /// The key as a prefix; `None` when it is longer than its data.
    fn prefix<'a>(&self, key: &'a [u8]) -> Option<Prefix<'a>> {
        let (length, data) = key.split_first_chunk::<4>()?;
        let length = u32::from_ne_bytes(*length);
        (length <= self.trie.bits_max()).then_some(Prefix { length, data })
    }

    /// See [`Map::longest_prefix`](crate::Map::longest_prefix).
    #[inline]
    pub(crate) fn longest_prefix<const WORDS: usize>(
        &self,
        key: [u64; WORDS],
    ) -> Option<NonNull<u8>> {
        let bytes = 4 + self.trie.bits_max() as usize / 8;
        let length = key[0] as u32;
        if bytes.div_ceil(8) != WORDS || length > self.trie.bits_max() {
            return None;
        }
        let word = |at: usize| key.get(at).copied().unwrap_or(0);
        let data = std::array::from_fn(|at| (word(at) >> 32 | word(at + 1) << 32).to_be());
        let node = self.trie.longest_of::<WORDS>(data, length);
        (node != NIL).then(|| self.trie.value_address(node))
    }

    /// The checks before a prefix is added (`trie_check_add_elem`).
    fn may_add(&self, flags: u64) -> Result<(), Errno> {
        if flags == BPF_EXIST {
            return Err(Errno::ENOENT);
        }
        if self.count.load(Relaxed) == self.max_entries {
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }
}

impl Store for LpmTrie {
    fn spans(&self) -> Vec<Span> {
        vec![self.trie.span(self.value_size, self.access)]
    }

    fn lookup(&self, _worker: usize, key: &[u8]) -> Option<NonNull<u8>> {
        let node = self.trie.longest(self.prefix(key)?);
        (node != NIL).then(|| self.trie.value_address(node))
    }

    fn update(&self, worker: usize, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        if flags > BPF_EXIST {
            return Err(Errno::EINVAL);
        }
        let prefix = self.prefix(key).ok_or(Errno::EINVAL)?;
        let _alone = self.writer.lock();
        let place = self.trie.place_of(prefix);
        if place.is_exact {
            if flags == BPF_NOEXIST {
                return Err(Errno::EEXIST);
            }
        } else {
            self.may_add(flags)?;
        }
        self.trie.insert(worker, prefix, value, &place)?;
        if !place.is_exact {
            self.count.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn delete(&self, worker: usize, key: &[u8]) -> Result<(), Errno> {
        let prefix = self.prefix(key).ok_or(Errno::EINVAL)?;
        let _alone = self.writer.lock();
        if !self.trie.remove(worker, prefix) {
            return Err(Errno::ENOENT);
        }
        self.count.fetch_sub(1, Relaxed);
        Ok(())
    }

    fn read(&self, key: &[u8], _locked: bool) -> Result<Value, Errno> {
        let prefix = self.prefix(key).ok_or(Errno::ENOENT)?;
        let mut out = vec![0; self.value_size];
        if self.trie.read_longest(prefix, &mut out) {
            Ok(Value::One(out))
        } else {
            Err(Errno::ENOENT)
        }
    }

    fn write(&self, key: &[u8], value: &Value, flags: u64) -> Result<(), Errno> {
        self.update(USER, key, value.bytes(), flags)
    }

    /// More specific prefixes come before less specific ones, as in the kernel.
    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        let prefix = key.and_then(|key| self.prefix(key));
        let _alone = self.writer.lock();
        let node = self.trie.after(prefix);
        if node == NIL {
            return Err(Errno::ENOENT);
        }
        Ok(self.trie.key_of(node))
    }

    fn count(&self) -> Option<u64> {
        Some(u64::from(self.count.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests;
