//! The protocol's bytes: messages of typed values, and how they are found in a stream.
//!
//! Everything is little-endian, whatever the guest's or the host's processor is. Nothing here
//! panics or allocates by what a length says before it was checked.

mod header;
mod records;
mod stream;
mod values;

pub use header::{HEADER_BYTES, Header, Message};
pub use records::{Counters, Limit, ObjectRecord, TargetRecord, What};
pub use stream::{Arrived, Receiver};
pub use values::{Malformed, Values, Writer};

/// The version of the protocol that is spoken here.
pub const VERSION: u16 = 1;

/// The virtio control class that commands have (virtio 1.3, 5.1.6.5; 0 to 8 are taken): they may
/// come by a control queue, too.
pub const CLASS: u8 = 0xe0;

/// Most bytes behind a message's header.
pub const PAYLOAD_MAX: usize = 4 << 20;

/// In a reply's command: it is one.
pub const REPLY: u8 = 0x80;

/// In the flags of [`Command::Close`]: also what nothing else refers to afterwards.
pub const CLOSE_ALL: u64 = 1;
/// In [`Tag::ProgramFlags`], the only one: the program takes frames of several buffers.
pub const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;

macro_rules! numbered {
    (
        $(#[$meta:meta])* $name:ident: $repr:ty {
            $($(#[$doc:meta])* $item:ident = $value:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr($repr)]
        pub enum $name {
            $($(#[$doc])* $item = $value,)*
        }

        impl $name {
            /// All of them, by number.
            pub const ALL: &[$name] = &[$($name::$item,)*];

            /// The one of that number.
            pub fn from_number(number: $repr) -> Option<$name> {
                match number { $($value => Some($name::$item),)* _ => None }
            }

            /// Its name, as in the documentation.
            pub fn name(self) -> &'static str {
                match self { $($name::$item => stringify!($item),)* }
            }
        }
    };
}

numbered! {
    /// The commands.
    Command: u8 {
        /// A session begins; the answer has the host's features.
        Hello = 1,
        /// Types are loaded.
        BtfLoad = 2,
        /// A map is made.
        MapCreate = 3,
        /// An element is read.
        MapLookup = 4,
        /// Elements are stored.
        MapUpdate = 5,
        /// Elements are removed.
        MapDelete = 6,
        /// The key behind a key, or the first.
        MapNextKey = 7,
        /// Elements in the order of keys.
        MapLookupBatch = 8,
        /// An element is taken out.
        MapLookupAndDelete = 9,
        /// Only programs write to the map from now on.
        MapFreeze = 10,
        /// Information about a map.
        MapInfo = 11,
        /// A program is verified and compiled.
        ProgramLoad = 12,
        /// A program runs from now on, alone or in the place of another.
        Attach = 13,
        /// None does any more.
        Detach = 14,
        /// Running programs and their counters.
        Query = 15,
        /// All objects there are.
        List = 16,
        /// An object is let go.
        Close = 17,
        /// All are.
        Reset = 18,
    }
}

numbered! {
    /// The tags of values in messages.
    Tag: u16 {
        /// The mistake, as text.
        Text = 1,
        /// The limit that a request would cross.
        Limit = 2,
        /// The verifier's log.
        Log = 3,
        /// An object's number: never 0, and the guest's own.
        Handle = 4,
        /// A value that stays the same until the guest reboots.
        BootId = 5,
        /// A limit and how much of it is used.
        LimitUsed = 6,
        /// Helpers that programs may call, by number.
        Helpers = 7,
        /// Kinds of maps, by number.
        MapKinds = 8,
        /// Where programs may redirect to.
        Target = 9,
        /// Bits of directions in which programs may run.
        Directions = 10,
        /// CPUs that per-CPU values have.
        Cpus = 11,
        /// Most bytes of a message behind its header.
        PayloadMax = 12,
        /// A name.
        Name = 16,
        /// `enum bpf_map_type`
        Kind = 17,
        /// Bytes of a key.
        KeySize = 18,
        /// Bytes of a value.
        ValueSize = 19,
        /// Capacity.
        MaxEntries = 20,
        /// `BPF_F_*` of a map.
        MapFlags = 21,
        /// `map_extra`
        MapExtra = 22,
        /// The template of a map of maps.
        InnerMap = 23,
        /// Types that others refer to.
        Btf = 24,
        /// The type of a key in those.
        KeyType = 25,
        /// The type of a value.
        ValueType = 26,
        /// Bytes of a value as users see it: of all CPUs.
        UserValueSize = 27,
        /// Whether a map is frozen.
        Frozen = 28,
        /// A key.
        Key = 32,
        /// The value of the key before it.
        Value = 33,
        /// `BPF_ANY` and so on.
        Flags = 34,
        /// How many.
        Count = 35,
        /// Instructions (RFC 9669), 8 bytes each.
        Insns = 48,
        /// A licence.
        License = 49,
        /// `struct bpf_func_info` records of 8 bytes.
        FuncInfo = 50,
        /// `struct bpf_line_info` records of 16 bytes.
        LineInfo = 51,
        /// `BPF_F_*` of a program.
        ProgramFlags = 52,
        /// Bytes of types (BTF).
        Types = 53,
        /// Which way.
        Direction = 64,
        /// The program that must be there, 0 for none.
        Expected = 65,
        /// Counters of a program.
        Counters = 66,
        /// An object.
        Object = 67,
    }
}

numbered! {
    /// Which frames a program sees.
    Direction: u32 {
        /// Frames for the guest, before they are copied to it.
        Ingress = 1,
        /// Frames that the guest sends, before the port's own program.
        Egress = 2,
    }
}

impl Direction {
    /// As commands and configuration write it.
    pub fn word(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }

    /// The direction of that word.
    pub fn from_word(word: &str) -> Option<Direction> {
        Direction::ALL.iter().copied().find(|direction| direction.word() == word)
    }
}
