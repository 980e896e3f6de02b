//! Host interfaces of ports, which may disappear and return in any namespace.

use std::sync::atomic::Ordering;

use towpath_engine::PortId;

use super::Live;
use super::parts::LivePort;
use super::report::Report;
use crate::live::news::News;
use crate::model::failure::{Failure, FailureCode};
use crate::model::kinds::{self, Reopening};

impl Live {
    /// Whether an interface disappeared, returned or broke, or the socket of a door disappeared,
    /// since the last reconciliation.
    pub fn is_stirred(&self) -> bool {
        self.interfaces.has_moved()
            || self.ports.values().any(|port| self.lost(port).is_some())
            || self.shadows.values().any(|shadow| self.has_lost_shadow(shadow))
            || self.broken() != self.known_broken
            || self.has_lost_door()
    }

    /// Opens queues that interfaces gained since the last look (`ethtool -L`), closes those that
    /// they lost, and takes over a changed MTU. A failure to open a queue is the port's, and is
    /// tried again at the next look.
    pub(crate) fn look_at_devices(&self, news: &News) {
        for (name, port) in &self.ports {
            let Some(slot) = self.engine.port(port.id) else { continue };
            let device = &slot.opened.device;
            let mtu_before = device.mtu();
            device.look();
            let (there, open, mtu) =
                (device.queues(), slot.opened.open_queues().len() as u32, device.mtu());
            if (there, mtu) == (open, mtu_before) || self.engine.refresh_port(port.id).is_err() {
                continue;
            }
            if there != open {
                news.change(&format!(
                    "port {name}: its interface has {there} queues, it had {open}"
                ));
            }
            if mtu != mtu_before {
                news.change(&format!(
                    "port {name}: the MTU of its interface is {mtu}, it was {mtu_before}"
                ));
            }
        }
    }

    /// Tells devices that they will be closed soon, so that they release what they can while frames
    /// still flow.
    pub(crate) fn close_soon(&self) {
        let slots = self.ports.values().filter_map(|port| self.engine.port(port.id));
        slots.for_each(|slot| slot.opened.device.closes_soon());
    }

    /// Failures of open ports that still forward frames, such as the end of a recording.
    fn broken(&self) -> Vec<Failure> {
        self.engine.read(|_, snapshot| {
            let slots = snapshot.ports.iter().flatten();
            let failures = slots.flat_map(|slot| {
                let why = slot.opened.device.failures().into_iter();
                why.map(|why| {
                    Failure::new(FailureCode::PortBroken, format!("port {}", slot.name), why)
                })
            });
            failures.collect()
        })
    }

    /// Notes these failures: reports include them from now on, until the ports are reopened.
    /// Reports leave out failures that have not been noted, so that these are not attributed to an
    /// unrelated change.
    pub fn note_broken(&mut self) {
        self.known_broken = self.broken();
    }

    pub(super) fn tell_broken(&self, report: &mut Report) {
        let broken = self.broken();
        let known = self.known_broken.iter().filter(|failure| broken.contains(failure));
        report.failures.extend(known.cloned());
    }

    /// Describes what happened to the interface of an open port; `None` if it is the same.
    pub(super) fn lost(&self, port: &LivePort) -> Option<String> {
        let opened = port.opened.as_ref()?;
        let (_, name) = kinds::interface(opened)?;
        let has_failed = self.has_failed(port.id);
        match kinds::find(&opened.kind).ok()?.reopening {
            Reopening::Never => None,
            Reopening::AtOnce => has_failed.then(|| format!("its interface {name} was deleted")),
            Reopening::WithInterface => match (port.presence, self.interfaces.find(opened)) {
                (Some(then), Some(now)) if then == now => None,
                (Some(_), Some(_)) => Some(format!("its interface {name} is another one")),
                (Some(_), None) => Some(format!("its interface {name} is gone")),
                (None, _) => None,
            },
        }
    }

    /// Why an open port no longer works although its interface may be the same: a queue ended.
    pub(super) fn failed(&self, port: &LivePort) -> Option<String> {
        let kind = kinds::find(&port.opened.as_ref()?.kind).ok()?;
        if kind.reopening == Reopening::Never {
            return None;
        }
        self.engine.port(port.id)?.opened.failure()
    }

    /// Whether there is a port with such a failure. Reopening it may help, and is tried now and
    /// then.
    pub fn has_failed_ports(&self) -> bool {
        self.ports.values().any(|port| self.failed(port).is_some())
    }

    /// Whether a port's queue ended with an error.
    pub(super) fn has_failed(&self, id: PortId) -> bool {
        self.engine.port(id).is_some_and(|slot| slot.opened.failed.load(Ordering::Relaxed))
    }

    /// Notes interfaces that were unknown when their ports were opened.
    pub(super) fn note_presences(&mut self) {
        for port in self.ports.values_mut() {
            if let Some(opened) = port.opened.as_ref().filter(|_| port.presence.is_none()) {
                port.presence = self.interfaces.find(opened);
            }
        }
    }
}
