//! Special fields inside values: locks, timers and kernel pointers that copies leave alone.
//!
//! The verifier finds them in a value's BTF (`struct btf_record` in the kernel); a map needs only
//! their places. Copying in and out skips them (`bpf_obj_memcpy`), and deleting or overwriting an
//! element releases the objects that they own (`bpf_obj_free_fields`).

use std::cell::Cell;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::memory::Region;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::{AtomicU32, spin_loop, yield_now};

/// One special field of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its kind.
    pub kind: FieldKind,
    /// Bytes from the start of the value.
    pub offset: u32,
    /// Bytes it takes.
    pub size: u32,
}

/// Kinds of special field (`enum btf_field_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// `struct bpf_spin_lock`
    SpinLock,
    /// `struct bpf_res_spin_lock`
    ResSpinLock,
    /// `struct bpf_timer`
    Timer,
    /// `struct bpf_wq`
    Workqueue,
    /// `struct bpf_task_work`
    TaskWork,
    /// `__kptr_untrusted`: holds no reference.
    KptrUntrusted,
    /// `__kptr`: owns a reference.
    Kptr,
    /// `__percpu_kptr`: owns a reference.
    KptrPercpu,
    /// `__uptr`
    UserPtr,
    /// `struct bpf_list_head`
    ListHead,
    /// `struct bpf_rb_root`
    RbRoot,
}

/// Takes over the object that a field owned, when its element is removed or overwritten.
pub trait ReleaseField: Send + Sync {
    /// `address` is the field's, and `content` its first word, which wasn't 0. The field of a
    /// pointer, timer or work queue is already 0; lists and trees are unchanged, and no holder of
    /// the value's lock changes them meanwhile.
    fn release(&self, field: &Field, address: NonNull<u8>, content: u64);
}

/// The special fields of one map's values, by offset, and the receiver of the objects that they
/// own.
#[derive(Clone, Default)]
pub(crate) struct Fields {
    list: Vec<Field>,
    release: Option<Arc<dyn ReleaseField>>,
}

impl Fields {
    pub(crate) fn new(mut list: Vec<Field>, release: Option<Arc<dyn ReleaseField>>) -> Self {
        list.sort_by_key(|field| field.offset);
        Fields { list, release }
    }

    /// The fields, by offset.
    pub(crate) fn list(&self) -> &[Field] {
        &self.list
    }

    /// Whether `BPF_F_LOCK` can work: the value has a `bpf_spin_lock`.
    pub(crate) fn has_lock(&self) -> bool {
        self.lock_offset().is_some()
    }

    fn lock_offset(&self) -> Option<usize> {
        self.list.iter().find(|f| f.kind == FieldKind::SpinLock).map(|f| f.offset as usize)
    }

    /// Copies a value in, except for its special fields.
    pub(crate) fn copy_in(&self, region: &Region, at: usize, value: &[u8]) {
        self.ordinary(value.len(), |from, to| region.write(at + from, &value[from..to]));
    }

    /// As [`Fields::copy_in`], holding the value's lock (`copy_map_value_locked`).
    pub(crate) fn copy_in_locked(&self, region: &Region, at: usize, value: &[u8]) {
        self.locked(region, at, || self.copy_in(region, at, value));
    }

    /// A value of `len` bytes, read with its lock held if `locked`; special fields read as zero
    /// (`check_and_init_map_value`).
    pub(crate) fn copy_out(&self, region: &Region, at: usize, len: usize, locked: bool) -> Vec<u8> {
        let mut out = vec![0; len];
        let mut copy = || self.ordinary(len, |from, to| region.read(at + from, &mut out[from..to]));
        if locked {
            self.locked(region, at, copy);
        } else {
            copy();
        }
        out
    }

    /// Makes the fields of a new element empty.
    pub(crate) fn clear(&self, region: &Region, at: usize) {
        for field in &self.list {
            region.clear(at + field.offset as usize, field.size as usize);
        }
    }

    /// Releases the objects that the fields of the value at `at` own (`bpf_obj_free_fields`).
    pub(crate) fn release(&self, region: &Region, at: usize) {
        let Some(owner) = &self.release else { return };
        for field in &self.list {
            let place = at + field.offset as usize;
            match field.kind {
                FieldKind::SpinLock | FieldKind::ResSpinLock => {}
                FieldKind::KptrUntrusted => region.word(place).store(0, Relaxed),
                FieldKind::ListHead | FieldKind::RbRoot => {
                    if region.word(place).load(Relaxed) != 0 {
                        self.release_graph(owner.as_ref(), field, region, at);
                    }
                }
                _ => {
                    let content = region.word(place).swap(0, AcqRel);
                    if content != 0 {
                        owner.release(field, region.at(place), content);
                    }
                }
            }
        }
    }

    /// Releases the nodes of a list or a tree, which is then empty (`bpf_list_head_free`).
    fn release_graph(&self, owner: &dyn ReleaseField, field: &Field, region: &Region, at: usize) {
        let place = at + field.offset as usize;
        let locks =
            |field: &&Field| matches!(field.kind, FieldKind::SpinLock | FieldKind::ResSpinLock);
        let lock = self.list.iter().find(locks);
        let lock = lock.map(|lock| region.half(at + lock.offset as usize));
        // A run ended while holding the lock never releases it, and then does not change the list
        // either.
        let is_locked = lock.is_some_and(spin_lock_patiently);
        let content = region.word(place).load(Acquire);
        if content != 0 {
            owner.release(field, region.at(place), content);
        }
        region.word(place).store(0, Relaxed);
        region.word(place + 8).store(0, Relaxed);
        if let (Some(lock), true) = (lock, is_locked) {
            spin_unlock(lock);
        }
    }

    /// Calls `copy(from, to)` for each range of ordinary bytes among `len`.
    fn ordinary(&self, len: usize, mut copy: impl FnMut(usize, usize)) {
        let mut from = 0;
        for field in &self.list {
            let start = (field.offset as usize).min(len);
            if from < start {
                copy(from, start);
            }
            from = from.max((field.offset as usize).saturating_add(field.size as usize));
        }
        if from < len {
            copy(from, len);
        }
    }

    fn locked(&self, region: &Region, at: usize, body: impl FnOnce()) {
        let Some(offset) = self.lock_offset() else { return body() };
        let lock = region.half(at + offset);
        spin_lock(lock);
        body();
        spin_unlock(lock);
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

thread_local! {
    /// Addresses of the locks that this thread holds, the last one taken last, and their number.
    static HELD: ([Cell<usize>; HELD_MAX], Cell<usize>) =
        const { ([const { Cell::new(0) }; HELD_MAX], Cell::new(0)) };
}

/// Locks that a program can hold at a time: those that can fail nest this deep, as in the kernel.
const HELD_MAX: usize = 32;

/// Releases the locks that this thread holds for a program ended in the middle; waiters would wait
/// forever.
pub fn take_held(mut give_back: impl FnMut(usize)) {
    HELD.with(|(locks, count)| {
        for lock in &locks[..count.replace(0)] {
            give_back(lock.get());
        }
    });
}

fn note_held(lock: &AtomicU32) {
    HELD.with(|(locks, count)| {
        if let Some(place) = locks.get(count.get()) {
            place.set(ptr::from_ref(lock).addr());
            count.set(count.get() + 1);
        }
    });
}

fn note_given_back(lock: &AtomicU32) {
    HELD.with(|(locks, count)| {
        let held = &locks[..count.get()];
        let address = ptr::from_ref(lock).addr();
        // Usually it is the last one.
        if let Some(at) = held.iter().rposition(|held| held.get() == address) {
            let last = held[held.len() - 1].get();
            held[at].set(last);
            count.set(count.get() - 1);
        }
    });
}

/// Takes a `bpf_spin_lock`: 0 is free, 1 is held. The same word that the helper uses.
pub fn spin_lock(lock: &AtomicU32) {
    take(lock);
    note_held(lock);
}

/// As [`spin_lock`], for a lock that programs never take, so that it need not be released when a
/// program is stopped.
pub(crate) fn take(lock: &AtomicU32) {
    let mut tries = 0u32;
    while lock.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
        tries += 1;
        // The holder may have lost its core: in user space spinning alone could wait for long.
        if tries.is_multiple_of(64) { yield_now() } else { spin_loop() }
    }
}

/// As [`spin_lock`], but gives up (`false`) if the lock is not released for long.
fn spin_lock_patiently(lock: &AtomicU32) -> bool {
    let take = || {
        let taken = lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if taken {
            note_held(lock);
        }
        taken
    };
    if take() {
        return true;
    }
    let start = Instant::now();
    while start.elapsed() < LOCK_PATIENCE {
        yield_now();
        if take() {
            return true;
        }
    }
    false
}

/// Critical sections of programs are some hundred instructions long; their thread may have lost
/// its core.
const LOCK_PATIENCE: Duration = Duration::from_millis(100);

/// Releases a lock taken with [`spin_lock`].
pub fn spin_unlock(lock: &AtomicU32) {
    note_given_back(lock);
    lock.store(0, Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    use parking_lot::Mutex;

    #[test]
    fn copies_leave_special_fields_alone() {
        let lock = Field { kind: FieldKind::SpinLock, offset: 4, size: 4 };
        let fields = Fields::new(vec![lock], None);
        let region = Region::new(16).unwrap();
        region.write(0, &[9; 12]);
        fields.copy_in(&region, 0, &[1; 12]);
        let mut raw = [0; 12];
        region.read(0, &mut raw);
        assert_eq!(raw, [1, 1, 1, 1, 9, 9, 9, 9, 1, 1, 1, 1]);
        assert_eq!(fields.copy_out(&region, 0, 12, false), [1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn a_thread_knows_which_locks_it_holds() {
        const NONE: [usize; 0] = [];
        let locks = [0; 3].map(AtomicU32::new);
        let held = || {
            let mut held = Vec::new();
            take_held(|address| held.push(address));
            held
        };
        let address = |lock: &AtomicU32| ptr::from_ref(lock).addr();
        locks.iter().for_each(spin_lock);
        spin_unlock(&locks[0]);
        assert_eq!(held(), [&locks[2], &locks[1]].map(address));
        assert_eq!(held(), NONE);
        spin_unlock(&locks[1]);
        spin_lock(&locks[1]);
        spin_unlock(&locks[1]);
        assert_eq!(held(), NONE);
        // Locks beyond the number that a program can hold are not noted, and leave nothing behind.
        let many: Vec<AtomicU32> = (0..2 * HELD_MAX).map(|_| AtomicU32::new(0)).collect();
        many.iter().for_each(spin_lock);
        many.iter().rev().for_each(spin_unlock);
        assert_eq!(held(), NONE);
    }

    #[test]
    fn an_owned_pointer_is_released_once() {
        #[derive(Default)]
        struct Seen(Mutex<Vec<u64>>);
        impl ReleaseField for Seen {
            fn release(&self, _: &Field, _: NonNull<u8>, content: u64) {
                self.0.lock().push(content);
            }
        }
        let seen = Arc::new(Seen::default());
        let kptr = Field { kind: FieldKind::Kptr, offset: 8, size: 8 };
        let fields = Fields::new(vec![kptr], Some(seen.clone()));
        let region = Region::new(16).unwrap();
        region.write(8, &7u64.to_ne_bytes());
        fields.release(&region, 0);
        fields.release(&region, 0);
        assert_eq!(*seen.0.lock(), [7]);
    }

    #[test]
    fn a_list_is_given_up_under_its_lock_if_that_is_ever_free() {
        #[derive(Default)]
        struct Seen(Mutex<Vec<u64>>);
        impl ReleaseField for Seen {
            fn release(&self, _: &Field, _: NonNull<u8>, content: u64) {
                self.0.lock().push(content);
            }
        }
        let seen = Arc::new(Seen::default());
        let list = Field { kind: FieldKind::ListHead, offset: 0, size: 16 };
        let lock = Field { kind: FieldKind::SpinLock, offset: 16, size: 4 };
        let fields = Fields::new(vec![list, lock], Some(seen.clone()));
        let region = Region::new(24).unwrap();
        fields.release(&region, 0);
        for held in [0u32, 1] {
            region.write(0, &7u64.to_ne_bytes());
            region.write(16, &held.to_ne_bytes());
            fields.release(&region, 0);
            assert_eq!(region.word(0).load(Relaxed), 0, "what follows starts with an empty list");
            assert_eq!(region.half(16).load(Relaxed), held, "it is as it was");
        }
        assert_eq!(*seen.0.lock(), [7, 7], "an empty list owns nothing");
    }
}
