//! The engine's ports as devices of the set of objects: where programs are attached that come
//! through `bpf(2)` or netlink, and not from what is wanted.
//!
//! One hook, one owner: where the daemon runs programs of its own, nobody else may attach, as on a
//! device with libxdp's dispatcher; and where somebody else did, the daemon must not.

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_engine::{Config, Engine, Hook, Link, Snapshot};
use towpath_objects::{Device, Devices, ProgramObject, XdpMode};

/// Ports by ifindex.
#[derive(Debug)]
pub(super) struct Ports(pub(super) Arc<Engine>);

impl Devices for Ports {
    fn device(&self, ifindex: u32) -> Option<Device> {
        self.0.read(|_, snapshot| {
            snapshot.port_of_ifindex(ifindex)?;
            Some(Device { native: true, offload: false, uppers: uppers(snapshot, ifindex) })
        })
    }

    /// The generic mode is the native one under another name: there is no stack behind a port that
    /// would run programs later.
    fn install(
        &self,
        ifindex: u32,
        _mode: XdpMode,
        program: Option<&Arc<ProgramObject>>,
    ) -> Result<(), Errno> {
        let found = self.0.read(|_, snapshot| snapshot.port_of_ifindex(ifindex).map(|it| it.id));
        let id = found.ok_or(Errno::ENODEV)?;
        let workers = self.0.workers();
        let link = program.map(|it| Link::new(it.program().clone(), FOREIGN, workers));
        let mut is_taken = false;
        let install = |config: &mut Config| {
            is_taken = config.links(id, Hook::Rx)?.iter().any(|link| link.id != FOREIGN);
            match is_taken {
                true => Ok(()),
                false => config.set_links(id, Hook::Rx, link.into_iter().collect()),
            }
        };
        self.0.change(install).map_err(|_refused| Errno::EINVAL)?;
        if is_taken { Err(Errno::EBUSY) } else { Ok(()) }
    }
}

/// The bond above a port, if it is in one.
fn uppers(snapshot: &Snapshot, ifindex: u32) -> Vec<u32> {
    let member = snapshot.port_of_ifindex(ifindex).and_then(|slot| slot.member);
    let bond = member.and_then(|member| snapshot.port(member.bond));
    bond.map(|bond| bond.ifindex).into_iter().collect()
}

/// What engine links are called that are not the daemon's: no link has this id.
const FOREIGN: u32 = 0;
