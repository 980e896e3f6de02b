//! A program's access to the bytes of a map's memory.
//!
//! The interpreter asks for each access, so the answer is a few compares: a map's memory is at most
//! a handful of `Span`s, each a row of equal elements with a key and a value inside.

use crate::flags::{BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG};

/// A program's access to bytes of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read only: keys, values of read-only maps, entries of device maps.
    Read,
    /// Write only: values of maps made with `BPF_F_WRONLY_PROG`.
    Write,
    /// Read and write.
    ReadWrite,
    /// An arena page that isn't allocated: reads give zeroes and writes vanish.
    Absent,
    /// The data of a ring: only records that a program holds may be accessed; the program's runtime
    /// knows these records.
    Record,
}

impl Access {
    /// Whether a load is allowed.
    pub fn may_read(self) -> bool {
        !matches!(self, Access::Write | Access::Record)
    }

    /// Whether a store or atomic is allowed.
    pub fn may_write(self) -> bool {
        !matches!(self, Access::Read | Access::Record)
    }

    /// Access of programs by creation flags (`bpf_map_flags_to_cap`).
    pub(crate) fn of_programs(map_flags: u32) -> Self {
        if map_flags & BPF_F_RDONLY_PROG != 0 {
            Access::Read
        } else if map_flags & BPF_F_WRONLY_PROG != 0 {
            Access::Write
        } else {
            Access::ReadWrite
        }
    }
}

/// A key or a value: bytes that go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Address of the first byte.
    pub first: u64,
    /// Address behind the last byte.
    pub past: u64,
    /// A program's access to them.
    pub access: Access,
}

/// A row of equal elements in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Address of the first element.
    pub(crate) base: u64,
    /// Bytes of the whole row.
    pub(crate) bytes: u64,
    /// Bytes from one element to the next.
    pub(crate) stride: u64,
    /// Offset of the key in an element, and its size; size 0 when there is none.
    pub(crate) key: (u64, u64),
    /// Offset of the value in an element, and its size.
    pub(crate) value: (u64, u64),
    /// A program's access to the value.
    pub(crate) access: Access,
}

impl Span {
    /// Values only, one after another.
    pub(crate) fn values(base: u64, bytes: u64, stride: u64, size: u64, access: Access) -> Self {
        Span { base, bytes, stride, key: (0, 0), value: (0, size), access }
    }

    /// The key or value that `len` bytes at `addr` lie in; `None` when they don't lie in one.
    pub(crate) fn part(&self, addr: u64, len: u64) -> Option<Part> {
        let from_base = addr.checked_sub(self.base).filter(|&at| at < self.bytes)?;
        let at = from_base % self.stride;
        let around = |(start, size): (u64, u64), access: Access| {
            let skip = at.checked_sub(start).filter(|&skip| skip <= size && len <= size - skip)?;
            Some(Part { first: addr - skip, past: addr - skip + size, access })
        };
        around(self.value, self.access).or_else(|| around(self.key, Access::Read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_stays_inside_one_key_or_value() {
        let span = Span {
            base: 0x1000,
            bytes: 96,
            stride: 32,
            key: (16, 4),
            value: (24, 8),
            access: Access::ReadWrite,
        };
        let (key, value) = (0x1000 + 32 + 16, 0x1000 + 32 + 24);
        let part = |first, size, access| Some(Part { first, past: first + size, access });
        assert_eq!(span.part(value, 8), part(value, 8, Access::ReadWrite));
        assert_eq!(span.part(value + 6, 2), part(value, 8, Access::ReadWrite));
        assert_eq!(span.part(key, 4), part(key, 4, Access::Read));
        assert_eq!(span.part(key + 3, 1), part(key, 4, Access::Read));
        assert_eq!(span.part(value + 1, 8), None, "past the value");
        assert_eq!(span.part(0x1000, 4), None, "the element's header");
        assert_eq!(span.part(0x1000 + 96 + 24, 8), None, "past the row");
        assert_eq!(span.part(0x1000 + 24, u64::MAX), None, "a length that wraps");
    }
}
