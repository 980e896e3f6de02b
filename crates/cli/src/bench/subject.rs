//! One program under measurement: loaded as often as needed, each time over fresh maps with the
//! same contents.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_bpf::program::{AttachType, Function};
use towpath_bpf::verifier::{self, Options};
use towpath_bpf::{Insn, Linked, MapDef};
use towpath_kernel::Kernel;
use towpath_maps::{Map, Value};
use towpath_workload::random::Random;
use towpath_workload::{complete, elements};
use towpath_xdp::host::Host;
use towpath_xdp::program::{LoadOptions, Loader, Select};
use towpath_xdp::{Exec, Program};

use super::side::{Here, InKernel, Side};
use crate::args::{BenchArgs, Peer, RunExec};
use crate::kernel_session::KernelSession;
use crate::mapfile;
use crate::program::Opened;

/// A linked program and what its maps are to hold.
pub(super) struct Subject<'a> {
    pub(super) args: &'a BenchArgs,
    pub(super) opened: &'a Opened,
    pub(super) linked: Linked,
    /// The object leaves sizes to its loader, and some were made up.
    completed: bool,
    map_init: Option<&'a Path>,
    packets: &'a [Vec<u8>],
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
        Ok(Subject { args, opened, linked, completed, map_init, packets })
    }

    /// Frames to choose from.
    pub(super) fn candidates(&self) -> &[Vec<u8>] {
        self.packets
    }

    /// The program in the engine to compare with, and how long it took to get there.
    pub(super) fn peer(&self) -> Result<(Box<dyn Side + 'a>, Duration), String> {
        match self.args.against {
            Peer::Kernel => {
                let (side, elapsed) = self.in_kernel()?;
                Ok((Box::new(side), elapsed))
            }
            Peer::Interp => {
                let started = Instant::now();
                let side = self.here(RunExec::Interp)?;
                Ok((Box::new(side), started.elapsed()))
            }
        }
    }

    fn in_kernel(&self) -> Result<(InKernel<'a>, Duration), String> {
        let mut session = KernelSession::open(self.opened, &self.linked)
            .map_err(|error| first_line(&error.to_string()))?;
        match self.map_init {
            Some(path) => session.fill(path).map_err(|error| error.to_string())?,
            None => self.each_element(|map, key, value| session.put(map, key, value)),
        }
        let started = Instant::now();
        let program = session.load(&self.linked).map_err(|error| first_line(&error.to_string()))?;
        Ok((InKernel::new(program, Some(session)), started.elapsed()))
    }

    /// The program in this process.
    pub(super) fn here(&self, exec: RunExec) -> Result<Here, String> {
        let options = load_options(self.args, exec);
        // A program whose maps were completed is on its own: the loader would not know them.
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
        Ok(Here::new(program))
    }

    fn each_element(&self, mut put: impl FnMut(usize, &[u8], &[u8])) {
        let mut random = Random::new(ELEMENTS_SEED);
        for (index, def) in self.linked.maps.iter().enumerate() {
            for (key, value) in elements(def, self.packets, &mut random) {
                put(index, &key, &value);
            }
        }
    }

    /// How long our verifier takes, at best.
    pub(super) fn verify_time(&self) -> Duration {
        let once = || {
            let linked = self.linked.clone();
            let started = Instant::now();
            // The program was accepted before.
            let _verified = verifier::verify(linked, &Options::default());
            started.elapsed()
        };
        (0..VERIFY_TIMES).map(|_| once()).min().unwrap_or_default()
    }
}

/// A program that does nothing, in the engine to compare with.
pub(super) fn empty_peer(args: &BenchArgs, opened: &Opened) -> Result<Box<dyn Side>, String> {
    match args.against {
        Peer::Kernel => {
            let kernel = Kernel::open().map_err(|error| error.to_string())?;
            let linked = empty(opened);
            let maps = kernel.load_maps(&linked.maps).map_err(|error| error.to_string())?;
            let program = kernel.load(&linked, &maps).map_err(|error| error.to_string())?;
            Ok(Box::new(InKernel::new(program, None)))
        }
        Peer::Interp => Ok(Box::new(empty_here(args, opened, RunExec::Interp)?)),
    }
}

/// A program that does nothing, in this process.
pub(super) fn empty_here(args: &BenchArgs, opened: &Opened, exec: RunExec) -> Result<Here, String> {
    let program = Program::from_linked(empty(opened), &load_options(args, exec));
    let program = program.map_err(|error| error.to_string())?;
    program.wait_for_tier2(TIER2_TIMEOUT);
    Ok(Here::new(program))
}

/// How long LLVM may take; what takes longer is measured on tier 1.
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
        functions: vec![Function {
            start: 0,
            name: String::new(),
            linkage: towpath_bpf::btf::Linkage::Static,
            type_id: None,
        }],
        lines: Vec::new(),
        maps: Arc::new([] as [MapDef; 0]),
        kfuncs: Vec::new(),
        btf: None,
        kernel_btf: Arc::clone(&opened.env().kernel_btf),
    }
}

fn load_options(args: &BenchArgs, exec: RunExec) -> LoadOptions {
    let mut options = LoadOptions {
        host: Arc::new(Host::with_loopback()),
        exec: Exec::from(exec),
        ..LoadOptions::default()
    };
    options.jit.trust = args.trust.into();
    options.jit.passes.without = args.without.iter().cloned().collect();
    options
}

/// The kernel's map takes or refuses the same element.
fn put(map: Option<&Arc<Map>>, key: &[u8], value: &[u8]) {
    if let Some(map) = map {
        let _same_there = map.user().update(key, &Value::One(value.to_vec()), 0);
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

const ELEMENTS_SEED: u64 = 0xf111;
const VERIFY_TIMES: usize = 3;
