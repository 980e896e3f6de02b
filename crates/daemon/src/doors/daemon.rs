//! The daemon's life: start, serve, reload on SIGHUP, end on SIGTERM.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use towpath_xdp::Arena;

use crate::control::Control;
use crate::control::file::{self, Loaded};
use crate::control::{history, log, population};
use crate::doors::serve::{Limits, Strangers};
use crate::doors::sockets::Taken;
use crate::doors::{api, metrics, page, serve};
use crate::live::files::ObjectFiles;
use crate::model::failure::FailureCode;
use crate::model::settings::HttpSettings;
use crate::model::settings::Options;

/// Runs until it is told to end.
///
/// # Errors
///
/// What keeps it from starting. What fails later is in the log.
pub fn up(options: &Options) -> Result<(), String> {
    log::init(options);
    let result = run(options);
    log::finish();
    result
}

fn run(options: &Options) -> Result<(), String> {
    let objects = Arc::new(ObjectFiles::default());
    let loaded = match &options.config {
        Some(path) => file::load_at_start(path, &objects).map_err(|error| error.to_string())?,
        None => Loaded { state: crate::State::new(), ..Loaded::default() },
    };
    // Before there is another thread.
    for cpu in towpath_engine::keep_off(loaded.state.workers.iter().filter_map(|it| it.cpu)) {
        tracing::warn!(
            "[[worker]] cpu = {cpu}: there is no such CPU, or we may not run there; this worker \
             runs where it may"
        );
    }
    log::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("api")
        .build()
        .map_err(|error| format!("the API's thread: {error}"))?;
    let result = runtime.block_on(serve(loaded, options, objects));
    // A client that waits for events for ever must not keep us.
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

async fn serve(loaded: Loaded, options: &Options, objects: Arc<ObjectFiles>) -> Result<(), String> {
    let mut signals = Signals::new().map_err(|error| format!("signals: {error}"))?;
    let mut settings = loaded.settings.clone();
    if let Some(socket) = &options.socket {
        settings.socket.clone_from(socket);
    }
    // Before anything is opened: a second daemon must not take a port from the first. What else
    // keeps a socket from being made keeps no port from working.
    let taken = Taken::new(&settings)?;
    let config = options.config.as_deref();
    let descriptors = raise_descriptors();
    let control = Arc::new(Control::start(loaded, config.map(Path::new), objects)?);
    control.read(|inner| tell_memory(inner.live.engine.arena()));
    population::start(&control);
    let limits = API_LIMITS.within(descriptors);
    let mut doors = taken.serve(&control, api::router(&control), limits);
    if let Some(address) = settings.metrics {
        let listener = try_bind(&control, "metrics", address).await;
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            let scrapes = bound(&control, "metrics", address, listener).await;
            let limits = METRICS_LIMITS.within(descriptors);
            let told = Strangers::new("metrics", &control);
            serve::serve(scrapes, metrics::router(&control), limits, told).await;
        });
    }
    if let Some(http) = settings.http {
        serve_page(&control, http, descriptors).await;
    }
    tracing::info!("ready on {}", settings.socket.display());
    tell(&[NotifyState::Ready]);
    let end = tokio::select! {
        end = live(&control, &mut signals, options.runs_for) => end,
        never = doors.watch(&control) => match never {},
    };
    tell(&[NotifyState::Stopping]);
    tracing::info!("{}: stopping", end.as_deref().unwrap_or_else(|why| why));
    // Applications first: their sockets are the workers'.
    drop(doors);
    control.stop();
    if options.ends_process {
        // What is left is memory. To free it part by part takes some milliseconds of a restart, and
        // the end of the process does it at once.
        std::mem::forget(control);
    }
    end.map(drop)
}

/// Serves the page and the API behind it on an address, as soon as that can be had.
async fn serve_page(control: &Arc<Control>, mut http: HttpSettings, descriptors: u64) {
    let what = "[api] http";
    let first = try_bind(control, what, http.address).await;
    if let Some(listener) = &first {
        tell_page(control, listener, http.address);
    }
    read_token(control, what, &mut http);
    let control = Arc::clone(control);
    tokio::spawn(async move {
        let listener = bound(&control, what, http.address, first).await;
        tell_page(&control, &listener, http.address);
        while !read_token(&control, what, &mut http) {
            tokio::time::sleep(BIND_PERIOD).await;
        }
        let limits = if http.token.is_some() { API_LIMITS } else { LOOK_LIMITS };
        let router = page::router(&control, http);
        let told = Strangers::new(what, &control);
        serve::serve(listener, router, limits.within(descriptors), told).await;
    });
}

/// Reads the page's token, if that couldn't be done before; gives whether it is there.
fn read_token(control: &Control, what: &str, http: &mut HttpSettings) -> bool {
    let Some(path) = &http.unread_token else { return true };
    let subject = format!("{what} token_file");
    match file::read_token(path) {
        Ok(token) => {
            (http.token, http.unread_token) = (Some(token), None);
            control.news().recovered(FailureCode::Listen, &subject);
            true
        }
        Err(why) => {
            control.news().failed(FailureCode::Listen, &subject, why);
            false
        }
    }
}

/// Tells systemd how we are, if it wants to know.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("systemd was not told {state:?}: {error}");
    }
}

/// Listens on an address, or tells why it can't.
async fn try_bind(control: &Control, what: &str, address: SocketAddr) -> Option<TcpListener> {
    let subject = format!("{what} on {address}");
    match TcpListener::bind(address).await {
        Ok(listener) => {
            control.news().recovered(FailureCode::Listen, &subject);
            Some(listener)
        }
        Err(error) => {
            control.news().failed(FailureCode::Listen, &subject, error.to_string());
            None
        }
    }
}

/// Tries to listen until it can, if it couldn't at once.
async fn bound(
    control: &Control,
    what: &str,
    address: SocketAddr,
    mut listener: Option<TcpListener>,
) -> TcpListener {
    loop {
        match listener {
            Some(listener) => return listener,
            None => tokio::time::sleep(BIND_PERIOD).await,
        }
        listener = try_bind(control, what, address).await;
    }
}

/// Says where the page is, once.
fn tell_page(control: &Control, listener: &TcpListener, wanted: SocketAddr) {
    let address = listener.local_addr().unwrap_or(wanted);
    if control.page().is_none() {
        control.serve_page_at(address);
        tracing::info!("page on http://{address}/");
    }
}

/// Allows as many descriptors as the system does; gives their number.
fn raise_descriptors() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
    {
        return maximum.unwrap_or(u64::MAX);
    }
    current.unwrap_or(u64::MAX)
}

/// Says where frames lie: who wants huge pages finds out that there are none.
fn tell_memory(arena: &Arena) {
    let frames = arena.total();
    match arena.has_huge_pages() {
        true => tracing::info!("{frames} frames in huge pages"),
        false => tracing::info!(
            "{frames} frames in pages of the usual size: the machine has not enough huge ones free \
             (vm.nr_hugepages)"
        ),
    }
}

/// Gives why it ended; an error when it could not go on.
async fn live(
    control: &Arc<Control>,
    signals: &mut Signals,
    runs_for: Option<Duration>,
) -> Result<&'static str, String> {
    let Signals { terminate, interrupt, hangup, .. } = signals;
    tokio::select! {
        () = tokio::time::sleep(runs_for.unwrap_or(FOR_EVER)) => Ok("time is over"),
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
        why = panicked(control) => Err(why),
        // Whatever it is at: the end does not wait for it.
        never = look_after(control, hangup) => match never {},
    }
}

/// Reloads when it is told to, and follows what happens outside of the daemon.
async fn look_after(control: &Arc<Control>, hangup: &mut Signal) -> Infallible {
    let mut look = tokio::time::interval(LOOK_PERIOD);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let period = control.save_period().unwrap_or(FOR_EVER);
    let mut save = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    save.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut note = tokio::time::interval(history::PERIOD);
    note.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = note.tick() => drop(apart(control, Control::note_history)),
            // Not waited for: it may take long, and everything else goes on.
            _ = save.tick() => drop(apart(control, Control::save_contents)),
            _ = hangup.recv() => {
                // The time is that of `Type=notify-reload`.
                let since = NotifyState::monotonic_usec_now();
                tell(&[vec![NotifyState::Reloading], since.into_iter().collect()].concat());
                if let Ok(Err(error)) = apart(control, |control| control.reload(false)).await {
                    for line in error.message.lines() {
                        tracing::error!("reload: {line}");
                    }
                }
                tell(&[NotifyState::Ready]);
            }
            _ = look.tick() => {
                let look = |control: &Control| {
                    control.look_at_log();
                    control.look_at_workers();
                    control.balance_workers();
                    control.look_at_comings();
                    control.detach_stopped();
                    control.follow(false);
                };
                let _looked = apart(control, look).await;
            }
            () = control.stirred() => {
                let _followed = apart(control, |control| control.follow(true)).await;
            }
        }
    }
}

/// Does something that may take long, apart from the API's own thread.
fn apart<T: Send + 'static>(
    control: &Arc<Control>,
    work: impl FnOnce(&Control) -> T + Send + 'static,
) -> JoinHandle<T> {
    let control = Arc::clone(control);
    tokio::task::spawn_blocking(move || work(&control))
}

/// Waits until a worker panics, if one does. What it served is dead: whoever starts us again
/// makes it anew.
async fn panicked(control: &Control) -> String {
    loop {
        if let Some(why) = control.panicked() {
            return why;
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// A file that reaches `RLIMIT_FSIZE` ends the process unless this is handled: then the write
    /// fails (`EFBIG`), and only that recording ends.
    _file_size: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            _file_size: signal(SignalKind::from_raw(SIGXFSZ))?,
        })
    }
}

/// `SIGXFSZ` of Linux on x86-64 and aarch64.
const SIGXFSZ: i32 = 25;
/// Who may connect to the API may do everything, but nobody keeps others out.
const API_LIMITS: Limits = Limits {
    connections: 128,
    head: Duration::from_secs(10),
    body: Duration::from_secs(30),
    body_bytes: api::BODY_BYTES_MAX,
    bodies_bytes: 2 * api::BODY_BYTES_MAX,
    answers_bytes: api::BODY_BYTES_MAX,
    has_streams: true,
    keep_alive: true,
    reserve: 8,
};
/// The page without a token: a browser has some connections, and requests have no bodies.
const LOOK_LIMITS: Limits = Limits {
    connections: 64,
    body: Duration::from_secs(5),
    body_bytes: 1 << 10,
    bodies_bytes: 1 << 10,
    answers_bytes: 16 << 20,
    has_streams: false,
    reserve: 0,
    ..API_LIMITS
};
/// A request for metrics has no body, and is one.
const METRICS_LIMITS: Limits = Limits {
    connections: 32,
    head: Duration::from_secs(5),
    body: Duration::from_secs(5),
    body_bytes: 1 << 10,
    bodies_bytes: 1 << 10,
    answers_bytes: 16 << 20,
    has_streams: false,
    keep_alive: false,
    reserve: 0,
};
/// A program whose code had to be stopped is detached, and a device that is gone is noticed, after
/// this time at the latest.
const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// An address that is taken is tried again after this time.
const BIND_PERIOD: Duration = Duration::from_secs(1);
const _: () = assert!(LOOK_PERIOD.as_nanos() < BIND_PERIOD.as_nanos(), "what costs more is rarer");
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

#[cfg(test)]
mod tests {
    use towpath_engine::{ControlTask, TaskContext};
    use towpath_maps::Domain;

    use super::*;

    struct Panics(Arc<Domain>);

    impl ControlTask for Panics {
        fn domain(&self) -> &Arc<Domain> {
            &self.0
        }

        fn step(&mut self, _context: &mut TaskContext<'_>) -> bool {
            panic!("on purpose")
        }
    }

    #[test]
    fn a_worker_that_panics_ends_the_daemon() {
        let loaded = Loaded { state: crate::State::new(), ..Loaded::default() };
        let control = Arc::new(Control::start(loaded, None, Arc::default()).unwrap());
        let mut news = control.subscribe();
        let done = control.read(|inner| inner.live.engine.run_task(Panics(Domain::new(1))));
        assert!(done.is_none(), "nobody waits for what is not done");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let end = runtime.block_on(async {
            let mut signals = Signals::new().unwrap();
            live(&control, &mut signals, Some(Duration::from_secs(10))).await
        });
        assert_eq!(end, Err("worker 0 panicked: on purpose".to_owned()));
        let event = news.try_recv().unwrap();
        let text = "engine: worker 0 panicked: on purpose";
        assert_eq!((event.kind.as_str(), event.text.as_str()), ("failure", text));
        let failures = control.read(crate::doors::view::status).failures;
        assert_eq!(failures.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
        control.stop();
    }
}
