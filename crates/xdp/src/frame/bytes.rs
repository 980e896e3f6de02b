//! Copying bytes out of and into a frame, across the borders of its buffers.

use towpath_bpf::Errno;

use super::Body;

impl Body {
    /// `bpf_xdp_load_bytes`: copies the bytes at `offset` into `out`.
    pub fn load_bytes(&self, offset: usize, out: &mut [u8]) -> Result<(), Errno> {
        self.check_range(offset, out.len())?;
        self.copy_from(offset, out);
        Ok(())
    }

    /// Copies the first bytes of the packet; `out` is not longer than it.
    pub(crate) fn copy_bytes(&self, out: &mut [u8]) {
        self.copy_from(0, out);
    }

    /// Copies the bytes from `offset` on into `out`, as far as the packet goes: as
    /// [`Body::load_bytes`], without the limits for programs.
    pub fn copy_from(&self, offset: usize, out: &mut [u8]) {
        let mut out = out;
        let mut skip = offset;
        for buffer in self.shared_pieces() {
            let from = skip.min(buffer.len());
            skip -= from;
            let part = out.len().min(buffer.len() - from);
            let (now, later) = out.split_at_mut(part);
            buffer.part(from..from + part).read(now);
            out = later;
        }
    }

    /// `bpf_xdp_store_bytes`: copies `bytes` into the frame at `offset`.
    pub fn store_bytes(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Errno> {
        self.check_range(offset, bytes.len())?;
        self.copy_to(offset, bytes);
        Ok(())
    }

    /// Copies bytes into the frame from `offset` on, as far as the packet goes: as
    /// [`Body::store_bytes`], without the limits for programs.
    pub fn copy_to(&mut self, offset: usize, bytes: &[u8]) {
        let mut bytes = bytes;
        let mut skip = offset;
        let mut piece = Some(self);
        while let Some(body) = piece {
            let from = skip.min(body.linear_len());
            skip -= from;
            let part = bytes.len().min(body.linear_len() - from);
            let at = body.data as usize + from;
            let (now, later) = bytes.split_at(part);
            body.head.shared_mut().part(at..at + part).write(now);
            bytes = later;
            piece = body.next_mut().map(|next| &mut **next);
        }
    }

    /// Address of `len` bytes at `offset` if they lie in one buffer (`bpf_xdp_pointer`), else
    /// `None`.
    #[inline]
    pub(crate) fn pointer(&self, offset: usize, len: usize) -> Result<Option<u64>, Errno> {
        let linear = self.linear_len();
        // No linear part is longer than `OFFSET_MAX`.
        if offset < linear && len <= linear - offset {
            return Ok(Some(self.data_addr() + offset as u64));
        }
        self.pointer_in_frags(offset, len)
    }

    /// [`Body::pointer`] for ranges that are not entirely in the linear part.
    fn pointer_in_frags(&self, offset: usize, len: usize) -> Result<Option<u64>, Errno> {
        if offset > OFFSET_MAX || len > OFFSET_MAX {
            return Err(Errno::EFAULT);
        }
        let (mut start, mut found) = (self.linear_len(), None);
        for frag in self.frags() {
            let end = start + frag.linear_len();
            if start <= offset && offset + len <= end && offset < end {
                found = Some(frag.data_addr() + (offset - start) as u64);
            }
            start = end;
        }
        if offset + len > start { Err(Errno::EINVAL) } else { Ok(found) }
    }

    /// The checks at the start of `bpf_xdp_pointer`, in its order.
    pub(crate) fn check_range(&self, offset: usize, len: usize) -> Result<(), Errno> {
        if offset > OFFSET_MAX || len > OFFSET_MAX {
            return Err(Errno::EFAULT);
        }
        if offset + len > self.len() { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

/// Offsets and lengths are 16-bit numbers to the kernel, although a frame may be longer.
const OFFSET_MAX: usize = 0xffff;
