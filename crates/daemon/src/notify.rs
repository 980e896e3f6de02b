//! Telling systemd how we are (`sd_notify(3)`): datagrams to the socket it names.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says one thing, e.g. `READY=1`; nothing when nobody asked for it.
pub(crate) fn notify(text: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = name.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt as _;
            SocketAddr::from_abstract_name(name)
        }
        None => SocketAddr::from_pathname(std::path::Path::new(&name)),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!("systemd was not told {text}: {error}");
    }
}
