//! Where programs' look-ups are answered from: the running host, or tables that somebody wrote.

use std::sync::Arc;

use towpath_host::Watcher;
use towpath_xdp::host::{Interface, Live};

use super::Report;
use crate::tables::HostState;

/// The host that programs see.
#[derive(Debug, Default)]
pub(super) struct HostTables {
    live: Arc<Live>,
    /// Keeps it like the running host, while that is wanted.
    watcher: Option<Watcher>,
    /// What was written, when it was put in place last.
    written: Option<HostState>,
}

impl HostTables {
    /// What programs are loaded with; it stays the same one.
    pub(super) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Answers from what was written, else from the running host; ports are interfaces in both.
    pub(super) fn set(
        &mut self,
        wanted: Option<&HostState>,
        ports: Vec<Interface>,
        report: &mut Report,
    ) {
        match wanted {
            Some(written) => self.write(written, &ports, report),
            None => self.follow(ports, report),
        }
    }

    fn write(&mut self, written: &HostState, ports: &[Interface], report: &mut Report) {
        // First: nobody else writes then.
        self.watcher = None;
        let (host, problems) = written.tables(ports);
        for problem in problems {
            report.fail("host", problem.inside("host").to_string());
        }
        if *self.live.current().host() != host {
            self.live.replace(host);
        }
        if self.written.as_ref() != Some(written) {
            let (routes, neighbours) = (written.route.len(), written.neighbour.len());
            report.change(format!("host: {routes} routes, {neighbours} neighbours, as written"));
            self.written = Some(written.clone());
        }
    }

    fn follow(&mut self, ports: Vec<Interface>, report: &mut Report) {
        if self.written.take().is_some() {
            report.change("host: the running host's routes and neighbours");
        }
        if self.watcher.is_none() {
            match Watcher::start(&self.live) {
                Ok(watcher) => self.watcher = Some(watcher),
                Err(error) => return self.without(ports, &error),
            }
        }
        if let Some(watcher) = &self.watcher {
            watcher.set_ports(ports);
        }
    }

    /// Where rtnetlink cannot be had, programs know of the ports only.
    fn without(&self, ports: Vec<Interface>, error: &towpath_host::Error) {
        tracing::warn!("programs cannot ask for the host's routes and neighbours: {error}");
        let host = towpath_xdp::host::Host { interfaces: ports, ..Default::default() };
        if *self.live.current().host() != host {
            self.live.replace(host);
        }
    }
}
