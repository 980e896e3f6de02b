//! Suites: the algorithms of an SA, with the sizes that ESP needs, and their keys.

use std::fmt;

use strum::VariantArray;
use zeroize::Zeroizing;

/// Algorithms for the encryption and the integrity of an SA's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Suite {
    /// An AEAD, which both encrypts and protects the integrity.
    Aead(Aead),
    /// Encryption, then an HMAC of the encrypted bytes (RFC 4303, 3.3.2.1).
    CipherThenHmac(Cipher, Hmac),
}

/// An algorithm for encryption with integrity. Its key ends with a salt of 4 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, VariantArray)]
pub enum Aead {
    /// AES-GCM with a key of 128 bits and an ICV of 16 bytes (RFC 4106).
    Aes128Gcm,
    /// AES-GCM with a key of 256 bits and an ICV of 16 bytes (RFC 4106).
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
}

/// An algorithm for encryption without integrity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, VariantArray)]
pub enum Cipher {
    /// No encryption (RFC 2410).
    Null,
    /// AES-CBC with a key of 128 bits (RFC 3602).
    Aes128Cbc,
    /// AES-CBC with a key of 192 bits (RFC 3602).
    Aes192Cbc,
    /// AES-CBC with a key of 256 bits (RFC 3602).
    Aes256Cbc,
}

/// An algorithm for integrity: a truncated HMAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, VariantArray)]
pub enum Hmac {
    /// HMAC-SHA1-96 (RFC 2404).
    Sha1_96,
    /// HMAC-SHA-256-128 (RFC 4868).
    Sha256_128,
    /// HMAC-SHA-384-192 (RFC 4868).
    Sha384_192,
    /// HMAC-SHA-512-256 (RFC 4868).
    Sha512_256,
}

impl Suite {
    /// All suites.
    pub fn all() -> impl Iterator<Item = Suite> {
        let aeads = Aead::VARIANTS.iter().map(|&aead| Suite::Aead(aead));
        let pairs = Cipher::VARIANTS.iter().flat_map(|&cipher| {
            Hmac::VARIANTS.iter().map(move |&hmac| Suite::CipherThenHmac(cipher, hmac))
        });
        aeads.chain(pairs)
    }

    /// Length in bytes of the IV in each packet.
    pub const fn iv_len(self) -> usize {
        match self {
            Suite::Aead(_) => 8,
            Suite::CipherThenHmac(Cipher::Null, _) => 0,
            Suite::CipherThenHmac(_, _) => 16,
        }
    }

    /// Length in bytes of the integrity check value in each packet.
    pub const fn icv_len(self) -> usize {
        match self {
            Suite::Aead(_) | Suite::CipherThenHmac(_, Hmac::Sha256_128) => 16,
            Suite::CipherThenHmac(_, Hmac::Sha1_96) => 12,
            Suite::CipherThenHmac(_, Hmac::Sha384_192) => 24,
            Suite::CipherThenHmac(_, Hmac::Sha512_256) => 32,
        }
    }

    /// Block length in bytes, of which the length of a packet's encrypted part is a multiple.
    pub const fn block_len(self) -> usize {
        match self {
            Suite::Aead(_) | Suite::CipherThenHmac(Cipher::Null, _) => 4,
            Suite::CipherThenHmac(_, _) => 16,
        }
    }

    /// Length in bytes of the encryption key, including the salt of an AEAD.
    pub const fn encryption_key_len(self) -> usize {
        match self {
            Suite::Aead(Aead::Aes128Gcm) => 16 + SALT_LEN,
            Suite::Aead(Aead::Aes256Gcm | Aead::ChaCha20Poly1305) => 32 + SALT_LEN,
            Suite::CipherThenHmac(Cipher::Null, _) => 0,
            Suite::CipherThenHmac(Cipher::Aes128Cbc, _) => 16,
            Suite::CipherThenHmac(Cipher::Aes192Cbc, _) => 24,
            Suite::CipherThenHmac(Cipher::Aes256Cbc, _) => 32,
        }
    }

    /// Length in bytes of the integrity key.
    pub const fn integrity_key_len(self) -> usize {
        match self {
            Suite::Aead(_) => 0,
            Suite::CipherThenHmac(_, Hmac::Sha1_96) => 20,
            Suite::CipherThenHmac(_, Hmac::Sha256_128) => 32,
            Suite::CipherThenHmac(_, Hmac::Sha384_192) => 48,
            Suite::CipherThenHmac(_, Hmac::Sha512_256) => 64,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Suite::Aead(aead) => f.write_str(match aead {
                Aead::Aes128Gcm => "AES-GCM-128",
                Aead::Aes256Gcm => "AES-GCM-256",
                Aead::ChaCha20Poly1305 => "ChaCha20-Poly1305",
            }),
            Suite::CipherThenHmac(cipher, hmac) => {
                let cipher = match cipher {
                    Cipher::Null => "NULL",
                    Cipher::Aes128Cbc => "AES-CBC-128",
                    Cipher::Aes192Cbc => "AES-CBC-192",
                    Cipher::Aes256Cbc => "AES-CBC-256",
                };
                let hmac = match hmac {
                    Hmac::Sha1_96 => "HMAC-SHA1-96",
                    Hmac::Sha256_128 => "HMAC-SHA-256-128",
                    Hmac::Sha384_192 => "HMAC-SHA-384-192",
                    Hmac::Sha512_256 => "HMAC-SHA-512-256",
                };
                write!(f, "{cipher} with {hmac}")
            }
        }
    }
}

/// A key's bytes. They are never printed, and are overwritten when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

/// The keys of an SA.
#[derive(Debug, Clone)]
pub struct Keys {
    /// Key of the AEAD, followed by its salt, or key of the cipher.
    pub encryption: Secret,
    /// Key of the HMAC; empty for an AEAD.
    pub integrity: Secret,
}

impl Keys {
    /// The keys of an SA. `encryption` is the key of the AEAD, followed by its salt, or the key of
    /// the cipher; `integrity` is the key of the HMAC, or empty for an AEAD.
    pub fn new(encryption: Vec<u8>, integrity: Vec<u8>) -> Keys {
        Keys { encryption: encryption.into(), integrity: integrity.into() }
    }

    /// Checks the lengths of the keys.
    ///
    /// # Errors
    ///
    /// Fails if a key has the wrong length for the suite.
    pub fn check(&self, suite: Suite) -> Result<(), KeyError> {
        let (wanted, given) = (suite.encryption_key_len(), self.encryption.bytes().len());
        if wanted != given {
            return Err(KeyError::Encryption { suite, wanted, given });
        }
        let (wanted, given) = (suite.integrity_key_len(), self.integrity.bytes().len());
        if wanted != given {
            return Err(KeyError::Integrity { suite, wanted, given });
        }
        Ok(())
    }
}

/// Errors in the keys of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The encryption key has the wrong length.
    #[error(
        "{suite} needs an encryption key of {wanted} bytes (an AEAD's includes the salt of 4), \
         not {given}"
    )]
    Encryption {
        /// The SA's suite.
        suite: Suite,
        /// Length in bytes that the suite needs.
        wanted: usize,
        /// Length in bytes of the given key.
        given: usize,
    },
    /// The integrity key has the wrong length.
    #[error("{suite} needs an integrity key of {wanted} bytes, not {given}")]
    Integrity {
        /// The SA's suite.
        suite: Suite,
        /// Length in bytes that the suite needs.
        wanted: usize,
        /// Length in bytes of the given key.
        given: usize,
    },
    /// The library refused a key, or provided no random numbers.
    #[error("the cryptographic library refused the keys for {0}")]
    Library(Suite),
}

/// Length in bytes of the salt after an AEAD's key.
pub(crate) const SALT_LEN: usize = 4;
