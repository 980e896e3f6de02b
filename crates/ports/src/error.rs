//! Errors of ports that use the host's interfaces.

use std::io;

/// Errors of ports, with the interface and a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that Linux refuses.
    #[error(
        "{0:?} is not a name for an interface: 1 to 15 bytes, no '/', ':' or blanks, not . or .."
    )]
    Name(String),
    /// An option's number outside of its range.
    #[error("interface {interface}: {what} is {value}, but must be from {min} to {max}")]
    Range {
        /// The interface.
        interface: String,
        /// The option.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The smallest valid value.
        min: u64,
        /// The largest valid value.
        max: u64,
    },
    /// An option with an invalid value.
    #[error("interface {interface}: {what} is {value}, but must {must}")]
    Option {
        /// The interface.
        interface: String,
        /// The option.
        what: &'static str,
        /// Its value.
        value: String,
        /// Accepted range.
        must: String,
    },
    /// An interface that runs another process's XDP program.
    #[error(
        "interface {interface} has an XDP program already ({mode} mode, id {id}): detach it first, \
         e.g. with `ip link set {interface} xdp off`, or by ending the process that attached it"
    )]
    Occupied {
        /// The interface.
        interface: String,
        /// Where the program runs.
        mode: &'static str,
        /// Its id.
        id: u32,
    },
    /// A tap that another process has open: each of the two would get a part of its frames.
    #[error(
        "tap {interface} is in use by another process: end that one, or choose another name \
         (`grep -ls {interface} /proc/*/fdinfo/*` finds it)"
    )]
    InUse {
        /// The interface.
        interface: String,
    },
    /// A network namespace that cannot be entered.
    #[error("network namespace {name}: {source}{}", namespace_hint(.source))]
    Namespace {
        /// The name as configured.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// Taps cannot be made on this system.
    #[error("/dev/net/tun: {source}{}", tun_hint(.source))]
    Tun {
        /// The system's error.
        source: io::Error,
    },
    /// A step that the system refused.
    #[error("interface {interface}: {step}: {source}{}", hint(.source))]
    System {
        /// The interface.
        interface: String,
        /// The attempted step.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// A function that adds the interface's name and the step to a system error.
pub(crate) fn failed(interface: &str, step: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { interface: interface.to_owned(), step, source }
}

fn namespace_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => " (`ip netns list` lists existing ones)",
        io::ErrorKind::PermissionDenied => " (needs CAP_SYS_ADMIN)",
        _ => "",
    }
}

fn tun_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => " (`modprobe tun` creates it; a container needs it as a device)",
        io::ErrorKind::PermissionDenied => {
            " (it must be writable for this user: run as root, or `chmod 0666 /dev/net/tun`)"
        }
        _ => "",
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            " (needs CAP_NET_ADMIN and CAP_NET_RAW, and CAP_BPF for afxdp)"
        }
        Some(libc::EBUSY) => " (in use by another process)",
        Some(libc::ENODEV) => " (`ip link` lists existing ones)",
        _ => "",
    }
}
