//! Structures of libipsec-mb, as far as the engine uses them, and the versions that have them.
//!
//! The library exports few functions: most are reached through members of its `IMB_MGR`. All known
//! versions have the same members at the same places, up to the last one that is used here. Their
//! jobs (`IMB_JOB`) begin with the same members too, but differ in length.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

/// A version of the library with a known layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    /// Size in bytes of an `IMB_JOB`.
    pub(crate) job_len: usize,
}

/// The known versions.
pub(crate) const VERSIONS: [Version; 3] = [
    Version { major: 1, minor: 3, job_len: 200 },
    Version { major: 1, minor: 5, job_len: 240 },
    Version { major: 2, minor: 0, job_len: 216 },
];

/// Major, minor and patch version from a number of `imb_get_version`.
pub(crate) fn parts(number: u32) -> [u32; 3] {
    [number >> 16, number >> 8 & 0xff, number & 0xff]
}

/// The beginning of `IMB_JOB`, which all known versions share.
#[repr(C)]
pub(crate) struct Job {
    pub(crate) enc_keys: *const c_void,
    pub(crate) dec_keys: *const c_void,
    pub(crate) key_len: u64,
    pub(crate) src: *const u8,
    pub(crate) dst: *mut u8,
    pub(crate) cipher_offset: u64,
    pub(crate) cipher_len: u64,
    pub(crate) hash_offset: u64,
    pub(crate) hash_len: u64,
    pub(crate) iv: *const u8,
    pub(crate) iv_len: u64,
    pub(crate) tag: *mut u8,
    pub(crate) tag_len: u64,
    pub(crate) inner: *const u8,
    pub(crate) outer: *const u8,
    third_of_hash: u64,
    pub(crate) status: c_int,
}

/// The beginning of `IMB_MGR`, up to the last member that the engine uses.
#[repr(C)]
pub(crate) struct State {
    flags: u64,
    features: u64,
    reserved: [u64; 5],
    used_arch: u32,
    pub(crate) errno: c_int,
    jobs: [usize; 6],
    /// `keyexp_128`, `keyexp_192` and `keyexp_256`.
    pub(crate) expand: [Option<ExpandKey>; 3],
    other_keys: [usize; 3],
    pub(crate) sha1_one_block: Option<HashBlock>,
    sha224_one_block: usize,
    pub(crate) sha256_one_block: Option<HashBlock>,
    pub(crate) sha384_one_block: Option<HashBlock>,
    pub(crate) sha512_one_block: Option<HashBlock>,
    other: [usize; 98],
    pub(crate) submit_cipher_burst: Option<CipherBurst>,
    submit_cipher_burst_nocheck: usize,
    pub(crate) submit_hash_burst: Option<HashBurst>,
}

/// `keyexp_t`: key, expanded keys for encryption, expanded keys for decryption.
pub(crate) type ExpandKey = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_void);
/// `hash_one_block_t`: a block of data, and the state of the hash after it.
pub(crate) type HashBlock = unsafe extern "C" fn(*const c_void, *mut c_void);
/// `submit_cipher_burst_t`: jobs, their number, cipher, direction, length of the key. Returns the
/// number of completed jobs.
pub(crate) type CipherBurst =
    unsafe extern "C" fn(*mut State, *mut Job, u32, c_int, c_int, c_int) -> u32;
/// `submit_hash_burst_t`: jobs, their number, algorithm. Returns the number of completed jobs.
pub(crate) type HashBurst = unsafe extern "C" fn(*mut State, *mut Job, u32, c_int) -> u32;

/// `IMB_CIPHER_CBC`.
pub(crate) const CIPHER_CBC: c_int = 1;
/// `IMB_DIR_ENCRYPT`.
pub(crate) const ENCRYPT: c_int = 1;
/// `IMB_DIR_DECRYPT`.
pub(crate) const DECRYPT: c_int = 2;
/// `IMB_AUTH_HMAC_SHA_1`.
pub(crate) const HMAC_SHA_1: c_int = 1;
/// `IMB_AUTH_HMAC_SHA_256`.
pub(crate) const HMAC_SHA_256: c_int = 3;
/// `IMB_AUTH_HMAC_SHA_384`.
pub(crate) const HMAC_SHA_384: c_int = 4;
/// `IMB_AUTH_HMAC_SHA_512`.
pub(crate) const HMAC_SHA_512: c_int = 5;

const _: () = assert!(offset_of!(Job, status) == 128);
const _: () = assert!(offset_of!(State, submit_hash_burst) == 1000);

#[cfg(test)]
mod tests;
