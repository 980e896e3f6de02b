//! The life of the daemon: start, serve, reload on SIGHUP, end on SIGTERM.

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

/// Runs the daemon until a signal ends it.
///
/// # Errors
///
/// Fails if the daemon cannot start. Later failures are logged.
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
    // Affinity is set before other threads start, which inherit it.
    for cpu in towpath_engine::keep_off(loaded.state.workers.iter().filter_map(|it| it.cpu)) {
        tracing::warn!(
            "[[worker]] cpu = {cpu}: there is no such CPU, or the daemon may not use it; this \
             worker runs on any CPU"
        );
    }
    log::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("api")
        .build()
        .map_err(|error| format!("the API's thread: {error}"))?;
    let result = runtime.block_on(serve(loaded, options, objects));
    // A client that waits for events must not delay the end.
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

async fn serve(loaded: Loaded, options: &Options, objects: Arc<ObjectFiles>) -> Result<(), String> {
    let mut signals = Signals::new().map_err(|error| format!("signals: {error}"))?;
    let mut settings = loaded.settings.clone();
    if let Some(socket) = &options.socket {
        settings.socket.clone_from(socket);
    }
    // Sockets are taken first: a second daemon must not take a port away from the first. Other
    // failures to create a socket do not keep ports from working.
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
    // Applications are disconnected first, since workers use their sockets.
    drop(doors);
    control.stop();
    if options.ends_process {
        // Only memory is left. Freeing it piece by piece would delay a restart by some
        // milliseconds; the end of the process frees it at once.
        std::mem::forget(control);
    }
    end.map(drop)
}

/// Serves the page and the API on a TCP address, as soon as the address is available.
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

/// Reads the page's token, if it could not be read before; returns whether it is known.
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

/// Notifies systemd of the state, if the service asks for it.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("systemd was not told {state:?}: {error}");
    }
}

/// Listens on an address, or reports the failure.
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

/// Retries until the daemon listens on the address, if the first attempt failed.
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

/// Logs the URL of the page, once.
fn tell_page(control: &Control, listener: &TcpListener, wanted: SocketAddr) {
    let address = listener.local_addr().unwrap_or(wanted);
    if control.page().is_none() {
        control.serve_page_at(address);
        tracing::info!("page on http://{address}/");
    }
}

/// Raises the limit on descriptors to the maximum, and returns it.
fn raise_descriptors() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
    {
        return maximum.unwrap_or(u64::MAX);
    }
    current.unwrap_or(u64::MAX)
}

/// Logs whether frames are in huge pages.
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

/// Waits for the end of the daemon, and returns its reason: an error if it cannot continue.
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
        // The end does not wait for this loop.
        never = look_after(control, hangup) => match never {},
    }
}

/// Reloads on SIGHUP, follows changes outside of the daemon, and saves periodically.
async fn look_after(control: &Arc<Control>, hangup: &mut Signal) -> Infallible {
    let mut look = tokio::time::interval(LOOK_PERIOD);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let period = control.save_period().unwrap_or(FOR_EVER);
    let mut save = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    save.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut note = tokio::time::interval(history::PERIOD);
    note.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut sas = tokio::time::interval(SAS_PERIOD);
    sas.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = sas.tick() => drop(apart(control, Control::look_at_sas)),
            _ = note.tick() => drop(apart(control, Control::note_history)),
            // Not awaited, since saving may take long.
            _ = save.tick() => drop(apart(control, Control::save_contents)),
            _ = hangup.recv() => {
                // The time that `Type=notify-reload` requires.
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

/// Runs work that may take long apart from the API's thread.
fn apart<T: Send + 'static>(
    control: &Arc<Control>,
    work: impl FnOnce(&Control) -> T + Send + 'static,
) -> JoinHandle<T> {
    let control = Arc::clone(control);
    tokio::task::spawn_blocking(move || work(&control))
}

/// Waits until a worker panics. The ports of that worker are dead, so the daemon ends, to be
/// restarted by its supervisor.
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
    /// Handled so that a recording that reaches `RLIMIT_FSIZE` fails with `EFBIG`; by default,
    /// SIGXFSZ would end the process.
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
/// Limits of the API's socket: clients may do everything, except exclude other clients.
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
/// Limits of the page without a token: a browser opens several connections, and requests have no
/// bodies.
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
/// Limits of metrics: one request without a body per connection.
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
/// Interval of periodic checks: the longest delay until a stopped program is detached, or a missing
/// device noticed.
const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// Interval at which limits of SAs are looked at: they are in whole seconds.
const SAS_PERIOD: Duration = Duration::from_secs(1);
/// Interval at which an address in use is tried again.
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
