//! The running kernel's network devices, tried with its own XDP: test programs in the driver, and
//! AF_XDP sockets by Towpath's port over the interface.

use std::io;
use std::rc::Rc;

use towpath_bpf::program::Linked;
use towpath_bpf::proto::id;
use towpath_kernel::{AttachMode, Kernel, XdpLink};
use towpath_ports::afxdp::{self, Afxdp, RxHintsFrom};
use towpath_ports::netdev::{Netdev as Flags, index_of};
use towpath_workload::small;

use crate::checks::{self, fails, untried};
use crate::far::Got;
use crate::kinds::{Kind, Lab, Port, listener};
use crate::packets::{self, Packet, VERDICT};
use crate::{Far, Feature, Outcome, Subject};

/// A network device of the kernel's.
pub struct Netdev {
    /// The device, and the one at the other end of its cable; without, a veth.
    pub interfaces: Option<[String; 2]>,
    /// The place of veths.
    pub lab: Rc<Lab>,
}

impl Subject for Netdev {
    fn name(&self) -> String {
        match &self.interfaces {
            Some([near, _]) => format!("kernel:{near}"),
            None => "kernel veth".to_owned(),
        }
    }

    fn advertised(&self) -> io::Result<Vec<Feature>> {
        let rig = Rig::new(self, 1500)?;
        let flags = Flags::of(&rig.near)?;
        let (act, rx, xsk) = (flags.xdp, flags.rx_metadata, flags.xsk);
        let says = |feature: &Feature| match feature {
            Feature::Basic | Feature::Xsk => act & 1 != 0,
            // Each driver decides how much room is behind a packet.
            Feature::Headroom | Feature::Metadata => act & 1 != 0,
            Feature::Redirect => act & 2 != 0,
            Feature::NdoXmit => act & 4 != 0,
            Feature::XskZerocopy => act & 8 != 0,
            Feature::RxSg => act & 32 != 0,
            Feature::NdoXmitSg => act & 64 != 0,
            Feature::RxTimestamp => rx & 1 != 0,
            Feature::RxHash => rx & 2 != 0,
            Feature::RxVlanTag => rx & 4 != 0,
            Feature::TxTimestamp => xsk & 1 != 0,
            Feature::TxChecksum => xsk & 2 != 0,
            Feature::TxLaunchTime => xsk & 4 != 0,
            Feature::Mtu => true,
            _ => false,
        };
        Ok(Feature::ALL.iter().copied().filter(says).collect())
    }

    fn try_feature(&self, feature: Feature) -> io::Result<Outcome> {
        match feature {
            Feature::Basic => self.basic(),
            Feature::Redirect => self.crosses(1500, 100, Way::Out),
            Feature::NdoXmit => self.crosses(1500, 100, Way::In),
            Feature::NdoXmitSg => self.crosses(9000, JUMBO, Way::In),
            Feature::RxSg => self.passes(9000, &packets::udp(1, 2, JUMBO)),
            Feature::Mtu => self.passes(1500, &packets::udp(1, 2, 1514)),
            Feature::Headroom => self.moves(id::XDP_ADJUST_HEAD, -ROOM),
            Feature::Metadata => self.moves(id::XDP_ADJUST_META, -ROOM),
            Feature::Tailroom => self.moves(id::XDP_ADJUST_TAIL, TAIL),
            Feature::Xsk => self.by_socket(RxHintsFrom::Off, feature),
            Feature::RxTimestamp | Feature::RxHash | Feature::RxVlanTag => {
                self.by_socket(RxHintsFrom::Driver, feature)
            }
            Feature::XskZerocopy => self.zero_copy(),
            Feature::Linear => untried("the kernel makes frames linear in generic mode only"),
            Feature::TxTimestamp | Feature::TxChecksum | Feature::TxLaunchTime => {
                untried("our sockets ask a kernel's device for nothing")
            }
            Feature::RxChecksum => untried("no kernel reports it to programs"),
            Feature::RxCsumPartial | Feature::RxTso | Feature::TxTso | Feature::TxUso => {
                untried("XDP frames of a kernel say nothing of it")
            }
        }
    }
}

/// The direction of frames between the device and another one.
#[derive(Clone, Copy)]
enum Way {
    Out,
    In,
}

/// The device with its other end, and programs on both.
struct Rig {
    kernel: Kernel,
    near: String,
    far: String,
    links: Vec<XdpLink>,
}

impl Rig {
    /// The other end passes everything: a veth takes redirected frames only while it has a program.
    fn new(netdev: &Netdev, mtu: u32) -> io::Result<Rig> {
        let [near, far] = match &netdev.interfaces {
            Some(interfaces) => interfaces.clone(),
            None => netdev.lab.veth(mtu)?,
        };
        let kernel = Kernel::open().map_err(io::Error::other)?;
        let mut rig = Rig { kernel, near, far, links: Vec::new() };
        let far = rig.far.clone();
        rig.attach(&far, &small::returns(2))?;
        Ok(rig)
    }

    fn attach(&mut self, name: &str, program: &Linked) -> io::Result<()> {
        let maps = self.kernel.load_maps(&program.maps).map_err(io::Error::other)?;
        let loaded = self.kernel.load(program, &maps).map_err(io::Error::other)?;
        let link = loaded.attach(index_of(name)?, AttachMode::Native);
        let link = link.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        self.links.push(link);
        Ok(())
    }
}

/// Sends packets at one end; returns the packets seen at the other.
fn exchange(from: &mut Far, sent: &[Vec<u8>], to: &mut Far, count: usize) -> io::Result<Vec<Got>> {
    for bytes in sent {
        from.send(&Packet::plain(bytes.clone()), None)?;
    }
    to.receive(count, || ())
}

impl Netdev {
    fn basic(&self) -> io::Result<Outcome> {
        let mut rig = Rig::new(self, 1500)?;
        let near = rig.near.clone();
        if let Err(error) = rig.attach(&near, &small::returns_byte(VERDICT as i32)) {
            return fails(format!("it takes no program: {error}"));
        }
        let (mut here, mut there) = (listener(&rig.near)?, listener(&rig.far)?);
        let sent: Vec<Vec<u8>> = (0..4).map(|verdict| packets::udp(1, verdict, 100)).collect();
        let passed = exchange(&mut there, &sent, &mut here, 1)?;
        let back = there.receive(1, || ())?;
        let is_only =
            |got: &[Got], packet: &[u8]| matches!(got, [got] if got.packet.bytes == packet);
        match (is_only(&passed, &sent[2]), is_only(&back, &sent[3])) {
            (true, true) => Ok(Outcome::Works),
            (false, _) => fails("frames without XDP_PASS passed"),
            (true, false) => fails("frames without XDP_TX came back"),
        }
    }

    /// A packet comes through a program that passes packets by their verdict byte.
    fn passes(&self, mtu: u32, packet: &[u8]) -> io::Result<Outcome> {
        let mut rig = Rig::new(self, mtu)?;
        let near = rig.near.clone();
        if let Err(error) = rig.attach(&near, &small::returns_byte(VERDICT as i32)) {
            return fails(format!("it takes no program: {error}"));
        }
        let (mut here, mut there) = (listener(&rig.near)?, listener(&rig.far)?);
        let passed = exchange(&mut there, &[packet.to_vec()], &mut here, 1)?;
        match passed.iter().any(|got| got.packet.bytes == packet) {
            true => Ok(Outcome::Works),
            false => fails("it did not pass"),
        }
    }

    /// A program moves an edge of the packet, and passes it if that worked.
    fn moves(&self, helper: u32, by: i32) -> io::Result<Outcome> {
        let mut rig = Rig::new(self, 1500)?;
        let near = rig.near.clone();
        rig.attach(&near, &small::passes_if_moved(helper, by))?;
        let (mut here, mut there) = (listener(&rig.near)?, listener(&rig.far)?);
        let sent = packets::udp(1, 2, 100);
        match exchange(&mut there, std::slice::from_ref(&sent), &mut here, 1)?.is_empty() {
            false => Ok(Outcome::Works),
            true => fails("there is less room"),
        }
    }

    /// Frames are redirected between the device and another veth.
    fn crosses(&self, mtu: u32, len: usize, way: Way) -> io::Result<Outcome> {
        let mut rig = Rig::new(self, mtu)?;
        let [other, end] = self.lab.veth(mtu)?;
        rig.attach(&end, &small::returns(2))?;
        let (from, to) = match way {
            Way::Out => (rig.near.clone(), other),
            Way::In => (other, rig.near.clone()),
        };
        rig.attach(&from, &small::redirect(index_of(&to)?))?;
        let (mut ours, mut others) = (listener(&rig.far)?, listener(&end)?);
        let sent = packets::udp(1, 0, len);
        let (from, to) = match way {
            Way::Out => (&mut ours, &mut others),
            Way::In => (&mut others, &mut ours),
        };
        let got = exchange(from, std::slice::from_ref(&sent), to, 1)?;
        match got.iter().any(|got| got.packet.bytes == sent) {
            true => Ok(Outcome::Works),
            false => fails("the packet did not leave"),
        }
    }

    /// The outcome of a feature for Towpath's port over the device.
    fn by_socket(&self, rx_hints: RxHintsFrom, feature: Feature) -> io::Result<Outcome> {
        let port = Port {
            kind: Kind::Afxdp(rx_hints),
            has_software_hints: false,
            interfaces: self.interfaces.clone(),
            lab: Rc::clone(&self.lab),
        };
        checks::try_feature(&port, feature)
    }

    fn zero_copy(&self) -> io::Result<Outcome> {
        let rig = Rig::new(self, 1500)?;
        let options =
            afxdp::Options { mode: afxdp::Mode::ZeroCopy, ..afxdp::Options::new(&rig.near) };
        let arena = towpath_xdp::Arena::new(4096)?;
        let opened = Afxdp::new(&options).map_err(io::Error::other).and_then(|device| {
            use towpath_engine::port::Device as _;
            device.open_rx(0, &arena).map(drop)
        });
        match opened {
            Ok(()) => Ok(Outcome::Works),
            Err(_refused) => fails("the kernel refuses this socket"),
        }
    }
}

const JUMBO: usize = 9000;
/// The kernel keeps 40 of 256 bytes.
const ROOM: i32 = 216;
/// A page less headroom, `skb_shared_info` and the packet.
const TAIL: i32 = 3520 - 100;
