//! Tier 2 in the background: one thread compiles programs one after the other, while they run on
//! tier 1.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::CompileError;
use crate::llvm::{self, Job};
use crate::program::Program;

/// Stack size of the compiling thread: LLVM's passes are recursive.
const STACK_BYTES: usize = 64 << 20;
/// Nice value of the compiling thread, so that threads that move packets have priority.
const NICE: i32 = 10;
/// Largest number of threads whose compilation took too long and that may still be running.
const LOST_MAX: usize = 4;
/// Delay before the first compilation, until a starting process has its threads and ports. Opening
/// LLVM's library takes tens of milliseconds and holds the loader's lock, which every thread takes
/// that uses a thread-local variable for the first time (`__cxa_thread_atexit_impl`).
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Longest wait for a compilation at the end of the process. A large one takes half of that.
const END_WAIT_MAX: Duration = Duration::from_secs(1);

/// A requested compilation, and its result.
#[derive(Debug)]
pub struct Upgrade {
    /// The finished program: set once, whole.
    program: OnceLock<Program>,
    state: Mutex<State>,
    changed: Condvar,
    /// Longest time of the compilation after its start.
    limit: Duration,
}

#[derive(Debug)]
enum State {
    Waiting,
    Running { since: Instant },
    Done,
    Failed(Arc<CompileError>),
}

/// A compilation to do, and the upgrade that gets its result.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) job: Job,
    pub(crate) upgrade: Arc<Upgrade>,
    /// The same program on tier 1.
    pub(crate) below: Arc<Program>,
}

impl Upgrade {
    /// An upgrade that failed at once.
    pub(crate) fn refused(error: CompileError) -> Arc<Upgrade> {
        let upgrade = Upgrade::new(Duration::ZERO);
        upgrade.fail(&Arc::new(error));
        upgrade
    }

    pub(crate) fn new(limit: Duration) -> Arc<Upgrade> {
        Arc::new(Upgrade {
            program: OnceLock::new(),
            state: Mutex::new(State::Waiting),
            changed: Condvar::new(),
            limit,
        })
    }

    /// The program on tier 2, once it is compiled. Costs one load and a branch.
    #[inline]
    pub fn program(&self) -> Option<&Program> {
        self.program.get()
    }

    /// Reason why there will be no program on tier 2.
    pub fn failure(&self) -> Option<Arc<CompileError>> {
        let mut state = self.state.lock();
        self.notice_lost(&mut state);
        match &*state {
            State::Failed(error) => Some(Arc::clone(error)),
            _ => None,
        }
    }

    /// Waits until the compilation has succeeded or failed, but no longer than `timeout`. Gives
    /// whether it is over.
    pub fn wait(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        let mut state = self.state.lock();
        loop {
            self.notice_lost(&mut state);
            if matches!(*state, State::Done | State::Failed(_)) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // A limit may pass, or LLVM give up, without a notification: check again.
            let step = left.min(Duration::from_millis(50));
            self.changed.wait_for(&mut state, step);
            // Another program's compilation may be what delays this one.
            MutexGuard::unlocked(&mut state, || QUEUE.lock().keep_going());
        }
    }

    /// Marks the compilation as failed if it takes too long, or if LLVM gave up.
    fn notice_lost(&self, state: &mut State) {
        let State::Running { since } = *state else { return };
        if since.elapsed() > self.limit {
            *state = State::Failed(Arc::new(CompileError::TooSlow(self.limit)));
        } else if let Some(reason) = llvm::fatal() {
            *state = State::Failed(Arc::new(CompileError::Llvm(reason.into())));
        }
    }

    /// Marks the start; false if the compilation has failed already.
    fn start(&self) -> bool {
        let mut state = self.state.lock();
        let waits = matches!(*state, State::Waiting);
        if waits {
            *state = State::Running { since: Instant::now() };
        }
        waits
    }

    /// Takes the result, unless the compilation was given up meanwhile.
    fn finish(&self, result: Result<Program, CompileError>) {
        let mut state = self.state.lock();
        self.notice_lost(&mut state);
        if !matches!(*state, State::Running { .. }) {
            return;
        }
        *state = match result {
            Ok(program) => {
                // This is the only place that sets it.
                let _first = self.program.set(program);
                State::Done
            }
            Err(error) => State::Failed(Arc::new(error)),
        };
        self.changed.notify_all();
    }

    fn fail(&self, error: &Arc<CompileError>) {
        *self.state.lock() = State::Failed(Arc::clone(error));
        self.changed.notify_all();
    }
}

/// Tasks for the compiling thread.
struct Queue {
    tasks: VecDeque<Task>,
    /// The upgrade that the thread compiles; `None` while it sleeps.
    running: Option<Arc<Upgrade>>,
    /// Number of the current thread; earlier ones are lost and end when they return from LLVM.
    thread: usize,
    has_thread: bool,
    /// Number of threads that were given up and have not returned.
    lost: usize,
    /// Set when the process ends: no new compilation starts, and the exit waits until this time.
    end: Option<Instant>,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    tasks: VecDeque::new(),
    running: None,
    thread: 0,
    has_thread: false,
    lost: 0,
    end: None,
});
static TASK_ADDED: Condvar = Condvar::new();
/// Signalled when a thread returns from LLVM while the process ends.
static CAME_BACK: Condvar = Condvar::new();

/// Queues a task for the compiling thread.
pub(crate) fn submit(task: Task) {
    if rustix::thread::gettid() == rustix::process::getpid() {
        // Without it the process would not wait until the library is open.
        let _ends = AT_END.try_with(|_| ());
    }
    let mut queue = QUEUE.lock();
    queue.tasks.push_back(task);
    queue.keep_going();
    TASK_ADDED.notify_one();
}

/// Waits until no thread is in LLVM any more, and prevents new compilations: for the end of a
/// process, which unloads LLVM's library. Programs keep their present code.
///
/// Gives false if a compilation takes more than a second.
pub fn stop_compiling() -> bool {
    let mut queue = QUEUE.lock();
    // A second call does not extend the wait.
    let end = *queue.end.get_or_insert_with(|| Instant::now() + END_WAIT_MAX);
    while queue.running.is_some() || queue.lost > 0 {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        CAME_BACK.wait_for(&mut queue, left);
    }
    true
}

thread_local! {
    /// Dropped at the end of the main thread, which is that of the process: exit(3) drops it before
    /// it calls registered functions, and so before LLVM's destructors, also while LLVM is being
    /// opened.
    static AT_END: AtEnd = const { AtEnd };
}

struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        let _too_slow = stop_compiling();
    }
}

impl Queue {
    /// Makes sure that a thread works on the tasks: starts one if there is none, or if the current
    /// one does not return from LLVM.
    fn keep_going(&mut self) {
        let is_lost = self.running.as_ref().is_some_and(|running| running.failure().is_some());
        if is_lost {
            self.thread += 1;
            self.lost += 1;
            self.running = None;
            self.has_thread = false;
        }
        if self.has_thread || self.tasks.is_empty() || self.end.is_some() {
            return;
        }
        if let Err(error) = self.start_thread() {
            let error = Arc::new(error);
            self.tasks.drain(..).for_each(|task| task.upgrade.fail(&error));
        }
    }

    fn start_thread(&mut self) -> Result<(), CompileError> {
        if let Some(reason) = llvm::fatal() {
            return Err(CompileError::Llvm(reason.into()));
        }
        if self.lost > LOST_MAX {
            return Err(CompileError::Llvm("too many compilations do not end".into()));
        }
        let number = self.thread;
        let builder = std::thread::Builder::new().name("towpath-llvm".into());
        let thread = builder.stack_size(STACK_BYTES).spawn(move || work(number));
        thread.map_err(|error| CompileError::Llvm(format!("no thread for it: {error}")))?;
        self.has_thread = true;
        Ok(())
    }
}

/// The compiling thread.
fn work(number: usize) {
    // On Linux this is the thread's own priority. If it fails, packets may sometimes wait for LLVM.
    let _ = rustix::process::setpriority_process(None, NICE);
    if number == 0 {
        std::thread::sleep(FIRST_WAIT);
    }
    loop {
        let mut queue = QUEUE.lock();
        if queue.thread != number {
            queue.lost -= 1;
            CAME_BACK.notify_all();
            return;
        }
        queue.running = None;
        if queue.end.is_some() {
            CAME_BACK.notify_all();
            TASK_ADDED.wait(&mut queue);
            continue;
        }
        let Some(task) = queue.tasks.pop_front() else {
            TASK_ADDED.wait(&mut queue);
            continue;
        };
        queue.running = Some(Arc::clone(&task.upgrade));
        drop(queue);
        // The queue and the task have one reference each; without another, the result is not
        // needed.
        if Arc::strong_count(&task.upgrade) > 2 && task.upgrade.start() {
            let started = Instant::now();
            let result = task.job.run();
            let program =
                result.map(|layout| Program::on_tier2(layout, &task.below, started.elapsed()));
            task.upgrade.finish(program);
        }
    }
}
