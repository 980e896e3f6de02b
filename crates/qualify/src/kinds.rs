//! Port kinds to be tried: how each is made, and its other end.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use towpath_capture::pcap::Writer;
use towpath_engine::port::Device;
use towpath_kernel::Namespace;
use towpath_ports::afxdp::{self, Afxdp, RxHintsFrom};
use towpath_ports::generator::{self, Generator};
use towpath_ports::packet::{self, Packet};
use towpath_ports::pair::{self, Pair};
use towpath_ports::pcap::{self, Pcap};
use towpath_ports::sink::Sink;
use towpath_ports::tap::{self, Tap};
use towpath_ports::vhost_user::{self, VhostUser};
use towpath_ports::wrap::Wrapped;
use towpath_ports::wrap::hint::Hint;

use crate::packets::TCI;
use crate::{Far, Maker, Purpose, Setup};

/// A kind of port, as it is given in a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The driver's hints, or none.
    Afxdp(RxHintsFrom),
    /// `generator`
    Generator,
    /// `packet`
    Packet,
    /// `pair`
    Pair,
    /// `pcap`
    Pcap,
    /// `sink`
    Sink,
    /// `tap`
    Tap,
    /// `vhost-user`, with a guest of ours
    VhostUser,
}

impl Kind {
    /// All kinds, without and with hints of the driver.
    pub const ALL: [Kind; 9] = [
        Kind::Pair,
        Kind::Tap,
        Kind::Packet,
        Kind::Afxdp(RxHintsFrom::Off),
        Kind::Afxdp(RxHintsFrom::Driver),
        Kind::VhostUser,
        Kind::Pcap,
        Kind::Generator,
        Kind::Sink,
    ];

    /// Its name, as it is given.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Afxdp(RxHintsFrom::Off) => "afxdp",
            Kind::Afxdp(RxHintsFrom::Driver) => "afxdp+driver",
            Kind::Generator => "generator",
            Kind::Packet => "packet",
            Kind::Pair => "pair",
            Kind::Pcap => "pcap",
            Kind::Sink => "sink",
            Kind::Tap => "tap",
            Kind::VhostUser => "vhost-user",
        }
    }

    /// Whether it is over an interface of the host's, which takes root.
    pub const fn needs_root(self) -> bool {
        matches!(self, Kind::Afxdp(_) | Kind::Packet | Kind::Tap)
    }

    /// Whether it can be over interfaces that are there already.
    pub const fn takes_interfaces(self) -> bool {
        matches!(self, Kind::Afxdp(_) | Kind::Packet)
    }
}

/// A port to be tried, of a kind.
pub struct Port {
    /// Its kind.
    pub kind: Kind,
    /// Whether hints that the device does not give are made in software.
    pub has_software_hints: bool,
    /// The interface that it is over, and the one at the other end of the cable. Without, a veth is
    /// made for it.
    pub interfaces: Option<[String; 2]>,
    /// The place of the veth.
    pub lab: Rc<Lab>,
}

impl Maker for Port {
    fn name(&self) -> String {
        let software = if self.has_software_hints { "+software" } else { "" };
        let over = self.interfaces.as_ref().map(|[near, _]| format!(":{near}"));
        format!("{}{software}{}", self.kind.name(), over.unwrap_or_default())
    }

    fn make(&self, purpose: &Purpose) -> io::Result<Setup> {
        let Setup { device, far } = self.bare(purpose)?;
        if !self.has_software_hints {
            return Ok(Setup { device, far });
        }
        let hint = Hint { hash: true, timestamp: true, vlan: true };
        Ok(Setup { device: Box::new(Wrapped::new(device, Arc::new(hint))), far })
    }
}

impl Port {
    fn bare(&self, purpose: &Purpose) -> io::Result<Setup> {
        match self.kind {
            Kind::Pair => {
                let options = pair::Options { mtu: purpose.mtu, ..pair::Options::default() };
                let (near, far) = Pair::new(options);
                Ok(Setup { device: Box::new(near), far: Far::port(Box::new(far))? })
            }
            Kind::Tap => {
                let name = self.lab.fresh_name();
                let options = tap::Options { mtu: purpose.mtu, ..tap::Options::new(&name) };
                let device = Box::new(Tap::new(&options).map_err(io::Error::other)?);
                Ok(Setup { device, far: listener(&name)? })
            }
            Kind::Packet => {
                let [near, far] = self.wire(purpose)?;
                Ok(Setup { device: packet_port(&near)?, far: self.tagging(&far)? })
            }
            Kind::Afxdp(rx_hints) => {
                let [near, far] = self.wire(purpose)?;
                let options = afxdp::Options { rx_hints, ..afxdp::Options::new(&near) };
                let device = Box::new(Afxdp::new(&options).map_err(io::Error::other)?);
                Ok(Setup { device, far: self.tagging(&far)? })
            }
            Kind::VhostUser => {
                let path = self.lab.fresh_path().with_extension("sock");
                let options = vhost_user::Options::new(path.clone());
                let options = vhost_user::Options { mtu: purpose.mtu, ..options };
                let device = VhostUser::new(options).map_err(io::Error::other)?;
                Ok(Setup { device: Box::new(device), far: Far::Guest(path, None) })
            }
            Kind::Pcap => self.pcap(purpose),
            Kind::Generator => {
                let usual = vec![vec![0; 64]];
                let is_any = !purpose.arrivals.is_empty();
                let templates = if is_any { purpose.arrivals.clone() } else { usual };
                let options = generator::Options {
                    count: Some(templates.len() as u64),
                    templates,
                    ..generator::Options::new(Vec::new())
                };
                let device = Generator::new(options).map_err(io::Error::other)?;
                Ok(Setup { device: Box::new(device), far: Far::Nobody })
            }
            Kind::Sink => Ok(Setup { device: Box::new(Sink), far: Far::Nobody }),
        }
    }

    /// The interface of the port and the one at the other end.
    fn wire(&self, purpose: &Purpose) -> io::Result<[String; 2]> {
        match &self.interfaces {
            Some(interfaces) => Ok(interfaces.clone()),
            None => self.lab.veth(purpose.mtu),
        }
    }

    /// The other end of a wire that was made for this; tags are put on packets by the stack.
    fn tagging(&self, name: &str) -> io::Result<Far> {
        let mut far = listener(name)?;
        // Kernels may have no VLANs, and named interfaces get none of ours.
        let vlan = self.interfaces.is_none().then(|| self.lab.vlan(name));
        match vlan {
            Some(Ok(vlan)) => far.tag_by(packet_port(&vlan)?)?,
            _ => far.lack_tags(),
        }
        Ok(far)
    }

    fn pcap(&self, purpose: &Purpose) -> io::Result<Setup> {
        let (input, output) = (self.lab.fresh_path(), self.lab.fresh_path());
        let mut writer = Writer::new(File::create(&input)?).map_err(io::Error::other)?;
        for packet in &purpose.arrivals {
            let written = writer.write(packet, packet.len() as u32, CAPTURED_NS);
            written.map_err(io::Error::other)?;
        }
        writer.finish().map_err(io::Error::other)?;
        let options = pcap::Options {
            input: Some(input),
            output: Some(output.clone()),
            ..pcap::Options::default()
        };
        Ok(Setup { device: Box::new(Pcap::new(options)?), far: Far::Capture(output) })
    }
}

/// A packet port over an interface, which also receives frames for other addresses.
fn packet_port(name: &str) -> io::Result<Box<dyn Device>> {
    let options = packet::Options { promiscuous: true, ..packet::Options::new(name) };
    Ok(Box::new(Packet::new(&options).map_err(io::Error::other)?))
}

/// A packet port at the other end of a wire.
pub(crate) fn listener(name: &str) -> io::Result<Far> {
    Far::port(packet_port(name)?)
}

/// The place where ports are tried: a separate network namespace, and a folder. Both are removed
/// with this.
#[derive(Debug)]
pub struct Lab {
    namespace: Option<Namespace>,
    folder: PathBuf,
    count: Cell<u32>,
}

impl Lab {
    /// Makes a folder and, if there are to be interfaces, a network namespace, which the calling
    /// thread enters for good.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be made. A namespace needs CAP_SYS_ADMIN.
    pub fn new(has_interfaces: bool) -> io::Result<Rc<Lab>> {
        let namespace = if has_interfaces { Some(Namespace::new()?) } else { None };
        if let Some(namespace) = &namespace {
            namespace.enter()?;
            // No other sender disturbs.
            let _quiet = namespace.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        }
        // One for each, since it goes with it.
        static LABS: AtomicU32 = AtomicU32::new(0);
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("towpath-qualify-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder)?;
        Ok(Rc::new(Lab { namespace, folder, count: Cell::new(0) }))
    }

    fn next(&self) -> u32 {
        self.count.replace(self.count.get() + 1)
    }

    fn fresh_name(&self) -> String {
        format!("qualify{}", self.next())
    }

    fn fresh_path(&self) -> PathBuf {
        self.folder.join(format!("{}.pcap", self.next()))
    }

    /// Two interfaces that are joined.
    pub(crate) fn veth(&self, mtu: u32) -> io::Result<[String; 2]> {
        let Some(namespace) = &self.namespace else {
            return Err(io::Error::other("interfaces are made in a namespace only"));
        };
        let names = [self.fresh_name(), self.fresh_name()];
        let [near, far] = &names;
        namespace
            .run(&format!("ip link add {near} mtu {mtu} type veth peer name {far} mtu {mtu}"))?;
        for name in &names {
            namespace.run(&format!("ip link set {name} up"))?;
        }
        Ok(names)
    }

    /// A VLAN on an interface.
    fn vlan(&self, below: &str) -> io::Result<String> {
        let Some(namespace) = &self.namespace else {
            return Err(io::Error::other("interfaces are made in a namespace only"));
        };
        let name = self.fresh_name();
        namespace.run(&format!("ip link add link {below} name {name} type vlan id {TCI}"))?;
        namespace.run(&format!("ip link set {name} up"))?;
        Ok(name)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}

/// The capture time of packets in captures.
const CAPTURED_NS: u64 = 1_600_000_000_000_000_000;
