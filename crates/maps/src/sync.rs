//! The atomics of the lock-free protocols: the standard ones, or loom's when a model is checked.

#[cfg(not(loom))]
mod chosen {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use std::thread::yield_now;
}

#[cfg(loom)]
mod chosen {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use loom::thread::yield_now;
}

pub(crate) use chosen::*;
