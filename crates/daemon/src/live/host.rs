//! Where programs' look-ups are answered from: the running host, or tables that somebody wrote.

use std::sync::Arc;

use towpath_document::Problem;
use towpath_host::Watcher;
use towpath_host::tables::HostState;
use towpath_xdp::host::{Interface, Live};

use super::report::Report;
use crate::model::failure::FailureCode;

/// The host that programs see.
#[derive(Debug, Default)]
pub(super) struct HostTables {
    live: Arc<Live>,
    /// Keeps it like the running host, while that is wanted.
    watcher: Option<Watcher>,
    /// What was written, when it was put in place last.
    written: Option<Written>,
}

/// Tables that somebody wrote.
#[derive(Debug)]
struct Written {
    state: HostState,
    /// The ports whose names it uses.
    ports: Vec<Interface>,
    /// What of it could not be used.
    problems: Vec<Problem>,
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
            Some(written) => self.write(written, ports, report),
            None => self.follow(ports, report),
        }
    }

    fn write(&mut self, state: &HostState, ports: Vec<Interface>, report: &mut Report) {
        // First: nobody else writes then.
        self.watcher = None;
        let known = self.written.take();
        if known.as_ref().is_none_or(|known| known.state != *state) {
            let (routes, neighbours) = (state.route.len(), state.neighbour.len());
            report.change(format!("host: {routes} routes, {neighbours} neighbours, as written"));
        }
        // Tables can be long, and most changes are to something else.
        let known = known.filter(|known| known.state == *state && known.ports == ports);
        let written = known.unwrap_or_else(|| {
            let (host, problems) = state.tables(&ports);
            self.live.replace(host);
            Written { state: state.clone(), ports, problems }
        });
        for problem in &written.problems {
            report.fail(FailureCode::Host, "host", problem.clone().inside("host").to_string());
        }
        self.written = Some(written);
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
