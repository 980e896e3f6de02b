//! The ARP monitor's part of the control thread.

use towpath_engine::PortId;
use towpath_engine::bond::BondMode;

use super::super::arp::ArpMonitor;
use super::ControlLoop;

impl ControlLoop {
    /// Whether links are monitored at all.
    pub(super) fn is_monitored(&self) -> bool {
        self.settings.link_period().is_some() || self.settings.arp_period().is_some()
    }

    /// Takes over link states from the ARP monitor.
    pub(super) fn watch_answers(&mut self) {
        let is_asked = self.settings.arp_period().is_some();
        if !is_asked || self.settings.options.mode == BondMode::Lacp {
            self.arp = None;
            return;
        }
        let now = self.started.elapsed();
        let by_active = self.settings.options.mode == BondMode::ActiveBackup;
        let (arp, sources) = (&self.settings.arp, &self.settings.announce);
        if !self.arp.as_ref().is_some_and(|it| it.is_for(arp, by_active, sources)) {
            self.arp = Some(ArpMonitor::new(arp.clone(), by_active, sources.clone()));
        }
        let mac = self.mac();
        let Some(arp) = &mut self.arp else { return };
        for gone in arp.members().collect::<Vec<_>>() {
            if self.members.iter().all(|it| it.seen.port.0 != gone) {
                arp.remove_member(gone);
            }
        }
        for it in &mut self.members {
            let number = it.seen.port.0;
            arp.set_member(number, mac.unwrap_or(it.seen.mac), it.seen.carrier, now);
            if it.seen.received != it.received_before {
                it.received_before = it.seen.received;
                arp.saw_traffic(number, now);
            }
        }
        arp.inspect(now);
        self.take_over_links();
    }

    /// Sends the ARP monitor's probes.
    pub(super) fn ask(&mut self) {
        let now = self.started.elapsed();
        let Some(arp) = &mut self.arp else { return };
        arp.set_active(self.active.map(|active| active.0), now);
        for (member, question) in arp.probe(now) {
            self.engine.inject(PortId(member), &question);
        }
        self.take_over_links();
    }

    fn take_over_links(&mut self) {
        let Some(arp) = &self.arp else { return };
        let mut news = Vec::new();
        for it in &mut self.members {
            let Some((link, failures)) = arp.link(it.seen.port.0) else { continue };
            it.monitor.failures = failures;
            if it.monitor.state != link {
                it.monitor.state = link;
                news.push(it.link_line());
            }
        }
        news.into_iter().for_each(|line| self.tell(line));
    }
}
