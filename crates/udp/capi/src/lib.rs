//! `libtowpath_udp`: the UDP sockets of [`towpath_udp`] for C. `<towpath/udp.h>` describes the
//! functions.

#![deny(unsafe_code)]

mod address;
mod capi_unsafe;
