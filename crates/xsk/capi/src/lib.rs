//! `libtowpath_xsk_client`: the functions of libxdp's `<xdp/xsk.h>` over the sockets that Towpath
//! serves. `<towpath/xsk.h>` describes them.

#![deny(unsafe_code)]

mod capi_unsafe;
