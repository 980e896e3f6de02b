//! Encoding of the protocol: messages of typed values, and their framing in a stream.
//!
//! All numbers are little-endian on any processor of guest and host. No code here panics, or
//! allocates memory by an unchecked length.

mod header;
mod records;
mod stream;
mod values;

pub use header::{HEADER_BYTES, Header, Message};
pub use records::{Counters, Limit, ObjectRecord, TargetRecord, What};
pub use stream::{Arrived, Receiver};
pub use values::{Malformed, Values, Writer};

/// Version of the protocol.
pub const VERSION: u16 = 1;

/// The virtio control class of the commands (virtio 1.3, 5.1.6.5; 0 to 8 are taken): a control
/// queue could carry them, too.
pub const CLASS: u8 = 0xe0;

/// Largest number of bytes behind a message's header.
pub const PAYLOAD_MAX: usize = 4 << 20;

/// Flag in the command field that marks a reply.
pub const REPLY: u8 = 0x80;

/// Flag of [`Command::Close`]: also frees objects that then have no references.
pub const CLOSE_ALL: u64 = 1;
/// The only flag in [`Tag::ProgramFlags`]: the program takes frames of several buffers.
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
            /// All items, by number.
            pub const ALL: &[$name] = &[$($name::$item,)*];

            /// The item with this number.
            pub fn from_number(number: $repr) -> Option<$name> {
                match number { $($value => Some($name::$item),)* _ => None }
            }

            /// Name in the documentation.
            pub fn name(self) -> &'static str {
                match self { $($name::$item => stringify!($item),)* }
            }
        }
    };
}

numbered! {
    /// The commands.
    Command: u8 {
        /// Begins a session; the answer has the host's features.
        Hello = 1,
        /// Loads types.
        BtfLoad = 2,
        /// Makes a map.
        MapCreate = 3,
        /// Reads an element.
        MapLookup = 4,
        /// Stores elements.
        MapUpdate = 5,
        /// Removes elements.
        MapDelete = 6,
        /// Reads the key behind a key, or the first.
        MapNextKey = 7,
        /// Reads elements in the order of keys.
        MapLookupBatch = 8,
        /// Takes an element out.
        MapLookupAndDelete = 9,
        /// Freezes a map: from now on only programs write to it.
        MapFreeze = 10,
        /// Reads information about a map.
        MapInfo = 11,
        /// Verifies and compiles a program.
        ProgramLoad = 12,
        /// Attaches a program, or replaces the attached one.
        Attach = 13,
        /// Detaches a program.
        Detach = 14,
        /// Reads running programs and their counters.
        Query = 15,
        /// Lists all objects.
        List = 16,
        /// Frees an object.
        Close = 17,
        /// Frees all objects.
        Reset = 18,
    }
}

numbered! {
    /// The tags of values in messages.
    Tag: u16 {
        /// Error message, as text.
        Text = 1,
        /// Name of the limit that a request would exceed.
        Limit = 2,
        /// The verifier's log.
        Log = 3,
        /// Number of an object: never 0, and valid for this guest only.
        Handle = 4,
        /// A value that stays the same until the guest reboots.
        BootId = 5,
        /// A limit, and the used amount of it.
        LimitUsed = 6,
        /// Helpers that programs may call, by number.
        Helpers = 7,
        /// Kinds of maps, by number.
        MapKinds = 8,
        /// A target of redirects.
        Target = 9,
        /// Bit mask of the directions in which programs may run.
        Directions = 10,
        /// Number of CPUs of per-CPU values.
        Cpus = 11,
        /// Largest number of bytes of a message behind its header.
        PayloadMax = 12,
        /// A name.
        Name = 16,
        /// Kind of map (`enum bpf_map_type`).
        Kind = 17,
        /// Size of a key, in bytes.
        KeySize = 18,
        /// Size of a value, in bytes.
        ValueSize = 19,
        /// Capacity.
        MaxEntries = 20,
        /// `BPF_F_*` of a map.
        MapFlags = 21,
        /// `map_extra`.
        MapExtra = 22,
        /// Handle of the template of a map of maps.
        InnerMap = 23,
        /// Handle of the types that other values refer to.
        Btf = 24,
        /// Id of the key's type in these types.
        KeyType = 25,
        /// Id of the value's type in these types.
        ValueType = 26,
        /// Size in bytes of a value as users see it, for all CPUs.
        UserValueSize = 27,
        /// Whether a map is frozen.
        Frozen = 28,
        /// A key.
        Key = 32,
        /// The value of the preceding key.
        Value = 33,
        /// Flags of an update (`BPF_ANY` and so on).
        Flags = 34,
        /// A number of elements.
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
        /// Direction of frames.
        Direction = 64,
        /// Handle of the program that must be attached, 0 for none.
        Expected = 65,
        /// Counters of a program.
        Counters = 66,
        /// An object.
        Object = 67,
    }
}

numbered! {
    /// Direction of the frames that a program sees.
    Direction: u32 {
        /// Frames for the guest, before they are copied to it.
        Ingress = 1,
        /// Frames that the guest sends, before the port's own program.
        Egress = 2,
    }
}

impl Direction {
    /// Word in commands and configuration.
    pub fn word(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }

    /// The direction with this word.
    pub fn from_word(word: &str) -> Option<Direction> {
        Direction::ALL.iter().copied().find(|direction| direction.word() == word)
    }
}
