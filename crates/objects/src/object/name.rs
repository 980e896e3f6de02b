//! Names of programs and maps.

use std::fmt;

use towpath_bpf::Errno;

use crate::attr::NAME_BYTES;

/// A name as the kernel keeps it: at most 15 letters, digits, `_` and `.`; may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Name([u8; NAME_BYTES]);

impl Name {
    /// `bpf_obj_name_cpy`
    ///
    /// # Errors
    ///
    /// `EINVAL`: another character, or no zero at the end.
    pub fn parse(bytes: [u8; NAME_BYTES]) -> Result<Name, Errno> {
        let len = bytes.iter().position(|&byte| byte == 0).ok_or(Errno::EINVAL)?;
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        if !bytes[..len].iter().all(allowed) {
            return Err(Errno::EINVAL);
        }
        let mut name = Name::default();
        name.0[..len].copy_from_slice(&bytes[..len]);
        Ok(name)
    }

    /// The name that loaders give an object: what fits, with `_` for what isn't allowed.
    pub fn cut(text: &str) -> Name {
        let mut name = Name::default();
        for (to, from) in name.0.iter_mut().take(NAME_BYTES - 1).zip(text.bytes()) {
            let allowed = from.is_ascii_alphanumeric() || matches!(from, b'_' | b'.');
            *to = if allowed { from } else { b'_' };
        }
        name
    }

    /// The bytes of `struct bpf_*_info`, filled up with zeroes.
    pub fn bytes(&self) -> [u8; NAME_BYTES] {
        self.0
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        // Only ASCII gets in.
        std::str::from_utf8(&self.0[..len]).unwrap_or_default()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
