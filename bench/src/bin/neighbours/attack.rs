//! The attacks.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use towpath_bpf::Insn;
use towpath_bpf::insn::*;
use towpath_bpf::proto::id;
use towpath_engine::{Hook, Link};
use towpath_guest_client::wire::Direction;
use towpath_guest_client::{Client, MapSpec, ProgramSpec, Wanted, open};
use towpath_workload::small;
use towpath_xdp::{LoadOptions, Program};

use crate::scene::Scene;

/// An attack of the first machine, or of the operator of its peer's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attack {
    Nothing,
    /// The guest's program copies a value of so many bytes 2,000 times for each frame.
    Copies(u32),
    /// A program of the operator's, on the port of the first machine's peer, does not return.
    Endless,
    /// The front end makes the descriptors that it passed blocking, and keeps those full that are
    /// signalled.
    Descriptors,
}

impl Attack {
    pub(crate) fn all() -> [Attack; 6] {
        let [a, b, c, d] = [8, 256, 4096, 1 << 20].map(Attack::Copies);
        [a, b, c, d, Attack::Endless, Attack::Descriptors]
    }

    pub(crate) fn begin(self, scene: &mut Scene) -> anyhow::Result<Undo> {
        Ok(match self {
            Attack::Nothing => Undo::Nothing,
            Attack::Copies(bytes) => Undo::Guest(Box::new(copies(scene, bytes)?)),
            Attack::Endless => {
                set_links(scene, endless()?)?;
                Undo::Links
            }
            Attack::Descriptors => change_descriptors(scene)?,
        })
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attack::Nothing => write!(f, "nothing"),
            Attack::Copies(bytes) => write!(f, "a guest's program, 2,000 x {bytes} bytes"),
            Attack::Endless => write!(f, "a program that does not return"),
            Attack::Descriptors => write!(f, "descriptors made blocking"),
        }
    }
}

/// Ends an attack.
pub(crate) enum Undo {
    Nothing,
    Guest(Box<Client>),
    Links,
    Thread(Arc<AtomicBool>, JoinHandle<rustix::io::Result<()>>),
}

impl Undo {
    /// Ends the attack; gives how long that took.
    pub(crate) fn finish(self, scene: &mut Scene) -> anyhow::Result<Duration> {
        let start = Instant::now();
        match self {
            Undo::Nothing => {}
            Undo::Guest(mut client) => client.detach(Direction::Ingress)?,
            Undo::Links => set_links(scene, vec![])?,
            Undo::Thread(is_over, thread) => {
                is_over.store(true, Ordering::Relaxed);
                thread.join().map_err(|_panic| anyhow!("the attacker panicked"))??;
            }
        }
        Ok(start.elapsed())
    }
}

fn set_links(scene: &Scene, links: Vec<Link>) -> anyhow::Result<()> {
    let port = scene.live.ports()["vm1"].id;
    Ok(scene.live.engine().change(|config| config.set_links(port, Hook::Rx, links))?)
}

fn mov(register: u8, value: i32) -> Insn {
    Insn::new(BPF_ALU64 | BPF_MOV, register, 0, 0, value)
}

fn call(helper: u32) -> Insn {
    Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, helper as i32)
}

const EXIT: Insn = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);

fn endless() -> anyhow::Result<Vec<Link>> {
    let program = Program::from_linked(small::endless(), &LoadOptions::default())?;
    Ok(vec![Link::new(program, 1, 1)])
}

/// The guest loads its program at the host, and attaches it.
fn copies(scene: &Scene, bytes: u32) -> anyhow::Result<Client> {
    let channel = open(&Wanted::Unix(scene.folder.join("offload")), None)?;
    let mut client = Client::begin(channel, b"boot 1")?;
    let spec = MapSpec {
        name: "values".to_owned(),
        kind: 2,
        key_size: 4,
        value_size: bytes,
        max_entries: 2,
        ..MapSpec::default()
    };
    let map = client.create_map(&spec)?;
    let insns = updates(map).into_iter().flat_map(|insn| insn.to_le_bytes()).collect();
    let (name, license) = ("copies".to_owned(), "GPL".to_owned());
    let spec = ProgramSpec { name, insns, license, ..ProgramSpec::default() };
    let program = client.load_program(&spec)?;
    client.attach(Direction::Ingress, program, None)?;
    Ok(client)
}

/// 2,000 updates of a value from another one of its map.
fn updates(map: u32) -> Vec<Insn> {
    let map = Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, map as i32);
    let map_and_key = [
        map,
        Insn::default(),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4),
    ];
    let mut insns = vec![Insn::new(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0)];
    insns.extend(map_and_key);
    insns.extend([
        call(id::MAP_LOOKUP_ELEM),
        Insn::new(BPF_JMP | BPF_JNE | BPF_K, 0, 0, 2, 0),
        mov(0, 1),
        EXIT,
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 6, 0, 0, 0),
        mov(7, 2000),
        Insn::new(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 1),
    ]);
    insns.extend(map_and_key);
    insns.extend([
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 3, 6, 0, 0),
        mov(4, 0),
        call(id::MAP_UPDATE_ELEM),
        Insn::new(BPF_ALU64 | BPF_SUB | BPF_K, 7, 0, 0, 1),
        Insn::new(BPF_JMP | BPF_JNE | BPF_K, 7, 0, -9, 0),
        mov(0, 2),
        EXIT,
    ]);
    insns
}

/// A thread that clears and sets `O_NONBLOCK` on the descriptors that the front end passed, takes
/// kicks away and fills what is signalled.
fn change_descriptors(scene: &mut Scene) -> anyhow::Result<Undo> {
    let attacker = scene.attacker();
    let full = eventfd(0, EventfdFlags::CLOEXEC)?;
    for index in 0..2u64 {
        for request in [SET_VRING_CALL, SET_VRING_ERR] {
            attacker.front.say(request, &index.to_ne_bytes(), &[full.as_fd()])?;
        }
    }
    let kick = attacker.kick_file(1).try_clone_to_owned()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    Ok(Undo::Thread(is_over, std::thread::spawn(move || disturb(&kick, &full, &ends))))
}

fn disturb(kick: &OwnedFd, full: &OwnedFd, is_over: &AtomicBool) -> rustix::io::Result<()> {
    let change = |is_on: bool| {
        for file in [kick, full] {
            let flags = fcntl_getfl(file)?;
            let flag = OFlags::NONBLOCK;
            fcntl_setfl(file, if is_on { flags | flag } else { flags - flag })?;
        }
        Ok(())
    };
    while !is_over.load(Ordering::Relaxed) {
        // It never blocks itself.
        change(true)?;
        let _taken = rustix::io::read(kick, &mut [0; 8]);
        let _full = rustix::io::write(full, &(u64::MAX - 1).to_ne_bytes());
        change(false)?;
        std::thread::sleep(Duration::from_micros(100));
    }
    change(true)
}

const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
