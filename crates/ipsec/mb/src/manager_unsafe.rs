//! A manager of the library: its state for one worker, and the functions that are reached through
//! it.

#![expect(unsafe_code, reason = "calls C functions with pointers to keys and packets")]

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use towpath_ipsec::Hmac;

use crate::keys::{BLOCK_LEN_MAX, HashState, MbKeys, RoundKeys, icv_len};
use crate::layout_unsafe::{
    CIPHER_CBC, CipherBurst, DECRYPT, ENCRYPT, ExpandKey, HMAC_SHA_1, HMAC_SHA_256, HMAC_SHA_384,
    HMAC_SHA_512, HashBlock, HashBurst, Job, State,
};
use crate::library_unsafe::{OpenError, Symbols};

/// A manager, and memory for the jobs of one call.
pub(crate) struct Manager {
    state: NonNull<State>,
    functions: Functions,
    /// [`BATCH`] jobs of the length that the library's version has.
    jobs: Box<[u64]>,
    symbols: Arc<Symbols>,
}

// SAFETY: the manager owns the library's state, which is in no list and belongs to no thread. The
// pointers in `jobs` are used only within the call that writes them.
unsafe impl Send for Manager {}

/// Functions for the processor at hand, which the library chose.
struct Functions {
    expand: [ExpandKey; 3],
    hash_block: [HashBlock; 4],
    cipher_burst: CipherBurst,
    hash_burst: HashBurst,
}

/// Length of an AES key in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyLen {
    Aes128 = 16,
    Aes192 = 24,
    Aes256 = 32,
}

/// Direction of AES-CBC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Encrypt = ENCRYPT as isize,
    Decrypt = DECRYPT as isize,
}

/// Bytes to encrypt or decrypt in place.
pub(crate) struct CipherMessage<'a> {
    pub(crate) keys: &'a MbKeys,
    pub(crate) iv: &'a [u8; 16],
    pub(crate) bytes: &'a mut [u8],
}

/// Bytes to authenticate.
pub(crate) struct HashMessage<'a> {
    pub(crate) keys: &'a MbKeys,
    pub(crate) bytes: &'a [u8],
    /// Destination of the ICV, which is written at its front.
    pub(crate) tag: &'a mut Tag,
}

/// Room for the longest HMAC.
pub(crate) type Tag = [u8; 64];

impl Manager {
    /// A manager with the functions for this processor.
    pub(crate) fn new(symbols: &Arc<Symbols>) -> Result<Manager, OpenError> {
        // SAFETY: any flags may be passed; 0 disables nothing.
        let state = unsafe { (symbols.alloc_mb_mgr)(0) };
        let state = NonNull::new(state).ok_or_else(|| symbols.error("there is no memory"))?;
        let functions = match initialize(state, symbols) {
            Ok(functions) => functions,
            Err(errno) => {
                // SAFETY: the state was allocated above, and is not used again.
                unsafe { (symbols.free_mb_mgr)(state.as_ptr()) };
                return Err(symbols.numbered(errno));
            }
        };
        let jobs = vec![0; BATCH * symbols.version.job_len / size_of::<u64>()].into();
        Ok(Manager { state, functions, jobs, symbols: Arc::clone(symbols) })
    }

    /// Expands an AES key.
    ///
    /// # Panics
    ///
    /// Panics if the key has another length.
    pub(crate) fn expand(
        &self,
        len: KeyLen,
        key: &[u8],
        encrypt: &mut RoundKeys,
        decrypt: &mut RoundKeys,
    ) {
        assert_eq!(key.len(), len as usize, "schedules have keys of the right length");
        let index = match len {
            KeyLen::Aes128 => 0,
            KeyLen::Aes192 => 1,
            KeyLen::Aes256 => 2,
        };
        let expand = self.functions.expand[index];
        let (encrypt, decrypt) = (ptr::from_mut(encrypt).cast(), ptr::from_mut(decrypt).cast());
        // SAFETY: the key has the length that this function reads, and the destinations have the
        // alignment that it needs and room for the round keys of the longest key.
        unsafe { expand(key.as_ptr().cast(), encrypt, decrypt) };
    }

    /// The state of a hash after its first block.
    pub(crate) fn hash_block(
        &self,
        hmac: Hmac,
        block: &[u8; BLOCK_LEN_MAX],
        state: &mut HashState,
    ) {
        let hash_block = match hmac {
            Hmac::Sha1_96 => self.functions.hash_block[0],
            Hmac::Sha256_128 => self.functions.hash_block[1],
            Hmac::Sha384_192 => self.functions.hash_block[2],
            Hmac::Sha512_256 => self.functions.hash_block[3],
        };
        // SAFETY: the block and the state have the lengths of SHA-512's, which are the longest.
        unsafe { hash_block(block.as_ptr().cast(), state.as_mut_ptr().cast()) };
    }

    /// Encrypts or decrypts at most [`BATCH`] messages with keys of one length. Returns false if
    /// the library did not complete all of them; their contents are then unspecified.
    #[must_use]
    pub(crate) fn cipher<'a>(
        &mut self,
        direction: Direction,
        len: KeyLen,
        messages: impl Iterator<Item = CipherMessage<'a>>,
    ) -> bool {
        let mut count = 0;
        for (index, CipherMessage { keys, iv, bytes }) in (0..BATCH).zip(messages) {
            let job = self.job(index);
            job.enc_keys = keys.encrypt.as_ptr();
            job.dec_keys = keys.decrypt.as_ptr();
            job.key_len = len as u64;
            job.cipher_offset = 0;
            job.cipher_len = bytes.len() as u64;
            job.dst = bytes.as_mut_ptr();
            job.src = job.dst;
            job.iv = iv.as_ptr();
            job.iv_len = iv.len() as u64;
            count += 1;
        }
        let (state, jobs) = (self.state.as_ptr(), self.jobs.as_mut_ptr().cast());
        // SAFETY: the first `count` jobs point to keys, IVs and bytes that are borrowed for `'a`,
        // which outlives this call; the bytes are borrowed mutably. The function refuses lengths
        // that are not multiples of a block or too long. It has finished with all jobs when it
        // returns, or `complete` makes it forget them.
        let done = unsafe {
            let (direction, len) = (direction as c_int, len as c_int);
            (self.functions.cipher_burst)(state, jobs, count, CIPHER_CBC, direction, len)
        };
        self.complete(done, count)
    }

    /// Computes the ICVs of at most [`BATCH`] messages with one algorithm. Returns false if the
    /// library did not complete all of them.
    #[must_use]
    pub(crate) fn hash<'a>(
        &mut self,
        hmac: Hmac,
        messages: impl Iterator<Item = HashMessage<'a>>,
    ) -> bool {
        let algorithm = match hmac {
            Hmac::Sha1_96 => HMAC_SHA_1,
            Hmac::Sha256_128 => HMAC_SHA_256,
            Hmac::Sha384_192 => HMAC_SHA_384,
            Hmac::Sha512_256 => HMAC_SHA_512,
        };
        let mut count = 0;
        for (index, HashMessage { keys, bytes, tag }) in (0..BATCH).zip(messages) {
            let job = self.job(index);
            job.src = bytes.as_ptr();
            job.hash_offset = 0;
            job.hash_len = bytes.len() as u64;
            job.tag = tag.as_mut_ptr();
            job.tag_len = icv_len(hmac) as u64;
            job.inner = keys.inner.as_ptr();
            job.outer = keys.outer.as_ptr();
            count += 1;
        }
        let (state, jobs) = (self.state.as_ptr(), self.jobs.as_mut_ptr().cast());
        // SAFETY: as in `cipher`. A tag has room for the longest HMAC.
        let done = unsafe { (self.functions.hash_burst)(state, jobs, count, algorithm) };
        self.complete(done, count)
    }

    /// The job at `index`.
    fn job(&mut self, index: usize) -> &mut Job {
        let job_len = self.symbols.version.job_len;
        assert!(index < BATCH, "there is memory for so many jobs");
        // SAFETY: `jobs` has room for `BATCH` jobs of `job_len` bytes, which is a multiple of their
        // alignment and not less than the length of `Job` (a test checks the table of versions).
        // Any bytes are a valid `Job`: numbers and raw pointers.
        unsafe { &mut *self.jobs.as_mut_ptr().byte_add(index * job_len).cast::<Job>() }
    }

    /// Whether all jobs were completed. If not, the library forgets the others.
    fn complete(&mut self, done: u32, count: u32) -> bool {
        if done == count {
            return true;
        }
        // The functions are the same again, because the processor is.
        let _same = initialize(self.state, &self.symbols);
        false
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the state, which is not used again.
        unsafe { (self.symbols.free_mb_mgr)(self.state.as_ptr()) };
    }
}

/// Initializes a state, and returns its functions for this processor. Fails with the library's
/// error number if a function is missing, or if the library reports an error.
fn initialize(state: NonNull<State>, symbols: &Symbols) -> Result<Functions, c_int> {
    // SAFETY: `alloc_mb_mgr` allocated the state. The second argument may be null: the name of the
    // architecture isn't needed.
    unsafe { (symbols.init_mb_mgr_auto)(state.as_ptr(), ptr::null_mut()) };
    // SAFETY: the state begins as `State` in all known versions, and no other reference to it
    // exists.
    let state = unsafe { state.as_ref() };
    match functions(state) {
        Some(functions) if state.errno == 0 => Ok(functions),
        _ => Err(state.errno),
    }
}

fn functions(state: &State) -> Option<Functions> {
    let [aes128, aes192, aes256] = state.expand;
    Some(Functions {
        expand: [aes128?, aes192?, aes256?],
        hash_block: [
            state.sha1_one_block?,
            state.sha256_one_block?,
            state.sha384_one_block?,
            state.sha512_one_block?,
        ],
        cipher_burst: state.submit_cipher_burst?,
        hash_burst: state.submit_hash_burst?,
    })
}

/// Maximum number of messages of one call.
pub(crate) const BATCH: usize = 64;
