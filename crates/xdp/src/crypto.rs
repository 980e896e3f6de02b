//! Ciphers behind the kernel's crypto kfuncs.
//!
//! Kernel counterparts: `crypto/bpf_crypto_skcipher.c`, and the templates `ecb`, `cbc` and `ctr`.
//! A cipher works in place, ECB and CBC on whole blocks only. As in the kernel, the caller keeps
//! the initialisation vector, and each call replaces it with the vector for the bytes that follow.

#[cfg(test)]
use std::cell::Cell;

use aes::cipher::consts::U16;
use aes::cipher::{
    Block, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt,
    BlockSizeUser, InnerIvInit, IvState, KeyInit, StreamCipher, StreamCipherCoreWrapper,
};
use aes::{Aes128, Aes192, Aes256};
use ctr::CtrCore;
use ctr::flavors::Ctr128BE;
use towpath_bpf::Errno;

/// A cipher with its key, which is wiped when the cipher is dropped.
pub(crate) struct Cipher {
    mode: Mode,
    aes: Aes,
}

/// Direction of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Encrypt,
    Decrypt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Encrypts each block on its own.
    Ecb,
    /// Encrypts each block combined with the encrypted block before it.
    Cbc,
    /// Combines the bytes with a stream: the encrypted numbers of the blocks.
    Ctr,
}

/// AES with a key of 128, 192 or 256 bits.
enum Aes {
    Bits128(Aes128),
    Bits192(Aes192),
    Bits256(Aes256),
}

impl Cipher {
    /// The cipher of this name, with this key.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if no cipher has this name, and `EINVAL` if AES has no keys of this length.
    pub(crate) fn new(name: &[u8], key: &[u8]) -> Result<Cipher, Errno> {
        let mode = Mode::of(name).ok_or(Errno::EOPNOTSUPP)?;
        let aes = match key.len() {
            16 => Aes128::new_from_slice(key).map(Aes::Bits128),
            24 => Aes192::new_from_slice(key).map(Aes::Bits192),
            _ => Aes256::new_from_slice(key).map(Aes::Bits256),
        };
        let aes = aes.map_err(|_other_length| Errno::EINVAL)?;
        #[cfg(test)]
        LIVE.with(|live| live.set(live.get() + 1));
        Ok(Cipher { mode, aes })
    }

    /// Whether there is a cipher of this name.
    pub(crate) fn is_known(name: &[u8]) -> bool {
        Mode::of(name).is_some()
    }

    /// Length in bytes of the initialisation vector; 0 if the mode has none.
    pub(crate) fn iv_bytes(&self) -> usize {
        match self.mode {
            Mode::Ecb => 0,
            Mode::Cbc | Mode::Ctr => BLOCK_BYTES,
        }
    }

    /// Number of bytes, out of `len`, that one call can work on: all, or only whole blocks.
    pub(crate) fn takes(&self, len: usize) -> usize {
        match self.mode {
            Mode::Ecb | Mode::Cbc => len - len % BLOCK_BYTES,
            Mode::Ctr => len,
        }
    }

    /// Encrypts or decrypts bytes in place, and replaces `iv` with the vector for the bytes that
    /// follow.
    ///
    /// # Panics
    ///
    /// Panics if the cipher can't work on this number of bytes ([`Cipher::takes`]).
    pub(crate) fn apply(&self, direction: Direction, bytes: &mut [u8], iv: &mut [u8; BLOCK_BYTES]) {
        assert_eq!(self.takes(bytes.len()), bytes.len(), "whole blocks");
        match &self.aes {
            Aes::Bits128(aes) => apply(aes, self.mode, direction, bytes, iv),
            Aes::Bits192(aes) => apply(aes, self.mode, direction, bytes, iv),
            Aes::Bits256(aes) => apply(aes, self.mode, direction, bytes, iv),
        }
    }
}

/// Number of ciphers that exist in the calling thread.
#[cfg(test)]
pub(crate) fn live() -> usize {
    LIVE.with(Cell::get)
}

#[cfg(test)]
thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

#[cfg(test)]
impl Drop for Cipher {
    fn drop(&mut self) {
        LIVE.with(|live| live.set(live.get() - 1));
    }
}

impl Mode {
    fn of(name: &[u8]) -> Option<Mode> {
        match name {
            b"ecb(aes)" => Some(Mode::Ecb),
            b"cbc(aes)" => Some(Mode::Cbc),
            b"ctr(aes)" => Some(Mode::Ctr),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Cipher {
    /// Omits the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cipher").field("mode", &self.mode).finish_non_exhaustive()
    }
}

fn apply<C>(aes: &C, mode: Mode, direction: Direction, bytes: &mut [u8], iv: &mut [u8; BLOCK_BYTES])
where
    C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let (blocks, _rest) = Block::<C>::slice_as_chunks_mut(bytes);
    match (mode, direction) {
        (Mode::Ecb, Direction::Encrypt) => aes.encrypt_blocks(blocks),
        (Mode::Ecb, Direction::Decrypt) => aes.decrypt_blocks(blocks),
        (Mode::Cbc, Direction::Encrypt) => {
            let mut cbc = cbc::Encryptor::inner_iv_init(aes, &(*iv).into());
            cbc.encrypt_blocks(blocks);
            *iv = cbc.iv_state().into();
        }
        (Mode::Cbc, Direction::Decrypt) => {
            let mut cbc = cbc::Decryptor::inner_iv_init(aes, &(*iv).into());
            cbc.decrypt_blocks(blocks);
            *iv = cbc.iv_state().into();
        }
        (Mode::Ctr, _) => {
            let used = bytes.len().div_ceil(BLOCK_BYTES) as u128;
            let ctr = CtrCore::<_, Ctr128BE>::inner_iv_init(aes, &(*iv).into());
            StreamCipherCoreWrapper::from_core(ctr).apply_keystream(bytes);
            *iv = u128::from_be_bytes(*iv).wrapping_add(used).to_be_bytes();
        }
    }
}

/// Size in bytes of an AES block.
pub(crate) const BLOCK_BYTES: usize = 16;

#[cfg(test)]
mod tests;
