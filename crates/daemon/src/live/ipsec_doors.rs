//! Doors of ports of kind `ipsec`: sockets at which IKE daemons manage SAs and policies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_host::socket::Access;
use towpath_ipsec::Table;
use towpath_ports::ipsec::now;
use towpath_xfrm::{Door, Server};

use super::Live;
use super::news::News;
use super::report::Report;
use crate::model::failure::FailureCode;
use crate::model::kinds::ipsec::door_path;
use crate::model::state::State;

/// Doors by the names of their ports.
pub(super) type Doors = BTreeMap<String, LiveDoor>;

/// A door, and its socket while there is one.
#[derive(Debug)]
pub(super) struct LiveDoor {
    door: Arc<Door>,
    server: Option<(PathBuf, Server)>,
}

impl Live {
    /// Opens the doors that ports want.
    pub(super) fn open_doors(&mut self, wanted: &State, report: &mut Report) {
        for port in &wanted.ports {
            let name = &port.name;
            let (Some(path), Some(table)) = (door_path(port), self.ipsec.tables.get(name)) else {
                continue;
            };
            let doors = &mut self.ipsec.doors;
            let live = doors.entry(name.clone());
            let live = live.or_insert_with(|| LiveDoor::new(name, table, &self.news));
            match live.listen(&path) {
                Ok(false) => {}
                Ok(true) => {
                    let at = path.display();
                    report.change(format!("port {name}: IKE daemons may connect to {at}"));
                }
                Err(why) => report.fail(FailureCode::PortDoor, format!("port {name}"), why),
            }
        }
    }

    /// Closes the doors that ports do not want any more, and removes their SAs and policies.
    pub(super) fn close_doors(&mut self, wanted: &State, report: &mut Report) {
        let ports = wanted.ports_by_name();
        self.ipsec.doors.retain(|name, live| {
            let stays = ports.get(name.as_str()).is_some_and(|port| door_path(port).is_some());
            if !stays {
                live.door.flush();
                report.change(format!("port {name}: closed to IKE daemons"));
            }
            stays
        });
    }

    /// Doors by the names of their ports.
    pub(crate) fn doors(&self) -> BTreeMap<String, Arc<Door>> {
        let doors = self.ipsec.doors.iter();
        doors.map(|(port, live)| (port.clone(), Arc::clone(&live.door))).collect()
    }

    /// Whether the socket of a door was removed by hand.
    pub(super) fn has_lost_door(&self) -> bool {
        let mut servers = self.ipsec.doors.values().filter_map(|live| live.server.as_ref());
        servers.any(|(_, server)| !server.is_there())
    }
}

impl LiveDoor {
    fn new(port: &str, table: &Arc<Table>, news: &Arc<News>) -> LiveDoor {
        let (subject, news) = (format!("port {port}"), Arc::clone(news));
        let log = move |why: &str| {
            news.note(&subject, &format!("{subject}: refused to an IKE daemon: {why}"));
        };
        let door = Arc::new(Door::new(Arc::clone(table), now, log));
        LiveDoor { door, server: None }
    }

    /// Listens at a path; returns whether that is new.
    fn listen(&mut self, path: &Path) -> Result<bool, String> {
        let is_same = |(at, server): &(PathBuf, Server)| at == path && server.is_there();
        if self.server.as_ref().is_some_and(is_same) {
            return Ok(false);
        }
        self.server = None;
        // Keys pass through it: only the daemon's user may connect.
        let access = Access { mode: 0o600, ..Access::default() };
        let server = Server::start(&self.door, path, &access)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        self.server = Some((path.to_owned(), server));
        Ok(true)
    }
}
