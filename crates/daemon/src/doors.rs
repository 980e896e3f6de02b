//! The sockets that the daemon is asked at, for as long as it runs: where somebody removes the file
//! of one, it is made again.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use towpath_xsk::Server;

use crate::control::Control;
use crate::failure::FailureCode;
use crate::file::Settings;
use crate::serve::{Limits, Strangers, serve};
use crate::socket::{Reserved, Socket, give_to};

/// The API's socket, and that of applications.
#[derive(Debug)]
pub(crate) struct Doors {
    settings: Settings,
    router: Router,
    limits: Limits,
    told: Strangers,
    api: Socket,
    accepting: JoinHandle<()>,
    xsk: Server,
    /// Connections that it closed, when it was last looked.
    strangers: u64,
    /// The place of the applications' socket.
    _reserved: Reserved,
}

/// Sockets that are made and that nobody serves yet: a second daemon finds out before it opens
/// anything.
#[derive(Debug)]
pub(crate) struct Taken {
    settings: Settings,
    api: Socket,
    listener: std::os::unix::net::UnixListener,
    reserved: Reserved,
}

impl Taken {
    /// Makes the sockets.
    ///
    /// # Errors
    ///
    /// Another daemon uses them, or they can't be made.
    pub(crate) fn new(settings: &Settings) -> Result<Taken, String> {
        let (api, listener) = Socket::bind(&settings.socket, settings.mode, settings.group)?;
        let reserved = Reserved::new(&settings.xsk_socket())?;
        Ok(Taken { settings: settings.clone(), api, listener, reserved })
    }

    /// Serves them.
    ///
    /// # Errors
    ///
    /// The applications' can't be made.
    pub(crate) fn serve(
        self,
        control: &Control,
        router: Router,
        limits: Limits,
    ) -> Result<Doors, String> {
        let Taken { settings, api, listener, reserved } = self;
        let told = Strangers::new("API socket", control);
        let accepting = accept(listener, &router, limits, &told)
            .map_err(|error| format!("{}: {error}", settings.socket.display()))?;
        let path = settings.xsk_socket();
        let sockets = control.serve_sockets_at(&path);
        let xsk = Server::start(&sockets, &path, settings.xsk_mode)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        give_to(&path, settings.xsk_group)?;
        let (strangers, _reserved) = (0, reserved);
        Ok(Doors { settings, router, limits, told, api, accepting, xsk, strangers, _reserved })
    }
}

impl Doors {
    /// Looks at the files from time to time.
    pub(crate) async fn watch(&mut self, control: &Control) -> Infallible {
        loop {
            tokio::time::sleep(PERIOD).await;
            self.look_at_strangers(control);
            if !self.api.is_there() {
                let path = self.settings.socket.clone();
                tell(control, "API socket", &path, self.make_api());
            }
            if !self.xsk.is_there() {
                let path = self.settings.xsk_socket();
                tell(control, "application socket", &path, self.make_xsk(&path));
            }
        }
    }

    fn look_at_strangers(&mut self, control: &Control) {
        let towpath_xsk::Strangers { count, why } = self.xsk.strangers();
        let new = count - std::mem::replace(&mut self.strangers, count);
        if new > 0 {
            let text = format!("application socket: {new} connections were closed: {why}");
            control.news().note("application socket", &text);
        }
    }

    fn make_api(&mut self) -> Result<(), String> {
        let listener = self.api.listen_again().map_err(|error| error.to_string())?;
        let accepting = accept(listener, &self.router, self.limits, &self.told);
        let before = accepting.map_err(|error| error.to_string())?;
        // Who is connected stays.
        std::mem::replace(&mut self.accepting, before).abort();
        Ok(())
    }

    fn make_xsk(&self, path: &Path) -> Result<(), String> {
        self.xsk.listen_again().map_err(|error| error.to_string())?;
        give_to(path, self.settings.xsk_group)
    }
}

fn accept(
    listener: std::os::unix::net::UnixListener,
    router: &Router,
    limits: Limits,
    told: &Strangers,
) -> std::io::Result<JoinHandle<()>> {
    let listener = UnixListener::from_std(listener)?;
    Ok(tokio::spawn(serve(listener, router.clone(), limits, told.clone())))
}

/// Nobody could come in meanwhile, which is told either way.
fn tell(control: &Control, what: &str, path: &Path, made: Result<(), String>) {
    let (news, subject) = (control.news(), format!("{what} {}", path.display()));
    match made {
        Ok(()) => {
            if !news.standing.has(FailureCode::Listen, &subject) {
                news.failed(FailureCode::Listen, &subject, "its file was removed");
            }
            news.recovered(FailureCode::Listen, &subject);
        }
        Err(why) => {
            let why = format!("its file was removed, and can't be made again: {why}");
            news.failed(FailureCode::Listen, &subject, why);
        }
    }
}

const PERIOD: Duration = Duration::from_millis(200);
