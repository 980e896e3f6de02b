//! One program under measurement: loaded as often as needed, each time over fresh maps with the
//! same contents.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_bpf::map::{Shape, Values};
use towpath_bpf::program::AttachType;
use towpath_bpf::verifier::{self, Options};
use towpath_bpf::{Insn, Linked, MapDef};
use towpath_kernel::Kernel;
use towpath_maps::{Map, Value};
use towpath_workload::random::Random;
use towpath_workload::{complete, elements};
use towpath_xdp::host::Host;
use towpath_xdp::program::{LoadOptions, Loader, Select};
use towpath_xdp::{Exec, Program};

use super::feed::{Feed, entry};
use super::side::{Here, InKernel, Side};
use crate::args::{BenchArgs, Peer, RunExec};
use crate::kernel_session::KernelSession;
use crate::leftover;
use crate::mapfile;
use crate::program::Opened;

/// A linked program and the first contents of its maps.
pub(super) struct Subject<'a> {
    pub(super) args: &'a BenchArgs,
    pub(super) opened: &'a Opened,
    pub(super) linked: Linked,
    /// Whether the object leaves sizes to its loader and some were made up.
    completed: bool,
    map_init: Option<&'a Path>,
    packets: &'a [Vec<u8>],
    /// Templates for the elements that fill hash tables up.
    templates: Vec<Template>,
}

/// Template of an element for every flow.
#[derive(Debug)]
struct Template {
    map: usize,
    key: Vec<u8>,
    /// Offset of the flow's source address in the key; `None` for elements that no frame looks up.
    address_at: Option<usize>,
    value: Vec<u8>,
    flows: u32,
}

impl<'a> Subject<'a> {
    pub(super) fn new(
        args: &'a BenchArgs,
        opened: &'a Opened,
        program: usize,
        map_init: Option<&'a Path>,
        packets: &'a [Vec<u8>],
    ) -> Result<Self, String> {
        let mut linked = opened.link(program).map_err(|error| error.to_string())?;
        if linked.attach != AttachType::Xdp {
            return Err("runs behind a redirect, not where frames arrive".to_owned());
        }
        let completed = complete(&mut linked);
        let templates = Vec::new();
        Ok(Subject { args, opened, linked, completed, map_init, packets, templates })
    }

    /// Empty maps that another program or a loader should fill.
    pub(super) fn leftover(&self) -> Vec<String> {
        if self.map_init.is_some() { Vec::new() } else { leftover::contents(&self.linked) }
    }

    /// Frames to choose from.
    pub(super) fn candidates(&self) -> &[Vec<u8>] {
        self.packets
    }

    /// The program in the engine to compare with, and the time it took to load it.
    pub(super) fn peer(&self, feed: &Feed) -> Result<(Box<dyn Side + 'a>, Duration), String> {
        match self.args.against {
            Peer::Kernel => {
                let (side, elapsed) = self.in_kernel(feed)?;
                Ok((Box::new(side), elapsed))
            }
            Peer::Interp => {
                let started = Instant::now();
                let side = self.here(RunExec::Interp, feed)?;
                Ok((Box::new(side), started.elapsed()))
            }
        }
    }

    fn in_kernel(&self, feed: &Feed) -> Result<(InKernel<'a>, Duration), String> {
        let mut session = KernelSession::open(self.opened, &self.linked)
            .map_err(|error| first_line(&error.to_string()))?;
        match self.map_init {
            Some(path) => session.fill(path).map_err(|error| error.to_string())?,
            None => self.each_element(|map, key, value| session.put(map, key, value)),
        }
        self.each_flow(feed, |map, key, value| session.put(map, key, value));
        let started = Instant::now();
        let program = session.load(&self.linked).map_err(|error| first_line(&error.to_string()))?;
        let elapsed = started.elapsed();
        let env = self.opened.env();
        Ok((InKernel::new(program, &self.linked, feed, env, Some(session))?, elapsed))
    }

    /// The program in this process.
    pub(super) fn here(&self, exec: RunExec, feed: &Feed) -> Result<Here, String> {
        let options = load_options(self.args, exec);
        // A program whose maps were completed is loaded by itself: the loader would not know the
        // maps.
        let program = if self.completed {
            Program::from_linked(self.linked.clone(), &options).map_err(|e| e.to_string())?
        } else {
            let loader = Loader::new(&self.opened.object, self.opened.env(), &options)
                .map_err(|error| error.to_string())?;
            let program =
                loader.program(Select::Name(&self.linked.name)).map_err(|e| e.to_string())?;
            if let Some(path) = self.map_init {
                mapfile::fill(path, &loader).map_err(|error| error.to_string())?;
            }
            program
        };
        if self.map_init.is_none() {
            let maps = program.maps();
            self.each_element(|map, key, value| put(maps.map(map), key, value));
        }
        program.wait_for_tier2(TIER2_TIMEOUT);
        let maps = program.maps();
        self.each_flow(feed, |map, key, value| put(maps.map(map), key, value));
        Here::new(program, feed)
    }

    /// Fills hash tables with an element for every flow of the feed, as far as they have room. If a
    /// key holds the source address of the frame, the frames find these elements.
    pub(super) fn fill_up(&mut self, feed: &Feed) -> Result<(), String> {
        let here = self.here(RunExec::Interp, feed)?;
        let address = feed.address().unwrap_or_default();
        for (index, map) in here.program.maps().maps().iter().enumerate() {
            let is_table =
                map.kind().spec().shape == Shape::Table && map.kind().values() == Values::Bytes;
            if !is_table || map.def().section.is_some() {
                continue;
            }
            let finds = |key: &[u8]| key.windows(address.len()).position(|part| part == address);
            let user = map.user();
            let held = user.entries().take(HELD_MAX);
            let held: Vec<_> = held.map(|(key, value)| (finds(&key), key, value)).collect();
            let chosen = held.iter().find(|(at, ..)| at.is_some()).or(held.first());
            let (address_at, key, value) = match chosen {
                Some((at, key, value)) => (*at, key.clone(), value.bytes().to_vec()),
                None => (None, vec![0; map.key_size() as usize], zeros(map.value_size())),
            };
            let room = map.max_entries() - map.max_entries() / 8;
            let flows = feed.flows.min(room);
            self.templates.push(Template { map: index, key, address_at, value, flows });
        }
        Ok(())
    }

    fn each_flow(&self, feed: &Feed, mut put: impl FnMut(usize, &[u8], &[u8])) {
        for Template { map, key, address_at, value, flows } in &self.templates {
            let mut key = key.clone();
            for flow in 0..*flows {
                let address = feed.address_of(flow).unwrap_or_default();
                match address_at {
                    Some(at) => key[*at..*at + address.len()].copy_from_slice(&address),
                    None => {
                        let number = u64::from(flow + 1).wrapping_mul(SCATTER).to_le_bytes();
                        let len = key.len().min(number.len());
                        key[..len].copy_from_slice(&number[..len]);
                    }
                }
                put(*map, &key, value);
            }
        }
    }

    fn each_element(&self, mut put: impl FnMut(usize, &[u8], &[u8])) {
        let mut random = Random::new(ELEMENTS_SEED);
        for (index, def) in self.linked.maps.iter().enumerate() {
            for (key, value) in elements(def, self.packets, &mut random) {
                put(index, &key, &value);
            }
        }
    }

    /// Time that our verifier takes, at best.
    pub(super) fn verify_time(&self) -> Duration {
        let once = || {
            let linked = self.linked.clone();
            let started = Instant::now();
            // The result is known: the program was accepted before.
            let _verified = verifier::verify(linked, &Options::default());
            started.elapsed()
        };
        (0..VERIFY_TIMES).map(|_| once()).min().unwrap_or_default()
    }
}

/// A program that does nothing, in the engine to compare with.
pub(super) fn empty_peer(
    args: &BenchArgs,
    opened: &Opened,
    feed: &Feed,
) -> Result<Box<dyn Side>, String> {
    match args.against {
        Peer::Kernel => {
            let kernel = Kernel::open().map_err(|error| error.to_string())?;
            let linked = empty(opened);
            let maps = kernel.load_maps(&linked.maps).map_err(|error| error.to_string())?;
            let program = kernel.load(&linked, &maps).map_err(|error| error.to_string())?;
            let side = InKernel::new(program, &linked, feed, opened.env(), None)?;
            Ok(Box::new(side))
        }
        Peer::Interp => Ok(Box::new(empty_here(args, opened, RunExec::Interp, feed)?)),
    }
}

/// A program that does nothing, in this process.
pub(super) fn empty_here(
    args: &BenchArgs,
    opened: &Opened,
    exec: RunExec,
    feed: &Feed,
) -> Result<Here, String> {
    let program = Program::from_linked(empty(opened), &load_options(args, exec));
    let program = program.map_err(|error| error.to_string())?;
    program.wait_for_tier2(TIER2_TIMEOUT);
    Here::new(program, feed)
}

/// Time that LLVM may take; a program that takes longer is measured on tier 1.
const TIER2_TIMEOUT: Duration = Duration::from_secs(120);

/// `return XDP_PASS`.
fn empty(opened: &Opened) -> Linked {
    Linked {
        name: "empty".to_owned(),
        section: "xdp".to_owned(),
        attach: AttachType::Xdp,
        has_frags: false,
        license: "GPL".to_owned(),
        insns: vec![Insn::new(0xb7, 0, 0, 0, 2), Insn::new(0x95, 0, 0, 0, 0)],
        functions: vec![entry()],
        lines: Vec::new(),
        maps: Arc::new([] as [MapDef; 0]),
        unresolved: Vec::new(),
        kfuncs: Vec::new(),
        btf: None,
        kernel_btf: Arc::clone(&opened.env().kernel_btf),
    }
}

pub(super) fn load_options(args: &BenchArgs, exec: RunExec) -> LoadOptions {
    let mut options = LoadOptions {
        host: Arc::new(Host::with_loopback().into()),
        exec: Exec::from(exec),
        ..LoadOptions::default()
    };
    args.trust.apply(&mut options);
    options.jit.passes.without = args.without.iter().cloned().collect();
    options
}

fn zeros(count: u32) -> Vec<u8> {
    vec![0; count as usize]
}

/// Stores an element; the kernel's map accepts or refuses the same one.
fn put(map: Option<&Arc<Map>>, key: &[u8], value: &[u8]) {
    if let Some(map) = map {
        let _same_there = map.user().update(key, &Value::One(value.to_vec()), 0);
    }
}

pub(super) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

const ELEMENTS_SEED: u64 = 0xf111;
/// Number of elements searched for one that frames find.
const HELD_MAX: usize = 4096;
/// Odd, so that different numbers stay different.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;
const VERIFY_TIMES: usize = 3;
