//! Decapsulation.

use super::{ESP_LEN, Esp, Iv, Job, Layout, Refused, TRAILER_LEN};
use crate::buffer::Buffer;
use crate::engine::{Operation, Status, Work};
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
        match self.check_alive().and_then(|()| self.plan_decap(&buffer, esp)) {
            Ok((work, sequence)) => {
                jobs.push(Job {
                    buffer,
                    sa: self.sa.clone(),
                    work,
                    status: Status::Pending,
                    layout: esp.layout,
                    sequence,
                    moved: 0,
                    refusal: None,
                });
                Ok(())
            }
            Err(reason) => Err(self.refuse(buffer, reason)),
        }
    }

    #[inline]
    fn plan_decap<B: Buffer>(&self, buffer: &B, esp: &Esp) -> Result<(Work, u64), Refusal> {
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
        Ok((self.work(Operation::Open, at, tag, sequence, iv), sequence))
    }
}

impl Layout {
    /// The destination port of the UDP encapsulation, if the packet has one.
    #[inline]
    fn port(&self, bytes: &[u8]) -> Option<u16> {
        self.is_udp.then(|| wire::get16(bytes, self.payload_at as usize + 2))
    }
}

/// Checks a decrypted packet and removes the headers and trailer of ESP.
#[inline]
pub(super) fn finish<B: Buffer, S: Handle>(
    locked: &mut Locked<'_, S>,
    job: &mut Job<B, S>,
) -> Result<isize, Refusal> {
    match job.status {
        Status::Done => {}
        Status::BadTag => return Err(Refusal::BadIcv),
        Status::Pending | Status::Failed => return Err(Refusal::EngineFailed),
    }
    locked.state.window.accept(job.sequence)?;
    if job.layout.is_udp {
        let bytes = job.buffer.bytes();
        let port = wire::get16(bytes, job.layout.payload_at as usize);
        locked.note_peer(job.layout.ip(bytes).source(bytes), port);
    }
    let start = job.work.cipher.start as usize;
    let (len, next_header) = payload(&job.buffer.bytes()[start..job.work.cipher.end as usize])?;
    match locked.sa.mode {
        Mode::Tunnel(tunnel) => finish_tunnel(locked, job, tunnel, len, next_header),
        Mode::Transport => finish_transport(locked, job, len, next_header),
    }
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

#[inline]
fn finish_tunnel<B: Buffer, S: Handle>(
    locked: &mut Locked<'_, S>,
    job: &mut Job<B, S>,
    tunnel: Tunnel,
    len: usize,
    next_header: u8,
) -> Result<isize, Refusal> {
    let version = match next_header {
        wire::IPPROTO_IPIP => Version::V4,
        wire::IPPROTO_IPV6 => Version::V6,
        _ => return Err(Refusal::BadNextHeader),
    };
    let bytes = job.buffer.bytes_mut();
    let (ip_at, inner_at) = (job.layout.ip_at as usize, job.work.cipher.start as usize);
    let inner = Ip::at(&bytes[..inner_at + len], inner_at, version)
        .map_err(|_any| Refusal::BadInnerPacket)?;
    if !locked.permits(|| wire::flow(bytes, &inner)) {
        return Err(Refusal::SelectorMismatch);
    }
    let (old, outer) = (inner.class, job.layout.class);
    let class = wire::decapsulated_class(old, outer, tunnel.decap_dscp, tunnel.ecn)
        .ok_or(Refusal::Congestion)?;
    if class != old {
        wire::set_class(&mut bytes[inner_at..], version, class);
    }
    let moved = inner_at - ip_at;
    wire::move_front(bytes, ip_at, 0, moved);
    wire::put16(bytes, inner_at - 2, version.ethertype());
    cut(&mut job.buffer, moved, inner.end());
    locked.note_packet(inner.total);
    Ok(moved as isize)
}

#[inline]
fn finish_transport<B: Buffer, S: Handle>(
    locked: &mut Locked<'_, S>,
    job: &mut Job<B, S>,
    len: usize,
    next_header: u8,
) -> Result<isize, Refusal> {
    let (start, bytes) = (job.work.cipher.start as usize, job.buffer.bytes_mut());
    let outer = job.layout.ip(bytes);
    let protocol_at = job.layout.protocol_at as usize;
    let payload = Payload { at: start, protocol: next_header, protocol_at };
    if !locked.permits(|| wire::flow_behind(bytes, &outer, payload, start + len)) {
        return Err(Refusal::SelectorMismatch);
    }
    let kept = job.layout.payload_at as usize;
    let (moved, total) = (start - kept, kept - outer.at + len);
    bytes[protocol_at] = next_header;
    outer.set_total(bytes, total);
    bytes.copy_within(..kept, moved);
    cut(&mut job.buffer, moved, start + len);
    locked.note_packet(total);
    Ok(moved as isize)
}

/// Removes the first `front` bytes, and all bytes from `end` on.
#[inline]
fn cut<B: Buffer>(buffer: &mut B, front: usize, end: usize) {
    let behind = buffer.bytes().len() - end;
    buffer.adjust_tail(-(behind as isize));
    buffer.adjust_head(front as isize);
}
