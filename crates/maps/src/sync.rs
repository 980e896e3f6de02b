//! The atomics of the lock-free protocols: the standard ones, or loom's when a model is checked.

#[cfg(not(loom))]
mod chosen {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use std::thread::yield_now;
}

#[cfg(loom)]
mod chosen {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use loom::thread::yield_now;

    /// Loom's lock, used as the other one.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(inner: T) -> Self {
            Mutex(loom::sync::Mutex::new(inner))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model that panics ends")
        }
    }
}

pub(crate) use chosen::*;
