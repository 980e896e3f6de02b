//! The C library: `include/towpath/towpath.h` says what each function does.

#![deny(unsafe_code)]

mod capi_unsafe;
mod error;
mod map;
mod object;
