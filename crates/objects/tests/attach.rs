//! Reasons for refusing a program a hook that its owner shares among several programs, case by
//! case.

#![forbid(unsafe_code)]

use std::sync::Arc;

use towpath_bpf::{Env, Errno, Object};
use towpath_objects::{
    Device, Devices, LinkObject, Objects, ProgramObject, Selector, Session, Settings, XdpMode,
};
use towpath_xdp::{LoadOptions, Loader, Select};

/// Two devices that run programs themselves.
#[derive(Debug)]
struct Two;

impl Devices for Two {
    fn device(&self, ifindex: u32) -> Option<Device> {
        let device = Device { native: true, queues: 1, ..Device::default() };
        (1..=2).contains(&ifindex).then_some(device)
    }

    fn install(
        &self,
        _ifindex: u32,
        _mode: XdpMode,
        _program: Option<&Arc<ProgramObject>>,
    ) -> Result<(), Errno> {
        Ok(())
    }
}

/// The mode of another owner's program on device 1, if any, as flags of `ip link set dev ... xdp`.
const OTHERS: [Option<u32>; 3] = [None, Some(GENERIC), Some(NATIVE)];
const GENERIC: u32 = 2;
const NATIVE: u32 = 4;
/// The device a program is bound to, if any.
const BOUND: [Option<u32>; 3] = [None, Some(1), Some(2)];
/// Hooks, by the modes that lead to them.
const RX: &[XdpMode] = &[XdpMode::Generic, XdpMode::Native];
const TX: &[XdpMode] = &[];
const DEQUEUE: &[XdpMode] = &[XdpMode::Dequeue];

/// The kernel's answers: a bound program runs nowhere else, and a hook has one owner.
fn expected(
    others: Option<u32>,
    bound: Option<u32>,
    modes: &[XdpMode],
    is_new: bool,
) -> Result<(), Errno> {
    let is_elsewhere = bound == Some(2);
    let is_taken = others.is_some() && modes.contains(&XdpMode::Native);
    match (is_elsewhere, is_taken && is_new) {
        (true, _) => Err(Errno::EINVAL),
        (false, true) => Err(Errno::EBUSY),
        (false, false) => Ok(()),
    }
}

struct Made {
    objects: Arc<Objects>,
    program: Arc<ProgramObject>,
    link: Arc<LinkObject>,
}

fn make(others: Option<u32>, bound: Option<u32>) -> Made {
    let mut settings = Settings::new();
    settings.devices = Arc::new(Two);
    let objects = Arc::new(Objects::new(&settings));
    let bytes = include_bytes!("../../../tests/data/kernel-oracle/xdp_helpers.bpf.o");
    let object = Object::open(bytes, "xdp_helpers.bpf.o").expect("a good object");
    let (env, options) = (Env::builtin(), LoadOptions { workers: 1, ..LoadOptions::default() });
    let load = |bound: Option<u32>| {
        let loader = Loader::within(&object, &env, &options, objects.shared()).expect("it is good");
        let program = loader.program(Select::Name("prog")).expect("the kernel loads it, too");
        objects.register_program(&program, 0, bound).expect("ids are left")
    };
    let (program, other) = (load(bound), load(None));
    let link = objects.register_link(&other, 1).expect("ids are left");
    if let Some(flags) = others {
        let mut session = Session::new(&objects, 0);
        session.set_xdp(1, Some(&Selector::Id(other.id())), flags).expect("the hook is free");
    }
    Made { objects, program, link }
}

#[test]
fn a_shared_hook_has_one_owner_and_a_bound_program_one_device() {
    for (others, bound) in OTHERS.iter().flat_map(|it| BOUND.map(|bound| (*it, bound))) {
        let Made { objects, program, link } = make(others, bound);
        for modes in [RX, TX, DEQUEUE] {
            for before in [None, Some(&*link)] {
                let answer = objects.check_link(&program, 1, modes, before);
                let answer = answer.map_err(|error| error.errno);
                let case = (others, bound, modes, before.is_none());
                assert_eq!(answer, expected(others, bound, modes, before.is_none()), "{case:?}");
            }
        }
    }
}

/// Through netlink the same program is refused for the same reason.
#[test]
fn a_bound_program_is_refused_by_netlink_as_in_a_shared_hook() {
    for bound in BOUND {
        let Made { objects, program, .. } = make(None, bound);
        let shared = objects.check_link(&program, 1, RX, None).map_err(|error| error.errno);
        let mut session = Session::new(&objects, 0);
        let alone = session.set_xdp(1, Some(&Selector::Id(program.id())), NATIVE);
        assert_eq!(alone.map_err(|error| error.errno()), shared, "{bound:?}");
    }
}
