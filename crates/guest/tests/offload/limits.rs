//! For each limit: a request that would exceed it is refused with its name, and existing objects
//! still work.

use towpath_bpf::Insn;
use towpath_bpf::insn::*;
use towpath_bpf::program::MapType;
use towpath_bpf::proto::id;
use towpath_guest::Limits;
use towpath_guest_client::wire::Direction;
use towpath_guest_client::{Client, MapSpec, Refused};

use super::{Scene, map, program, refused, returns};

/// One object of each sort, to check that they still work.
struct Before {
    map: u32,
    program: u32,
}

impl Before {
    fn new(client: &mut Client) -> Before {
        let map = client.create_map(&map(MapType::Hash, 4)).unwrap();
        client.update(map, &[(vec![1; 4], vec![2; 8])], 0).unwrap();
        let program = client.load_program(&returns(2)).unwrap();
        client.attach(Direction::Ingress, program, None).unwrap();
        Before { map, program }
    }

    fn check(&self, scene: &Scene, client: &mut Client) {
        assert_eq!(client.lookup(self.map, &[1; 4]).unwrap(), [2; 8]);
        client.update(self.map, &[(vec![1; 4], vec![2; 8])], 0).unwrap();
        assert_eq!(client.query().unwrap()[0].handle, self.program);
        assert_eq!(scene.edge.running(Direction::Ingress).as_deref(), Some("prog"));
        assert_eq!(client.list().unwrap().len(), 2, "nothing came of what was refused");
    }
}

/// Tries a request that exceeds a limit.
fn crosses(name: &str, limits: Limits, ask: impl Fn(&mut Client) -> Refused) {
    let scene = Scene::new(limits);
    let mut client = scene.client();
    let before = Before::new(&mut client);
    for _ in 0..3 {
        let refused = ask(&mut client);
        assert_eq!(refused.limit.as_deref(), Some(name), "{refused}");
    }
    before.check(&scene, &mut client);
    let told = scene.edge.told.lock().join("\n");
    assert!(told.contains("guest vm0: "), "{told}");
}

#[test]
fn programs() {
    crosses("programs", Limits { programs: 1, ..Limits::default() }, |client| {
        refused(client.load_program(&returns(1)))
    });
}

#[test]
fn instructions() {
    crosses("instructions", Limits { instructions: 5, ..Limits::default() }, |client| {
        let nop = Insn::new(BPF_ALU64 | BPF_MOV, 0, 0, 0, 2);
        refused(client.load_program(&program(&[nop; 3])))
    });
}

#[test]
fn maps() {
    crosses("maps", Limits { maps: 1, ..Limits::default() }, |client| {
        refused(client.create_map(&map(MapType::Array, 1)))
    });
}

#[test]
fn entries() {
    crosses("entries", Limits { entries: 10, ..Limits::default() }, |client| {
        refused(client.create_map(&map(MapType::Array, 7)))
    });
    crosses("entries", Limits::default(), |client| {
        refused(client.create_map(&map(MapType::Hash, u32::MAX)))
    });
}

#[test]
fn bytes() {
    crosses("bytes", Limits { bytes: 1 << 20, ..Limits::default() }, |client| {
        let large = MapSpec { value_size: 1 << 16, ..map(MapType::Array, 100) };
        refused(client.create_map(&large))
    });
    crosses("bytes", Limits { bytes: 1 << 20, ..Limits::default() }, |client| {
        refused(client.load_types(&vec![0; (1 << 20) + 1]))
    });
}

#[test]
fn helpers() {
    let call = |helper: u32| Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, helper.cast_signed());
    crosses("helpers", Limits::default(), |client| {
        refused(client.load_program(&program(&[call(id::FIB_LOOKUP)])))
    });
    let few = Limits { helpers: vec![id::KTIME_GET_NS], ..Limits::default() };
    crosses("helpers", few, |client| {
        refused(client.load_program(&program(&[call(id::GET_PRANDOM_U32)])))
    });
    let kfunc = Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, 1);
    crosses("helpers", Limits::default(), |client| {
        refused(client.load_program(&program(&[kfunc])))
    });
}

#[test]
fn map_kinds() {
    for kind in [MapType::Cpumap, MapType::Xskmap, MapType::Ringbuf, MapType::Arena] {
        crosses("map_kinds", Limits::default(), |client| refused(client.create_map(&map(kind, 4))));
    }
}

/// A guest that asks too often is told to retry, and then succeeds: the client waits.
#[test]
fn operations() {
    let scene = Scene::new(Limits { operations: 50, ..Limits::default() });
    let mut client = scene.client();
    let before = Before::new(&mut client);
    for _ in 0..60 {
        client.lookup(before.map, &[1; 4]).unwrap();
    }
    let status = scene.guest.status();
    assert!(status.refused > 0 && status.refusal.as_deref().unwrap_or("").contains("operations"));
    before.check(&scene, &mut client);
}

/// A lowered limit frees no objects.
#[test]
fn limits_can_be_changed_while_a_guest_runs() {
    let scene = Scene::new(Limits::default());
    let mut client = scene.client();
    let before = Before::new(&mut client);
    scene.guest.set_limits(Limits { maps: 0, programs: 0, ..Limits::default() });
    assert_eq!(refused(client.load_program(&returns(1))).limit.as_deref(), Some("programs"));
    before.check(&scene, &mut client);
}
