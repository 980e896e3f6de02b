//! The engine's ports as devices of the object registry, to which `bpf(2)` and netlink attach
//! programs independently of the wanted state.
//!
//! A hook has one owner, as on a device with libxdp's dispatcher: where the daemon attached
//! programs, clients get EBUSY, and where a client attached one, the daemon's attachment fails.

use std::sync::Arc;
use std::time::Duration;

use towpath_bpf::Errno;
use towpath_bpf::program::AttachType;
use towpath_engine::{
    Config, ControlTask, Engine, Hook, Link, LiveError, LiveRun as EngineRun, Snapshot, TaskContext,
};
use towpath_maps::Domain;
use towpath_objects::{Device, Devices, LiveRun, ProgramObject, TIME_MAX, TestRun, XdpMode};
use towpath_xdp::{Frame, Program};

use super::udp::UDP_LINK;

/// Ports by ifindex, for the object registry.
#[derive(Debug)]
pub(super) struct Ports(pub(super) Arc<Engine>);

impl Devices for Ports {
    fn device(&self, ifindex: u32) -> Option<Device> {
        self.0.read(|_, snapshot| {
            let slot = snapshot.port_of_ifindex(ifindex)?;
            // A port without receive queues has one queue for sending.
            let queues = slot.opened.device.queues().max(1);
            Some(Device { native: true, offload: false, queues, uppers: uppers(snapshot, ifindex) })
        })
    }

    /// Generic mode is treated as native mode: no network stack behind the port could run programs
    /// later.
    fn install(
        &self,
        ifindex: u32,
        mode: XdpMode,
        program: Option<&Arc<ProgramObject>>,
    ) -> Result<(), Errno> {
        let found = self.0.read(|_, snapshot| {
            let port = snapshot.port_of_ifindex(ifindex);
            port.map(|port| port.id)
        });
        let id = found.ok_or(Errno::ENODEV)?;
        let hook = if mode == XdpMode::Dequeue { Hook::Dequeue } else { Hook::Rx };
        let workers = self.0.workers();
        let link = program.map(|it| Link::new(it.program().clone(), FOREIGN, workers));
        let mut is_taken = false;
        let install = |config: &mut Config| {
            let links = config.links(id, hook)?.iter();
            // The one that delivers UDP datagrams runs after any other.
            let (last, others): (Vec<_>, Vec<_>) =
                links.cloned().partition(|link| link.id == UDP_LINK);
            is_taken = others.iter().any(|link| link.id != FOREIGN);
            match is_taken {
                true => Ok(()),
                false => config.set_links(id, hook, link.into_iter().chain(last).collect()),
            }
        };
        self.0.change(install).map_err(|_refused| Errno::EINVAL)?;
        if is_taken { Err(Errno::EBUSY) } else { Ok(()) }
    }

    fn note_program(&self, program: &Program, is_there: bool) -> Result<(), Errno> {
        if !is_for_entries(program.attach()) {
            return Ok(());
        }
        // Workers know the program until it is freed.
        let entry = is_there.then(|| program.clone());
        let note = |config: &mut Config| config.set_entry_program(program.id(), entry);
        self.0.change(note).map_err(|_workers| Errno::EINVAL)
    }

    fn test_run(&self, run: TestRun) -> Result<TestRun, Errno> {
        let made = self.0.run_task(OnWorker(run));
        made.map(|made| made.0).ok_or(Errno::EINTR)
    }

    fn live_run(&self, run: &LiveRun<'_>) -> Result<Option<Duration>, Errno> {
        let frame = copy_of(run.frame).ok_or(Errno::ENOMEM)?;
        let counts = (run.repeat, run.batch);
        let run = EngineRun::new(run.program, frame, run.ingress, counts, TIME_MAX);
        let outcome = self.0.run_task(run).map(|run| run.outcome());
        let took = outcome.unwrap_or(Err(LiveError::Stopped)).map_err(|error| match error {
            LiveError::NoMemory => Errno::ENOMEM,
            LiveError::NoPort => Errno::ENODEV,
            _ => Errno::EINTR,
        })?;
        Ok(Some(took))
    }
}

/// A test run on a worker.
struct OnWorker(TestRun);

impl ControlTask for OnWorker {
    fn domain(&self) -> &Arc<Domain> {
        self.0.program().maps().domain()
    }

    fn step(&mut self, context: &mut TaskContext<'_>) -> bool {
        self.0.step(context.worker())
    }
}

fn is_for_entries(attach: AttachType) -> bool {
    matches!(attach, AttachType::Devmap | AttachType::Cpumap)
}

/// A copy of a frame in memory of its own.
fn copy_of(frame: &Frame) -> Option<Frame> {
    let bytes = frame.to_vec_with_metadata();
    let mut copy = Frame::with_metadata(&bytes, frame.metadata_len()).ok()?;
    copy.rx = frame.rx;
    Some(copy)
}

/// Ifindex of the bond above a port; empty if the port is not a member.
fn uppers(snapshot: &Snapshot, ifindex: u32) -> Vec<u32> {
    let member = snapshot.port_of_ifindex(ifindex).and_then(|slot| slot.member);
    let bond = member.and_then(|member| snapshot.port(member.bond));
    bond.map(|bond| bond.ifindex).into_iter().collect()
}

/// Id of engine links that do not belong to the daemon; no link object has this id.
pub(super) const FOREIGN: u32 = 0;
