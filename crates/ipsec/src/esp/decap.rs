//! Decapsulation.

use super::{Begun, ESP_LEN, Esp, Iv, Job, Layout, Refused, TRAILER_LEN};
use crate::buffer::Buffer;
use crate::engine::{Operation, Status};
use crate::refusal::Refusal;
use crate::sa::{Direction, Handle, Locked, Mode, Tunnel};
use crate::wire::{self, Ip, Payload, Version};

impl<S: Handle> Locked<'_, S> {
    /// Checks a packet whose headers are `esp`, and appends the job to `jobs`. The packet is not
    /// changed before an engine runs the job.
    ///
    /// # Errors
    ///
    /// Fails if the packet is refused. It is unchanged, and the SA has counted the refusal.
    #[inline]
    pub fn decap<B: Buffer>(
        &mut self,
        buffer: B,
        esp: &Esp,
        jobs: &mut Vec<Job<B, S>>,
    ) -> Result<(), Refused<B, S>> {
        match self.begin_decap(&buffer, esp) {
            Ok(begun) => {
                jobs.push(Job::new(buffer, self.sa, begun));
                Ok(())
            }
            Err(reason) => Err(self.refuse(buffer, reason)),
        }
    }

    #[inline(always)]
    pub(super) fn begin_decap(
        &mut self,
        buffer: &impl Buffer,
        esp: &Esp,
    ) -> Result<Begun, Refusal> {
        self.check_alive()?;
        let sa = &**self.sa;
        if sa.direction != Direction::Inbound {
            return Err(Refusal::WrongDirection);
        }
        if esp.spi() != sa.spi {
            return Err(Refusal::UnknownSpi);
        }
        let (at, end) = (esp.at as usize, esp.layout.end as usize);
        let bytes = buffer.bytes().get(..end).ok_or(Refusal::Truncated)?;
        if sa.encapsulation.map(|it| it.destination_port) != esp.layout.port(bytes) {
            return Err(Refusal::WrongEncapsulation);
        }
        let around = ESP_LEN + sa.sizes.iv + sa.sizes.icv;
        let len = (end - at).checked_sub(around).ok_or(Refusal::BadLength)?;
        if len == 0 || len & (sa.sizes.block - 1) != 0 {
            return Err(Refusal::BadLength);
        }
        let sequence = self.state.window.infer(esp.sequence)?;
        let behind = &bytes[at + ESP_LEN..];
        let iv = match (sa.sizes.iv, behind.first_chunk(), behind.first_chunk()) {
            (16, Some(&iv), _) => Iv::Block(u128::from_be_bytes(iv)),
            (8, _, Some(&counter)) => Iv::Counter(u64::from_be_bytes(counter)),
            _ => Iv::Block(0),
        };
        let tag = end - sa.sizes.icv;
        let work = self.work(Operation::Open, at, tag, sequence, iv);
        Ok(Begun { work, layout: esp.layout, sequence })
    }

    /// Checks a decrypted packet and removes the headers and trailer of ESP.
    #[inline]
    pub(super) fn finish_decap(
        &mut self,
        buffer: &mut impl Buffer,
        begun: &Begun,
        status: Status,
    ) -> Result<isize, Refusal> {
        match status {
            Status::Done => {}
            Status::BadTag => return Err(Refusal::BadIcv),
            Status::Pending | Status::Failed => return Err(Refusal::EngineFailed),
        }
        let Begun { work, layout, sequence } = begun;
        self.state.window.accept(*sequence)?;
        let bytes = buffer.bytes();
        if layout.is_udp {
            let port = wire::get16(bytes, layout.payload_at as usize);
            self.note_peer(layout.ip(bytes).source(bytes), port);
        }
        let start = work.cipher.start as usize;
        let (len, next_header) = payload(&bytes[start..work.cipher.end as usize])?;
        let inside = Inside { start, len, next_header };
        match self.sa.mode {
            Mode::Tunnel(tunnel) => self.finish_tunnel(buffer, layout, inside, tunnel),
            Mode::Transport => self.finish_transport(buffer, layout, inside),
        }
    }

    #[inline]
    fn finish_tunnel(
        &mut self,
        buffer: &mut impl Buffer,
        layout: &Layout,
        inside: Inside,
        tunnel: Tunnel,
    ) -> Result<isize, Refusal> {
        let version = match inside.next_header {
            wire::IPPROTO_IPIP => Version::V4,
            wire::IPPROTO_IPV6 => Version::V6,
            _ => return Err(Refusal::BadNextHeader),
        };
        let bytes = buffer.bytes_mut();
        let (ip_at, inner_at) = (layout.ip_at as usize, inside.start);
        let inner = Ip::at(&bytes[..inner_at + inside.len], inner_at, version)
            .map_err(|_any| Refusal::BadInnerPacket)?;
        if !self.permits(|| wire::flow(bytes, &inner)) {
            return Err(Refusal::SelectorMismatch);
        }
        let class =
            wire::decapsulated_class(inner.class, layout.class, tunnel.decap_dscp, tunnel.ecn)
                .ok_or(Refusal::Congestion)?;
        if class != inner.class {
            wire::set_class(&mut bytes[inner_at..], version, class);
        }
        let moved = inner_at - ip_at;
        wire::move_front(bytes, ip_at, 0, moved);
        wire::put16(bytes, inner_at - 2, version.ethertype());
        cut(buffer, moved, inner.end());
        self.note_packet(inner.total);
        Ok(moved as isize)
    }

    #[inline]
    fn finish_transport(
        &mut self,
        buffer: &mut impl Buffer,
        layout: &Layout,
        inside: Inside,
    ) -> Result<isize, Refusal> {
        let Inside { start, len, next_header } = inside;
        let bytes = buffer.bytes_mut();
        let outer = layout.ip(bytes);
        let protocol_at = layout.protocol_at as usize;
        let payload = Payload { at: start, protocol: next_header, protocol_at };
        if !self.permits(|| wire::flow_behind(bytes, &outer, payload, start + len)) {
            return Err(Refusal::SelectorMismatch);
        }
        let kept = layout.payload_at as usize;
        let (moved, total) = (start - kept, kept - outer.at + len);
        bytes[protocol_at] = next_header;
        outer.set_total(bytes, total);
        bytes.copy_within(..kept, moved);
        cut(buffer, moved, start + len);
        self.note_packet(total);
        Ok(moved as isize)
    }
}

impl Layout {
    /// The destination port of the UDP encapsulation, if the packet has one.
    #[inline]
    fn port(&self, bytes: &[u8]) -> Option<u16> {
        self.is_udp.then(|| wire::get16(bytes, self.payload_at as usize + 2))
    }
}

/// The decrypted payload.
#[derive(Debug, Clone, Copy)]
struct Inside {
    /// Offset in the packet.
    start: usize,
    /// Length in bytes, without padding.
    len: usize,
    /// Protocol of the payload.
    next_header: u8,
}

/// The length of the payload in front of the padding, and the next header.
#[inline]
fn payload(decrypted: &[u8]) -> Result<(usize, u8), Refusal> {
    let Some((front, &[pad, next_header])) = decrypted.split_last_chunk::<TRAILER_LEN>() else {
        return Err(Refusal::BadPadding);
    };
    let len = front.len().checked_sub(pad.into()).ok_or(Refusal::BadPadding)?;
    let is_counting = front[len..].iter().zip(1..=u8::MAX).all(|(&byte, count)| byte == count);
    if !is_counting {
        return Err(Refusal::BadPadding);
    }
    if next_header == wire::IPPROTO_NONE {
        return Err(Refusal::Dummy);
    }
    Ok((len, next_header))
}

/// Removes the first `front` bytes, and all bytes from `end` on.
#[inline]
fn cut(buffer: &mut impl Buffer, front: usize, end: usize) {
    let behind = buffer.bytes().len() - end;
    buffer.adjust_tail(-(behind as isize));
    buffer.adjust_head(front as isize);
}
