//! Algorithms by the names that the kernel's crypto API gives them (`net/xfrm/xfrm_algo.c`).

use netlink_packet_xfrm::{Alg, AlgAead, AlgAuth, XfrmAttrs};
use towpath_ipsec::{Aead, Cipher, Hmac, Keys, Suite};
use zeroize::Zeroize as _;

use crate::refused::{ENOSYS, Refused};

/// The suite and the keys that attributes name.
///
/// # Errors
///
/// The kernel's errors for algorithms that it doesn't know, and for keys of the wrong length.
pub(crate) fn suite(attributes: &[XfrmAttrs]) -> Result<(Suite, Keys), Refused> {
    let (mut aead, mut cipher, mut hmac) = (None, None, None);
    for attribute in attributes {
        match attribute {
            XfrmAttrs::EncryptionAlgAead(it) => aead = Some(it),
            XfrmAttrs::EncryptionAlg(it) => cipher = Some(it),
            XfrmAttrs::AuthenticationAlgTrunc(it) => hmac = Some(truncated(it)?),
            // The same with a default length, which a truncated one overrides.
            XfrmAttrs::AuthenticationAlg(it) if hmac.is_none() => hmac = Some(default_len(it)?),
            _ => {}
        }
    }
    let (suite, keys) = match (aead, cipher, hmac) {
        (Some(it), None, None) => (Suite::Aead(of_aead(it)?), keys(Some(key_of_aead(it)?), None)),
        (None, Some(it), Some((hash, integrity))) => {
            let encryption = key(&it.alg_key, it.alg_key_len)?;
            let cipher = of_cipher(it, encryption.len())?;
            (Suite::CipherThenHmac(cipher, hash), keys(Some(encryption), Some(integrity)))
        }
        (None, Some(_), None) => {
            return Err(Refused::unsupported("encryption without integrity"));
        }
        (None, None, _) => return Err(Refused::malformed("the SA has no encryption algorithm")),
        (Some(_), ..) => {
            return Err(Refused::malformed("the SA has an AEAD and other algorithms beside it"));
        }
    };
    keys.check(suite).map_err(|error| Refused::malformed(error.to_string()))?;
    Ok((suite, keys))
}

fn keys(encryption: Option<&[u8]>, integrity: Option<&[u8]>) -> Keys {
    let owned = |key: Option<&[u8]>| key.unwrap_or_default().to_vec();
    Keys::new(owned(encryption), owned(integrity))
}

fn of_aead(it: &AlgAead) -> Result<Aead, Refused> {
    let name = name(&it.alg_name);
    let bits = it.alg_key_len;
    let aead = match (name.as_str(), bits) {
        ("rfc4106(gcm(aes))", AES_128_GCM_BITS) => Aead::Aes128Gcm,
        ("rfc4106(gcm(aes))", AES_256_GCM_BITS) => Aead::Aes256Gcm,
        ("rfc7539esp(chacha20,poly1305)", _) => Aead::ChaCha20Poly1305,
        ("rfc4106(gcm(aes))", _) => {
            return Err(Refused::new(
                ENOSYS,
                format!(
                    "AES-GCM has keys of {AES_128_GCM_BITS} or {AES_256_GCM_BITS} bits, not {bits}"
                ),
            ));
        }
        _ => return Err(unknown("AEAD", &name)),
    };
    let expected = 8 * Suite::Aead(aead).icv_len() as u32;
    if it.alg_icv_len != expected {
        let given = it.alg_icv_len;
        return Err(Refused::new(
            ENOSYS,
            format!("{name} has an ICV of {expected} bits here, not {given}"),
        ));
    }
    Ok(aead)
}

fn key_of_aead(it: &AlgAead) -> Result<&[u8], Refused> {
    key(&it.alg_key, it.alg_key_len)
}

fn of_cipher(it: &Alg, key_len: usize) -> Result<Cipher, Refused> {
    let name = name(&it.alg_name);
    match (name.as_str(), key_len) {
        ("cbc(aes)" | "aes", 16) => Ok(Cipher::Aes128Cbc),
        ("cbc(aes)" | "aes", 24) => Ok(Cipher::Aes192Cbc),
        ("cbc(aes)" | "aes", 32) => Ok(Cipher::Aes256Cbc),
        ("cbc(aes)" | "aes", _) => {
            Err(Refused::malformed(format!("AES has keys of 16, 24 or 32 bytes, not {key_len}")))
        }
        ("ecb(cipher_null)" | "cipher_null", _) => Ok(Cipher::Null),
        _ => Err(unknown("encryption algorithm", &name)),
    }
}

/// An HMAC with the ICV's length of the request.
fn truncated(it: &AlgAuth) -> Result<(Hmac, &[u8]), Refused> {
    let name = name(&it.alg_name);
    let hash = of_hash(&name)?;
    let expected = icv_bits(hash);
    if it.alg_trunc_len != expected {
        let given = it.alg_trunc_len;
        return Err(Refused::new(
            ENOSYS,
            format!("{name} has an ICV of {expected} bits here, not {given}"),
        ));
    }
    Ok((hash, key(&it.alg_key, it.alg_key_len)?))
}

/// An HMAC with the kernel's default length of the ICV, which for SHA-256 is not the one of RFC
/// 4868.
fn default_len(it: &Alg) -> Result<(Hmac, &[u8]), Refused> {
    let name = name(&it.alg_name);
    match of_hash(&name)? {
        Hmac::Sha256_128 => Err(Refused::new(
            ENOSYS,
            "hmac(sha256) without a length has an ICV of 96 bits, which is not supported",
        )),
        hash => Ok((hash, key(&it.alg_key, it.alg_key_len)?)),
    }
}

fn of_hash(name: &str) -> Result<Hmac, Refused> {
    match name {
        "hmac(sha1)" | "sha1" => Ok(Hmac::Sha1_96),
        "hmac(sha256)" | "sha256" => Ok(Hmac::Sha256_128),
        "hmac(sha384)" | "sha384" => Ok(Hmac::Sha384_192),
        "hmac(sha512)" | "sha512" => Ok(Hmac::Sha512_256),
        _ => Err(unknown("authentication algorithm", name)),
    }
}

fn icv_bits(hash: Hmac) -> u32 {
    8 * Suite::CipherThenHmac(Cipher::Null, hash).icv_len() as u32
}

/// The key of an attribute, whose length is given in bits.
fn key(bytes: &[u8], bits: u32) -> Result<&[u8], Refused> {
    let len = (bits as usize).div_ceil(8);
    bytes.get(..len).ok_or_else(|| {
        Refused::malformed(format!("a key of {bits} bits has only {} bytes", bytes.len()))
    })
}

fn name(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

fn unknown(what: &str, name: &str) -> Refused {
    Refused::new(ENOSYS, format!("the {what} {name:?} is not supported"))
}

/// Overwrites the keys in attributes.
pub(crate) fn wipe(attributes: &mut [XfrmAttrs]) {
    for attribute in attributes {
        match attribute {
            XfrmAttrs::EncryptionAlgAead(it) => it.alg_key.zeroize(),
            XfrmAttrs::EncryptionAlg(it) | XfrmAttrs::AuthenticationAlg(it) => {
                it.alg_key.zeroize();
            }
            XfrmAttrs::AuthenticationAlgTrunc(it) => it.alg_key.zeroize(),
            _ => {}
        }
    }
}

/// Key and salt of 4 bytes.
const AES_128_GCM_BITS: u32 = 128 + 32;
const AES_256_GCM_BITS: u32 = 256 + 32;
