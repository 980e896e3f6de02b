//! Memory that programs reach: blocks that never move, and single accesses to them.
//!
//! Programs hold real addresses, so memory they see must stay where it is and every access is made
//! through a raw pointer. All pieces of unsafe code for that are here: [`block_unsafe`] and
//! [`mapping_unsafe`] own memory, [`access_unsafe`] touches it once the address is checked.

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
