//! Elements that no bucket holds, as they move between shards: linked lists and ranges.

use std::ops::Range;

use super::pool::{NIL, Pool, header};
use crate::sync::Ordering::Relaxed;

/// Elements linked by [`header::LINK`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) count: u32,
}

/// Elements that move between shards.
#[derive(Debug)]
pub(super) enum Batch {
    Linked(Chain),
    /// Never used so far.
    Fresh(Range<u32>),
}

impl Default for Chain {
    fn default() -> Self {
        Chain { first: NIL, last: NIL, count: 0 }
    }
}

impl Chain {
    pub(super) fn is_empty(&self) -> bool {
        self.first == NIL
    }

    pub(super) fn push(&mut self, pool: &Pool, element: u32) {
        pool.header(element, header::LINK).store(self.first, Relaxed);
        if self.is_empty() {
            self.last = element;
        }
        self.first = element;
        self.count += 1;
    }

    pub(super) fn push_back(&mut self, pool: &Pool, element: u32) {
        pool.header(element, header::LINK).store(NIL, Relaxed);
        if self.is_empty() {
            self.first = element;
        } else {
            pool.header(self.last, header::LINK).store(element, Relaxed);
        }
        self.last = element;
        self.count += 1;
    }

    pub(super) fn pop(&mut self, pool: &Pool) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let element = self.first;
        self.first = pool.header(element, header::LINK).load(Relaxed);
        self.count -= 1;
        Some(element)
    }

    /// Appends other elements.
    pub(super) fn append(&mut self, pool: &Pool, other: Chain) {
        if other.is_empty() {
            return;
        }
        pool.header(other.last, header::LINK).store(NIL, Relaxed);
        if self.is_empty() {
            *self = other;
            return;
        }
        pool.header(self.last, header::LINK).store(other.first, Relaxed);
        *self = Chain { first: self.first, last: other.last, count: self.count + other.count };
    }

    /// Takes up to `count` elements off the front; `None` when there is none.
    pub(super) fn cut(&mut self, pool: &Pool, count: u32) -> Option<Chain> {
        if self.is_empty() || count == 0 {
            return None;
        }
        if self.count <= count {
            return Some(std::mem::take(self));
        }
        let next = |element| pool.header(element, header::LINK).load(Relaxed);
        let last = (1..count).fold(self.first, |element, _| next(element));
        let front = Chain { first: self.first, last, count };
        *self = Chain { first: next(last), last: self.last, count: self.count - count };
        Some(front)
    }
}

impl Batch {
    pub(super) fn len(&self) -> u32 {
        match self {
            Batch::Linked(chain) => chain.count,
            Batch::Fresh(range) => range.end - range.start,
        }
    }
}

/// Takes up to `count` elements off the front of a range; `None` when there is none.
pub(super) fn cut_range(range: &mut Range<u32>, count: u32) -> Option<Range<u32>> {
    let middle = range.end.min(range.start.saturating_add(count));
    let front = range.start..middle;
    range.start = middle;
    (!front.is_empty()).then_some(front)
}
