//! The keys of an SA in the form that the algorithms need, computed once.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit,
    KeyInit,
};
use aes::{Aes128, Aes192, Aes256};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use crate::engine::{Status, Work};
use crate::suite::{Aead, Cipher, Hmac, KeyError, Keys, SALT_LEN, Suite};

/// Keys in the form that [`Direct`](crate::Direct) uses. Other engines find the bytes of the keys
/// in [`Schedule::keys`], and store the form that they need by [`Schedule::derived`].
pub struct Schedule {
    suite: Suite,
    keys: Keys,
    /// The salt of an AEAD; zeros for other suites.
    salt: Zeroizing<[u8; SALT_LEN]>,
    prepared: Prepared,
    /// Keys in the form of another engine.
    derived: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// Key objects of the libraries, so that nothing is derived per packet.
enum Prepared {
    Aead(LessSafeKey),
    CipherThenHmac(BlockKey, Box<hmac::Key>),
}

/// The AES key schedule for both directions.
enum BlockKey {
    Null,
    Aes128(Box<Aes128>),
    Aes192(Box<Aes192>),
    Aes256(Box<Aes256>),
}

impl Schedule {
    /// Prepares keys.
    ///
    /// # Errors
    ///
    /// Fails if a key has the wrong length, or if the library refuses it.
    pub fn new(suite: Suite, keys: Keys) -> Result<Schedule, KeyError> {
        keys.check(suite)?;
        let prepared = match suite {
            Suite::Aead(aead) => Prepared::Aead(aead_key(aead, &keys)?),
            Suite::CipherThenHmac(cipher, hash) => {
                let mac = hmac::Key::new(hmac_algorithm(hash), keys.integrity.bytes());
                Prepared::CipherThenHmac(block_key(cipher, hash, &keys)?, Box::new(mac))
            }
        };
        let salt = match suite {
            Suite::Aead(_) => keys.encryption.bytes().last_chunk().copied().unwrap_or_default(),
            Suite::CipherThenHmac(..) => [0; SALT_LEN],
        };
        let derived = OnceLock::new();
        Ok(Schedule { suite, keys, salt: Zeroizing::new(salt), prepared, derived })
    }

    /// The algorithms.
    #[inline]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The keys as they were given.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The keys in the form that another engine needs. The first call derives them, and they live
    /// as long as the schedule. `None` if an engine of another kind has stored a form of its own.
    #[inline]
    pub fn derived<K: Any + Send + Sync>(
        &self,
        derive: impl FnOnce(&Schedule) -> Box<K>,
    ) -> Option<&K> {
        let derived = self.derived.get_or_init(|| derive(self));
        (**derived).downcast_ref()
    }

    /// The salt of an AEAD; 0 for other suites.
    #[inline]
    pub(crate) fn salt(&self) -> u32 {
        u32::from_be_bytes(*self.salt)
    }

    /// The ranges of the encrypted part and of the ICV in a packet of `len` bytes. `None` if they
    /// are out of order or end after the packet.
    #[inline]
    pub fn ranges(&self, work: &Work, len: usize) -> Option<(Range<usize>, Range<usize>)> {
        let tag = work.tag as usize..work.tag as usize + self.suite.icv_len();
        let cipher = range(&work.cipher);
        let is_right = cipher.start <= cipher.end && cipher.end <= tag.start && tag.end <= len;
        is_right.then_some((cipher, tag))
    }

    /// Encrypts the range `work.cipher` and writes the ICV.
    pub(crate) fn seal(&self, work: &Work, bytes: &mut [u8]) -> Status {
        let Some((cipher, tag)) = self.ranges(work, bytes.len()) else { return Status::Failed };
        match &self.prepared {
            Prepared::Aead(key) => {
                let aad = Aad::from(work.extra());
                match key.seal_in_place_separate_tag(work.nonce(), aad, &mut bytes[cipher]) {
                    Ok(icv) => bytes[tag].copy_from_slice(icv.as_ref()),
                    Err(_unspecified) => return Status::Failed,
                }
            }
            Prepared::CipherThenHmac(key, mac) => {
                if !key.encrypt(work, &mut bytes[cipher]) {
                    return Status::Failed;
                }
                let Some(icv) = authenticate(mac, work, bytes) else { return Status::Failed };
                let len = tag.len();
                bytes[tag].copy_from_slice(&icv.as_ref()[..len]);
            }
        }
        Status::Done
    }

    /// Checks the ICV and decrypts the range `work.cipher`. If the ICV is wrong, the range keeps no
    /// decrypted bytes.
    pub(crate) fn open(&self, work: &Work, bytes: &mut [u8]) -> Status {
        let Some((cipher, tag)) = self.ranges(work, bytes.len()) else { return Status::Failed };
        match &self.prepared {
            Prepared::Aead(key) => {
                if cipher.end != tag.start {
                    return Status::Failed;
                }
                let aad = Aad::from(work.extra());
                let (start, end) = (cipher.start, cipher.end);
                if key.open_in_place(work.nonce(), aad, &mut bytes[start..tag.end]).is_err() {
                    bytes[start..end].fill(0);
                    return Status::BadTag;
                }
            }
            Prepared::CipherThenHmac(key, mac) => {
                let Some(icv) = authenticate(mac, work, bytes) else { return Status::Failed };
                let len = tag.len();
                if verify_slices_are_equal(&icv.as_ref()[..len], &bytes[tag]).is_err() {
                    return Status::BadTag;
                }
                if !key.decrypt(work, &mut bytes[cipher]) {
                    return Status::Failed;
                }
            }
        }
        Status::Done
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule").field("suite", &self.suite).finish_non_exhaustive()
    }
}

impl BlockKey {
    /// Encrypts whole blocks; returns false if the last block is incomplete.
    fn encrypt(&self, work: &Work, bytes: &mut [u8]) -> bool {
        match self {
            BlockKey::Null => true,
            BlockKey::Aes128(key) => encrypt_cbc(&**key, work, bytes),
            BlockKey::Aes192(key) => encrypt_cbc(&**key, work, bytes),
            BlockKey::Aes256(key) => encrypt_cbc(&**key, work, bytes),
        }
    }

    /// Decrypts whole blocks; returns false if the last block is incomplete.
    fn decrypt(&self, work: &Work, bytes: &mut [u8]) -> bool {
        match self {
            BlockKey::Null => true,
            BlockKey::Aes128(key) => decrypt_cbc(&**key, work, bytes),
            BlockKey::Aes192(key) => decrypt_cbc(&**key, work, bytes),
            BlockKey::Aes256(key) => decrypt_cbc(&**key, work, bytes),
        }
    }
}

fn encrypt_cbc<C: BlockCipherEncrypt<BlockSize = U16>>(
    key: &C,
    work: &Work,
    bytes: &mut [u8],
) -> bool {
    let (blocks, rest) = bytes.as_chunks_mut();
    let blocks = Array::cast_slice_from_core_mut(blocks);
    cbc::Encryptor::inner_iv_init(key, &work.iv.into()).encrypt_blocks(blocks);
    rest.is_empty()
}

fn decrypt_cbc<C: BlockCipherDecrypt<BlockSize = U16>>(
    key: &C,
    work: &Work,
    bytes: &mut [u8],
) -> bool {
    let (blocks, rest) = bytes.as_chunks_mut();
    let blocks = Array::cast_slice_from_core_mut(blocks);
    cbc::Decryptor::inner_iv_init(key, &work.iv.into()).decrypt_blocks(blocks);
    rest.is_empty()
}

/// The HMAC of the range `work.authenticate`, followed by the upper half of an extended sequence
/// number. `None` if the range is not within the packet.
fn authenticate(mac: &hmac::Key, work: &Work, bytes: &[u8]) -> Option<hmac::Tag> {
    let mut context = hmac::Context::with_key(mac);
    context.update(bytes.get(range(&work.authenticate))?);
    if work.extra_len > 0 {
        context.update(work.extra());
    }
    Some(context.sign())
}

fn aead_key(aead: Aead, keys: &Keys) -> Result<LessSafeKey, KeyError> {
    let algorithm = match aead {
        Aead::Aes128Gcm => &AES_128_GCM,
        Aead::Aes256Gcm => &AES_256_GCM,
        Aead::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    };
    let (key, _salt) = keys.encryption.bytes().split_at(algorithm.key_len());
    let key = UnboundKey::new(algorithm, key);
    key.map(LessSafeKey::new).map_err(|_unspecified| KeyError::Library(Suite::Aead(aead)))
}

fn hmac_algorithm(hash: Hmac) -> hmac::Algorithm {
    match hash {
        Hmac::Sha1_96 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Hmac::Sha256_128 => hmac::HMAC_SHA256,
        Hmac::Sha384_192 => hmac::HMAC_SHA384,
        Hmac::Sha512_256 => hmac::HMAC_SHA512,
    }
}

fn block_key(cipher: Cipher, hash: Hmac, keys: &Keys) -> Result<BlockKey, KeyError> {
    let key = keys.encryption.bytes();
    let key = match cipher {
        Cipher::Null => Ok(BlockKey::Null),
        Cipher::Aes128Cbc => Aes128::new_from_slice(key).map(|it| BlockKey::Aes128(it.into())),
        Cipher::Aes192Cbc => Aes192::new_from_slice(key).map(|it| BlockKey::Aes192(it.into())),
        Cipher::Aes256Cbc => Aes256::new_from_slice(key).map(|it| BlockKey::Aes256(it.into())),
    };
    key.map_err(|_length| KeyError::Library(Suite::CipherThenHmac(cipher, hash)))
}

fn range(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}
