//! Encapsulation and decapsulation: the work on headers before and after an engine.

mod decap;
mod encap;
mod packet;

use std::sync::Arc;

use crate::buffer::Buffer;
use crate::engine::{Cryptography, Operation, Status, Task, Work};
use crate::refusal::Refusal;
use crate::sa::{Handle, Locked, Sa};
use crate::schedule::Schedule;
use crate::wire::{IPV6_LEN, Ip, Version};

pub use packet::Esp;

/// A packet with its headers in place, whose cryptography an engine runs.
#[derive(Debug)]
pub struct Job<B, S = Arc<Sa>> {
    buffer: B,
    sa: S,
    begun: Begun,
    status: Status,
    /// Bytes by which the first byte moved, once the packet is completed.
    moved: isize,
    /// The reason of the refusal, if the packet was refused.
    refusal: Option<Refusal>,
}

/// The state of a packet between the work on its headers and its completion.
#[derive(Debug)]
struct Begun {
    work: Work,
    layout: Layout,
    /// The full sequence number.
    sequence: u64,
}

/// Offsets of the headers of an ESP packet, and some of their fields.
#[derive(Debug, Clone, Copy)]
struct Layout {
    version: Version,
    is_udp: bool,
    /// Traffic class of the IP header in front of ESP.
    class: u8,
    /// Offset of the IP header in front of ESP.
    ip_at: u8,
    /// Offset of the first byte after the IP header and extension headers: of UDP or ESP.
    payload_at: u32,
    /// Offset of the byte that names the payload's protocol.
    protocol_at: u32,
    /// Offset of the end of the IP packet.
    end: u32,
}

/// A packet that was encapsulated or decapsulated.
#[derive(Debug)]
pub struct Finished<B, S = Arc<Sa>> {
    /// The packet.
    pub buffer: B,
    /// The packet's SA.
    pub sa: S,
    /// Bytes by which the packet's first byte moved, towards its end if positive.
    pub moved: isize,
}

/// A refused packet. If an engine worked on it, it holds neither decrypted plaintext nor plaintext
/// that should have been encrypted.
#[derive(Debug)]
pub struct Refused<B, S = Arc<Sa>> {
    /// The packet. If an engine worked on it, its protected part is overwritten with zeros.
    pub buffer: B,
    /// The SA, which counted the refusal.
    pub sa: S,
    /// The reason.
    pub reason: Refusal,
}

impl Layout {
    /// The IP header in front of ESP.
    #[inline]
    fn ip(&self, bytes: &[u8]) -> Ip {
        let at = self.ip_at as usize;
        let (len, protocol) = match self.version {
            Version::V4 => (self.payload_at as usize - at, bytes[at + 9]),
            Version::V6 => (IPV6_LEN, bytes[at + 6]),
        };
        let total = self.end as usize - at;
        Ip { version: self.version, at, len, total, protocol, class: self.class, flags: 0 }
    }
}

impl<B, S> Job<B, S> {
    /// The packet's SA.
    pub fn sa(&self) -> &S {
        &self.sa
    }
}

impl<B: Buffer, S: Handle> Task for Job<B, S> {
    #[inline]
    fn parts(&mut self) -> (&Schedule, &Work, &mut [u8]) {
        (&self.sa.schedule, &self.begun.work, self.buffer.bytes_mut())
    }

    #[inline]
    fn set_status(&mut self, status: Status) {
        self.status = status;
    }
}

/// Completes a packet that an engine has returned. `now` is in seconds.
///
/// # Errors
///
/// Fails if the engine failed or a check refuses the packet; the SA has counted the refusal.
pub fn finish<B: Buffer, S: Handle>(
    mut job: Job<B, S>,
    now: u64,
) -> Result<Finished<B, S>, Refused<B, S>> {
    let sa = job.sa.clone();
    job.finish(&mut Locked::new(&sa, now));
    job.into_result()
}

/// Completes all packets in order. Locks each SA once per run of consecutive packets.
#[inline]
pub fn finish_all<B: Buffer, S: Handle>(
    jobs: &mut Vec<Job<B, S>>,
    now: u64,
    mut each: impl FnMut(Result<Finished<B, S>, Refused<B, S>>),
) {
    let mut rest = &mut jobs[..];
    while let Some(first) = rest.first() {
        let sa = first.sa.clone();
        let count = rest.iter().take_while(|job| std::ptr::eq(&*job.sa, &*sa)).count();
        let (run, behind) = rest.split_at_mut(count);
        let mut locked = Locked::new(&sa, now);
        run.iter_mut().for_each(|job| job.finish(&mut locked));
        rest = behind;
    }
    jobs.drain(..).for_each(|job| each(job.into_result()));
}

impl<B, S: Handle> Job<B, S> {
    #[inline]
    fn new(buffer: B, sa: &S, begun: Begun) -> Job<B, S> {
        Job { buffer, sa: sa.clone(), begun, status: Status::Pending, moved: 0, refusal: None }
    }

    /// Completes the packet, and stores the result in the job.
    #[inline]
    fn finish(&mut self, locked: &mut Locked<'_, S>)
    where
        B: Buffer,
    {
        match locked.complete(&mut self.buffer, &self.begun, self.status) {
            Ok(moved) => self.moved = moved,
            Err(reason) => self.refusal = Some(reason),
        }
    }

    #[inline]
    fn into_result(self) -> Result<Finished<B, S>, Refused<B, S>> {
        let Job { buffer, sa, moved, refusal, .. } = self;
        match refusal {
            None => Ok(Finished { buffer, sa, moved }),
            Some(reason) => Err(Refused { buffer, sa, reason }),
        }
    }
}

impl<S: Handle> Locked<'_, S> {
    /// Encapsulates and encrypts a packet at once; returns the bytes by which its first byte moved,
    /// towards its end if positive.
    ///
    /// # Errors
    ///
    /// As [`Locked::encap`] and [`finish`].
    #[inline]
    pub fn encap_at_once<C: Cryptography>(
        &mut self,
        buffer: &mut impl Buffer,
    ) -> Result<isize, Refusal> {
        let begun = self.begin_encap(buffer);
        self.run::<C>(buffer, &begun)
    }

    /// Decrypts and decapsulates a packet at once; returns the bytes by which its first byte moved,
    /// towards its end if positive.
    ///
    /// # Errors
    ///
    /// As [`Locked::decap`] and [`finish`].
    #[inline]
    pub fn decap_at_once<C: Cryptography>(
        &mut self,
        buffer: &mut impl Buffer,
        esp: &Esp,
    ) -> Result<isize, Refusal> {
        let begun = self.begin_decap(buffer, esp);
        self.run::<C>(buffer, &begun)
    }

    /// Takes a reference, because a copy would be read before its fields have reached the cache.
    #[inline]
    fn run<C: Cryptography>(
        &mut self,
        buffer: &mut impl Buffer,
        begun: &Result<Begun, Refusal>,
    ) -> Result<isize, Refusal> {
        let begun = begun.as_ref().map_err(|reason| *reason);
        let begun = begun.inspect_err(|reason| self.count(*reason))?;
        let status = C::run(&self.sa.schedule, &begun.work, buffer.bytes_mut());
        self.complete(buffer, begun, status)
    }

    /// Completes a packet after its cryptography. A refusal is counted, and overwrites the bytes
    /// that are or should be encrypted.
    #[inline(always)]
    fn complete(
        &mut self,
        buffer: &mut impl Buffer,
        begun: &Begun,
        status: Status,
    ) -> Result<isize, Refusal> {
        let result = match begun.work.operation {
            Operation::Seal => self.finish_encap(buffer, begun, status),
            Operation::Open => self.finish_decap(buffer, begun, status),
        };
        if let Err(reason) = result {
            overwrite(buffer, &begun.work);
            self.count(reason);
        }
        result
    }

    /// Refuses a packet before it gets to [`Locked::encap`] or [`Locked::decap`]; the SA counts the
    /// refusal.
    #[cold]
    pub fn refuse<B>(&mut self, buffer: B, reason: Refusal) -> Refused<B, S> {
        self.count(reason);
        Refused { buffer, sa: self.sa.clone(), reason }
    }

    /// The work for an ESP packet whose header is at `at` and whose ICV is at `tag`.
    #[inline(always)]
    fn work(&self, operation: Operation, at: usize, tag: usize, sequence: u64, iv: Iv) -> Work {
        let sa = &**self.sa;
        // Numbers stay in registers, arrays do not.
        let (spi, sequence) = (u128::from(sa.spi) << 96, u128::from(sequence));
        let (extra, extra_len) = match (sa.sizes.is_aead, sa.replay.esn) {
            (true, true) => (spi | sequence << 32, 12),
            (true, false) => (spi | (sequence & 0xffff_ffff) << 64, 8),
            (false, true) => (sequence >> 32 << 96, 4),
            (false, false) => (0, 0),
        };
        let iv = match iv {
            Iv::Block(iv) => iv,
            Iv::Counter(counter) => {
                u128::from(sa.schedule.salt()) << 96 | u128::from(counter) << 32
            }
        };
        let (iv, extra) = (iv.to_be_bytes(), extra.to_be_bytes());
        Work {
            operation,
            iv,
            extra,
            extra_len,
            authenticate: at as u32..tag as u32,
            cipher: (at + ESP_LEN + sa.sizes.iv) as u32..tag as u32,
            tag: tag as u32,
        }
    }
}

#[cold]
fn overwrite(buffer: &mut impl Buffer, work: &Work) {
    let (start, end) = (work.cipher.start as usize, work.cipher.end as usize);
    if let Some(plaintext) = buffer.bytes_mut().get_mut(start..end) {
        plaintext.fill(0);
    }
}

/// The IV of a packet.
#[derive(Debug, Clone, Copy)]
enum Iv {
    /// The IV of a block cipher; 0 if the cipher has none.
    Block(u128),
    /// The IV of an AEAD: the part of the nonce after the salt.
    Counter(u64),
}

/// Length in bytes of SPI and sequence number.
pub(crate) const ESP_LEN: usize = 8;
/// Length in bytes of pad length and next header.
const TRAILER_LEN: usize = 2;
