//! A guest and its host over a unix socket, with an edge that only records its calls.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]

mod bad_input;
mod edge;
mod limits;
mod saved;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use towpath_bpf::Insn;
use towpath_bpf::insn::*;
use towpath_bpf::program::MapType;
use towpath_guest::{Channel, Endpoint, Guest, Limits, Rules};
use towpath_guest_client::wire::{Direction, What};
use towpath_guest_client::{Client, ClientError, MapSpec, ProgramSpec, Refused, Wanted, open};
use towpath_host::socket::Access;

use edge::FakeEdge;

/// A host that serves one guest.
pub(crate) struct Scene {
    pub(crate) guest: Arc<Guest>,
    pub(crate) edge: Arc<FakeEdge>,
    pub(crate) path: PathBuf,
    _channel: Channel,
}

impl Scene {
    pub(crate) fn new(limits: Limits) -> Scene {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-guest-{}-{number}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let edge = Arc::new(FakeEdge::default());
        let guest = Arc::new(Guest::new("vm0", 2, limits, Arc::clone(&edge) as _));
        let channel =
            Channel::start(&guest, &Endpoint::Listen(path.clone(), Access::default())).unwrap();
        Scene { guest, edge, path, _channel: channel }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_of(b"boot 1")
    }

    pub(crate) fn client_of(&self, boot: &[u8]) -> Client {
        Client::begin(open(&Wanted::Unix(self.path.clone()), None).unwrap(), boot).unwrap()
    }
}

pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Refused {
    match result.expect_err("it is refused") {
        ClientError::Refused(refused) => *refused,
        other => panic!("{other}"),
    }
}

pub(crate) fn map(kind: MapType, entries: u32) -> MapSpec {
    MapSpec {
        name: "counts".to_owned(),
        kind: kind as u32,
        key_size: 4,
        value_size: 8,
        max_entries: entries,
        ..MapSpec::default()
    }
}

/// A program that returns a number.
pub(crate) fn returns(verdict: i32) -> ProgramSpec {
    program(&[Insn::new(BPF_ALU64 | BPF_MOV, 0, 0, 0, verdict)])
}

/// A program of these instructions and an exit.
pub(crate) fn program(insns: &[Insn]) -> ProgramSpec {
    let exit = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    let insns = insns.iter().chain([&exit]).flat_map(|insn| insn.to_le_bytes()).collect();
    ProgramSpec {
        name: "prog".to_owned(),
        insns,
        license: "GPL".to_owned(),
        ..ProgramSpec::default()
    }
}

/// A program that loads a map's handle.
pub(crate) fn uses(map: u32, src: u8) -> ProgramSpec {
    program(&[
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, src, 0, map.cast_signed()),
        Insn::default(),
        Insn::new(BPF_ALU64 | BPF_MOV, 0, 0, 0, 2),
    ])
}

pub(crate) fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_the_host_can_do_is_said_first() {
    let scene = Scene::new(Limits::default());
    let client = scene.client();
    let features = client.features();
    assert_eq!(features.cpus, 2);
    assert_eq!(features.directions, [Direction::Ingress, Direction::Egress]);
    assert!(features.map_kinds.contains(&(MapType::Hash as u32)));
    assert!(!features.map_kinds.contains(&(MapType::Cpumap as u32)));
    assert!(features.limits.iter().any(|limit| limit.name == "maps" && limit.used == 0));
    assert_eq!(features.targets[0].name, "uplink");
    assert!(features.helpers.contains(&1) && !features.helpers.contains(&69), "no fib_lookup");
}

#[test]
fn maps_are_worked_on_by_handle() {
    let scene = Scene::new(Limits::default());
    let mut client = scene.client();
    for kind in [MapType::Hash, MapType::Array, MapType::PercpuHash, MapType::LruHash] {
        let map = client.create_map(&map(kind, 8)).unwrap();
        let info = client.map_info(map).unwrap();
        let size = info.user_value_size as usize;
        assert_eq!(size, if kind.is_percpu() { 16 } else { 8 });
        let element = |number: u32| (number.to_le_bytes().to_vec(), vec![number as u8 + 1; size]);
        let all: Vec<_> = (0..5).map(element).collect();
        client.update(map, &all, 0).unwrap();
        assert_eq!(client.lookup(map, &all[3].0).unwrap(), all[3].1);
        let mut dumped = client.dump(map).unwrap();
        dumped.sort();
        dumped.retain(|(_, value)| value.iter().any(|&byte| byte != 0));
        assert_eq!(dumped, all);
        if kind != MapType::Array {
            client.delete(map, &all[0].0).unwrap();
            assert_eq!(refused(client.lookup(map, &all[0].0)).errno.name(), Some("ENOENT"));
            assert_eq!(refused(client.update(map, &all[..1], 2)).errno.name(), Some("ENOENT"));
        }
        assert_eq!(refused(client.lookup(map, &[1])).errno.name(), Some("EINVAL"));
        client.freeze(map).unwrap();
        assert_eq!(refused(client.update(map, &all[..1], 0)).errno.name(), Some("EPERM"));
        client.close(map).unwrap();
        assert_eq!(refused(client.lookup(map, &all[0].0)).errno.name(), Some("EBADF"));
    }
    let queue = MapSpec { key_size: 0, ..map(MapType::Queue, 8) };
    let queue = client.create_map(&queue).unwrap();
    let value = |byte: u8| (Vec::new(), vec![byte; 8]);
    client.update(queue, &[value(1), value(2)], 0).unwrap();
    assert_eq!(client.lookup(queue, &[]).unwrap(), [1; 8]);
    assert_eq!(client.lookup_and_delete(queue, &[]).unwrap(), [1; 8]);
    assert_eq!(client.lookup_and_delete(queue, &[]).unwrap(), [2; 8]);
    assert_eq!(refused(client.lookup(queue, &[])).errno.name(), Some("ENOENT"));
}

#[test]
fn a_program_is_attached_replaced_and_detached() {
    let scene = Scene::new(Limits::default());
    let mut client = scene.client();
    let ingress = Direction::Ingress;
    let first = client.load_program(&returns(2)).unwrap();
    client.attach(ingress, first, None).unwrap();
    assert_eq!(scene.edge.running(ingress).as_deref(), Some("prog"));
    let second = client.load_program(&returns(1)).unwrap();
    assert_eq!(refused(client.attach(ingress, second, None)).errno.name(), Some("EBUSY"));
    let expects = refused(client.attach(ingress, second, Some(second)));
    assert_eq!(expects.errno.name(), Some("EEXIST"));
    assert_eq!(refused(client.close(first)).errno.name(), Some("EBUSY"), "it runs");
    client.attach(ingress, second, Some(first)).unwrap();
    client.close(first).unwrap();
    let attached = client.query().unwrap();
    assert_eq!((attached.len(), attached[0].handle), (1, second));
    assert_eq!(attached[0].counters.runs, 7, "as the edge says");
    client.detach(ingress).unwrap();
    assert_eq!(refused(client.detach(ingress)).errno.name(), Some("ENOENT"));
    assert_eq!(scene.edge.running(ingress), None);
    assert_eq!(refused(client.attach(ingress, 999, None)).errno.name(), Some("EBADF"));
}

#[test]
fn what_the_verifier_says_gets_to_the_guest() {
    let scene = Scene::new(Limits::default());
    let mut client = scene.client();
    let unset = program(&[Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 0, 5, 0, 0)]);
    let refused = refused(client.load_program(&unset));
    assert_eq!(refused.errno.name(), Some("EACCES"));
    assert!(refused.log.contains("R5 !read_ok"), "{}", refused.log);
    assert_eq!(client.list().unwrap(), []);
}

#[test]
fn only_maps_are_rewritten_and_only_ones_own_are_found() {
    let scene = Scene::new(Limits::default());
    let other = Scene::new(Limits::default());
    let mut client = scene.client();
    let map = client.create_map(&map(MapType::Array, 1)).unwrap();
    let with_map = client.load_program(&uses(map, PSEUDO_MAP_FD)).unwrap();
    client.load_program(&uses(map, PSEUDO_MAP_VALUE)).unwrap();
    // A plain number that equals a handle is a number.
    client.load_program(&uses(map, 0)).unwrap();
    let missing = refused(client.load_program(&uses(77, PSEUDO_MAP_FD)));
    assert_eq!(missing.errno.name(), Some("EBADF"));
    let program = refused(client.load_program(&uses(with_map, PSEUDO_MAP_FD)));
    assert_eq!(program.errno.name(), Some("EINVAL"));
    let of_host = refused(client.load_program(&uses(1, PSEUDO_BTF_ID)));
    assert_eq!(of_host.limit.as_deref(), Some("helpers"));
    let of_another = refused(other.client().load_program(&uses(map, PSEUDO_MAP_FD)));
    assert_eq!(of_another.errno.name(), Some("EBADF"), "each guest has handles of its own");
    assert_eq!(refused(client.close(map)).errno.name(), Some("EBUSY"), "programs need it");
    let programs = client.list().unwrap().into_iter().filter(|it| it.what == What::Program);
    for program in programs.collect::<Vec<_>>() {
        client.close_all(program.handle).unwrap();
    }
    assert_eq!(client.list().unwrap(), [], "the map went with the last that needed it");
}

#[test]
fn programs_that_call_each_other_go_together() {
    let scene = Scene::new(Limits::default());
    let mut client = scene.client();
    let jumps = MapSpec { value_size: 4, ..map(MapType::ProgArray, 4) };
    let jumps = client.create_map(&jumps).unwrap();
    let one = client.load_program(&uses(jumps, PSEUDO_MAP_FD)).unwrap();
    let two = client.load_program(&uses(jumps, PSEUDO_MAP_FD)).unwrap();
    let slot = |slot: u32, program: u32| (slot.to_le_bytes().into(), program.to_le_bytes().into());
    client.update(jumps, &[slot(0, one), slot(1, two)], 0).unwrap();
    assert_eq!(client.lookup(jumps, &1u32.to_le_bytes()).unwrap(), two.to_le_bytes());
    assert_eq!(refused(client.close(two)).errno.name(), Some("EBUSY"));
    client.attach(Direction::Egress, one, None).unwrap();
    assert_eq!(refused(client.close_all(two)).errno.name(), Some("EBUSY"), "one may call it");
    client.detach(Direction::Egress).unwrap();
    client.close_all(one).unwrap();
    assert_eq!(client.list().unwrap(), []);
}

#[test]
fn devmaps_lead_to_targets_of_the_guest() {
    let scene = Scene::new(Limits::default());
    let mut client = scene.client();
    let devices = MapSpec { value_size: 4, ..map(MapType::Devmap, 4) };
    let handle = client.create_map(&devices).unwrap();
    let entry = |ifindex: u32| (vec![0; 4], ifindex.to_le_bytes().to_vec());
    client.update(handle, &[entry(1)], 0).unwrap();
    assert_eq!(refused(client.update(handle, &[entry(2)], 0)).errno.name(), Some("EINVAL"));
    let with_programs = MapSpec { value_size: 8, ..devices };
    assert_eq!(refused(client.create_map(&with_programs)).limit.as_deref(), Some("map_kinds"));
}

#[test]
fn a_guest_that_begins_anew_has_nothing_and_one_that_comes_back_has_all() {
    let scene = Scene::new(Limits::default());
    let mut client = scene.client();
    let program = client.load_program(&returns(1)).unwrap();
    client.attach(Direction::Ingress, program, None).unwrap();
    drop(client);
    wait_for("the host notices", || !scene.guest.status().is_connected);
    let mut client = scene.client();
    assert_eq!(client.list().unwrap().len(), 1, "another connection");
    drop(client);
    scene.edge.restart();
    wait_for("the host notices", || scene.edge.running(Direction::Ingress).is_none());
    let mut client = scene.client();
    assert_eq!(client.list().unwrap(), [], "the device was reset");
    let program = client.load_program(&returns(1)).unwrap();
    client.attach(Direction::Ingress, program, None).unwrap();
    drop(client);
    let mut client = scene.client_of(b"boot 2");
    assert_eq!(client.list().unwrap(), [], "another boot id");
    assert_eq!(scene.edge.running(Direction::Ingress), None);
    assert_eq!(scene.guest.status().resets, 2);
}

/// Verification takes as long as a guest likes: a request for its status does not wait for it.
#[test]
fn the_status_is_told_while_a_program_is_verified() {
    let scene = Scene::new(Limits::default());
    let mut client = scene.client();
    let map_handle = client.create_map(&map(MapType::Array, 1)).unwrap();
    // r0 counts up to a number, and the verifier follows every round.
    let long = program(&[
        Insn::new(BPF_ALU64 | BPF_MOV, 0, 0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 0, 0, 0, 1),
        Insn::new(BPF_JMP | BPF_JLT, 0, 0, -2, 400_000),
    ]);
    let is_loaded = AtomicBool::new(false);
    let mut told_meanwhile = 0;
    let requests = scene.guest.status().requests;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let loaded = client.load_program(&long);
            is_loaded.store(true, Ordering::Release);
            loaded.unwrap();
        });
        wait_for("the request comes", || scene.guest.status().requests > requests);
        while !is_loaded.load(Ordering::Acquire) {
            let status = scene.guest.status();
            let handles: Vec<u32> = status.objects.iter().map(|it| it.handle).collect();
            told_meanwhile += u32::from(handles == [map_handle]);
        }
    });
    assert!(told_meanwhile >= 10, "told {told_meanwhile} times");
    assert_eq!(scene.guest.status().objects.len(), 2, "then there is a program, too");
}

#[test]
fn an_address_of_the_host_leaves_no_program() {
    let scene = Scene::new(Limits::default());
    let mut client = scene.client();
    let context = program(&[Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 0, 1, 0, 0)]);
    let why = refused(client.load_program(&context));
    assert!(why.log.contains("R0 leaks addr as return value"), "{why:?}");
    let unwritten = program(&[Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 0, REG_FP, -8, 0)]);
    let why = refused(client.load_program(&unwritten));
    assert!(why.log.contains("invalid read from stack"), "{why:?}");
}

/// The length of a frame is the difference of two pointers, which reveals no address.
#[test]
fn the_kernels_rules_are_kept_to_the_letter_where_that_is_wanted() {
    let length = program(&[
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 0, 1, 4, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 2, 1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_SUB | BPF_X, 0, 2, 0, 0),
    ]);
    Scene::new(Limits::default()).client().load_program(&length).unwrap();
    let scene = Scene::new(Limits { rules: Rules::Kernel, ..Limits::default() });
    let why = refused(scene.client().load_program(&length));
    assert!(why.log.contains("R0 pointer -= pointer prohibited"), "{why:?}");
}
