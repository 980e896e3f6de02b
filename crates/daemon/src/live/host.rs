//! The source of programs' route and neighbour look-ups: the running host, or configured tables.

use std::sync::Arc;

use towpath_document::Problem;
use towpath_host::Watcher;
use towpath_host::tables::HostState;
use towpath_xdp::host::{Interface, Live};

use super::report::Report;
use crate::model::failure::FailureCode;

/// The host tables that programs see.
#[derive(Debug, Default)]
pub(super) struct HostTables {
    live: Arc<Live>,
    /// Follows the running host's tables while they are in use.
    watcher: Option<Watcher>,
    /// The configured tables that were installed last.
    written: Option<Written>,
}

/// Configured tables.
#[derive(Debug)]
struct Written {
    state: HostState,
    /// The ports whose names the tables use.
    ports: Vec<Interface>,
    /// Entries of the tables that could not be used.
    problems: Vec<Problem>,
}

impl HostTables {
    /// The tables with which programs are loaded; the value stays the same.
    pub(super) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Installs the configured tables, else those of the running host; ports are interfaces in
    /// both.
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
        // The watcher ends first, so that it no longer writes.
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

    /// Installs tables that contain only the ports, if rtnetlink is not available.
    fn without(&self, ports: Vec<Interface>, error: &towpath_host::Error) {
        tracing::warn!("programs cannot ask for the host's routes and neighbours: {error}");
        let host = towpath_xdp::host::Host { interfaces: ports, ..Default::default() };
        if *self.live.current().host() != host {
            self.live.replace(host);
        }
    }
}
