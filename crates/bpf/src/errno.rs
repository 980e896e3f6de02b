//! Error numbers as the kernel returns them to programs and to callers of `bpf(2)`.

use std::fmt;

/// A kernel error number, positive (`Errno::ENOENT` is 2). Programs see its negation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($value);)*

            /// The symbolic name, e.g. `"ENOENT"`; `None` for a number this table lacks.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some(stringify!($name)),)* _ => None }
            }

            /// Meaning of the number, in a few words.
            pub fn text(self) -> &'static str {
                match self.0 { $($value => $text,)* _ => "unknown error" }
            }
        }
    };
}

errnos! {
    EPERM = 1, "operation not permitted";
    ENOENT = 2, "no such entry";
    EINTR = 4, "interrupted";
    EIO = 5, "input or output error";
    ENXIO = 6, "no such device or address";
    E2BIG = 7, "too big, or full";
    EBADF = 9, "bad descriptor";
    EAGAIN = 11, "try again";
    ENOMEM = 12, "out of memory";
    EACCES = 13, "not allowed";
    EFAULT = 14, "bad address";
    EBUSY = 16, "busy";
    EEXIST = 17, "already exists";
    ENODEV = 19, "no such device";
    ENOTDIR = 20, "not a directory";
    EISDIR = 21, "is a directory";
    EINVAL = 22, "invalid argument";
    ENOSPC = 28, "no space left";
    EPIPE = 32, "broken pipe";
    ERANGE = 34, "out of range";
    EDEADLK = 35, "would deadlock";
    ENAMETOOLONG = 36, "name too long";
    ENOSYS = 38, "not implemented";
    ENOTEMPTY = 39, "directory not empty";
    EBADFD = 77, "descriptor in a bad state";
    EMFILE = 24, "too many descriptors";
    EILSEQ = 84, "invalid byte sequence";
    ENODATA = 61, "no data";
    ENOLINK = 67, "link gone";
    EPROTO = 71, "protocol error";
    EBADMSG = 74, "bad message";
    EOVERFLOW = 75, "value too large";
    EBADRQC = 56, "invalid request code";
    ENOTSOCK = 88, "not a socket";
    EMSGSIZE = 90, "message too long";
    EPROTONOSUPPORT = 93, "protocol not supported";
    EOPNOTSUPP = 95, "operation not supported";
    EAFNOSUPPORT = 97, "address family not supported";
    ENETDOWN = 100, "network is down";
    ENOBUFS = 105, "no buffer space";
    ENOTCONN = 107, "not connected";
    ETIMEDOUT = 110, "timed out";
    EALREADY = 114, "already done";
    ESTALE = 116, "stale handle";
    EDQUOT = 122, "quota exceeded";
    EKEYEXPIRED = 127, "key has expired";
    ENONET = 64, "no such network namespace";
    ENOTSUPP = 524, "operation not supported (kernel internal)";
}

impl Errno {
    /// The value a program or `bpf(2)` caller sees in a 64-bit register: the negated number.
    pub fn to_reg(self) -> u64 {
        i64::from(-self.0) as u64
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-{self:?} ({})", self.text())
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_holds_the_negated_number() {
        assert_eq!(Errno::EINVAL.to_reg() as i64, -22);
        assert_eq!(
            Errno::ENOTSUPP.to_string(),
            "-ENOTSUPP (operation not supported (kernel internal))"
        );
    }
}
