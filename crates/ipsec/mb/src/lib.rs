//! The engine `ipsec-mb`: AES-CBC and HMACs by Intel's multi-buffer library, libipsec-mb, which
//! works on many packets at once in the lanes of vector registers. AEADs gain nothing from that and
//! are run by [`AwsLc`](towpath_ipsec::AwsLc), as are packets that the library can't take.
//!
//! [`Library::open`] opens the library at run time, because not every machine has it, and checks
//! its version and its results. [`IpsecMb`] is an engine for one worker.
//!
//! The engine uses only the library's synchronous functions, which have finished all of their jobs
//! when they return. So no pointer to a packet stays in the library, and a packet is decrypted only
//! after its ICV was found to be right.

#![deny(unsafe_code)]

mod check;
mod engine;
mod keys;
mod layout_unsafe;
mod library_unsafe;
mod manager_unsafe;

pub use engine::IpsecMb;
pub use library_unsafe::{Library, OpenError};
