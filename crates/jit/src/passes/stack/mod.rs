//! Promotion of the BPF stack to SSA values: first calls name the bytes that they access, so that
//! few pointers to the stack remain; then all bytes become values that those pointers don't reach.
//!
//! Clang puts every map key and every spilled register on the stack. As memory, a key written as
//! two words and read as one stalls on store forwarding, and no lookup can be inlined on it.

mod arguments;
mod cells;
mod promote;
mod reach;

pub(super) use arguments::name_argument_bytes;
pub(super) use promote::promote;
pub(super) use reach::{Reached, reached};
