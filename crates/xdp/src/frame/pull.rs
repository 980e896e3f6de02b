//! Moves bytes from the frags into the linear part, where a program can access them directly.

use towpath_bpf::Errno;

use super::rx_metadata::flag;
use super::{Body, FRAME_HEADER_BYTES, TAILROOM_BYTES};

impl Body {
    /// `bpf_xdp_pull_data`: makes the first `len` bytes of the packet linear.
    ///
    /// Tailroom is used first; if it is too small, the packet and its metadata move down into the
    /// headroom, by no more than needed.
    pub fn pull_data(&mut self, len: usize) -> Result<(), Errno> {
        let linear = self.linear_len();
        if len > self.len() {
            return Err(Errno::EINVAL);
        }
        let Some(pull) = len.checked_sub(linear).filter(|&pull| pull > 0) else { return Ok(()) };
        let headroom = self.data_meta as usize - FRAME_HEADER_BYTES;
        let tailroom = self.head.len() - TAILROOM_BYTES - self.data_end as usize;
        if pull > headroom + tailroom {
            return Err(Errno::EINVAL);
        }
        if let Some(shift) = pull.checked_sub(tailroom).filter(|&shift| shift > 0) {
            let from = self.data_meta as usize..self.data_end as usize;
            self.head.shared_mut().copy_within(from, self.data_meta as usize - shift);
            let shift = shift as u32;
            self.data_meta -= shift;
            self.data -= shift;
            self.data_end -= shift;
            if self.has(flag::CHECKSUM) {
                let start = &mut self.metadata.checksum_start;
                *start = start.saturating_sub(shift);
            }
        }
        self.take_from_frags(pull);
        Ok(())
    }

    /// Moves `left` bytes from the front of the frags to the end of the linear part.
    fn take_from_frags(&mut self, mut left: usize) {
        while left > 0 {
            let Body { head, data_end, next: Some(frag), frags_len, .. } = self else { return };
            let part = frag.linear_len().min(left);
            let to = *data_end as usize;
            let from = frag.shared_linear().part(0..part);
            head.shared_mut().part(to..to + part).copy_from(from);
            *data_end += part as u32;
            *frags_len -= part as u32;
            frag.data += part as u32;
            left -= part;
            if frag.linear_len() == 0
                && let Some(emptied) = self.pop_frag()
            {
                self.put_spare(emptied);
            }
        }
    }
}
