//! The functions behind [`RuntimeFunction`]: what compiled code calls without a helper's overhead.
//!
//! Their arguments need no checks: maps are known when code is made, and the verifier proved that
//! keys and values are accessible.

#![expect(unsafe_code, reason = "is called with raw addresses from machine code")]

use towpath_maps::Map;

use crate::machine_unsafe::Callees;
use crate::xir::RuntimeFunction;

impl RuntimeFunction {
    /// Where the function is in this process.
    pub(crate) fn address(self, _callees: &Callees) -> u64 {
        let function: *const () = match self {
            RuntimeFunction::MapLookup => map_lookup as *const (),
        };
        function as usize as u64
    }
}

/// The map at an address that the compiler wrote into the code.
///
/// # Safety
///
/// The program that contains the address keeps the map alive.
unsafe fn map<'a>(address: u64) -> &'a Map {
    // SAFETY: the caller's promise; a map's handle is its address.
    unsafe { &*(address as *const Map) }
}

/// The bytes a program passes to a helper.
///
/// # Safety
///
/// The verifier proved `len` bytes at `address` readable. Packet and stack bytes are not written
/// while a helper runs; map bytes may be, by other workers, which is the program's own race as it
/// is in the kernel.
unsafe fn bytes<'a>(address: u64, len: u32) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(address as *const u8, len as usize) }
}

unsafe extern "C" fn map_lookup(map_address: u64, key: u64, worker: u64) -> u64 {
    // SAFETY: called by compiled code with its own constants and what the verifier proved.
    let (map, key) = unsafe {
        let map = map(map_address);
        (map, bytes(key, map.key_size()))
    };
    map.lookup(worker as usize, key).map_or(0, |value| value.as_ptr() as u64)
}
