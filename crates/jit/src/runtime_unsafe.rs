//! The functions behind [`RuntimeFunction`], which compiled code calls without a helper's overhead.
//!
//! Their arguments need no checks: the verifier proved that a map is one of this program and has
//! the operation, and that keys and values are accessible.

#![expect(unsafe_code, reason = "is called with raw addresses from machine code")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use towpath_bpf::Errno;
use towpath_maps::fields::{spin_lock, spin_unlock};
use towpath_maps::{HashView, KEY_WORDS_MAX, Map, PREFIX_BYTES_MAX, TargetEntry};

use crate::machine_unsafe::Callees;
use crate::sums_unsafe;
use crate::xir::{RuntimeFunction, Stage};

impl RuntimeFunction {
    /// Address of the function in this process.
    pub(crate) fn address(self, callees: &Callees) -> u64 {
        let direct = &callees.direct;
        let function: *const () = match self {
            RuntimeFunction::MapLookup => map_lookup as *const (),
            RuntimeFunction::MapLookupPercpu => map_lookup_percpu as *const (),
            RuntimeFunction::MapUpdate => map_update as *const (),
            RuntimeFunction::MapDelete => map_delete as *const (),
            RuntimeFunction::MapPush => map_push as *const (),
            RuntimeFunction::MapPop => map_pop as *const (),
            RuntimeFunction::MapPeek => map_peek as *const (),
            RuntimeFunction::HandleLookup { words } => handle_lookup(words),
            RuntimeFunction::InnerHashLookup { words, marks: false } => {
                inner_lookup::<false>(words)
            }
            RuntimeFunction::InnerHashLookup { words, marks: true } => inner_lookup::<true>(words),
            RuntimeFunction::TrieLookup { words } => trie_lookup(words),
            RuntimeFunction::CsumDiff => direct.csum_diff as *const (),
            RuntimeFunction::Sum { wide, swapped } => sums_unsafe::function(wide, swapped),
            RuntimeFunction::Ktime => direct.ktime as *const (),
            RuntimeFunction::Jiffies => direct.jiffies as *const (),
            RuntimeFunction::Random => direct.random as *const (),
            RuntimeFunction::Redirect => direct.redirect as *const (),
            RuntimeFunction::RedirectMap => direct.redirect_map as *const (),
            RuntimeFunction::TargetLookup => target_lookup as *const (),
            RuntimeFunction::LoadBytes => direct.load_bytes as *const (),
            RuntimeFunction::StoreBytes => direct.store_bytes as *const (),
            RuntimeFunction::CheckMtu => direct.check_mtu as *const (),
            RuntimeFunction::RingReserve => direct.ring_reserve as *const (),
            RuntimeFunction::RingSubmit => direct.ring_submit as *const (),
            RuntimeFunction::RingDiscard => direct.ring_discard as *const (),
            RuntimeFunction::SpinLock => lock as *const (),
            RuntimeFunction::SpinUnlock => unlock as *const (),
            RuntimeFunction::HashLookup { words, marks: false } => hash::<LOOKUP>(words),
            RuntimeFunction::HashLookup { words, marks: true } => hash::<LOOKUP_AND_MARK>(words),
            RuntimeFunction::HashAhead { words, stage: Stage::Bucket } => {
                hash::<BUCKET_AHEAD>(words)
            }
            RuntimeFunction::HashAhead { words, stage: Stage::Element } => {
                hash::<ELEMENT_AHEAD>(words)
            }
        };
        function as usize as u64
    }
}

/// The map at an address in a register.
///
/// # Safety
///
/// The verifier proved that it is a map: one of the program's, which live as long as the program,
/// or one found in a map of maps, which lives until the worker is quiescent.
unsafe fn map<'a>(address: u64) -> &'a Map {
    // SAFETY: the caller's promise; a map's handle is its address.
    unsafe { &*(address as *const Map) }
}

/// The bytes a program passes to a helper.
///
/// # Safety
///
/// The verifier proved `len` bytes at `address` readable. Packet and stack bytes are not written
/// while a helper runs; map bytes may be written by other workers, which is the program's own race,
/// as in the kernel.
unsafe fn bytes<'a>(address: u64, len: u32) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(address as *const u8, len as usize) }
}

/// As [`bytes`], writable.
///
/// # Safety
///
/// As [`bytes`], and the verifier proved them writable.
unsafe fn bytes_mut<'a>(address: u64, len: u32) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, len as usize) }
}

fn status(result: Result<(), Errno>) -> u64 {
    match result {
        Ok(()) => 0,
        Err(errno) => errno.to_reg(),
    }
}

unsafe extern "C" fn map_lookup(map_address: u64, key: u64, worker: u64) -> u64 {
    // SAFETY: called by compiled code with proved arguments.
    let (map, key) = unsafe {
        let map = map(map_address);
        (map, bytes(key, map.key_size()))
    };
    map.lookup(worker as usize, key).map_or(0, |value| value.as_ptr() as u64)
}

unsafe extern "C" fn map_lookup_percpu(map_address: u64, key: u64, cpu: u64) -> u64 {
    // SAFETY: called by compiled code with proved arguments.
    let (map, key) = unsafe {
        let map = map(map_address);
        (map, bytes(key, map.key_size()))
    };
    map.lookup_percpu(key, cpu as u32).map_or(0, |value| value.as_ptr() as u64)
}

unsafe extern "C" fn map_update(
    map_address: u64,
    key: u64,
    value: u64,
    flags: u64,
    worker: u64,
) -> u64 {
    // SAFETY: called by compiled code with proved arguments.
    let (map, key, value) = unsafe {
        let map = map(map_address);
        (map, bytes(key, map.key_size()), bytes(value, map.value_size()))
    };
    status(map.update(worker as usize, key, value, flags))
}

unsafe extern "C" fn map_delete(map_address: u64, key: u64, worker: u64) -> u64 {
    // SAFETY: called by compiled code with proved arguments.
    let (map, key) = unsafe {
        let map = map(map_address);
        (map, bytes(key, map.key_size()))
    };
    status(map.delete(worker as usize, key))
}

unsafe extern "C" fn map_push(map_address: u64, value: u64, flags: u64) -> u64 {
    // SAFETY: called by compiled code with proved arguments.
    let (map, value) = unsafe {
        let map = map(map_address);
        (map, bytes(value, map.value_size()))
    };
    status(map.push(value, flags))
}

unsafe extern "C" fn map_pop(map_address: u64, value: u64) -> u64 {
    // SAFETY: called by compiled code with proved arguments.
    let (map, value) = unsafe {
        let map = map(map_address);
        (map, bytes_mut(value, map.value_size()))
    };
    status(map.pop(value))
}

unsafe extern "C" fn map_peek(map_address: u64, value: u64) -> u64 {
    // SAFETY: called by compiled code with proved arguments.
    let (map, value) = unsafe {
        let map = map(map_address);
        (map, bytes_mut(value, map.value_size()))
    };
    status(map.peek(value))
}

/// The lock word of a `struct bpf_spin_lock`.
///
/// # Safety
///
/// The verifier proved that a lock is at the address; it is only accessed atomically.
unsafe fn lock_word<'a>(address: u64) -> &'a AtomicU32 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }
}

unsafe extern "C" fn lock(address: u64) -> u64 {
    // SAFETY: called by compiled code with proved arguments.
    spin_lock(unsafe { lock_word(address) });
    0
}

unsafe extern "C" fn unlock(address: u64) -> u64 {
    // SAFETY: called by compiled code with proved arguments.
    spin_unlock(unsafe { lock_word(address) });
    0
}

/// Action of a function over the words of a key: a lookup.
const LOOKUP: u8 = 0;
/// A [`LOOKUP`] that also marks the element as used.
const LOOKUP_AND_MARK: u8 = 1;
/// A prefetch of the bucket.
const BUCKET_AHEAD: u8 = 2;
/// A prefetch of the first element of the bucket.
const ELEMENT_AHEAD: u8 = 3;

/// The function for action `WHAT` and keys of this number of words.
fn hash<const WHAT: u8>(words: u8) -> *const () {
    match words {
        1 => hash_1::<WHAT> as *const (),
        2 => hash_2::<WHAT> as *const (),
        3 => hash_3::<WHAT> as *const (),
        4 => hash_4::<WHAT> as *const (),
        5 => hash_5::<WHAT> as *const (),
        6 => hash_6::<WHAT> as *const (),
        _ => unreachable!("keys have {KEY_WORDS_MAX} words at most"),
    }
}

#[inline(always)]
fn of_table<const WORDS: usize, const WHAT: u8>(table: &HashView, key: [u64; WORDS]) -> u64 {
    match WHAT {
        LOOKUP => table.lookup::<WORDS, false>(key),
        LOOKUP_AND_MARK => table.lookup::<WORDS, true>(key),
        BUCKET_AHEAD => table.look_ahead::<WORDS, false>(key),
        _ => table.look_ahead::<WORDS, true>(key),
    }
}

/// A table's view, by the address that the compiler wrote into the code.
///
/// # Safety
///
/// The program that contains the address keeps its map alive.
#[inline(always)]
unsafe fn view<'a>(address: u64) -> &'a HashView {
    // SAFETY: the caller's promise.
    unsafe { &*(address as *const HashView) }
}

unsafe extern "C" fn hash_1<const WHAT: u8>(table: u64, a: u64) -> u64 {
    // SAFETY: called by compiled code.
    of_table::<1, WHAT>(unsafe { view(table) }, [a])
}

unsafe extern "C" fn hash_2<const WHAT: u8>(table: u64, a: u64, b: u64) -> u64 {
    // SAFETY: called by compiled code.
    of_table::<2, WHAT>(unsafe { view(table) }, [a, b])
}

unsafe extern "C" fn hash_3<const WHAT: u8>(table: u64, a: u64, b: u64, c: u64) -> u64 {
    // SAFETY: called by compiled code.
    of_table::<3, WHAT>(unsafe { view(table) }, [a, b, c])
}

unsafe extern "C" fn hash_4<const WHAT: u8>(table: u64, a: u64, b: u64, c: u64, d: u64) -> u64 {
    // SAFETY: called by compiled code.
    of_table::<4, WHAT>(unsafe { view(table) }, [a, b, c, d])
}

unsafe extern "C" fn hash_5<const WHAT: u8>(
    table: u64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
) -> u64 {
    // SAFETY: called by compiled code.
    of_table::<5, WHAT>(unsafe { view(table) }, [a, b, c, d, e])
}

unsafe extern "C" fn hash_6<const WHAT: u8>(
    table: u64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
) -> u64 {
    // SAFETY: called by compiled code.
    of_table::<6, WHAT>(unsafe { view(table) }, [a, b, c, d, e, f])
}

unsafe extern "C" fn target_lookup(map_address: u64, key: u64) -> u64 {
    // SAFETY: called by compiled code with proved arguments.
    let map = unsafe { map(map_address) };
    map.target(key as u32).map_or(0, TargetEntry::to_word)
}

/// The value of the longest prefix of a key.
///
/// # Safety
///
/// The verifier proved that a trie is at the address; its keys have this length.
#[inline(always)]
unsafe fn trie<const WORDS: usize>(map_address: u64, key: [u64; WORDS]) -> u64 {
    // SAFETY: the caller's promise.
    let map = unsafe { map(map_address) };
    map.longest_prefix(key).map_or(0, |value| value.as_ptr() as u64)
}

/// The inner map at the address of a value; 0 if there is none.
///
/// # Safety
///
/// The address is 0 or that of a value in a hash table of maps, which is one word.
#[inline(always)]
unsafe fn handle(value: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    // SAFETY: the caller's promise; tables access their values atomically.
    unsafe { AtomicU64::from_ptr(value as *mut u64) }.load(Ordering::Acquire)
}

/// Defines lookups by key words in the object of the first argument, one for each number of words.
macro_rules! lookups {
    ($($words:literal: $of_maps:ident, $inner:ident, $trie:ident ($($word:ident),*);)*) => {
        $(
            unsafe extern "C" fn $of_maps(table: u64, $($word: u64),*) -> u64 {
                // SAFETY: called by compiled code, with the view of a table of maps.
                unsafe { handle(view(table).lookup::<$words, false>([$($word),*])) }
            }

            unsafe extern "C" fn $inner<const MARKS: bool>(table: u64, $($word: u64),*) -> u64 {
                // SAFETY: called by compiled code with proved arguments.
                let view = unsafe { map(table) }.hash_view();
                view.map_or(0, |view| view.lookup::<$words, MARKS>([$($word),*]))
            }

            unsafe extern "C" fn $trie(map: u64, $($word: u64),*) -> u64 {
                // SAFETY: called by compiled code with proved arguments.
                unsafe { trie(map, [$($word),*]) }
            }
        )*

        /// The lookup of an inner map by a key of this number of words.
        fn handle_lookup(words: u8) -> *const () {
            match words {
                $($words => $of_maps as *const (),)*
                _ => unreachable!("keys have {KEY_WORDS_MAX} words at most"),
            }
        }

        /// The lookup in an inner map by a key of this number of words.
        fn inner_lookup<const MARKS: bool>(words: u8) -> *const () {
            match words {
                $($words => $inner::<MARKS> as *const (),)*
                _ => unreachable!("keys have {KEY_WORDS_MAX} words at most"),
            }
        }

        /// The lookup in a trie by a key of this number of words.
        fn trie_lookup(words: u8) -> *const () {
            match words {
                $($words => $trie as *const (),)*
                _ => unreachable!("keys have {KEY_WORDS_MAX} words at most"),
            }
        }
    };
}

const _: () = assert!(PREFIX_BYTES_MAX <= KEY_WORDS_MAX * 8);

lookups! {
    1: handle_lookup_1, inner_lookup_1, trie_lookup_1 (a);
    2: handle_lookup_2, inner_lookup_2, trie_lookup_2 (a, b);
    3: handle_lookup_3, inner_lookup_3, trie_lookup_3 (a, b, c);
    4: handle_lookup_4, inner_lookup_4, trie_lookup_4 (a, b, c, d);
    5: handle_lookup_5, inner_lookup_5, trie_lookup_5 (a, b, c, d, e);
    6: handle_lookup_6, inner_lookup_6, trie_lookup_6 (a, b, c, d, e, f);
}
