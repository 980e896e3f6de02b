//! Memory that programs access: blocks that never move, and single accesses to them.
//!
//! Programs hold real addresses, so their memory must not move, and every access uses a raw
//! pointer. All unsafe code for that is here: [`block_unsafe`] and [`mapping_unsafe`] own memory,
//! [`access_unsafe`] accesses it after the address was checked.

mod access_unsafe;
mod block_unsafe;
mod mapping_unsafe;
mod shared_unsafe;

pub(crate) use access_unsafe::{
    Grant, atomic, copy_in, copy_out, load, lock, store, transfer, unlock, unlock_all, view,
};
pub(crate) use block_unsafe::{Block, prefetch_to_write};
pub(crate) use mapping_unsafe::Mapping;
pub use shared_unsafe::{SharedBytes, SharedBytesMut};
