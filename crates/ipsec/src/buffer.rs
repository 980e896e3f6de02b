//! The memory of a packet, with room in front of the packet and after it.

/// A packet from its Ethernet header on, in one piece of memory, that can grow at both ends.
///
/// The caller checks the room before it moves an edge. The contents of added bytes are unspecified.
pub trait Buffer {
    /// The bytes of the packet.
    fn bytes(&self) -> &[u8];

    /// The bytes of the packet, mutable.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Number of bytes by which the packet can grow in front.
    fn headroom(&self) -> usize;

    /// Number of bytes by which the packet can grow at its end.
    fn tailroom(&self) -> usize;

    /// Moves the first byte, like `bpf_xdp_adjust_head`: a negative number grows the packet.
    fn adjust_head(&mut self, delta: isize);

    /// Moves the end, like `bpf_xdp_adjust_tail`: a positive number grows the packet.
    fn adjust_tail(&mut self, delta: isize);
}

/// An owning pointer, which keeps a job small.
impl<B: Buffer + ?Sized> Buffer for Box<B> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        (**self).bytes()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        (**self).bytes_mut()
    }

    #[inline]
    fn headroom(&self) -> usize {
        (**self).headroom()
    }

    #[inline]
    fn tailroom(&self) -> usize {
        (**self).tailroom()
    }

    #[inline]
    fn adjust_head(&mut self, delta: isize) {
        (**self).adjust_head(delta);
    }

    #[inline]
    fn adjust_tail(&mut self, delta: isize) {
        (**self).adjust_tail(delta);
    }
}

/// A packet in memory of its own.
#[derive(Debug, Clone)]
pub struct OwnedBuffer {
    memory: Vec<u8>,
    data: usize,
    data_end: usize,
}

impl OwnedBuffer {
    /// A copy of `packet` with [`OwnedBuffer::HEADROOM`] bytes in front and
    /// [`OwnedBuffer::TAILROOM`] bytes after it.
    pub fn new(packet: &[u8]) -> OwnedBuffer {
        OwnedBuffer::with_room(packet, OwnedBuffer::HEADROOM, OwnedBuffer::TAILROOM)
    }

    /// A copy of `packet` with the given room in front of it and after it, in bytes.
    pub fn with_room(packet: &[u8], headroom: usize, tailroom: usize) -> OwnedBuffer {
        let mut memory = vec![0; headroom + packet.len() + tailroom];
        memory[headroom..headroom + packet.len()].copy_from_slice(packet);
        OwnedBuffer { memory, data: headroom, data_end: headroom + packet.len() }
    }

    /// Room in front of the packet, in bytes: the kernel's `XDP_PACKET_HEADROOM`.
    pub const HEADROOM: usize = 256;
    /// Room after the packet, in bytes.
    pub const TAILROOM: usize = 320;
}

impl AsRef<[u8]> for OwnedBuffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Buffer for OwnedBuffer {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.memory[self.data..self.data_end]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.data..self.data_end]
    }

    #[inline]
    fn headroom(&self) -> usize {
        self.data
    }

    #[inline]
    fn tailroom(&self) -> usize {
        self.memory.len() - self.data_end
    }

    #[inline]
    fn adjust_head(&mut self, delta: isize) {
        self.data = self.data.saturating_add_signed(delta).min(self.data_end);
    }

    #[inline]
    fn adjust_tail(&mut self, delta: isize) {
        let end = self.data_end.saturating_add_signed(delta);
        self.data_end = end.clamp(self.data, self.memory.len());
    }
}
