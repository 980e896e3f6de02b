//! Values that several workers write, which are on cache lines of their own and seldom written.
//! Tests count the writes.

/// A value on cache lines of its own: two, because processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// A value that every worker may write. An operation of a map that does so each time is no faster
/// on many cores than on one.
#[derive(Debug, Default)]
pub(crate) struct Shared<T>(Line<T>);

impl<T> Shared<T> {
    pub(crate) fn new(inner: T) -> Self {
        Shared(Line(inner))
    }

    /// A reference for reading.
    #[inline]
    pub(crate) fn read(&self) -> &T {
        &self.0.0
    }

    /// A reference for writing, which takes the line away from the other cores.
    #[inline]
    pub(crate) fn write(&self) -> &T {
        #[cfg(test)]
        counted::WRITES.with(|writes| writes.set(writes.get() + 1));
        &self.0.0
    }
}

/// Number of times that this thread asked for [`Shared::write`].
#[cfg(test)]
pub(crate) mod counted {
    use std::cell::Cell;

    thread_local! {
        pub(super) static WRITES: Cell<u64> = const { Cell::new(0) };
    }

    /// The number since the last call.
    #[cfg(not(loom))]
    pub(crate) fn take() -> u64 {
        WRITES.with(|writes| writes.replace(0))
    }
}
