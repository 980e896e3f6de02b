//! `bpf_map_lookup_elem` as compiled code calls it, for maps known at compile time.

#![expect(unsafe_code, reason = "is called with raw addresses from machine code")]

use towpath_maps::Map;

use crate::machine_unsafe::Machine;

/// Address of the value, or 0.
///
/// # Safety
///
/// `map` is the address of a live map and `key` that of as many readable bytes as its key has: the
/// compiler wrote the first into the code, the verifier proved the second.
pub(crate) unsafe extern "C" fn lookup(
    machine: *mut Machine,
    map: u64,
    key: u64,
    _: u64,
    _: u64,
    _: u64,
) -> u64 {
    // SAFETY: compiled code passes on the machine it was entered with, valid for the whole run.
    let worker = unsafe { (*machine).worker };
    // SAFETY: the caller's promise; the program that contains the address keeps the map alive.
    let map = unsafe { &*(map as *const Map) };
    // SAFETY: the caller's promise. Packet and stack bytes are not written while a helper runs; map
    // bytes may be, by other workers, which is the program's own race as it is in the kernel.
    let key = unsafe { std::slice::from_raw_parts(key as *const u8, map.key_size() as usize) };
    map.lookup(worker as usize, key).map_or(0, |value| value.as_ptr() as u64)
}
