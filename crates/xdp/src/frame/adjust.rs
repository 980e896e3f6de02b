//! Moving the edges of a frame: head, metadata and tail.
//!
//! Each function follows the kernel's helper of the same name (`net/core/filter.c`), the order of
//! its checks included, because the order decides which error a program sees.

use towpath_bpf::Errno;

use super::{BUFFER_BYTES, Body, ETH_HLEN, FRAME_HEADER_BYTES, TAILROOM_BYTES};

impl Body {
    /// `bpf_xdp_adjust_head`: moves `data` by `delta`; metadata moves along.
    pub fn adjust_head(&mut self, delta: i32) -> Result<(), Errno> {
        let metadata = self.metadata_len();
        let lowest = FRAME_HEADER_BYTES + metadata;
        let data = moved(self.data, delta).filter(|&data| data >= lowest).ok_or(Errno::EINVAL)?;
        if data + ETH_HLEN > self.data_end as usize {
            return Err(Errno::EINVAL);
        }
        if metadata > 0 {
            let from = self.data_meta as usize..self.data as usize;
            self.head.shared_mut().copy_within(from, data - metadata);
        }
        self.data_meta = (data - metadata) as u32;
        self.data = data as u32;
        Ok(())
    }

    /// `bpf_xdp_adjust_meta`: moves `data_meta` by `delta`.
    pub fn adjust_meta(&mut self, delta: i32) -> Result<(), Errno> {
        let meta = moved(self.data_meta, delta).ok_or(Errno::EINVAL)?;
        if meta < FRAME_HEADER_BYTES || meta > self.data as usize {
            return Err(Errno::EINVAL);
        }
        let len = self.data as usize - meta;
        // `xdp_metalen_invalid`: the length field in skb_shared_info counts up to 255.
        if !len.is_multiple_of(4) || len > METADATA_LEN_FIELD_MAX {
            return Err(Errno::EACCES);
        }
        self.data_meta = meta as u32;
        Ok(())
    }

    /// Replaces all metadata by `bytes`.
    ///
    /// # Errors
    ///
    /// As [`Body::adjust_meta`], with the frame unchanged.
    #[inline]
    pub fn replace_metadata<const N: usize>(&mut self, bytes: &[u8; N]) -> Result<(), Errno> {
        self.adjust_meta(self.metadata_len() as i32 - N as i32)?;
        let from = self.data_meta as usize;
        match self.is_external() {
            true => self.head.shared_mut().part(from..from + N).write(bytes),
            // One or two instructions.
            false => self.head.bytes_mut()[from..from + N].copy_from_slice(bytes),
        }
        Ok(())
    }

    /// Bytes by which [`Body::adjust_head`] can grow the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.data_meta as usize - FRAME_HEADER_BYTES
    }

    /// Bytes by which [`Body::adjust_tail`] can grow a packet without frags.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.head.len().saturating_sub(TAILROOM_BYTES + self.data_end as usize)
    }

    /// `bpf_xdp_adjust_tail`: moves the end of the packet by `delta`.
    pub fn adjust_tail(&mut self, delta: i32) -> Result<(), Errno> {
        if self.has_frags() {
            return match usize::try_from(delta) {
                Ok(grow) => self.grow_last_frag(grow),
                Err(_negative) => self.shrink_frags(delta.unsigned_abs() as usize),
            };
        }
        let end = moved(self.data_end, delta).ok_or(Errno::EINVAL)?;
        if end > self.head.len() - TAILROOM_BYTES || end < self.data as usize + ETH_HLEN {
            return Err(Errno::EINVAL);
        }
        let old_end = std::mem::replace(&mut self.data_end, end as u32) as usize;
        if end > old_end {
            self.head.shared_mut().part(old_end..end).clear();
        }
        Ok(())
    }

    /// `bpf_xdp_frags_increase_tail`: never adds a frag, and zero is growth too.
    fn grow_last_frag(&mut self, grow: usize) -> Result<(), Errno> {
        let size = self.rx.frag_size as usize;
        if size == 0 || size > BUFFER_BYTES {
            return Err(Errno::EOPNOTSUPP);
        }
        let Some(frag) = self.last_frag_mut() else { return Err(Errno::EINVAL) };
        let used = frag.linear_len() + frag.data as usize % size;
        let room = size.checked_sub(used).ok_or(Errno::EINVAL)?;
        if grow > room {
            return Err(Errno::EINVAL);
        }
        let end = frag.data_end as usize;
        frag.head.shared_mut().part(end..end + grow).clear();
        frag.data_end += grow as u32;
        self.frags_len += grow as u32;
        Ok(())
    }

    /// `bpf_xdp_frags_shrink_tail`: empties frags from the last one backwards, then cuts into the
    /// linear part.
    fn shrink_frags(&mut self, shrink: usize) -> Result<(), Errno> {
        if self.len() < shrink + ETH_HLEN {
            return Err(Errno::EINVAL);
        }
        let mut left = shrink;
        while left > 0 {
            let Some(frag) = self.last_frag_mut() else { break };
            let cut = frag.linear_len().min(left);
            frag.data_end -= cut as u32;
            left -= cut;
            if frag.linear_len() == 0 {
                self.release_frags(self.frag_count() - 1);
            }
        }
        self.note_frags();
        self.data_end -= left as u32;
        Ok(())
    }
}

/// The offset moved by `delta`, if it stays in the buffer's range of numbers.
fn moved(offset: u32, delta: i32) -> Option<usize> {
    (offset as usize).checked_add_signed(delta as isize)
}

/// `skb_shared_info::meta_len` is a `u8`; 252 is its largest multiple of 4.
const METADATA_LEN_FIELD_MAX: usize = 252;
