//! Encapsulation.

use aes::cipher::BlockCipherEncrypt;

use super::{Begun, ESP_LEN, Iv, Job, Layout, Refused, TRAILER_LEN};
use crate::buffer::Buffer;
use crate::engine::{Operation, Status};
use crate::refusal::Refusal;
use crate::sa::{Direction, Handle, Inner, IvSource, Locked, Mode};
use crate::wire::{self, IPPROTO_ESP, IPPROTO_UDP, Ip, Sum, Version, Walk};

/// The checked plan of an encapsulation.
#[derive(Debug)]
struct Plan {
    ip: Ip,
    /// Offset of the first byte after the headers that stay in front of ESP: the Ethernet header,
    /// and in transport mode the IP header.
    split: usize,
    /// Offset of the byte in front of ESP that names the protocol, in transport mode.
    protocol_at: usize,
    next_header: u8,
    /// Length in bytes of the payload with padding for traffic flow confidentiality.
    filled: usize,
    /// Length in bytes of ESP's padding.
    pad: usize,
    /// Number of bytes to add at the end; negative to remove them.
    growth: isize,
    /// Length in bytes of the new IP packet.
    total: usize,
    sequence: u64,
    inner: Inner,
}

impl<S: Handle> Locked<'_, S> {
    /// Encapsulates a packet, and appends the job to `jobs`. The frame's bytes after its IP packet
    /// are cut off.
    ///
    /// # Errors
    ///
    /// Fails if the packet is refused. It is unchanged, and the SA has counted the refusal.
    #[inline]
    pub fn encap<B: Buffer>(
        &mut self,
        mut buffer: B,
        jobs: &mut Vec<Job<B, S>>,
    ) -> Result<(), Refused<B, S>> {
        match self.begin_encap(&mut buffer) {
            Ok(begun) => {
                jobs.push(Job::new(buffer, self.sa, begun));
                Ok(())
            }
            Err(reason) => Err(self.refuse(buffer, reason)),
        }
    }

    #[inline(always)]
    pub(super) fn begin_encap(&mut self, buffer: &mut impl Buffer) -> Result<Begun, Refusal> {
        self.check_alive()?;
        let plan = self.plan_encap(buffer)?;
        Ok(self.build(&plan, buffer))
    }

    #[inline(always)]
    fn plan_encap(&self, buffer: &impl Buffer) -> Result<Plan, Refusal> {
        let sa = &**self.sa;
        if sa.direction != Direction::Outbound {
            return Err(Refusal::WrongDirection);
        }
        let bytes = buffer.bytes();
        let ip = Ip::of_frame(bytes)?;
        let (split, protocol_at, next_header) = match sa.mode {
            Mode::Tunnel(_) => {
                let next_header = match ip.version {
                    Version::V4 => wire::IPPROTO_IPIP,
                    Version::V6 => wire::IPPROTO_IPV6,
                };
                (ip.at, 0, next_header)
            }
            Mode::Transport => {
                let payload = ip.payload(bytes, Walk::Insert)?;
                (payload.at, payload.protocol_at, payload.protocol)
            }
        };
        let front = sa.sizes.front;
        let around = split - ip.at + front + sa.sizes.icv;
        let limit = self.limit(ip.version);
        let (filled, pad) = self.padding(ip.end() - split, limit.saturating_sub(around));
        let total = around + filled + pad + TRAILER_LEN;
        if total > limit {
            let is_pmtu = limit < usize::from(u16::MAX);
            return Err(if is_pmtu { Refusal::TooBig } else { Refusal::TooLong });
        }
        if front > buffer.headroom() {
            return Err(Refusal::NoHeadroom);
        }
        let growth = (ip.at + total) as isize - (bytes.len() + front) as isize;
        if growth > buffer.tailroom() as isize {
            return Err(Refusal::NoTailroom);
        }
        let inner = Inner { traffic_class: ip.class, dont_fragment: ip.dont_fragment() };
        let sequence = self.next_sequence()?;
        Ok(Plan {
            ip,
            split,
            protocol_at,
            next_header,
            filled,
            pad,
            growth,
            total,
            sequence,
            inner,
        })
    }

    /// Maximum length in bytes of the new IP packet.
    #[inline]
    fn limit(&self, inner: Version) -> usize {
        let version = if self.sa.outer.ip_len > 0 { self.sa.outer.version } else { inner };
        let most = match version {
            Version::V4 => usize::from(u16::MAX),
            Version::V6 => usize::from(u16::MAX) + wire::IPV6_LEN,
        };
        if self.state.pmtu > 0 { most.min(self.state.pmtu.into()) } else { most }
    }

    /// For a payload of `len` bytes, its length in bytes with padding for traffic flow
    /// confidentiality, as far as `room` allows, and the length of ESP's padding.
    #[inline]
    fn padding(&self, len: usize, room: usize) -> (usize, usize) {
        let block = self.sa.sizes.block;
        let boundary = usize::from(self.sa.outer.tunnel.tfc_padding);
        let mut filled = len;
        if boundary > 1 {
            let most = (room & !(block - 1)).saturating_sub(TRAILER_LEN);
            filled = len.next_multiple_of(boundary).min(most).max(len);
        }
        let pad = (filled + TRAILER_LEN).wrapping_neg() & (block - 1);
        (filled, pad)
    }

    #[inline(always)]
    fn build(&mut self, plan: &Plan, buffer: &mut impl Buffer) -> Begun {
        let (front, ip_at) = (self.sa.sizes.front, plan.ip.at);
        buffer.adjust_head(-(front as isize));
        if plan.growth != 0 {
            buffer.adjust_tail(plan.growth);
        }
        let bytes = buffer.bytes_mut();
        wire::move_front(bytes, plan.split, front, 0);
        let outer = &self.sa.outer;
        let udp_at = plan.split + outer.ip_len;
        let version = self.write_ip(plan, bytes);
        let end = ip_at + plan.total;
        let at = udp_at + outer.udp_len;
        if outer.udp_len > 0 {
            put(bytes, udp_at, &outer.udp(end - udp_at));
        }
        let tag = end - self.sa.sizes.icv;
        let payload_at = at + ESP_LEN + self.sa.sizes.iv;
        put(bytes, at, &self.sa.spi.to_be_bytes());
        put(bytes, at + 4, &(plan.sequence as u32).to_be_bytes());
        let iv = self.write_iv(plan.sequence, bytes, at + ESP_LEN);
        write_trailer(plan, &mut bytes[payload_at..tag]);
        let work = self.work(Operation::Seal, at, tag, plan.sequence, iv);
        self.note_sent(plan.sequence, plan.ip.total);
        let layout = Layout {
            version,
            is_udp: self.sa.outer.udp_len > 0,
            class: plan.inner.traffic_class,
            ip_at: ip_at as u8,
            payload_at: udp_at as u32,
            protocol_at: plan.protocol_at as u32,
            end: end as u32,
        };
        Begun { work, layout, sequence: plan.sequence }
    }

    /// Writes the outer IP header in tunnel mode, or changes the existing one in transport mode;
    /// returns its family.
    #[inline(always)]
    fn write_ip(&self, plan: &Plan, bytes: &mut [u8]) -> Version {
        let outer = &self.sa.outer;
        if outer.ip_len == 0 {
            let protocol = if outer.udp_len > 0 { IPPROTO_UDP } else { IPPROTO_ESP };
            bytes[plan.protocol_at] = protocol;
            plan.ip.set_total(bytes, plan.total);
            return plan.ip.version;
        }
        put(bytes, plan.split - 2, &outer.version.ethertype().to_be_bytes());
        match outer.version {
            Version::V4 => {
                put(bytes, plan.split, &outer.ipv4(plan.total, plan.inner, plan.sequence));
            }
            Version::V6 => put(bytes, plan.split, &outer.ipv6(plan.total, plan.inner)),
        }
        outer.version
    }

    /// Writes the IV of a packet.
    #[inline]
    fn write_iv(&self, sequence: u64, bytes: &mut [u8], at: usize) -> Iv {
        match &self.sa.iv_source {
            IvSource::None => Iv::Block(0),
            IvSource::Masked(mask) => {
                let counter = sequence ^ mask;
                put(bytes, at, &counter.to_be_bytes());
                Iv::Counter(counter)
            }
            IvSource::Encrypted(key) => {
                let mut block = (u128::from(sequence) << 64).to_be_bytes().into();
                key.encrypt_block(&mut block);
                let iv = block.into();
                put(bytes, at, &iv);
                Iv::Block(u128::from_be_bytes(iv))
            }
        }
    }

    /// Checks the engine's result. For UDP in IPv6, writes the checksum, which covers the encrypted
    /// bytes.
    #[inline]
    pub(super) fn finish_encap(
        &self,
        buffer: &mut impl Buffer,
        begun: &Begun,
        status: Status,
    ) -> Result<isize, Refusal> {
        if status != Status::Done {
            return Err(Refusal::EngineFailed);
        }
        if begun.layout.is_udp && begun.layout.version == Version::V6 {
            write_udp_checksum(buffer.bytes_mut(), &begun.layout);
        }
        Ok(-(self.sa.sizes.front as isize))
    }
}

/// Writes the checksum of UDP in IPv6.
fn write_udp_checksum(bytes: &mut [u8], layout: &Layout) {
    let (ip_at, udp_at, end) =
        (layout.ip_at as usize, layout.payload_at as usize, layout.end as usize);
    let len = (end - udp_at) as u16;
    let sum = Sum::of(&bytes[ip_at + 8..ip_at + wire::IPV6_LEN]);
    let sum = sum.plus(len).plus(IPPROTO_UDP.into()).plus_sum(Sum::of(&bytes[udp_at..end]));
    let checksum = sum.checksum();
    // A checksum field of 0 means that there is no checksum.
    put(bytes, udp_at + 6, if checksum == [0, 0] { &[0xff, 0xff] } else { &checksum });
}

/// Writes the end of the part to encrypt, after the payload: padding for traffic flow
/// confidentiality, ESP's padding (RFC 4303, 2.4) and its length, and the next header.
#[inline]
fn write_trailer(plan: &Plan, encrypted: &mut [u8]) {
    let inner_len = plan.ip.total - (plan.split - plan.ip.at);
    if plan.filled > inner_len {
        encrypted[inner_len..plan.filled].fill(0);
    }
    let trailer = &mut encrypted[plan.filled..];
    for (byte, count) in trailer[..plan.pad].iter_mut().zip(1..) {
        *byte = count;
    }
    put(trailer, plan.pad, &[plan.pad as u8, plan.next_header]);
}

#[inline]
fn put<const N: usize>(bytes: &mut [u8], at: usize, part: &[u8; N]) {
    bytes[at..at + N].copy_from_slice(part);
}
