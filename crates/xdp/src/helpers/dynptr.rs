//! Dynptrs: views of memory whose size is known only at run time.
//!
//! A program holds one in 16 bytes of its stack (`struct bpf_dynptr`) that only helpers look into;
//! their layout is the kernel's (`struct bpf_dynptr_kern`).

use towpath_bpf::interp::Stop;

use super::Call;
use crate::memory;

/// The contents of a `struct bpf_dynptr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dynptr {
    /// Address of the memory; of the context for [`DynptrKind::Xdp`]. 0 in a null dynptr.
    pub(crate) data: u64,
    /// The kind of memory behind it.
    pub(crate) kind: DynptrKind,
    /// Writes are refused.
    pub(crate) read_only: bool,
    /// Bytes of the view.
    pub(crate) size: u32,
    /// Start of the view in what is behind it.
    pub(crate) offset: u32,
}

/// `enum bpf_dynptr_type`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum DynptrKind {
    /// A null dynptr.
    Invalid = 0,
    /// Memory of a map value or of the program.
    Local = 1,
    /// A ring buffer record.
    Ringbuf = 2,
    /// The frame, frags included.
    Xdp = 4,
}

impl Dynptr {
    /// The dynptr of a failed construction (`bpf_dynptr_set_null`).
    pub(crate) const NULL: Dynptr =
        Dynptr { data: 0, kind: DynptrKind::Invalid, read_only: false, size: 0, offset: 0 };

    /// A writable view of all of some memory.
    pub(crate) fn new(kind: DynptrKind, data: u64, size: u32) -> Dynptr {
        Dynptr { data, kind, read_only: false, size, offset: 0 }
    }

    /// Reads the dynptr at an address.
    #[inline(always)]
    pub(crate) fn load(call: &Call<'_, '_>, addr: u64) -> Result<Dynptr, Stop> {
        let grant = call.run.grant(addr, DYNPTR_BYTES as u64, false)?;
        let data = memory::load(grant.part(0, 8));
        let rest = memory::load(grant.part(8, 8));
        let size = rest as u32;
        let kind = match (size & KIND_MASK) >> KIND_SHIFT {
            1 => DynptrKind::Local,
            2 => DynptrKind::Ringbuf,
            4 => DynptrKind::Xdp,
            _ => DynptrKind::Invalid,
        };
        Ok(Dynptr {
            data,
            kind,
            read_only: size & READ_ONLY != 0,
            size: size & SIZE_MASK,
            offset: (rest >> 32) as u32,
        })
    }

    /// Writes it to an address.
    #[inline(always)]
    pub(crate) fn store(self, call: &Call<'_, '_>, addr: u64) -> Result<(), Stop> {
        let grant = call.run.grant(addr, DYNPTR_BYTES as u64, true)?;
        let (data, rest) = self.to_words();
        memory::store(grant.part(0, 8), data);
        memory::store(grant.part(8, 8), rest);
        Ok(())
    }

    /// The 16 bytes.
    pub(crate) fn to_bytes(self) -> [u8; DYNPTR_BYTES] {
        let (data, rest) = self.to_words();
        let mut bytes = [0; DYNPTR_BYTES];
        bytes[..8].copy_from_slice(&data.to_le_bytes());
        bytes[8..].copy_from_slice(&rest.to_le_bytes());
        bytes
    }

    fn to_words(self) -> (u64, u64) {
        let read_only = if self.read_only { READ_ONLY } else { 0 };
        let size = (self.size & SIZE_MASK) | (self.kind as u32) << KIND_SHIFT | read_only;
        (self.data, u64::from(size) | u64::from(self.offset) << 32)
    }

    /// Address of the first byte of the view, for kinds that have memory of their own.
    pub(crate) fn addr(self) -> u64 {
        self.data + u64::from(self.offset)
    }
}

/// `sizeof(struct bpf_dynptr)`
pub(crate) const DYNPTR_BYTES: usize = 16;
/// Largest view (`DYNPTR_MAX_SIZE`).
pub(crate) const DYNPTR_SIZE_MAX: u32 = SIZE_MASK;

const SIZE_MASK: u32 = (1 << 24) - 1;
const KIND_SHIFT: u32 = 28;
const KIND_MASK: u32 = 7 << KIND_SHIFT;
const READ_ONLY: u32 = 1 << 31;
