//! BPF maps: storage, the operations for programs, and those for users.
//!
//! Semantics (sizes, flags, error numbers, update rules) are the kernel's; `docs/maps.md` lists the
//! kinds, their limits and the deliberate differences. Three ideas hold the crate together:
//!
//! - **Memory never moves.** A map reserves its whole memory when it is created, so a program may
//!   keep the address of a value until it returns, and a compiler may build addresses into code.
//! - **Readers take no lock.** Writers lock one bucket; what they unlink is reused only after every
//!   worker has been quiescent once ([`qsbr`]).
//! - **All `unsafe` is in files named for it.** Everything but them works on offsets into a region.
//!
//! ```text
//! Map::create(&MapDef, &CreateOptions) -> Arc<Map>     one map
//! MapSet::create(&[MapDef], &SetOptions) -> MapSet     all maps of an object
//! map.lookup / update / delete / push / for_each       what helpers call, on a worker
//! map.user()                                           what bpf(2) offers, from any thread
//! typed::{format, parse}                               keys and values as JSON through BTF
//! ```
//!
//! A program on worker 0 counts, a user reads:
//!
//! ```
//! # use towpath_bpf::{MapDef, program::MapType};
//! use towpath_maps::{MapSet, SetOptions, flags::BPF_ANY};
//!
//! # let def = MapDef {
//! #     name: "hits".into(), kind: MapType::Hash, key_size: 4, value_size: 8, max_entries: 16,
//! #     flags: 0, map_extra: 0, pin_by_name: false, key_type: 0, value_type: 0, btf: None,
//! #     inner: None, slots: vec![], initial: None, section: None,
//! # };
//! let maps = MapSet::create(&[def], &SetOptions::new(1))?;
//! let hits = maps.by_name("hits").expect("defined above");
//! hits.update(0, &7u32.to_ne_bytes(), &1u64.to_ne_bytes(), BPF_ANY)?;
//! let value = hits.user().lookup(&7u32.to_ne_bytes(), 0)?;
//! assert_eq!(value.bytes(), 1u64.to_ne_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod absent;
pub mod access;
pub mod arena;
mod array;
mod bloom;
mod environment;
mod error;
pub mod fields;
mod hash;
mod inner;
mod layout;
mod lpm;
mod map;
pub mod mapfile;
mod memory;
#[cfg(loom)]
mod memory_loom;
#[cfg(not(loom))]
mod memory_unsafe;
pub mod perf;
pub mod pifo;
mod prog_array;
pub mod qsbr;
mod queue;
pub mod ranks;
mod ring;
pub mod ringbuf;
pub mod rows;
mod set;
pub mod shape;
mod shared;
mod store;
mod sync;
mod targets;
#[cfg(test)]
mod testing;
pub mod typed;
mod user;
pub mod user_ringbuf;

pub use access::{Access, Part};
pub use arena::{Arena, ArenaLayout};
pub use environment::{AnyEnvironment, Environment, ProgramIndex};
pub use error::MapError;
#[cfg(not(loom))]
pub use hash::view_unsafe::{HashView, KEY_WORDS_MAX};
pub use layout::{ArrayView, Layout};
pub use lpm::PREFIX_BYTES_MAX;
pub use map::{CreateOptions, Map};
pub use prog_array::{ProgramSlots, number};
pub use qsbr::Domain;
pub use set::{MapSet, SetOptions};
pub use store::Element;
pub use targets::TargetEntry;
pub use towpath_bpf::map::flags;
pub use user::{User, Value};
