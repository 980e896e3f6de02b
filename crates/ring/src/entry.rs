//! Entries of rings.

/// `struct xdp_desc`: a part of a packet in the rx or tx ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(C)]
pub struct Desc {
    /// Its offset in the memory shared with the application.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// `XDP_PKT_CONTD`, `XDP_TX_METADATA`
    pub options: u32,
}

impl Desc {
    /// More of the packet follows (`XDP_PKT_CONTD`).
    pub const CONTINUES: u32 = 1;
    /// There is metadata in front of the packet (`XDP_TX_METADATA`).
    pub const METADATA: u32 = 2;
}

/// A ring's entry: one or two words, for which any bits are a value. Words are written and read one
/// by one, so that a peer that breaks the rules confuses only itself.
pub trait Entry: Copy + Send + 'static {
    /// Words of eight bytes.
    const WORDS: usize;

    /// The words; the second one is used only if there are two.
    fn to_words(self) -> [u64; 2];

    /// The entry of these words.
    fn from_words(words: [u64; 2]) -> Self;
}

impl Entry for u64 {
    const WORDS: usize = 1;

    #[inline]
    fn to_words(self) -> [u64; 2] {
        [self, 0]
    }

    #[inline]
    fn from_words(words: [u64; 2]) -> u64 {
        words[0]
    }
}

impl Entry for Desc {
    const WORDS: usize = 2;

    #[inline]
    fn to_words(self) -> [u64; 2] {
        let [first, second] = if cfg!(target_endian = "little") {
            [self.len, self.options]
        } else {
            [self.options, self.len]
        };
        [self.addr, u64::from(first) | u64::from(second) << 32]
    }

    #[inline]
    fn from_words([addr, word]: [u64; 2]) -> Desc {
        let (first, second) = (word as u32, (word >> 32) as u32);
        let (len, options) =
            if cfg!(target_endian = "little") { (first, second) } else { (second, first) };
        Desc { addr, len, options }
    }
}

const _: () = assert!(size_of::<Desc>() == 16);
