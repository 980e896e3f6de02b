//! The engine's interface for control code: workers, ports and changes of configuration.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use towpath_xdp::{Arena, Pool};

use crate::balance::{Balance, Moved};
use crate::config::Config;
use crate::counters::Conservation;
use crate::cpus::stay_on;
use crate::dequeue::Reclaimer;
use crate::error::Error;
use crate::flow::Flows;
use crate::lane::Fence;
use crate::load::{Sources, WorkerLoad};
use crate::numbers::PortId;
use crate::opened::{Opened, Parked};
use crate::options::{Options, PortOptions, WorkerOptions};
use crate::place::{Polled, choose};
use crate::port::Device;
use crate::snapshot::{Port, Snapshot};
use crate::watch::{Stopped, Stuck, Watch};
use crate::worker::{ControlTask, TaskSender, Worker, WorkerShared, marks, tasks};

/// Workers, ports, and the frames between them.
#[derive(Debug)]
pub struct Engine {
    workers: Arc<[Arc<WorkerShared>]>,
    /// By worker: the channel by which control code submits tasks.
    tasks: Vec<TaskSender>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Detects workers that do not finish a round in time.
    watch: Arc<Watch>,
    watcher: Mutex<Option<JoinHandle<()>>>,
    arena: Arc<Arena>,
    /// Returns frames from abandoned queues to the arena.
    reclaimer: Arc<Reclaimer>,
    /// Serialises configuration changes; held until all workers have adopted the new snapshot.
    changing: Mutex<()>,
    /// Locked only to read or replace the pointer.
    state: RwLock<Arc<State>>,
    /// Load of each worker and recent queue moves; locked before all other locks.
    balance: Mutex<Balance>,
}

/// State and snapshots that a change replaced; dropping the last reference closes the ports in it.
type Replaced = ([Arc<State>; 2], Vec<Arc<Snapshot>>);

#[derive(Debug)]
struct State {
    config: Config,
    snapshot: Arc<Snapshot>,
}

impl Engine {
    /// Starts the workers, with nothing to do.
    pub fn start(options: &Options) -> Result<Engine, Error> {
        let system = |what| move |source: std::io::Error| Error::System { what, source };
        let arena = Arena::new(options.frames).map_err(system("memory for frames"))?;
        let workers = if options.workers.is_empty() {
            vec![WorkerOptions::default()]
        } else {
            options.workers.clone()
        };
        let shared = workers.iter().enumerate();
        let shared = shared.map(|(number, it)| WorkerShared::new(number, *it).map(Arc::new));
        let shared: Arc<[_]> =
            shared.collect::<Result<Vec<_>, _>>().map_err(system("eventfd"))?.into();
        let reclaimer = Arc::new(Reclaimer::new(&arena));
        let (mut threads, mut senders) = (Vec::new(), Vec::new());
        for (mine, worker) in shared.iter().zip(workers) {
            let (sender, tasks) = tasks();
            senders.push(sender);
            let body = Worker::new(mine, &shared, &reclaimer, tasks, Pool::new(&arena));
            let (name, known) = (format!("worker-{}", mine.number), Arc::clone(mine));
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                // If the CPU is not allowed, the worker runs on any CPU that is.
                worker.cpu.map(stay_on);
                known.thread.get_or_init(rustix::thread::gettid);
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body.run())) {
                    known.note_panic(&*panic);
                }
            });
            threads.push(thread.map_err(system("thread of a worker"))?);
        }
        let watch = Arc::new(Watch::default());
        let (watches, watched) = (Arc::clone(&watch), Arc::clone(&shared));
        let watcher = std::thread::Builder::new().name("watch".to_owned());
        let watcher = watcher.spawn(move || watches.run(&watched));
        let watcher = watcher.map_err(system("thread of the watch"))?;
        let state = State { config: Config::new(shared.len()), snapshot: Arc::default() };
        Ok(Engine {
            workers: shared,
            tasks: senders,
            threads: Mutex::new(threads),
            watch,
            watcher: Mutex::new(Some(watcher)),
            arena,
            reclaimer,
            changing: Mutex::default(),
            state: RwLock::new(Arc::new(state)),
            balance: Mutex::default(),
        })
    }

    /// Number of workers: the CPUs that programs see.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Thread ids (TIDs) of the workers.
    pub fn threads(&self) -> Vec<rustix::thread::Pid> {
        self.workers.iter().filter_map(|worker| worker.thread.get().copied()).collect()
    }

    /// Load and counters of each worker since the start.
    pub fn loads(&self) -> Vec<WorkerLoad> {
        let load = |worker: &Arc<WorkerShared>| WorkerLoad {
            worker: worker.number,
            cpu: worker.cpu,
            mode: worker.mode,
            worked: worker.load.worked(),
            received: worker.counters.received.get(),
            taken_over: worker.counters.taken_over.get(),
            programs: worker.load.programs(),
        };
        self.workers.iter().map(load).collect()
    }

    /// Per worker: samples of which queue it was working on, since the last call.
    pub(crate) fn take_sources(&self) -> Vec<Sources> {
        self.workers.iter().map(|worker| worker.load.take_sources()).collect()
    }

    /// Sampled frame counts by ingress and egress port: a few bursts of each worker, 50 times a
    /// second.
    pub fn flows(&self) -> Flows {
        let mut flows = Flows::new();
        self.workers.iter().for_each(|worker| worker.flows.add_to(&mut flows));
        flows
    }

    /// The memory that frames are allocated from.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Opens all queues of a device and adds it as a port.
    pub fn add_port(&self, options: PortOptions, device: Box<dyn Device>) -> Result<PortId, Error> {
        let opened = Arc::new(self.open(&options.name, device)?);
        self.change(|config| config.add_port(options, opened))
    }

    /// Opens all queues of a device, for a port called `name`.
    ///
    /// # Errors
    ///
    /// Fails if the device cannot open one of its queues.
    pub fn open(&self, name: &str, device: Box<dyn Device>) -> Result<Opened, Error> {
        let failed = |what: String| {
            let port = name.to_owned();
            move |source| Error::Device { port, what, source }
        };
        let mut rx = Vec::new();
        for queue in 0..device.queues() {
            let opened = device.open_rx(queue, &self.arena);
            rx.push(Parked::new(opened.map_err(failed(format!("receive queue {queue}")))?));
        }
        let mut tx = Vec::new();
        for worker in 0..self.workers() as u32 {
            let opened = device.open_tx(worker, &self.arena);
            tx.push(Parked::new(opened.map_err(failed(format!("transmitter {worker}")))?));
        }
        Ok(Opened::new(device, rx, tx, self.workers()))
    }

    /// Stops a receive queue while its port runs. The queue is closed when this returns; frames
    /// that reached it were processed or are lost, as on a wire.
    pub fn stop_queue(&self, port: PortId, queue: u32) -> Result<(), Error> {
        let (_, opened) = self.opened(port)?;
        let _alone = opened.queues_change.lock();
        let stopped = opened.replace_rx(queue, None);
        let changed = self.change(|_| Ok(()));
        // No worker uses the queue any more.
        drop(stopped);
        changed
    }

    /// Opens a receive queue that was stopped or that the device gained since. The queue gets the
    /// device's present settings. Does nothing if the queue is open.
    pub fn start_queue(&self, port: PortId, queue: u32) -> Result<(), Error> {
        let (name, opened) = self.opened(port)?;
        let _alone = opened.queues_change.lock();
        if opened.rx(queue).is_some() {
            return Ok(());
        }
        let what = format!("receive queue {queue}");
        let failed = |source| Error::Device { port: name, what, source };
        let rx = opened.device.open_rx(queue, &self.arena).map_err(failed)?;
        let before = opened.replace_rx(queue, Some(rx));
        assert!(before.is_none(), "one owner");
        self.change(|_| Ok(()))
    }

    /// Refreshes a port's view of its device: features, MTU and number of queues. Starts queues the
    /// device gained and stops those it lost.
    pub fn refresh_port(&self, port: PortId) -> Result<(), Error> {
        let (_, opened) = self.opened(port)?;
        opened.device.look();
        let queues = opened.device.queues();
        let gone = opened.open_queues().into_iter().filter(|&queue| queue >= queues);
        gone.into_iter().try_for_each(|queue| self.stop_queue(port, queue))?;
        (0..queues).try_for_each(|queue| self.start_queue(port, queue))?;
        self.change(|_| Ok(()))
    }

    fn opened(&self, port: PortId) -> Result<(String, Arc<Opened>), Error> {
        let view = self.port(port).ok_or(Error::NoPortId(port.0))?;
        Ok((view.name.to_string(), Arc::clone(&view.opened)))
    }

    /// Removes a port. Its device is closed when this returns, or as soon as the last reader
    /// releases it (see [`Engine::read`]).
    pub fn remove_port(&self, id: PortId) -> Result<(), Error> {
        self.change(|config| config.remove_port(id))
    }

    /// Changes the configuration atomically: if `change` fails, nothing changes. Returns when all
    /// workers have adopted the new configuration and the replaced one is freed. Changes are
    /// serialised.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&mut Config) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Closing a device may take long, so it happens here, after all locks are released.
        let (result, _old) = self.watch.hurrying(|| self.replace(change))?;
        Ok(result)
    }

    /// Like [`Engine::change`], for changes without a waiting caller: programs are not stopped
    /// early to hurry their workers.
    pub(crate) fn change_in_time<T>(
        &self,
        change: impl FnOnce(&mut Config) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (result, _old) = self.replace(change)?;
        Ok(result)
    }

    /// Changes the configuration; also returns the replaced state for the caller to drop.
    fn replace<T>(
        &self,
        change: impl FnOnce(&mut Config) -> Result<T, Error>,
    ) -> Result<(T, Replaced), Error> {
        let busy = self.balance.lock().busy().to_vec();
        let alone = self.changing.lock();
        let now = self.state();
        let mut config = now.config.clone();
        let result = change(&mut config)?;
        config.place_queues(&busy);
        let draining = self.drain(&now, &config);
        let last = draining.as_ref().unwrap_or(&now.snapshot);
        let snapshot = Arc::new(config.snapshot(last));
        let before = self.publish(&snapshot);
        let next = Arc::new(State { config, snapshot });
        let mut state = self.state.write();
        let old = std::mem::replace(&mut *state, next);
        drop(state);
        drop(alone);
        Ok((result, ([now, old], before)))
    }

    /// Hands a snapshot to all workers and waits until they have adopted it; returns the snapshots
    /// they used before.
    fn publish(&self, snapshot: &Arc<Snapshot>) -> Vec<Arc<Snapshot>> {
        let before = self.workers.iter().map(|worker| worker.offer(snapshot)).collect();
        self.workers.iter().for_each(|worker| worker.wait_adopted(snapshot.generation));
        before
    }

    /// Drains ports and programs that `next` no longer has: polling of those ports stops, and
    /// workers process the frames handed over to them, for at most [`DRAIN_TIME_MAX`]. Returns the
    /// snapshot that workers use meanwhile, or `None` if there is nothing to drain.
    fn drain(&self, now: &State, next: &Config) -> Option<Arc<Snapshot>> {
        if !self.workers.iter().any(|worker| worker.inbox.is_used()) {
            return None;
        }
        let gone = now.config.gone(next);
        if gone.is_empty() {
            return None;
        }
        let draining = Arc::new(now.config.draining(&now.snapshot, &gone));
        let _before = self.publish(&draining);
        let end = Instant::now() + DRAIN_TIME_MAX;
        let mut fence = Fence::new(marks(&self.workers));
        while !fence.is_passed(|| marks(&self.workers)) && Instant::now() < end {
            std::thread::sleep(DRAIN_POLL);
        }
        Some(draining)
    }

    /// Calls `read` with the present configuration. Readers block no change: `read` keeps its
    /// version, which is freed afterwards if it was replaced meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&Config, &Snapshot) -> T) -> T {
        let state = self.state();
        read(&state.config, &state.snapshot)
    }

    /// The present view of one port, or `None` if it does not exist.
    pub fn port(&self, id: PortId) -> Option<Arc<Port>> {
        self.read(|_, snapshot| snapshot.port(id).cloned())
    }

    /// Sends a packet from control code out of a port, between two bursts of the first worker.
    /// Returns whether the packet was accepted for sending. It is lost if the port no longer
    /// exists by then.
    pub fn inject(&self, port: PortId, packet: &[u8]) -> bool {
        let Some(worker) = self.workers.first() else { return false };
        let is_taken = worker.inbox.inject(port, packet);
        worker.waker.wake();
        is_taken
    }

    /// Runs a task on the first worker between its bursts and waits for its end; `None` if the
    /// engine stops first.
    pub fn run_task<T: ControlTask>(&self, task: T) -> Option<T> {
        self.tasks.first()?.submit(self.workers.first()?, task).recv().ok()
    }

    /// Totals of all frames by origin and fate so far.
    pub fn conservation(&self) -> Conservation {
        let workers = self.workers.iter().map(|worker| &worker.counters);
        Conservation::of(&workers.chain(std::iter::once(self.reclaimer.counters())))
    }

    /// Stops the workers after they have processed the frames they handed to each other. Frames
    /// left after 200 ms are dropped and counted as `removed`.
    pub fn stop(&self) {
        self.watch.hurrying(|| {
            let _alone = self.changing.lock();
            self.drain(&self.state(), &Config::new(self.workers.len()));
        });
        self.workers.iter().for_each(|worker| worker.stop());
        let mut threads = self.threads.lock();
        self.watch.hurrying(|| {
            for thread in threads.drain(..) {
                // A panic was recorded by the thread itself.
                let _never = thread.join();
            }
        });
        // Other workers may have handed frames to a worker after its end.
        self.workers.iter().for_each(|worker| worker.inbox.sweep(&self.reclaimer));
        self.watch.end();
        if let Some(watcher) = self.watcher.lock().take() {
            let _ended = watcher.join();
        }
    }

    /// Sets the time after which a program that does not return is stopped; one second by default.
    /// While a change of configuration or [`Engine::stop`] waits for the program's worker, the time
    /// is [`LATE`](crate::LATE).
    pub fn set_patience(&self, patience: Duration) {
        self.watch.set_patience(patience);
    }

    /// Workers that have not finished a round for [`LATE`](crate::LATE).
    pub fn stuck(&self) -> Vec<Stuck> {
        self.watch.late()
    }

    /// Programs that were stopped since the last call.
    pub fn take_stopped(&self) -> Vec<Stopped> {
        self.watch.take_stopped()
    }

    /// Number and panic message of the first worker that panicked, if any. Its queues are closed,
    /// the frames it held are lost ([`Conservation::missing`]), and other workers hand it no more
    /// frames.
    pub fn panicked(&self) -> Option<String> {
        let panicked = |worker: &Arc<WorkerShared>| {
            let why = worker.panic.get()?;
            Some(format!("worker {} panicked: {why}", worker.number))
        };
        self.workers.iter().find_map(panicked)
    }

    /// Moves a queue from an overloaded worker (busy above 80 % of its time) to the least busy one,
    /// if the latter is less than half as busy. Moves at most one queue per [`BALANCE_PERIOD`],
    /// never makes the new worker busier than the old one, and never moves queues of ports with
    /// [`PortOptions::workers`]. No frame is lost, and frames of a queue stay in order. Control
    /// code calls this periodically.
    ///
    /// [`BALANCE_PERIOD`]: crate::BALANCE_PERIOD
    /// [`PortOptions::workers`]: crate::PortOptions::workers
    pub fn balance(&self) -> Option<Moved> {
        let now = Instant::now();
        let mut balance = self.balance.lock();
        if !balance.is_due(now) {
            return None;
        }
        let worked = self.loads().into_iter().map(|load| load.worked).collect();
        let is_known = balance.look(now, worked);
        let sources = self.take_sources();
        if !is_known {
            return None;
        }
        let busy = balance.busy().to_vec();
        let (chosen, port, from) = self.read(|config, _| {
            let queues = config.polled().map(|(port, queue, worker, is_pinned)| {
                let rests = balance.rests(port, queue);
                let share = sources[worker].share(port, queue) * busy[worker];
                Polled { port, queue, worker, share, stays: is_pinned || rests }
            });
            let queues: Vec<Polled> = queues.collect();
            let chosen = choose(&busy, &queues)?;
            let is_it = |it: &&Polled| (it.port, it.queue) == (chosen.port, chosen.queue);
            let from = queues.iter().find(is_it)?.worker;
            Some((chosen, config.name(chosen.port).ok()?.to_owned(), from))
        })?;
        balance.note(chosen.port, chosen.queue, now);
        // Adding a port meanwhile reads the balance.
        drop(balance);
        let moved = self.change_in_time(|it| it.move_queue(chosen.port, chosen.queue, chosen.to));
        moved.ok()?;
        let (from, to) = ((from, busy[from]), (chosen.to, busy[chosen.to]));
        Some(Moved { port, queue: chosen.queue, from, to })
    }

    fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Longest wait for workers to process frames that were handed over to them.
const DRAIN_TIME_MAX: Duration = Duration::from_millis(200);
const DRAIN_POLL: Duration = Duration::from_micros(200);
const _: () = assert!(DRAIN_POLL.as_nanos() < DRAIN_TIME_MAX.as_nanos());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_waits_for_no_change() {
        let engine = Engine::start(&Options::default()).expect("there is memory");
        let generation = || engine.read(|_, snapshot| snapshot.generation);
        let before = generation();
        let during = engine.change(|_| Ok(generation())).expect("nothing is wrong");
        assert_eq!((during, generation()), (before, before + 1));
        // A state stays unchanged while a reader uses it.
        engine.read(|_, snapshot| {
            engine.change(|_| Ok(())).expect("nothing is wrong");
            assert_eq!(snapshot.generation, before + 1);
        });
    }
}
