//! One daemon: what is wanted, what there is, and the changes of both, one at a time.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use tokio::sync::{Notify, broadcast};

use crate::api::error::ApiError;
use crate::api::types::Event;
use crate::dry_run::{DryRun, Warning};
use crate::file::{self, FileError, Loaded, ObjectFiles, Settings};
use crate::live::{Failure, Live, Report};
use crate::state::State;

/// What all entrances share.
#[derive(Debug)]
pub struct Control {
    inner: Mutex<Inner>,
    objects: Arc<ObjectFiles>,
    news: Arc<News>,
    config: Option<PathBuf>,
    /// As the file had them when the daemon started.
    settings: Settings,
    /// Where applications get AF_XDP sockets, once it listens there.
    xsk_socket: OnceLock<PathBuf>,
    /// Programs of the process that had been stopped when it was last looked.
    stops: AtomicU64,
}

/// What changes.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) live: Live,
    /// What is wanted.
    pub(crate) wanted: State,
    /// What the file wanted when it was read last.
    file: State,
    /// What is wanted and is not there.
    pub(crate) failures: Vec<Failure>,
    /// What is there and probably not what was meant.
    pub(crate) warnings: Vec<Warning>,
    /// What programs were found to do to control frames.
    dry_run: DryRun,
    /// Hashes of objects that were uploaded and may be used next, the last one at the back.
    uploads: VecDeque<String>,
}

/// What happens, for whoever listens.
#[derive(Debug)]
pub struct News {
    events: broadcast::Sender<Event>,
    /// Of the last event.
    number: Mutex<u64>,
    /// Something outside of the daemon is not what it was.
    stirred: Notify,
}

impl Default for News {
    fn default() -> News {
        News {
            events: broadcast::Sender::new(EVENTS_KEPT),
            number: Mutex::default(),
            stirred: Notify::new(),
        }
    }
}

impl News {
    /// Tells listeners and the log.
    pub(crate) fn change(&self, text: &str) {
        tracing::info!("{text}");
        self.send("change", text);
    }

    /// Says that something outside of the daemon is not what it was.
    pub(crate) fn stir(&self) {
        self.stirred.notify_one();
    }

    fn failure(&self, text: &str) {
        tracing::warn!("{text}");
        self.send("failure", text);
    }

    fn send(&self, kind: &str, text: &str) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let time = since.unwrap_or_default().as_secs_f64();
        // Held while sending: listeners get numbers in order.
        let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        *number += 1;
        let event = Event { number: *number, time, kind: kind.to_owned(), text: text.to_owned() };
        // Without listeners there is nobody to tell.
        let _listeners = self.events.send(event);
    }
}

impl Control {
    /// Starts an engine and makes what the file wants.
    ///
    /// # Errors
    ///
    /// The engine cannot be started at all. Ports and programs that fail are reported in the log.
    pub fn start(
        loaded: Loaded,
        config: Option<&Path>,
        objects: Arc<ObjectFiles>,
    ) -> Result<Control, String> {
        let news = Arc::new(News::default());
        let live = Live::start(&loaded.state, Arc::clone(&objects), Arc::clone(&news))?;
        let inner = Inner {
            live,
            wanted: loaded.state.clone(),
            file: loaded.state.clone(),
            failures: Vec::new(),
            warnings: Vec::new(),
            dry_run: DryRun::default(),
            uploads: VecDeque::new(),
        };
        let control = Control {
            inner: Mutex::new(inner),
            objects,
            news,
            config: config.map(Path::to_owned),
            settings: loaded.settings,
            xsk_socket: OnceLock::new(),
            stops: AtomicU64::new(0),
        };
        control.apply(&mut control.lock(), loaded.state);
        Ok(control)
    }

    /// The sockets to serve to applications at that path.
    pub(crate) fn serve_sockets_at(&self, path: &Path) -> Arc<towpath_xsk::Sockets> {
        let _already = self.xsk_socket.set(path.to_owned());
        Arc::clone(self.lock().live.xsk().sockets())
    }

    /// Where applications get AF_XDP sockets; nowhere in a daemon that is not served.
    pub(crate) fn xsk_socket(&self) -> &Path {
        self.xsk_socket.get().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Reads what there is.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Inner) -> T) -> T {
        read(&self.lock())
    }

    /// News from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.news.events.subscribe()
    }

    /// Changes what is wanted. When that is impossible or fails, everything is as it was.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut State, &Inner) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let mut inner = self.lock();
        let mut next = inner.wanted.clone();
        let result = change(&mut next, &inner)?;
        next.forget_unused_programs();
        if let Some(problem) = next.problems().into_iter().next() {
            return Err(ApiError::bad(problem.to_string()));
        }
        let report = inner.live.reconcile(&next);
        let news = report.failures.iter().find(|failure| !inner.failures.contains(failure));
        if let Some(Failure { what, why }) = news.cloned() {
            let wanted = inner.wanted.clone();
            let undone = inner.live.reconcile(&wanted);
            inner.failures = undone.failures;
            return Err(ApiError::refused(format!("{what}: {why}")));
        }
        self.tell(&inner, &report);
        inner.failures = report.failures;
        inner.wanted = next;
        self.warn(&mut inner);
        self.forget_objects(&mut inner);
        Ok(result)
    }

    /// Makes `wanted` what is wanted; what fails stays wanted and is tried again.
    pub(crate) fn replace(&self, wanted: State) -> Result<Report, ApiError> {
        if let Some(problem) = wanted.problems().into_iter().next() {
            return Err(ApiError::bad(problem.to_string()));
        }
        Ok(self.apply(&mut self.lock(), wanted))
    }

    /// Reads the configuration file again and makes what differs in it from the last time.
    ///
    /// # Errors
    ///
    /// What is wrong with the file. Nothing changed then.
    pub fn reload(&self) -> Result<Report, FileError> {
        let Some(path) = &self.config else {
            let lines = vec!["the daemon was started without a configuration file".to_owned()];
            return Err(FileError { lines });
        };
        // From the first look at an object on, nobody else may forget its bytes.
        let mut inner = self.lock();
        let loaded = file::load(path, &self.objects)?;
        let next = inner.wanted.rebase(&inner.file, &loaded.state);
        if let Some(problem) = next.problems().first() {
            let what = "together with what was changed by the API";
            let lines = vec![format!("{}: {what}: {problem}", path.display())];
            return Err(FileError { lines });
        }
        let mut report = self.apply(&mut inner, next);
        if loaded.settings != self.settings {
            let why = "[api], [xsk] and [metrics] are fixed while the daemon runs: start it again";
            let failure = Failure { what: "settings".to_owned(), why: why.to_owned() };
            tracing::warn!("{}: {}", failure.what, failure.why);
            report.failures.push(failure);
        }
        inner.file = loaded.state;
        Ok(report)
    }

    /// Tries again what failed.
    pub(crate) fn retry(&self) {
        let mut inner = self.lock();
        if !inner.failures.is_empty() {
            let wanted = inner.wanted.clone();
            self.apply(&mut inner, wanted);
        }
    }

    /// Waits until something outside of the daemon is not what it was.
    pub(crate) async fn stirred(&self) {
        self.news.stirred.notified().await;
    }

    /// Closes ports whose interfaces went, and opens those whose interfaces are back.
    pub(crate) fn follow(&self, is_news: bool) {
        let mut inner = self.lock();
        if inner.live.is_stirred() || is_news && !inner.failures.is_empty() {
            let wanted = inner.wanted.clone();
            self.apply(&mut inner, wanted);
        }
    }

    /// Detaches programs that had to be stopped since the last time. Without any it costs a load.
    pub(crate) fn detach_stopped(&self) {
        let stops = towpath_xdp::program::stops();
        if self.stops.swap(stops, Ordering::Relaxed) != stops {
            let mut inner = self.lock();
            let wanted = inner.wanted.clone();
            self.apply(&mut inner, wanted);
        }
    }

    /// Keeps the bytes of an object for a change that comes next.
    pub(crate) fn upload(&self, bytes: &[u8], name: &str) -> Result<String, ApiError> {
        let mut inner = self.lock();
        let hash = self.objects.add(bytes, name).map_err(ApiError::bad)?;
        inner.uploads.retain(|known| *known != hash);
        inner.uploads.push_back(hash.clone());
        while inner.uploads.len() > UPLOADS_MAX {
            inner.uploads.pop_front();
        }
        self.forget_objects(&mut inner);
        Ok(hash)
    }

    /// Stops the engine and says what became of the frames.
    pub fn stop(&self) {
        let mut inner = self.lock();
        inner.live.stop();
        let sum = inner.live.engine().conservation();
        tracing::info!(
            "stopped: {} frames received, {} created, {} delivered, {} dropped, {} freed, \
             {} missing",
            sum.received,
            sum.created,
            sum.delivered,
            sum.dropped,
            sum.freed,
            sum.missing()
        );
    }

    fn apply(&self, inner: &mut Inner, wanted: State) -> Report {
        let report = inner.live.reconcile(&wanted);
        inner.wanted = wanted;
        self.tell(inner, &report);
        inner.failures.clone_from(&report.failures);
        self.warn(inner);
        self.forget_objects(inner);
        report
    }

    /// Objects that nothing wants and nobody uploaded lately go.
    fn forget_objects(&self, inner: &mut Inner) {
        let wanted = inner.wanted.programs.iter().map(|program| program.sha256.as_str());
        let kept: Vec<&str> = wanted.chain(inner.uploads.iter().map(String::as_str)).collect();
        self.objects.keep_only(&kept);
    }

    /// Says what changed, and what went wrong that had not gone wrong before.
    fn tell(&self, inner: &Inner, report: &Report) {
        report.changes.iter().for_each(|line| self.news.change(line));
        for failure in report.failures.iter().filter(|it| !inner.failures.contains(it)) {
            self.news.failure(&format!("{}: {}", failure.what, failure.why));
        }
    }

    /// Tells what is probably not meant, once.
    fn warn(&self, inner: &mut Inner) {
        let found = inner.dry_run.warnings(&inner.wanted, &self.objects);
        for warning in found.iter().filter(|it| !inner.warnings.contains(it)) {
            tracing::warn!("{}", warning.text);
            self.news.send("warning", &warning.text);
        }
        inner.warnings = found;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Events a slow listener may lag behind before it misses some.
const EVENTS_KEPT: usize = 1024;
/// Uploaded objects that wait to be used.
const UPLOADS_MAX: usize = 16;
