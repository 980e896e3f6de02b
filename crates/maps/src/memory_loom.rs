//! Stands in for mapped memory when loom checks a model: the same words, but loom's atomics.
//!
//! Loom can't see one word as two halves, so halves and words are kept apart; no protocol uses
//! both views of the same bytes.

use std::ptr::NonNull;

use towpath_bpf::Errno;

use crate::memory::PAGE_BYTES;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A region of at most a page.
#[derive(Debug)]
pub(crate) struct Region {
    words: Vec<AtomicU64>,
    halves: Vec<AtomicU32>,
}

impl Region {
    pub(crate) fn new(len: u64) -> Result<Self, Errno> {
        let len = usize::try_from(len).map_err(|_too_big| Errno::ENOMEM)?;
        if len > PAGE_BYTES {
            return Err(Errno::ENOMEM);
        }
        Ok(Region {
            words: (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(),
            halves: (0..len.div_ceil(4)).map(|_| AtomicU32::new(0)).collect(),
        })
    }

    pub(crate) fn in_huge_pages(self) -> Self {
        self
    }

    pub(crate) fn len(&self) -> usize {
        0
    }

    pub(crate) fn populate(&self, _offset: usize, _len: usize) {}

    /// Models let no record reach over the end.
    pub(crate) fn with_mirror(front: usize, data: usize) -> Result<Self, Errno> {
        Region::new((front + data) as u64)
    }

    pub(crate) fn base(&self) -> u64 {
        0
    }

    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        NonNull::<u64>::dangling().cast::<u8>().map_addr(|addr| addr.saturating_add(offset))
    }

    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        &self.words[offset / 8]
    }

    pub(crate) fn half(&self, offset: usize) -> &AtomicU32 {
        &self.halves[offset / 4]
    }

    pub(crate) fn prefetch(&self, _offset: usize) {}

    pub(crate) fn prefetch_to_write(&self, _offset: usize) {}

    pub(crate) fn halves(&self, offset: usize) -> &[AtomicU32; 2] {
        self.halves[offset / 4..].first_chunk().expect("halves come in pairs")
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.is_multiple_of(8) && bytes.len().is_multiple_of(8));
        for (step, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            self.word(offset + step * 8).store(u64::from_ne_bytes(*word), Relaxed);
        }
    }

    pub(crate) fn write_padded(&self, offset: usize, bytes: &[u8]) {
        self.write(offset, bytes);
    }

    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(offset.is_multiple_of(8) && out.len().is_multiple_of(8));
        for (step, word) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = self.word(offset + step * 8).load(Relaxed).to_ne_bytes();
        }
    }

    pub(crate) fn clear(&self, offset: usize, len: usize) {
        self.write(offset, &vec![0; len]);
    }

    pub(crate) fn equals(&self, offset: usize, bytes: &[u8]) -> bool {
        let words = bytes.as_chunks::<8>().0;
        let same = |(step, word): (usize, &[u8; 8])| {
            self.word(offset + step * 8).load(Relaxed) == u64::from_ne_bytes(*word)
        };
        words.iter().enumerate().all(same)
    }
}
