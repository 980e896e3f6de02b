//! Doors of ports of kind `ipsec`: sockets at which IKE daemons manage SAs and policies.

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_xfrm::Door;

use super::Live;
use super::ike_door::LiveDoor;
use super::report::Report;
use crate::model::failure::FailureCode;
use crate::model::kinds::ipsec::door_path;
use crate::model::state::State;

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
        self.ipsec.doors.values().any(LiveDoor::is_lost)
    }
}
