//! Keys in the form that the library needs, derived once for each SA.

use std::ffi::c_void;

use towpath_ipsec::{Cipher, Hmac, Schedule, Suite};
use zeroize::{Zeroize, Zeroizing};

use crate::manager_unsafe::{KeyLen, Manager};

/// Expanded keys of AES, and hash states of the HMAC. They are overwritten when dropped.
pub(crate) struct MbKeys {
    /// Round keys for encryption.
    pub(crate) encrypt: RoundKeys,
    /// Round keys for decryption.
    pub(crate) decrypt: RoundKeys,
    /// State of the hash after the block of the key with `ipad` (RFC 2104).
    pub(crate) inner: HashState,
    /// State of the hash after the block of the key with `opad`.
    pub(crate) outer: HashState,
}

/// Round keys: at most 15 blocks, with the alignment that the library needs.
#[repr(C, align(16))]
pub(crate) struct RoundKeys([u8; 15 * 16]);

/// State of a hash in the library's form: at most that of SHA-512.
pub(crate) type HashState = [u8; 64];

impl RoundKeys {
    const ZERO: RoundKeys = RoundKeys([0; _]);

    pub(crate) fn as_ptr(&self) -> *const c_void {
        (&raw const self.0).cast()
    }
}

impl MbKeys {
    /// Derives the keys of a schedule; those of an AEAD are zeros, and not used.
    pub(crate) fn derive(manager: &Manager, schedule: &Schedule) -> Box<MbKeys> {
        let (encrypt, decrypt) = (RoundKeys::ZERO, RoundKeys::ZERO);
        let mut derived = Box::new(MbKeys { encrypt, decrypt, inner: [0; _], outer: [0; _] });
        let Suite::CipherThenHmac(cipher, hmac) = schedule.suite() else { return derived };
        let MbKeys { encrypt, decrypt, inner, outer } = &mut *derived;
        if let Some(len) = key_len(cipher) {
            manager.expand(len, schedule.keys().encryption.bytes(), encrypt, decrypt);
        }
        for (state, pad) in [(inner, 0x36), (outer, 0x5c)] {
            let mut block = Zeroizing::new([pad; BLOCK_LEN_MAX]);
            let key = schedule.keys().integrity.bytes();
            block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
            manager.hash_block(hmac, &block, state);
        }
        derived
    }
}

impl Drop for MbKeys {
    fn drop(&mut self) {
        let MbKeys { encrypt, decrypt, inner, outer } = self;
        encrypt.0.zeroize();
        decrypt.0.zeroize();
        inner.zeroize();
        outer.zeroize();
    }
}

/// Length of the AES key; `None` without encryption.
pub(crate) fn key_len(cipher: Cipher) -> Option<KeyLen> {
    match cipher {
        Cipher::Null => None,
        Cipher::Aes128Cbc => Some(KeyLen::Aes128),
        Cipher::Aes192Cbc => Some(KeyLen::Aes192),
        Cipher::Aes256Cbc => Some(KeyLen::Aes256),
    }
}

/// Length of the ICV.
pub(crate) const fn icv_len(hmac: Hmac) -> usize {
    Suite::CipherThenHmac(Cipher::Null, hmac).icv_len()
}

/// Length in bytes of the longest block of a hash, that of SHA-512.
pub(crate) const BLOCK_LEN_MAX: usize = 128;
