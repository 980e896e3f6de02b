//! A test's description of the host: sockets that look-ups find, and connections that it tracks.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use towpath_bpf::Errno;
use towpath_document::parse_duration;
use towpath_xdp::KnownConnection;
use towpath_xdp::host::{Socket, Transport};

/// A socket as it is written.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SocketDocument {
    protocol: Protocol,
    local: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remote: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ifindex: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<u32>,
}

/// A connection as it is written.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionDocument {
    protocol: Protocol,
    source: String,
    destination: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    assured: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    Tcp,
    Udp,
}

impl From<Protocol> for Transport {
    fn from(protocol: Protocol) -> Transport {
        match protocol {
            Protocol::Tcp => Transport::Tcp,
            Protocol::Udp => Transport::Udp,
        }
    }
}

impl SocketDocument {
    /// The converted value, or a description of the mistake.
    ///
    /// # Errors
    ///
    /// Fails if an end is not an address and port, or if the ends have different families.
    pub fn into_socket(self) -> Result<Socket, String> {
        let local = end("local", &self.local)?;
        let remote = self.remote.as_deref().map(|text| end("remote", text)).transpose()?;
        if let Some(remote) = remote {
            one_family(("local", local), ("remote", remote))?;
        }
        Ok(Socket {
            transport: self.protocol.into(),
            local,
            remote,
            ifindex: self.ifindex.unwrap_or(0),
            mark: self.mark.unwrap_or(0),
        })
    }
}

impl ConnectionDocument {
    /// The converted value, or a description of the mistake.
    ///
    /// # Errors
    ///
    /// Fails if an end is not an address and port, if the ends have different families, or if the
    /// timeout is not a duration.
    pub fn into_connection(self) -> Result<KnownConnection, String> {
        let source = end("source", &self.source)?;
        let destination = end("destination", &self.destination)?;
        one_family(("source", source), ("destination", destination))?;
        let timeout = self.timeout.as_deref().map(parse_duration).transpose();
        let timeout = timeout.map_err(|message| format!("timeout: {message}"))?;
        Ok(KnownConnection {
            transport: self.protocol.into(),
            source,
            destination,
            timeout: timeout.unwrap_or(TIMEOUT),
            is_assured: self.assured.unwrap_or(true),
            mark: self.mark.unwrap_or(0),
        })
    }
}

fn end(key: &str, text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_not_one| {
        format!(
            "{key} {text:?}: expected an address and a port, like 192.0.2.1:80 or [2001:db8::1]:80"
        )
    })
}

fn one_family(one: (&str, SocketAddr), other: (&str, SocketAddr)) -> Result<(), String> {
    let is_one = one.1.is_ipv4() == other.1.is_ipv4();
    let message =
        || format!("{} is {} and {} is {}: of two families", one.0, one.1, other.0, other.1);
    is_one.then_some(()).ok_or_else(message)
}

/// The reason why a connection can't be entered ([`towpath_xdp::Program::enter_connection`]).
pub fn why_not_entered(errno: Errno) -> &'static str {
    match errno {
        Errno::EEXIST => "one before it has these ends, in one direction or the other",
        _ => errno.text(),
    }
}

/// Default timeout of a connection: that of an established TCP connection
/// (`nf_conntrack_tcp_timeout_established`).
const TIMEOUT: Duration = Duration::from_secs(432_000);
