//! Received datagrams in quinn's buffers. Datagrams of one flow and size that arrive in a row share
//! a buffer, as with the kernel's generic receive offload.

use std::io::IoSliceMut;

use quinn::udp::{EcnCodepoint, RecvMeta};
use towpath_udp::{RxDatagram, UdpSocket};

/// Fills buffers with received datagrams; returns the number of buffers used.
pub(crate) fn receive(
    socket: &UdpSocket,
    buffers: &mut [IoSliceMut<'_>],
    metas: &mut [RecvMeta],
) -> usize {
    let mut filling = Filling { buffers, metas, used: 0, is_open: false };
    loop {
        // Each datagram may need a buffer of its own.
        let room = filling.buffers.len().min(filling.metas.len()) - filling.used;
        if room == 0 || socket.recv_batch(room, |datagram| filling.add(datagram)) < room {
            return filling.used;
        }
    }
}

struct Filling<'b, 'io> {
    buffers: &'b mut [IoSliceMut<'io>],
    metas: &'b mut [RecvMeta],
    /// Number of buffers with datagrams.
    used: usize,
    /// Whether the last of them may get more datagrams of its run.
    is_open: bool,
}

impl Filling<'_, '_> {
    fn add(&mut self, datagram: &RxDatagram<'_>) {
        if !self.extend(datagram) {
            self.begin(datagram);
        }
    }

    /// Adds a datagram to the run of the last buffer, if it belongs there.
    fn extend(&mut self, datagram: &RxDatagram<'_>) -> bool {
        let (len, last) = (datagram.payload.len(), self.used.wrapping_sub(1));
        let (Some(meta), Some(buffer)) = (self.metas.get_mut(last), self.buffers.get_mut(last))
        else {
            return false;
        };
        let belongs = self.is_open
            && len <= meta.stride
            && len > 0
            && meta.addr == datagram.source
            && meta.dst_ip == Some(datagram.destination.ip())
            && meta.ecn == EcnCodepoint::from_bits(datagram.ecn);
        let Some(place) = buffer.get_mut(meta.len..meta.len + len).filter(|_| belongs) else {
            return false;
        };
        place.copy_from_slice(datagram.payload);
        meta.len += len;
        // A shorter datagram is the last of its run.
        self.is_open = len == meta.stride;
        true
    }

    /// Puts a datagram into a new buffer. As with the kernel, what does not fit is cut off.
    fn begin(&mut self, datagram: &RxDatagram<'_>) {
        let (Some(meta), Some(buffer)) =
            (self.metas.get_mut(self.used), self.buffers.get_mut(self.used))
        else {
            return;
        };
        let len = datagram.payload.len().min(buffer.len());
        buffer[..len].copy_from_slice(&datagram.payload[..len]);
        *meta = RecvMeta {
            addr: datagram.source,
            len,
            stride: len,
            ecn: EcnCodepoint::from_bits(datagram.ecn),
            dst_ip: Some(datagram.destination.ip()),
        };
        self.used += 1;
        self.is_open = len == datagram.payload.len() && len > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(payload: &[u8], port: u16, ecn: u8) -> RxDatagram<'_> {
        RxDatagram {
            payload,
            source: ([10, 0, 0, 1], port).into(),
            destination: ([10, 0, 0, 2], 4433).into(),
            ecn,
            queue: 0,
        }
    }

    /// The runs that datagrams make: for each buffer the lengths of its datagrams.
    fn runs(datagrams: &[(usize, u16, u8)], buffer_len: usize) -> Vec<Vec<usize>> {
        let mut bytes = vec![vec![0; buffer_len]; 8];
        let mut buffers: Vec<_> = bytes.iter_mut().map(|it| IoSliceMut::new(it)).collect();
        let mut metas = vec![RecvMeta::default(); 8];
        let mut filling =
            Filling { buffers: &mut buffers, metas: &mut metas, used: 0, is_open: false };
        for &(len, port, ecn) in datagrams {
            filling.add(&datagram(&vec![len as u8; len], port, ecn));
        }
        let used = filling.used;
        let mut runs = Vec::new();
        for (meta, bytes) in metas.iter().zip(&bytes).take(used) {
            let parts: Vec<&[u8]> = bytes[..meta.len].chunks(meta.stride.max(1)).collect();
            for part in &parts {
                assert!(part.iter().all(|&byte| byte == part.len() as u8), "{parts:?}");
            }
            runs.push(parts.iter().map(|part| part.len()).collect());
        }
        runs
    }

    #[test]
    fn datagrams_of_one_flow_and_size_share_a_buffer() {
        assert_eq!(
            runs(&[(9, 1, 0), (9, 1, 0), (5, 1, 0), (5, 1, 0)], 100),
            [vec![9, 9, 5], vec![5]]
        );
    }

    #[test]
    fn another_flow_size_or_mark_begins_a_run() {
        assert_eq!(runs(&[(9, 1, 0), (9, 2, 0), (9, 1, 0)], 100), [[9], [9], [9]]);
        assert_eq!(runs(&[(9, 1, 0), (9, 1, 3)], 100), [[9], [9]]);
        assert_eq!(runs(&[(5, 1, 0), (9, 1, 0)], 100), [[5], [9]]);
        assert_eq!(runs(&[(9, 1, 0), (9, 1, 0), (9, 1, 0)], 20), [vec![9, 9], vec![9]]);
    }
}
