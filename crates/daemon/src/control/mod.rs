//! The control of one daemon: the wanted state, the actual state, and changes of both, one at a
//! time.
//!
//! Turns, reconciliation, saving and events belong here: everything that connects `live` and
//! `model`. Protocols of clients belong to `doors`.
//!
//! A change may take long, since it loads programs, and opens devices and files. Readers see the
//! state before the change and do not wait. Another change waits for a while, and then fails with
//! the name of the change in progress.

mod attempt;
mod comings;
pub mod dry_run;
pub(crate) mod dump;
pub mod file;
pub(crate) mod history;
mod inner;
pub(crate) mod listen;
pub(crate) mod log;
mod looks;
pub(crate) mod places;
pub(crate) mod population;
pub(crate) mod profile;
mod restore;
mod retry;
mod sas;
pub mod saved;
mod turn;
mod unread;
mod watch;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedSemaphorePermit, broadcast};
use towpath_objects::Object;

use crate::control::comings::Comings;
use crate::control::dry_run::{DryRun, Warning};
use crate::control::file::Loaded;
use crate::control::history::History;
use crate::control::listen::{Hub, Readers};
use crate::control::places::Places;
use crate::control::restore::saved;
use crate::control::retry::{RETRY_PAUSE_MIN, Retry};
use crate::control::saved::Keeper;
use crate::control::turn::{Turn, Turns};
use crate::control::unread::Unread;
use crate::live::files::ObjectFiles;
use crate::live::news::News;
use crate::live::pins::pin_at;
use crate::live::{Live, Report};
use crate::model::authors::Wanted;
use crate::model::failure::{Failure, FailureCode, keep_since};
use crate::model::globals::hex;
use crate::model::identity;
use crate::model::map_metric::MapMetric;
use crate::model::messages::{Event, LoadRequest};
use crate::model::reference::absolute;
use crate::model::refusal::Refusal;
use crate::model::settings::Settings;
use crate::model::state::State;
pub(crate) use inner::Inner;

/// The state shared by all doors.
#[derive(Debug)]
pub struct Control {
    work: Turns<Work>,
    /// The state after the last change.
    shown: RwLock<Arc<Inner>>,
    objects: Arc<ObjectFiles>,
    pub(crate) news: Arc<News>,
    /// Rates of the last minutes.
    history: Arc<History>,
    config: Option<PathBuf>,
    /// Settings in the configuration file at the start.
    settings: Settings,
    /// Metrics that are made of maps, as in the configuration file at the last reload.
    map_metrics: RwLock<Arc<[MapMetric]>>,
    /// Path of the socket for AF_XDP applications, once the daemon listens on it.
    xsk_socket: OnceLock<PathBuf>,
    /// Address of the web page, once it is served.
    page: OnceLock<SocketAddr>,
    /// Number of stopped programs in the process at the last look.
    stops: AtomicU64,
    /// Whether there was news while another change was in progress.
    has_missed: AtomicBool,
    /// Limits on concurrent requests.
    pub(crate) places: Places,
    /// Links and peers at the last look.
    pub(crate) comings: Mutex<Comings>,
    pub(crate) keeper: Arc<Keeper>,
    /// Listeners to lines that programs print.
    pub(crate) trace: Hub,
    /// Readers of records that programs send.
    pub(crate) readers: Readers,
}

/// The state that changes in turns.
#[derive(Debug)]
struct Work {
    live: Live,
    wanted: Wanted,
    /// Files that could not be read at the start.
    unread: Unread,
    failures: Vec<Failure>,
    /// Time of the next retry of failures.
    retry: Retry,
    warnings: Vec<Warning>,
    /// Sections of the file that differ from those at the start.
    settings: Vec<&'static str>,
    /// Wanted changes that take effect at the next start of the daemon.
    restart: Vec<String>,
    /// Verdicts of programs on control frames.
    dry_run: DryRun,
    /// Hashes of recently uploaded object files, the latest at the back.
    uploads: VecDeque<String>,
}

impl Work {
    /// The state shown to readers.
    fn shown(&self, keeper: &Arc<Keeper>, news: &Arc<News>, history: &Arc<History>) -> Arc<Inner> {
        Arc::new(Inner {
            live: self.live.seen(),
            wanted: self.wanted.clone(),
            failures: self.failures.clone(),
            warnings: self.warnings.clone(),
            restart: self.restart.clone(),
            keeper: Arc::clone(keeper),
            news: Arc::clone(news),
            history: Arc::clone(history),
        })
    }
}

impl Control {
    /// Starts an engine and applies the configuration file.
    ///
    /// # Errors
    ///
    /// Fails if the engine cannot be started. Failures of ports and programs are only reported.
    pub fn start(
        loaded: Loaded,
        config: Option<&Path>,
        objects: Arc<ObjectFiles>,
    ) -> Result<Control, String> {
        let (mut loaded, news) = (loaded, Arc::new(News::default()));
        let mut live = Live::start(&loaded.state, Arc::clone(&objects), Arc::clone(&news))?;
        let (wanted, store) = match &loaded.settings.state {
            Some(settings) => {
                let dir = settings.dir.clone();
                let opened = saved(&dir, &mut loaded, &mut live, &objects, &news);
                let (wanted, store) = opened?;
                (wanted, Some(store))
            }
            None => (Wanted::of_file(loaded.state), None),
        };
        loaded.unread.tell(wanted.file(), &news);
        let keeper = Arc::new(Keeper::new(store));
        let work = Work {
            live,
            wanted: wanted.clone(),
            unread: loaded.unread,
            failures: Vec::new(),
            retry: Retry::after(RETRY_PAUSE_MIN),
            warnings: Vec::new(),
            settings: Vec::new(),
            restart: Vec::new(),
            dry_run: DryRun::default(),
            uploads: VecDeque::new(),
        };
        let history = Arc::new(History::new());
        let control = Control {
            shown: RwLock::new(work.shown(&keeper, &news, &history)),
            work: Turns::new(work),
            objects,
            news,
            history,
            config: config.map(Path::to_owned),
            map_metrics: RwLock::new(loaded.settings.map_metrics.as_slice().into()),
            settings: loaded.settings,
            xsk_socket: OnceLock::new(),
            page: OnceLock::new(),
            stops: AtomicU64::new(0),
            has_missed: AtomicBool::new(false),
            places: Places::default(),
            comings: Mutex::default(),
            keeper,
            trace: Hub::default(),
            readers: Readers::default(),
        };
        // No other thread has a reference yet.
        if let Ok(mut work) = control.turn("the start", Duration::ZERO) {
            control.apply(&mut work, wanted);
        }
        Ok(control)
    }

    /// Notes the path of the socket for AF_XDP applications, and returns the sockets to serve
    /// there.
    pub(crate) fn serve_sockets_at(&self, path: &Path) -> Arc<towpath_xsk::Sockets> {
        let _already = self.xsk_socket.set(path.to_owned());
        self.read(|inner| Arc::clone(inner.live.xsk.sockets()))
    }

    /// Path of the socket for AF_XDP applications; empty if it is not served.
    pub(crate) fn xsk_socket(&self) -> &Path {
        self.xsk_socket.get().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Object files that are in use or were recently uploaded.
    pub(crate) fn objects(&self) -> &ObjectFiles {
        &self.objects
    }

    /// Metrics that are made of maps.
    pub(crate) fn map_metrics(&self) -> Arc<[MapMetric]> {
        Arc::clone(&self.map_metrics.read())
    }

    /// Notes that the web page is served at this address.
    pub(crate) fn serve_page_at(&self, address: SocketAddr) {
        let _already = self.page.set(address);
    }

    /// URL of the web page, if it is served.
    pub(crate) fn page(&self) -> Option<String> {
        self.page.get().map(|address| format!("http://{address}/"))
    }

    /// Reads the state after the last change.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Inner) -> T) -> T {
        read(&self.shown())
    }

    /// Takes a slot for a request that changes something or takes long.
    pub(crate) fn place_to_work(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.places.to_work(&self.news.step.lock())
    }

    /// The receiver of events.
    pub(crate) fn news(&self) -> &News {
        &self.news
    }

    /// Subscribes to events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.news.events.subscribe()
    }

    /// Changes the wanted state. `what` is shown to other changes that wait for this one. If the
    /// change is invalid or fails, the previous state is restored.
    pub(crate) fn change<T>(
        &self,
        what: &str,
        change: impl FnOnce(&mut State, &Inner) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut work = self.turn(what, WAIT_MAX)?;
        // Interfaces that disappeared or returned must not make this change fail.
        self.catch_up(&mut work, false);
        let mut next = State::clone(work.wanted.state());
        let result = change(&mut next, &self.shown())?;
        next.forget_unused_programs();
        if let Some(problem) = next.problems().into_iter().next() {
            return Err(Refusal::bad(problem));
        }
        let report = self.attempt(&mut work, &next)?;
        let before = work.wanted.clone();
        let next = before.changed(next);
        self.conclude(&mut work, next, &report);
        if let Err(why) = self.save(&work) {
            self.apply(&mut work, before);
            return Err(not_kept(what, &why));
        }
        Ok(result)
    }

    /// Loads a program that only a pin keeps; returns its id.
    pub(crate) fn load_pinned(&self, request: &LoadRequest) -> Result<u32, Refusal> {
        let LoadRequest { program, path } = request;
        if path.is_empty() {
            return Err(Refusal::bad("path: it is missing: a program lives as long as its pin"));
        }
        let path = absolute(path);
        let what = format!("loading {path}");
        let work = self.turn(&what, WAIT_MAX)?;
        let key = identity::free_key(&path, &work.wanted.state().programs);
        let state = program.state(key);
        let mut report = Report::default();
        let loaded = work.live.load(&state, None, &mut report);
        let loaded = loaded.map_err(|why| {
            Refusal::refused(format!("program {}: {why}", state.file_and_program()))
        })?;
        let registry = work.live.registry();
        let object = Object::Program(Arc::clone(&loaded.object));
        pin_at(registry, &path, object)?;
        self.keeper.note_program(loaded.id(), state);
        let id = loaded.id();
        self.show(&work);
        self.keeper.note_change();
        if let Err(why) = self.save(&work) {
            let _gone = registry.unlink(&path);
            return Err(not_kept(&what, &why));
        }
        Ok(id)
    }

    /// Saves pins that were added or removed.
    pub(crate) fn save_pins(&self, what: &str) -> Result<(), Refusal> {
        self.keeper.note_change();
        let work = self.turn(what, WAIT_MAX)?;
        self.save(&work).map_err(|why| Refusal::failed(format!("{what}: it can't be saved: {why}")))
    }

    /// Saves the contents of pinned maps.
    pub(crate) fn save_contents(&self) {
        let _alone = self.keeper.writing();
        let pins = self.read(|inner| inner.live.registry.pins());
        let written = self.keeper.write(self.keeper.due(&pins));
        if written.is_empty() {
            return;
        }
        let saved = self.turn("saving maps", WAIT_MAX).map_err(|busy| busy.message);
        let saved = saved.and_then(|work| {
            self.keeper.take(written);
            self.save(&work)
        });
        if let Err(why) = saved {
            tracing::warn!("[state]: {why}");
        }
    }

    /// Interval at which contents are saved; `None` if nothing is saved.
    pub(crate) fn save_period(&self) -> Option<Duration> {
        self.settings.state.as_ref().map(|state| state.interval)
    }

    fn save(&self, work: &Work) -> Result<(), String> {
        self.keeper.save(&work.live, &work.wanted, &self.objects)?;
        self.news.recovered(FailureCode::State, SAVING);
        Ok(())
    }

    /// Replaces the wanted state; parts that fail stay wanted and are tried again. Object files
    /// come from the state itself, from those in use, or from their paths.
    pub(crate) fn replace(&self, mut wanted: State) -> Result<Report, Refusal> {
        if let Some(problem) = wanted.problems().into_iter().next() {
            return Err(Refusal::bad(problem));
        }
        let mut work = self.turn("a new state", WAIT_MAX)?;
        let carried = std::mem::take(&mut wanted.objects);
        let found = self.objects.find(&wanted.programs, &carried);
        if let Err(problem) = found {
            self.forget_objects(&work);
            return Err(Refusal::refused(problem.to_string()));
        }
        let wanted = work.wanted.changed(wanted);
        Ok(self.apply(&mut work, wanted))
    }

    /// Reads the configuration file again and applies its changes since the last time.
    ///
    /// # Errors
    ///
    /// Fails if the file has errors, or another change takes too long. Nothing has changed then.
    pub fn reload(&self, allow_empty: bool) -> Result<Report, Refusal> {
        let Some(path) = &self.config else {
            return Err(Refusal::bad("the daemon was started without a configuration file"));
        };
        // Holding the turn from here on keeps the objects read below.
        let mut work = self.turn("a reload", WAIT_MAX)?;
        self.news.doing(format!("reading {}", path.display()));
        let loaded = file::load(path, &self.objects);
        let mut loaded = loaded.map_err(|error| Refusal::bad(error.to_string()))?;
        if loaded.state.ports.is_empty() && !work.wanted.file().ports.is_empty() && !allow_empty {
            let why = "it has no ports, so all ports would be removed: `towpath reload \
                       --allow-empty` does so";
            return Err(Refusal::bad(format!("{}: {why}", path.display())));
        }
        identity::adopt(work.wanted.file(), work.wanted.state(), &mut loaded.state);
        let (next, notes) = work.wanted.reloaded(loaded.state);
        if let Some(problem) = next.state().problems().first() {
            let what = "together with what was changed by the API";
            let thing = next.state().thing_at(&problem.path);
            let thing = thing.map_or(String::new(), |thing| format!("{thing}: "));
            return Err(Refusal::bad(format!("{}: {what}: {thing}{problem}", path.display())));
        }
        work.unread.end(&self.news);
        for failure in self.news.standing.clear_all(FailureCode::Saved) {
            self.news.recovery(&failure);
        }
        work.settings = self.settings.differences(&loaded.settings);
        let metrics = loaded.settings.map_metrics.as_slice().into();
        *self.map_metrics.write() = metrics;
        notes.iter().for_each(|note| self.news.change(note));
        work.live.read_keys_again();
        let mut report = self.apply(&mut work, next);
        report.changes.splice(0..0, notes);
        report.restart.clone_from(&work.restart);
        Ok(report)
    }

    /// Waits for a change outside of the daemon.
    pub(crate) async fn stirred(&self) {
        self.news.stirred.notified().await;
    }

    /// Reports the panic of a worker, if there was one: its ports are dead until the daemon
    /// restarts.
    pub(crate) fn panicked(&self) -> Option<String> {
        let why = self.read(|inner| inner.live.engine.panicked())?;
        self.news.failed(FailureCode::Engine, "engine", &why);
        Some(why)
    }

    /// Closes ports whose interfaces are gone, reopens those whose interfaces are back, and retries
    /// failures when it is time.
    pub(crate) fn follow(&self, is_news: bool) {
        let is_news = self.has_missed.swap(false, Ordering::Relaxed) || is_news;
        let Ok(mut work) = self.turn("a look at interfaces", Duration::ZERO) else {
            // The next look makes up for this one.
            return self.has_missed.store(is_news, Ordering::Relaxed);
        };
        work.live.look_at_devices(&self.news);
        if !self.catch_up(&mut work, is_news)
            && work.retry.is_due()
            && (!work.failures.is_empty()
                || work.live.has_failed_ports()
                || self.news.standing.has(FailureCode::State, SAVING)
                || !work.unread.is_empty())
        {
            let pause = work.retry.next_pause();
            let over = self.read_again(&mut work);
            self.apply_again(&mut work);
            over.iter().for_each(|(code, subject)| self.news.recovered(*code, subject));
            work.retry = Retry::after(pause);
        }
    }

    /// Reads files that could not be read before.
    fn read_again(&self, work: &mut Work) -> Vec<(FailureCode, String)> {
        let Work { wanted, unread, .. } = work;
        unread.read_again(wanted, &self.objects, &self.news)
    }

    /// Reconciles if something changed outside; returns whether that was the case.
    fn catch_up(&self, work: &mut Work, is_news: bool) -> bool {
        let is_due = work.live.is_stirred() || is_news && !work.failures.is_empty();
        if is_due {
            work.live.note_broken();
            self.apply_again(work);
        }
        is_due
    }

    /// Reconciles the wanted state again; failures are retried later.
    fn apply_again(&self, work: &mut Work) {
        let wanted = work.wanted.clone();
        let report = work.live.reconcile_within(wanted.state(), RETRY_PAUSE_MIN);
        self.conclude_and_save(work, wanted, report);
    }

    /// Detaches programs that were stopped since the last call. Without any, this costs one atomic
    /// swap.
    pub(crate) fn detach_stopped(&self) {
        let stops = towpath_xdp::program::stops();
        let before = self.stops.swap(stops, Ordering::Relaxed);
        if before != stops {
            let Ok(mut work) = self.turn("detaching a program", Duration::ZERO) else {
                // The next look makes up for this one.
                return self.stops.store(before, Ordering::Relaxed);
            };
            self.apply_again(&mut work);
        }
    }

    /// Keeps an uploaded object file for a following request; returns its hash.
    pub(crate) fn upload(&self, bytes: &[u8], name: &str) -> Result<String, Refusal> {
        let mut work = self.turn("an upload", WAIT_MAX)?;
        let hash = self.objects.add(bytes, name).map_err(Refusal::bad)?;
        work.uploads.retain(|known| *known != hash);
        work.uploads.push_back(hash.clone());
        while work.uploads.len() > UPLOADS_MAX {
            work.uploads.pop_front();
        }
        self.forget_objects(&work);
        Ok(hash)
    }

    /// Stops the engine, saves map contents, and logs the accounting of frames.
    pub fn stop(&self) {
        match self.turn("the end", END_WAIT_MAX) {
            Ok(mut work) => {
                work.live.close_soon();
                work.live.stop();
            }
            Err(busy) => {
                tracing::warn!("{busy}");
                self.read(|inner| inner.live.engine.stop());
            }
        }
        // Programs no longer change the maps.
        self.save_contents();
        let sum = self.read(|inner| inner.live.engine.conservation());
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
        if let Ok(mut work) = self.turn("the end", END_WAIT_MAX) {
            work.live.close_all();
        }
    }

    fn apply(&self, work: &mut Work, wanted: Wanted) -> Report {
        let report = work.live.reconcile(wanted.state());
        self.conclude_and_save(work, wanted, report)
    }

    /// Concludes a change and saves it.
    fn conclude_and_save(&self, work: &mut Work, wanted: Wanted, mut report: Report) -> Report {
        self.conclude(work, wanted, &report);
        if let Err(why) = self.save(work) {
            self.news.failed(FailureCode::State, SAVING, &why);
            report.failures.push(Failure::new(FailureCode::State, SAVING, why));
        }
        report
    }

    /// Makes `wanted` the wanted state, and reports the result of its reconciliation.
    fn conclude(&self, work: &mut Work, wanted: Wanted, report: &Report) {
        work.wanted = wanted;
        self.keeper.adopt(work.live.take_restored());
        let mut failures = report.failures.clone();
        keep_since(&mut failures, &work.failures);
        self.tell(work, report);
        let settings = work.settings.iter();
        let settings = settings.map(|section| format!("{section} is read when it starts"));
        let restart: Vec<String> = report.restart.iter().cloned().chain(settings).collect();
        for line in restart.iter().filter(|line| !work.restart.contains(line)) {
            self.news.change(&format!("needs a restart: {line}"));
        }
        work.restart = restart;
        work.failures = failures;
        work.retry = Retry::after(RETRY_PAUSE_MIN);
        self.warn(work);
        self.forget_objects(work);
        self.show(work);
    }

    /// Shows the current state to readers.
    fn show(&self, work: &Work) {
        let shown = work.shown(&self.keeper, &self.news, &self.history);
        let mut place = self.shown.write();
        // The previous value may be large: it is freed after the lock.
        let before = std::mem::replace(&mut *place, shown);
        drop(place);
        drop(before);
    }

    fn shown(&self) -> Arc<Inner> {
        Arc::clone(&self.shown.read())
    }

    /// The wanted state, with all object files that another daemon needs to apply it.
    pub(crate) fn whole_state(&self) -> State {
        let mut state = self.read(|inner| State::clone(inner.wanted.state()));
        let hashes = state.programs.iter().map(|program| &program.sha256);
        let objects = hashes
            .filter_map(|hash| self.objects.bytes(hash).map(|bytes| (hash.clone(), hex(&bytes))));
        state.objects = objects.collect();
        state
    }

    /// Drops object files that are neither used nor recently uploaded.
    fn forget_objects(&self, work: &Work) {
        let wanted = work.wanted.state().programs.iter().map(|program| program.sha256.as_str());
        let used = work.live.objects_in_use();
        let wanted = wanted.chain(used.iter().map(String::as_str));
        let kept: Vec<&str> = wanted.chain(work.uploads.iter().map(String::as_str)).collect();
        self.objects.keep_only(&kept);
    }

    /// Reports changes, and failures that are new.
    fn tell(&self, work: &Work, report: &Report) {
        report.changes.iter().for_each(|line| self.news.change(line));
        self.tell_failures(work, &report.failures);
    }

    fn tell_failures(&self, work: &Work, failures: &[Failure]) {
        for failure in failures.iter().filter(|it| !work.failures.contains(it)) {
            self.news.failure(failure);
        }
        let is_there = |old: &&Failure| failures.iter().any(|it| it.is_about(old));
        for failure in work.failures.iter().filter(|old| !is_there(old)) {
            self.news.recovery(failure);
        }
    }

    /// Reports new probable mistakes.
    fn warn(&self, work: &mut Work) {
        let Work { dry_run, wanted, warnings, .. } = work;
        let found = dry_run.warnings(wanted.state(), &self.objects);
        for warning in found.iter().filter(|it| !warnings.contains(it)) {
            tracing::warn!("{}", warning.text);
            self.news.send("warning", &warning.text, None);
        }
        *warnings = found;
    }

    /// Waits until no other change is in progress.
    fn turn(&self, what: &str, limit: Duration) -> Result<Turn<'_, Work>, Refusal> {
        let turn = self.work.take(what, limit).map_err(|(other, since)| {
            let step = self.news.step.lock().clone();
            let step = if step.is_empty() { step } else { format!(" ({step})") };
            let message = format!(
                "{what} waits for {other}, which has taken {:.1} s so far{step}: try again",
                since.as_secs_f64()
            );
            Refusal::busy(message)
        })?;
        self.news.doing(String::new());
        Ok(turn)
    }
}

/// The refusal of a change that was undone since it could not be saved.
fn not_kept(what: &str, why: &str) -> Refusal {
    Refusal::failed(format!("{what}: it can't be saved, and was undone: {why}"))
}

/// The subject of a failure to save.
const SAVING: &str = "saving the state";

/// Longest time that a change waits for another one.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// Longest time that the end of the daemon waits for a change, which is then lost.
const END_WAIT_MAX: Duration = Duration::from_millis(250);
const _: () =
    assert!(END_WAIT_MAX.as_nanos() < WAIT_MAX.as_nanos(), "an end waits less than a change");
/// Number of recently uploaded object files that are kept.
const UPLOADS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::doors::view;
    use crate::model::refusal::Reason;

    #[test]
    fn who_looks_waits_for_no_change_and_who_changes_is_told_for_what() {
        let loaded = Loaded { state: State::new(), ..Loaded::default() };
        let control = Control::start(loaded, None, Arc::default()).expect("memory");
        let add = |state: &mut State, _: &Inner| {
            state
                .bridges
                .push(crate::model::state::BridgeState { name: "b".to_owned(), ageing: 300 });
            Ok(())
        };
        let turn = control.turn("changing port p0", Duration::ZERO).expect("it is free");
        control.news.doing("opening port p0".to_owned());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| control.change("adding bridge b", add));
            while !waits.is_finished() {
                let start = Instant::now();
                control.read(|inner| (view::status(inner), view::stats(inner)));
                // Readers are faster than the longest wait for a change.
                assert!(start.elapsed() < WAIT_MAX);
                std::thread::sleep(Duration::from_millis(50));
            }
            let error = waits.join().expect("no panic").expect_err("its time is over");
            assert_eq!(error.reason, Reason::Busy);
            let says = ["adding bridge b waits for changing port p0, ", "(opening port p0)"];
            assert!(says.iter().all(|it| error.message.contains(it)), "{error}");
            // Background work is skipped, and does not wait.
            let start = Instant::now();
            control.follow(true);
            assert!(start.elapsed() < WAIT_MAX);
        });
        drop(turn);
        let places: Vec<_> = std::iter::from_fn(|| control.place_to_work().ok()).collect();
        assert_eq!(places.len(), places::WORKS);
        assert_eq!(control.place_to_work().expect_err("all are taken").reason, Reason::Busy);
        drop(places);
        control.change("adding bridge b", add).expect("it is free");
        assert_eq!(control.read(view::status).bridges.len(), 1);
        control.stop();
    }
}
