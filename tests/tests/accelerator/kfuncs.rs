//! Programs that look states up, and that encapsulate and decapsulate the frame.
//!
//! `tests/data/calls/esp.c` has the programs. Where the running kernel has the same function, its
//! answer is the expected one.

use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::object::{Env, Object};
use towpath_engine::port::Device;
use towpath_ipsec::{Config, Direction, Replay, Sa, Table, TableLimits};
use towpath_kernel::{Kernel, TestRun};
use towpath_maps::Value;
use towpath_ports::ipsec::{Ipsec, Options, now};
use towpath_tests::sources;
use towpath_xdp::program::Select;
use towpath_xdp::{Exec, Frame, LoadOptions, Loader, Program, Worker};

use super::packets::{NEAR, config, far, packet, policy};

/// The programs, with the SAs of a port.
struct Lab {
    state: Program,
    esp: Program,
    worker: Worker,
    table: Arc<Table>,
}

pub(crate) fn object() -> Result<Object, String> {
    let folder = sources::call_objects().map_err(|why| why.to_string())?;
    let bytes = std::fs::read(folder.join("esp.o")).map_err(|why| why.to_string())?;
    Object::open(&bytes, "esp.o").map_err(|why| why.to_string())
}

pub(crate) fn env() -> Result<Env, String> {
    let types = std::fs::read("/sys/kernel/btf/vmlinux");
    let types = types.map_err(|why| format!("this kernel publishes no BTF: {why}"))?;
    Ok(Env::new(Arc::new(Btf::parse(&types).map_err(|why| why.to_string())?)))
}

impl Lab {
    fn new(object: &Object, env: &Env, exec: Exec) -> Lab {
        let options = LoadOptions { exec, ..LoadOptions::default() };
        let loader = Loader::new(object, env, &options).unwrap();
        let load = |name| loader.program(Select::Name(name)).unwrap();
        let (state, esp) = (load("ok_state"), load("ok_esp"));
        let table = Arc::new(Table::new(TableLimits::default()));
        let port = Ipsec::new(Options::default(), Arc::clone(&table));
        let mut worker = state.worker(0);
        worker.set_esp(vec![(IFINDEX, port.esp().unwrap())]);
        Lab { state, esp, worker, table }
    }

    fn add(&self, config: Config) -> Arc<Sa> {
        self.table.add(config, now()).unwrap()
    }

    /// Runs `ok_state`; returns its verdict and the query.
    fn query(&mut self, opts: &[u8], size: u32) -> (u32, Vec<u8>) {
        let maps = Arc::clone(self.state.maps());
        let map = maps.by_name("queries").unwrap().user();
        map.update(&[0; 4], &Value::One(query(opts, size)), 0).unwrap();
        let mut frame = Frame::new(&[0; 64]).unwrap();
        let run = self.state.run(&mut self.worker, &mut frame).unwrap();
        (run.returned, map.lookup(&[0; 4], 0).unwrap().bytes().to_vec())
    }

    /// Runs `ok_esp`; returns the function's result and the record.
    fn call(&mut self, task: Task, frame: &mut Frame) -> (i32, Vec<u8>) {
        let maps = Arc::clone(self.esp.maps());
        let map = maps.by_name("esp_tasks").unwrap().user();
        map.update(&[0; 4], &Value::One(task.bytes()), 0).unwrap();
        let run = self.esp.run(&mut self.worker, frame).unwrap();
        assert_eq!(run.returned, XDP_PASS, "the functions exist");
        let after = map.lookup(&[0; 4], 0).unwrap().bytes().to_vec();
        let length = u16::from_le_bytes([after[14], after[15]]);
        assert_eq!(usize::from(length), frame.linear_len(), "the program sees the new length");
        (i32::from_le_bytes(*after[8..].first_chunk().unwrap()), after[16..32].to_vec())
    }
}

/// `struct task`, with a record of zeros.
#[derive(Clone, Copy)]
struct Task {
    ifindex: u32,
    size: u32,
    decaps: bool,
    in_packet: bool,
}

const ENCAP: Task = Task { ifindex: IFINDEX, size: 16, decaps: false, in_packet: false };
const DECAP: Task = Task { decaps: true, ..ENCAP };

impl Task {
    fn bytes(self) -> Vec<u8> {
        let mut bytes = [self.ifindex, self.size, 0x5555].map(u32::to_le_bytes).concat();
        bytes.extend([self.decaps, self.in_packet].map(u8::from));
        bytes.resize(80, 0);
        bytes
    }
}

fn query(opts: &[u8], size: u32) -> Vec<u8> {
    let mut bytes = opts.to_vec();
    bytes.resize(64, 0);
    bytes.extend(size.to_le_bytes());
    bytes.resize(QUERY_BYTES, 0);
    bytes
}

/// `struct bpf_xfrm_state_opts`
fn opts(netns: i32, spi: u32, to: IpAddr, protocol: u8, family: u16) -> Vec<u8> {
    let mut bytes = vec![0x77; 4];
    bytes.extend(netns.to_le_bytes());
    bytes.extend([0; 4]);
    match to {
        IpAddr::V4(to) => bytes.extend(to.octets()),
        IpAddr::V6(to) => bytes.extend(to.octets()),
    }
    bytes.resize(28, 0);
    bytes.extend(spi.to_be_bytes());
    bytes.extend([protocol, 0]);
    bytes.extend(family.to_le_bytes());
    bytes
}

fn asks_for(sa: &Sa) -> Vec<u8> {
    let to = sa.destination();
    opts(-1, sa.spi(), to, 50, if to.is_ipv4() { 2 } else { 10 })
}

fn word(query: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*query[at..].first_chunk().unwrap())
}

fn long(query: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*query[at..].first_chunk().unwrap())
}

#[test]
fn programs_read_the_fields_of_a_state() {
    let (object, env) = match (object(), env()) {
        (Ok(object), Ok(env)) => (object, env),
        (Err(why), _) | (_, Err(why)) => return eprintln!("skipped: {why}"),
    };
    for exec in [Exec::Interp, Exec::Jit, Exec::Llvm] {
        let mut lab = Lab::new(&object, &env, exec);
        // Extended sequence numbers, which the kernel keeps apart.
        let last = 5 << 32 | 7;
        let replay = Replay { window: 512, esn: true, last };
        let inbound = config(1, Direction::Inbound, [far(1), NEAR]);
        let sa = lab.add(Config { replay, ..inbound });
        let (returned, it) = lab.query(&asks_for(&sa), 36);
        assert_eq!((returned, word(&it, 0)), (2, 0x7777_7777), "the error stays as it was");
        assert_eq!((word(&it, 72), word(&it, 76)), (sa.spi().to_be(), sa.reqid()));
        assert_eq!(it[80..86], [50, 1, 128, 0, 2, 1]);
        assert_eq!(u16::from_le_bytes([it[86], it[87]]), 2);
        let IpAddr::V4(near) = NEAR else { panic!("it is IPv4") };
        assert_eq!(it[88..92], near.octets());
        assert_eq!([word(&it, 120), word(&it, 124), word(&it, 128)], [0, 0, 1]);
        assert_eq!([132, 136, 140, 144, 148].map(|at| word(&it, at)), [0, 0, 7, 5, 512]);
        let infinite = [long(&it, 184), long(&it, 192)];
        assert_eq!(infinite, [u64::MAX; 2], "there are no limits");

        // 32 numbers, and packets that were sent.
        let replay = Replay { window: 32, ..Replay::default() };
        let outbound = config(2, Direction::Outbound, [NEAR, far(2)]);
        let sa = lab.add(Config { replay, ..outbound });
        lab.table.add_policy(policy(2)).unwrap();
        for number in 0..3 {
            let mut frame = Frame::new(&packet(2, number)).unwrap();
            assert_eq!(lab.call(ENCAP, &mut frame).0, 0);
        }
        let (returned, it) = lab.query(&asks_for(&sa), 36);
        assert_eq!(returned, 2);
        assert_eq!(it[80..86], [50, 1, 0, 32, 2, 2]);
        assert_eq!([120, 124, 128, 132].map(|at| word(&it, at)), [3, 0, 0, 0]);
        let bytes: usize = (0..3).map(|number| packet(2, number).len() - 14).sum();
        assert_eq!([long(&it, 152), long(&it, 160)], [bytes as u64, 3]);
        assert!(long(&it, 168) > 1_700_000_000 && long(&it, 176) >= long(&it, 168));
        // It is gone, and objects do not pile up.
        for _ in 0..20_000 {
            assert_eq!(lab.query(&asks_for(&sa), 36).0, 2);
        }
        lab.table.flush();
        let (returned, it) = lab.query(&asks_for(&sa), 36);
        assert_eq!((returned, word(&it, 0)), (1, -2i32 as u32));
    }
}

/// Options that the kernel refuses, and a state that the kernel has, too.
#[test]
fn states_are_found_and_refused_as_in_the_kernel() {
    let (object, kernel) = match (object(), Kernel::open()) {
        (Ok(object), Ok(kernel)) => (object, kernel),
        (Err(why), _) => return eprintln!("skipped: {why}"),
        (_, Err(why)) => return eprintln!("skipped: {why}"),
    };
    let env = Env::new(Arc::clone(kernel.btf()));
    let mut lab = Lab::new(&object, &env, Exec::Jit);
    let maps = match kernel.load_maps(object.maps()) {
        Ok(maps) => maps,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let index = object.select(Some("ok_state"), None).unwrap();
    let theirs = match kernel.load(&object.link(index, &env).unwrap(), &maps) {
        Ok(theirs) => theirs,
        Err(why) => return eprintln!("skipped: the kernel does not load it: {why}"),
    };
    let queries = &maps.maps()[0];
    let both = |lab: &mut Lab, opts: &[u8], size: u32| {
        queries.update(&[0; 4], &query(opts, size), 0).unwrap();
        let expected = theirs.test_run(&TestRun::new(&[0; 64])).unwrap().retval;
        let their_query = queries.lookup(&[0; 4]).unwrap();
        let (returned, our_query) = lab.query(opts, size);
        assert_eq!(returned, expected, "{opts:?}, {size}");
        (returned, our_query, their_query)
    };
    let to = IpAddr::from([198, 51, 100, 77]);
    for size in 0..64 {
        let (returned, ours, theirs) = both(&mut lab, &opts(-1, SPI, to, 50, 2), size);
        assert_eq!((returned, ours), (1, theirs), "{size}");
    }
    for netns in [i32::MIN, -3, -2, -1, 0, 1, 4711, i32::MAX] {
        for (protocol, family) in [(50, 2), (50, 10), (51, 2), (0, 0), (50, 255), (108, 10)] {
            let (_, ours, theirs) = both(&mut lab, &opts(netns, SPI, to, protocol, family), 36);
            assert_eq!(ours, theirs, "{netns}, {protocol}, {family}");
        }
    }
    // The kernel may lack ESP, but it reserves SPIs, and finds the states of these.
    let _state = match Larval::new(to) {
        Ok(state) => state,
        Err(why) => return eprintln!("skipped: no state in the kernel: {why}"),
    };
    let mut ours = config(0, Direction::Outbound, [IpAddr::from([198, 51, 100, 1]), to]);
    (ours.spi, ours.reqid) = (SPI, 4711);
    lab.add(ours);
    let (returned, ours, theirs) = both(&mut lab, &opts(-1, SPI, to, 50, 2), 36);
    assert_eq!(returned, 2, "both find it");
    // Error, SPI, reqid, protocol, mode, family and addresses.
    for range in [0..36, 64..82, 86..120] {
        assert_eq!(ours[range.clone()], theirs[range.clone()], "{range:?}");
    }
    for (to, protocol, family) in
        [(to, 51, 2), (to, 50, 10), (IpAddr::from([198, 51, 100, 1]), 50, 2)]
    {
        assert_eq!(both(&mut lab, &opts(-1, SPI, to, protocol, family), 36).0, 1);
    }
}

/// A state of the kernel that waits for its keys.
struct Larval([String; 8]);

impl Larval {
    fn new(to: IpAddr) -> Result<Larval, String> {
        let to = to.to_string();
        let id = ["src", "198.51.100.1", "dst", &to, "proto", "esp"];
        let spi = format!("{SPI:#x}");
        let allocated = Command::new("ip")
            .args(["xfrm", "state", "allocspi"])
            .args(id)
            .args(["mode", "tunnel", "reqid", "4711", "min", &spi, "max", &spi])
            .output()
            .map_err(|why| why.to_string())?;
        if !allocated.status.success() {
            return Err(String::from_utf8_lossy(&allocated.stderr).into_owned());
        }
        let [a, b, c, d, e, f] = id.map(str::to_owned);
        Ok(Larval([a, b, c, d, e, f, "spi".to_owned(), spi]))
    }
}

impl Drop for Larval {
    fn drop(&mut self) {
        // It would end by itself after some seconds.
        let _deleted = Command::new("ip").args(["xfrm", "state", "delete"]).args(&self.0).output();
    }
}

#[test]
fn programs_encapsulate_and_decapsulate() {
    let (object, env) = match (object(), env()) {
        (Ok(object), Ok(env)) => (object, env),
        (Err(why), _) | (_, Err(why)) => return eprintln!("skipped: {why}"),
    };
    for exec in [Exec::Interp, Exec::Jit, Exec::Llvm] {
        let mut lab = Lab::new(&object, &env, exec);
        for peer in 0..8 {
            lab.add(config(peer, Direction::Outbound, [NEAR, far(peer)]));
            lab.add(config(peer, Direction::Inbound, [NEAR, far(peer)]));
            lab.table.add_policy(policy(peer)).unwrap();
            for number in [1, 7, 40] {
                let plain = packet(peer, number);
                let mut frame = Frame::new(&plain).unwrap();
                let (result, record) = lab.call(ENCAP, &mut frame);
                assert_eq!((result, record[8], record[9]), (0, 2, 0), "peer {peer}");
                assert_ne!(frame.to_vec(), plain);
                let sealed = frame.to_vec();
                let (result, record) = lab.call(DECAP, &mut frame);
                assert_eq!((result, record[8], record[9]), (0, 1, 0), "peer {peer}");
                assert_eq!(frame.to_vec(), plain);
                let mut again = Frame::new(&sealed).unwrap();
                let (result, record) = lab.call(DECAP, &mut again);
                assert_eq!((result, record[9]), (-114, 6), "a replay");
            }
        }
        // Mistakes of a program: the frame stays as it is.
        let mut frame = Frame::new(&packet(0, 3)).unwrap();
        for size in (0..16).chain(17..64) {
            assert_eq!(lab.call(Task { size, ..ENCAP }, &mut frame).0, -22, "{size}");
        }
        for ifindex in [0, 1, u32::MAX] {
            assert_eq!(lab.call(Task { ifindex, ..DECAP }, &mut frame).0, -19);
        }
        for task in [ENCAP, DECAP] {
            assert_eq!(lab.call(Task { in_packet: true, ..task }, &mut frame).0, -22);
        }
        assert_eq!(frame.to_vec(), packet(0, 3));
        lab.worker.set_esp(Vec::new());
        assert_eq!(lab.call(ENCAP, &mut frame).0, -19, "there is no such port");
    }
}

/// The same object in the kernel, where the functions do not exist.
#[test]
fn a_program_with_weak_functions_loads_in_the_kernel() {
    let (object, kernel) = match (object(), Kernel::open()) {
        (Ok(object), Ok(kernel)) => (object, kernel),
        (Err(why), _) => return eprintln!("skipped: {why}"),
        (_, Err(why)) => return eprintln!("skipped: {why}"),
    };
    let env = Env::new(Arc::clone(kernel.btf()));
    let index = object.select(Some("ok_esp"), None).unwrap();
    let linked = object.link(index, &env).unwrap();
    let maps = match kernel.load_maps(object.maps()) {
        Ok(maps) => maps,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let theirs = kernel.load(&linked, &maps).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(theirs.test_run(&TestRun::new(&packet(0, 1))).unwrap().retval, XDP_DROP);
}

const IFINDEX: u32 = 12;
const SPI: u32 = 0x00c0_ffee;
const QUERY_BYTES: usize = 200;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
