//! The control thread: accepts or connects to one front end after another, and serves it from the
//! first message on.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFlags, eventfd};
use towpath_host::socket::{SocketFile, listen};

use super::connection::{self, Ended, pause, wait};
use super::session::Session;
use super::{Mode, Shared};

/// The thread, and the eventfd that stops it.
#[derive(Debug)]
pub(super) struct Control {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// The socket file made by the port; dropped after the thread.
    _made: Option<SocketFile>,
}

impl Control {
    /// Starts listening, or trying to connect.
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Control> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (listener, made) = match shared.options.mode {
            Mode::Server => {
                let (listener, made) = listen(&shared.options.path, &shared.options.access)?;
                (Some(listener), Some(made))
            }
            Mode::Client => (None, None),
        };
        let (shared, told) = (Arc::clone(shared), Arc::clone(&stop));
        let body = move || {
            let _stopped = match listener {
                Some(listener) => accept_all(&shared, &listener, &told),
                None => connect_all(&shared, &told),
            };
        };
        let thread = std::thread::Builder::new().name("vhost-user".to_owned()).spawn(body)?;
        Ok(Control { stop, thread: Some(thread), _made: made })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _rung = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _panicked = thread.join();
        }
    }
}

/// Serves one front end after the other; further ones wait meanwhile.
fn accept_all(shared: &Arc<Shared>, listener: &UnixListener, stop: &OwnedFd) -> Result<(), Ended> {
    loop {
        wait(listener, PollFlags::IN, stop)?;
        match listener.accept() {
            Ok((stream, _address)) => serve(shared, &stream, stop)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The process may have run out of descriptors; tried again later.
            Err(_later) => pause(RETRY_PERIOD, stop)?,
        }
    }
}

/// Tries to connect to a front end until it succeeds, and again when it is gone. A successful
/// connection does not prove a working front end, as the listener may be about to end, so
/// everything after it is retried, too.
fn connect_all(shared: &Arc<Shared>, stop: &OwnedFd) -> Result<(), Ended> {
    loop {
        match UnixStream::connect(&shared.options.path) {
            Ok(stream) => {
                shared.note_absence(None);
                serve(shared, &stream, stop)?;
            }
            Err(why) => shared.note_absence(Some(&why)),
        }
        pause(RETRY_PERIOD, stop)?;
    }
}

/// Serves one front end until its end.
fn serve(shared: &Arc<Shared>, stream: &UnixStream, stop: &OwnedFd) -> Result<(), Ended> {
    shared.note_connection(true);
    let mut session = Session::new(shared);
    let ended = connection::serve(stream, stop, &mut session);
    drop(session);
    shared.note_connection(false);
    match ended {
        Ok(()) | Err(Ended::Gone) => Ok(()),
        Err(Ended::Stopped) => Err(Ended::Stopped),
        Err(why) => {
            shared.note_refusal(why.to_string());
            Ok(())
        }
    }
}

/// Time between two attempts.
const RETRY_PERIOD: Duration = Duration::from_millis(50);
