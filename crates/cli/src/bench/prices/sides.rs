//! A program of the price list in one engine: its maps are prepared, and its records for user space
//! are taken away in time.

use std::path::Path;
use std::time::Duration;

use towpath_bpf::map::Values;
use towpath_bpf::{Linked, MapDef};
use towpath_kernel::{PerfListeners, RingReader, TestRun};
use towpath_maps::Map;
use towpath_xdp::program::{Loader, Select};
use towpath_xdp::{Exec, Frame, Program};

use super::PREPARATION;
use crate::args::{BenchArgs, Peer, RunExec, Selection};
use crate::bench::feed::Feed;
use crate::bench::side::{Here, InKernel, Outcome, Side, Timed};
use crate::bench::subject::{empty_here, empty_peer, first_line, load_options};
use crate::kernel_session::KernelSession;
use crate::mapfile;
use crate::program::Opened;

/// Source of the programs, and the way to run them.
pub(super) struct Sides<'a> {
    pub(super) args: &'a BenchArgs,
    pub(super) opened: &'a Opened,
    pub(super) map_init: Option<&'a Path>,
}

/// A program and an empty one in the same engine.
type Pair<'a> = [Box<dyn Side + 'a>; 2];

impl<'a> Sides<'a> {
    /// The program in the engine to compare with.
    pub(super) fn peer(&self, linked: &Linked, feed: &Feed) -> Result<Pair<'a>, String> {
        match self.args.against {
            Peer::Interp => Ok(self.here(&linked.name, RunExec::Interp, feed)?.0),
            Peer::Kernel => {
                let empty = empty_peer(self.args, self.opened, feed)?;
                let program = self.in_kernel(linked, feed)?;
                Ok(in_portions(linked, Box::new(program), empty))
            }
        }
    }

    fn in_kernel(&self, linked: &Linked, feed: &Feed) -> Result<Read<'a>, String> {
        let mut session =
            KernelSession::open(self.opened, linked).map_err(|e| first_line(&e.to_string()))?;
        if let Some(path) = self.map_init {
            session.fill(path).map_err(|error| error.to_string())?;
        }
        let (mut rings, mut listeners) = (Vec::new(), Vec::new());
        for (index, def) in linked.maps.iter().enumerate() {
            let Some(map) = session.map(index) else { continue };
            if def.kind.values() == Values::Records {
                rings.push(RingReader::open(map).map_err(|errno| errno.to_string())?);
            } else if is_listened_to(def) {
                let opened = PerfListeners::open(map, session.possible_cpus(), PERF_PAGES);
                listeners.push(opened.map_err(|errno| errno.to_string())?);
            }
        }
        if let Some(preparation) = self.preparation()? {
            let program = session.load(&preparation).map_err(|e| first_line(&e.to_string()))?;
            program.test_run(&TestRun::new(&feed.packet)).map_err(|error| error.to_string())?;
        }
        let program = session.load(linked).map_err(|error| first_line(&error.to_string()))?;
        let env = self.opened.env();
        let program = InKernel::new(program, linked, feed, env, Some(session))?;
        let read = move || {
            rings.iter().for_each(RingReader::skip);
            // These arrays have no reader: they overwrite old records.
            let _open = &listeners;
        };
        Ok(Read { program: Box::new(program), read: Box::new(read) })
    }

    fn preparation(&self) -> Result<Option<Linked>, String> {
        let selection = Selection { name: Some(PREPARATION.to_owned()), section: None };
        match self.opened.select(&selection) {
            Ok(index) => self.opened.link(index).map(Some).map_err(|error| error.to_string()),
            Err(_none) => Ok(None),
        }
    }

    /// The program in this process, and the engine that really executes it.
    pub(super) fn here(
        &self,
        name: &str,
        exec: RunExec,
        feed: &Feed,
    ) -> Result<(Pair<'a>, Exec), String> {
        let options = load_options(self.args, exec);
        let loader = Loader::new(&self.opened.object, self.opened.env(), &options)
            .map_err(|error| error.to_string())?;
        let program = loader.program(Select::Name(name)).map_err(|e| first_line(&e.to_string()))?;
        if let Some(path) = self.map_init {
            mapfile::fill(path, &loader).map_err(|error| error.to_string())?;
        }
        let listened = loader.maps().maps().iter().filter(|map| is_listened_to(map.def()));
        for perf in listened.filter_map(|map| map.perf()) {
            perf.open_all(PERF_PAGES * PAGE_BYTES);
        }
        if let Ok(preparation) = loader.program(Select::Name(PREPARATION)) {
            run_once(&preparation, feed)?;
        }
        program.wait_for_tier2(TIER2_TIMEOUT);
        let ran = program.exec();
        let maps = std::sync::Arc::clone(program.maps());
        let linked = self.opened.link(self.index(name)?).map_err(|error| error.to_string())?;
        let empty = empty_here(self.args, self.opened, exec, feed)?;
        let read = move || maps.maps().iter().for_each(|map| read_all(map));
        let program = Read { program: Box::new(Here::new(program, feed)?), read: Box::new(read) };
        Ok((in_portions(&linked, Box::new(program), Box::new(empty)), ran))
    }

    fn index(&self, name: &str) -> Result<usize, String> {
        let selection = Selection { name: Some(name.to_owned()), section: None };
        self.opened.select(&selection).map_err(|error| error.to_string())
    }
}

fn run_once(program: &Program, feed: &Feed) -> Result<(), String> {
    let mut frame = Frame::new(&feed.packet).map_err(|error| error.to_string())?;
    let run = program.run(&mut program.worker(0), &mut frame);
    run.map(drop).map_err(|fault| fault.to_string())
}

/// Takes out the program's records.
fn read_all(map: &Map) {
    if let Some(ring) = map.ringbuf() {
        ring.consume(|_record| std::ops::ControlFlow::Continue(()));
    }
    if let Some(perf) = map.perf() {
        for slot in 0..perf.slots() {
            while perf.read(slot).is_some() {}
        }
    }
}

fn is_listened_to(def: &MapDef) -> bool {
    def.kind.values() == Values::Events && def.name == LISTENED_TO
}

/// Sides that run both programs in portions that rings have room for; a call has a cost of its own,
/// so the empty program is called as often.
fn in_portions<'a>(
    linked: &Linked,
    program: Box<dyn Side + 'a>,
    empty: Box<dyn Side + 'a>,
) -> Pair<'a> {
    let sends = |def: &MapDef| matches!(def.kind.values(), Values::Records | Values::Events);
    if !linked.maps.iter().any(sends) {
        return [program, empty];
    }
    let portions = |side| -> Box<dyn Side + 'a> { Box::new(Portions { side }) };
    [portions(program), portions(empty)]
}

/// A program whose rings are emptied after each call.
struct Read<'a> {
    program: Box<dyn Side + 'a>,
    read: Box<dyn FnMut() + 'a>,
}

impl Side for Read<'_> {
    fn run(&mut self, repeat: u32) -> Result<Outcome, String> {
        let outcome = self.program.run(repeat);
        (self.read)();
        outcome
    }

    fn time(&mut self, runs: u64) -> Result<Timed, String> {
        let timed = self.program.time(runs);
        (self.read)();
        timed
    }
}

/// A program that is run in portions that its rings have room for.
struct Portions<'a> {
    side: Box<dyn Side + 'a>,
}

impl Side for Portions<'_> {
    fn run(&mut self, repeat: u32) -> Result<Outcome, String> {
        self.side.run(repeat.min(PORTION_RUNS as u32))
    }

    fn time(&mut self, runs: u64) -> Result<Timed, String> {
        let mut whole = self.side.time(runs.min(PORTION_RUNS))?;
        for _ in 1..runs.div_ceil(PORTION_RUNS) {
            whole = whole.and(self.side.time(PORTION_RUNS)?);
        }
        Ok(whole)
    }
}

/// The perf event array that has listeners.
const LISTENED_TO: &str = "listeners";
/// Number of runs whose records a ring of 8 MiB has room for.
const PORTION_RUNS: u64 = 4096;
const PERF_PAGES: usize = 2048;
const PAGE_BYTES: usize = 4096;
const TIER2_TIMEOUT: Duration = Duration::from_secs(120);
