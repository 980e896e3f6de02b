//! The daemon's unix sockets during its life. Failures to create one are reported and retried, and
//! a socket whose file was removed is created again, while everything else continues.

use std::convert::Infallible;
use std::os::unix::net::UnixListener as Listener;
use std::time::{Duration, Instant};

use axum::Router;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use towpath_xsk::Server;

use crate::control::Control;
use crate::doors::serve::{Limits, Strangers, serve};
use crate::doors::socket::{Reserved, Socket, SocketError, give_to};
use crate::model::failure::FailureCode;
use crate::model::settings::Settings;

/// The API's socket, and the socket for AF_XDP applications.
#[derive(Debug)]
pub(crate) struct Doors {
    settings: Settings,
    router: Router,
    limits: Limits,
    told: Strangers,
    api: Option<Api>,
    xsk: Option<Applications>,
    /// Number of refused connections of applications at the last look.
    strangers: u64,
    /// Time at which failures are retried.
    retry: Instant,
}

/// The API's socket.
#[derive(Debug)]
struct Api {
    socket: Socket,
    accepting: JoinHandle<()>,
}

/// The socket for AF_XDP applications; the server is dropped before the reservation.
#[derive(Debug)]
struct Applications {
    server: Server,
    _place: Reserved,
}

/// Sockets that are created, but not served yet: a second daemon fails here, before it opens any
/// port.
#[derive(Debug)]
pub(crate) struct Taken {
    settings: Settings,
    api: Result<(Socket, Listener), String>,
    place: Result<Reserved, String>,
}

impl Taken {
    /// Creates the sockets, as far as possible now.
    ///
    /// # Errors
    ///
    /// Fails if another daemon uses one of the sockets.
    pub(crate) fn new(settings: &Settings) -> Result<Taken, String> {
        let api = Socket::bind(&settings.socket, settings.mode, settings.group);
        let (api, place) = (unless_used(api)?, unless_used(Reserved::new(&settings.xsk_socket()))?);
        Ok(Taken { settings: settings.clone(), api, place })
    }

    /// Starts serving the sockets.
    pub(crate) fn serve(self, control: &Control, router: Router, limits: Limits) -> Doors {
        let Taken { settings, api, place } = self;
        let mut doors = Doors {
            settings,
            router,
            limits,
            told: Strangers::new(API, control),
            api: None,
            xsk: None,
            strangers: 0,
            retry: Instant::now() + RETRY_PERIOD,
        };
        let api = api.and_then(|(socket, listener)| doors.serve_api(socket, listener));
        doors.tell(control, API, api);
        let xsk = place.and_then(|place| doors.serve_xsk(control, place));
        doors.tell(control, XSK, xsk);
        doors
    }
}

/// Passes on the error of a socket in use; other failures may be transient, and are kept for a
/// retry.
fn unless_used<T>(made: Result<T, SocketError>) -> Result<Result<T, String>, String> {
    match made {
        Err(error @ SocketError::InUse(_)) => Err(error.to_string()),
        made => Ok(made.map_err(|error| error.to_string())),
    }
}

impl Doors {
    /// Checks the files periodically.
    pub(crate) async fn watch(&mut self, control: &Control) -> Infallible {
        loop {
            tokio::time::sleep(PERIOD).await;
            self.look_at_strangers(control);
            let is_due = self.retry <= Instant::now();
            if is_due {
                self.retry = Instant::now() + RETRY_PERIOD;
            }
            self.watch_api(control, is_due);
            self.watch_xsk(control, is_due);
        }
    }

    fn watch_api(&mut self, control: &Control, is_due: bool) {
        match self.api.as_mut().map(|api| api.socket.is_there()) {
            Some(false) => {
                let made = self.make_api_again();
                self.tell_removed(control, API, made);
            }
            None if is_due => {
                let made = self.make_api();
                self.tell(control, API, made);
            }
            _ => {}
        }
    }

    fn watch_xsk(&mut self, control: &Control, is_due: bool) {
        match &self.xsk {
            Some(xsk) if !xsk.server.is_there() => {
                let made = xsk.server.listen_again().map_err(|error| error.to_string());
                let made = made.and_then(|()| self.give_xsk());
                self.tell_removed(control, XSK, made);
            }
            // The socket may exist, but without the configured group.
            Some(_) if is_due && self.has_failed(control, XSK) => {
                self.tell(control, XSK, self.give_xsk());
            }
            None if is_due => {
                let made = self.make_xsk(control);
                self.tell(control, XSK, made);
            }
            _ => {}
        }
    }

    fn look_at_strangers(&mut self, control: &Control) {
        let Some(xsk) = &self.xsk else { return };
        let towpath_xsk::Strangers { count, why } = xsk.server.strangers();
        let new = count - std::mem::replace(&mut self.strangers, count);
        if new > 0 {
            let text = format!("{XSK}: {new} connections were closed: {why}");
            control.news().note(XSK, &text);
        }
    }

    fn make_api(&mut self) -> Result<(), String> {
        let Settings { socket, mode, group, .. } = &self.settings;
        let made = Socket::bind(socket, *mode, *group).map_err(|error| error.to_string());
        made.and_then(|(socket, listener)| self.serve_api(socket, listener))
    }

    fn serve_api(&mut self, socket: Socket, listener: Listener) -> Result<(), String> {
        let accepting = self.accept(listener)?;
        self.api = Some(Api { socket, accepting });
        Ok(())
    }

    fn make_api_again(&mut self) -> Result<(), String> {
        let Some(api) = &mut self.api else { return Ok(()) };
        let listener = api.socket.listen_again().map_err(|error| error.to_string())?;
        let accepting = self.accept(listener)?;
        if let Some(api) = &mut self.api {
            // Existing connections stay.
            std::mem::replace(&mut api.accepting, accepting).abort();
        }
        Ok(())
    }

    fn accept(&self, listener: Listener) -> Result<JoinHandle<()>, String> {
        let listener = UnixListener::from_std(listener).map_err(|error| error.to_string())?;
        let (router, told) = (self.router.clone(), self.told.clone());
        Ok(tokio::spawn(serve(listener, router, self.limits, told)))
    }

    fn make_xsk(&mut self, control: &Control) -> Result<(), String> {
        let place =
            Reserved::new(&self.settings.xsk_socket()).map_err(|error| error.to_string())?;
        self.serve_xsk(control, place)
    }

    fn serve_xsk(&mut self, control: &Control, place: Reserved) -> Result<(), String> {
        let path = self.settings.xsk_socket();
        let sockets = control.serve_sockets_at(&path);
        let server = Server::start(&sockets, &path, self.settings.xsk_mode);
        let server = server.map_err(|error| error.to_string())?;
        self.xsk = Some(Applications { server, _place: place });
        self.give_xsk()
    }

    fn give_xsk(&self) -> Result<(), String> {
        give_to(&self.settings.xsk_socket(), self.settings.xsk_group)
    }

    fn tell(&self, control: &Control, what: &str, made: Result<(), String>) {
        let (news, subject) = (control.news(), self.subject(what));
        match made {
            Ok(()) => news.recovered(FailureCode::Listen, &subject),
            Err(why) => news.failed(FailureCode::Listen, &subject, why),
        }
    }

    /// Reports that a file was removed, even if the socket was created again at once, since clients
    /// could not connect meanwhile.
    fn tell_removed(&self, control: &Control, what: &str, made: Result<(), String>) {
        if made.is_ok() && !self.has_failed(control, what) {
            let removed = "its file was removed";
            control.news().failed(FailureCode::Listen, &self.subject(what), removed);
        }
        let again = |why| format!("its file was removed, and can't be made again: {why}");
        self.tell(control, what, made.map_err(again));
    }

    fn has_failed(&self, control: &Control, what: &str) -> bool {
        control.news().standing.has(FailureCode::Listen, &self.subject(what))
    }

    fn subject(&self, what: &str) -> String {
        let path = match what {
            API => self.settings.socket.clone(),
            _ => self.settings.xsk_socket(),
        };
        format!("{what} {}", path.display())
    }
}

const API: &str = "API socket";
const XSK: &str = "application socket";
const PERIOD: Duration = Duration::from_millis(200);
/// Interval at which failures are retried.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
const _: () = assert!(PERIOD.as_nanos() < RETRY_PERIOD.as_nanos());
