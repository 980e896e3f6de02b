//! A door of a port, and its socket while there is one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_host::socket::Access;
use towpath_ipsec::Table;
use towpath_ports::ipsec::now;
use towpath_xfrm::{Door, Server};

use super::news::News;

/// A door, and its socket while there is one.
#[derive(Debug)]
pub(super) struct LiveDoor {
    pub(super) door: Arc<Door>,
    server: Option<(PathBuf, Server)>,
}

impl LiveDoor {
    pub(super) fn new(port: &str, table: &Arc<Table>, news: &Arc<News>) -> LiveDoor {
        let (subject, news) = (format!("port {port}"), Arc::clone(news));
        let log = move |why: &str| {
            news.note(&subject, &format!("{subject}: refused to an IKE daemon: {why}"));
        };
        let door = Arc::new(Door::new(Arc::clone(table), now, log));
        LiveDoor { door, server: None }
    }

    /// Listens at a path; returns whether that is new.
    pub(super) fn listen(&mut self, path: &Path) -> Result<bool, String> {
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

    /// Whether the socket was removed by hand.
    pub(super) fn is_lost(&self) -> bool {
        self.server.as_ref().is_some_and(|(_, server)| !server.is_there())
    }
}
