//! Files with the keys of SAs. Only their owner may read them, and no message shows their contents.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use towpath_document::unreadable;
use towpath_ipsec::{Keys, Suite};
use zeroize::Zeroizing;

/// Reads the keys of an SA: one key in hex in each line, that of the cipher (with the salt of an
/// AEAD behind it), then that of the HMAC. Empty lines and lines that begin with `#` do not count.
///
/// # Errors
///
/// Fails if the file cannot be read, if others than its owner can read or change it, or if the keys
/// do not fit the suite. The message begins with the path.
pub(crate) fn read_keys(path: &Path, suite: Suite) -> Result<Keys, String> {
    let mut bytes = Zeroizing::new([0_u8; KEY_FILE_BYTES_MAX]);
    let len = read(path, &mut *bytes).map_err(|error| unreadable(path, &error))?;
    parse(&bytes[..len], suite).map_err(|why| format!("{}: {why}", path.display()))
}

/// Tells keys apart without showing them.
pub(super) fn fingerprint(keys: &Keys) -> [u8; 32] {
    let (one, other) = (keys.encryption.bytes(), keys.integrity.bytes());
    let mut hash = Sha256::new();
    hash.update((one.len() as u64).to_le_bytes());
    hash.update(one);
    hash.update(other);
    hash.finalize().into()
}

/// Reads a regular file into a buffer that is large enough, so that no other memory has the keys.
fn read(path: &Path, bytes: &mut [u8]) -> io::Result<usize> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut file =
        File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("this is no regular file"));
    }
    if meta.permissions().mode() & FOR_OTHERS != 0 {
        let why = "others than its owner can read or change it: chmod 600";
        return Err(io::Error::other(why));
    }
    let mut len = 0;
    while len < bytes.len() {
        match file.read(&mut bytes[len..])? {
            0 => return Ok(len),
            more => len += more,
        }
    }
    Err(io::Error::other(format!("larger than {} bytes", KEY_FILE_BYTES_MAX - 1)))
}

fn parse(text: &[u8], suite: Suite) -> Result<Keys, String> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let lines: Vec<&[u8]> =
        lines.filter(|line| !line.is_empty() && !line.starts_with(b"#")).collect();
    let wanted = [suite.encryption_key_len(), suite.integrity_key_len()];
    let count = wanted.iter().filter(|len| **len > 0).count();
    if lines.len() != count {
        let s = if count == 1 { "" } else { "s" };
        let there = lines.len();
        return Err(format!("{suite} needs {count} line{s} with a key in hex, not {there}"));
    }
    let mut lines = lines.into_iter();
    let mut key = |len: usize| match len {
        0 => Ok(Vec::new()),
        _ => hex(lines.next().unwrap_or_default()),
    };
    let keys = Keys::new(key(wanted[0])?, key(wanted[1])?);
    keys.check(suite).map_err(|error| error.to_string())?;
    Ok(keys)
}

/// Bytes of a line in hex, with or without `0x`.
fn hex(line: &[u8]) -> Result<Vec<u8>, String> {
    let digits = line.strip_prefix(b"0x").unwrap_or(line);
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|it| it as u8);
    // All at once, since memory that a growing vector leaves behind is not overwritten.
    let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    for pair in digits.chunks(2) {
        let &[high, low] = pair else { return Err(NO_HEX.to_owned()) };
        let (high, low) = digit(high).zip(digit(low)).ok_or(NO_HEX)?;
        bytes.push(high << 4 | low);
    }
    Ok(std::mem::take(&mut *bytes))
}

const NO_HEX: &str = "a line is not a key: an even number of hex digits";
/// Longest file, with room for two keys and comments, and one byte more.
const KEY_FILE_BYTES_MAX: usize = 4097;
/// Permission bits of others than the owner: to read and to write.
const FOR_OTHERS: u32 = 0o066;

#[cfg(test)]
mod tests {
    use towpath_ipsec::{Aead, Cipher, Hmac};

    use super::*;

    const GCM: Suite = Suite::Aead(Aead::Aes128Gcm);
    const CBC: Suite = Suite::CipherThenHmac(Cipher::Aes128Cbc, Hmac::Sha1_96);

    #[test]
    fn each_line_is_a_key() {
        let keys = parse(format!("# ours\n\n 0x{} \n", "0aB1".repeat(10)).as_bytes(), GCM);
        let keys = keys.expect("20 bytes");
        assert_eq!(keys.encryption.bytes(), [0x0a, 0xb1].repeat(10));
        let two = format!("{}\r\n{}", "01".repeat(16), "02".repeat(20));
        let keys = parse(two.as_bytes(), CBC).expect("two keys");
        assert_eq!(keys.integrity.bytes(), [2; 20]);
        let none = Suite::CipherThenHmac(Cipher::Null, Hmac::Sha256_128);
        let keys = parse("03".repeat(32).as_bytes(), none).expect("one key");
        assert_eq!((keys.encryption.bytes(), keys.integrity.bytes()), (&[][..], &[3; 32][..]));
    }

    #[test]
    fn what_is_wrong_with_a_key_is_said_without_showing_it() {
        let secret = "5ec2e7";
        for (text, suite, why) in [
            ("", GCM, "needs 1 line with a key in hex, not 0"),
            (secret, CBC, "needs 2 lines with a key in hex, not 1"),
            (secret, GCM, "needs an encryption key of 20 bytes"),
            ("5ec2e7x", GCM, "an even number of hex digits"),
            ("5ec2e", GCM, "an even number of hex digits"),
        ] {
            let said = parse(text.as_bytes(), suite).expect_err(text);
            assert!(said.contains(why) && !said.contains("5ec2e"), "{said}");
        }
    }

    #[test]
    fn only_its_owner_may_read_a_file_of_keys() {
        let path = std::env::temp_dir().join(format!("towpath-keys-{}", std::process::id()));
        std::fs::write(&path, "07".repeat(20)).expect("there is room");
        let chmod = |mode: u32| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("it is ours");
        };
        for mode in [0o604, 0o640, 0o620, 0o602] {
            chmod(mode);
            let why = read_keys(&path, GCM).expect_err("others have access");
            assert!(why.ends_with("others than its owner can read or change it: chmod 600"));
        }
        chmod(0o600);
        assert_eq!(read_keys(&path, GCM).expect("it is fine").encryption.bytes(), [7; 20]);
        std::fs::write(&path, "\n".repeat(KEY_FILE_BYTES_MAX)).expect("there is room");
        assert!(read_keys(&path, GCM).expect_err("too much").ends_with("larger than 4096 bytes"));
        std::fs::remove_file(&path).expect("it is ours");
        assert!(read_keys(&path, GCM).expect_err("it is gone").contains("No such file"));
        assert!(read_keys(Path::new("/dev"), GCM).expect_err("a folder").contains("no regular"));
    }
}
