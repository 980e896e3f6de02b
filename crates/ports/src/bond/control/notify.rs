//! The control thread's announcements and queries after a fail-over.

use std::time::{Duration, Instant};

use towpath_engine::bond::BondMode;
use towpath_engine::{PortId, Snapshot, Upper};

use super::super::announce::{announcement, group_question, group_question6};
use super::super::links::ticks;
use super::ControlLoop;

impl ControlLoop {
    pub(super) fn owe_notices(&mut self) {
        self.notices = u32::from(self.settings.num_peer_notif) * self.notice_ticks();
    }

    fn notice_ticks(&self) -> u32 {
        ticks(self.settings.peer_notif_delay, self.period()).max(1)
    }

    /// Announces the bond's addresses on the new member after a fail-over
    /// (`bond_should_notify_peers`).
    pub(super) fn announce(&mut self) {
        if self.notices == 0 {
            return;
        }
        // The engine must use the new member before any frame leaves by it.
        let is_time = self.notices.is_multiple_of(self.notice_ticks()) && self.has_carrier();
        if is_time && self.publish().is_ok() {
            let mac = self.mac().unwrap_or_default();
            for &address in &self.settings.announce {
                self.engine.inject(self.bond, &announcement(mac, address));
            }
        }
        self.notices -= 1;
    }

    /// Queries multicast groups above the bond when another member is to carry them
    /// (`bond_resend_igmp_join_requests`). The kernel makes its own stack repeat its reports; here
    /// the stack is another host's, and answers a query.
    pub(super) fn ask_for_groups(&mut self) {
        let joined_by = match self.settings.options.mode {
            BondMode::ActiveBackup => self.active,
            BondMode::BalanceRr => {
                self.members.iter().find(|it| self.can_send(it)).map(|it| it.seen.port)
            }
            _ => None,
        };
        if joined_by.is_some() && joined_by != self.joined_by {
            self.questions = self.settings.resend_igmp;
        }
        self.joined_by = joined_by;
        if self.questions == 0 || Instant::now() < self.next_question {
            return;
        }
        // The answers leave by the new member, which the engine must use by then.
        if self.publish().is_err() {
            return;
        }
        self.questions -= 1;
        self.next_question = Instant::now() + QUESTION_PERIOD;
        let mac = self.mac().unwrap_or_default();
        for port in self.engine.read(|_, snapshot| above(snapshot, self.bond)) {
            self.engine.inject(port, &group_question(mac));
            self.engine.inject(port, &group_question6(mac));
        }
    }
}

/// The ports that frames passing on a port may go to: its upper, or the other ports of its bridge.
fn above(snapshot: &Snapshot, port: PortId) -> Vec<PortId> {
    match snapshot.port(port).map(|slot| &slot.upper) {
        Some(Upper::Port(to)) => vec![*to],
        Some(Upper::Bridge(index)) => {
            let members = snapshot.bridges.get(*index).map_or(&[][..], |bridge| &bridge.members);
            members.iter().copied().filter(|&it| it != port).collect()
        }
        Some(Upper::Bond(bond)) => above(snapshot, *bond),
        Some(Upper::None) | None => Vec::new(),
    }
}

/// `bond_resend_igmp_join_requests_delayed`: `HZ / 5`.
const QUESTION_PERIOD: Duration = Duration::from_millis(200);
