//! Crypto contexts beside the running kernel: programs that users call make them, XDP programs
//! encrypt and decrypt packets with them, and all results have to be the kernel's.
//!
//! `tests/data/calls/crypto.c` has the programs.

use std::sync::Arc;

use towpath_bpf::object::{Env, Object};
use towpath_kernel::{Kernel, KernelProgram, MapSet, TestRun};
use towpath_maps::Value;
use towpath_tests::sources;
use towpath_xdp::program::Select;
use towpath_xdp::{Exec, Frame, LoadOptions, Loader, Program, Worker};

/// What `ok_setup` is asked for.
#[derive(Clone)]
struct Request {
    kind: &'static str,
    algo: &'static str,
    key: Vec<u8>,
    key_len: u32,
    authsize: u32,
    reserved: u8,
    size: u32,
}

impl Request {
    fn new(algo: &'static str, key_bytes: usize) -> Request {
        let key = (0..key_bytes).map(|byte| (byte * 7 + 3) as u8).collect();
        let (kind, key_len) = ("skcipher", key_bytes as u32);
        Request { kind, algo, key, key_len, authsize: 0, reserved: 0, size: PARAMS_BYTES as u32 }
    }

    /// `struct request`, as the caller gives it.
    fn context(&self) -> Vec<u8> {
        let mut bytes = vec![0; PARAMS_BYTES];
        bytes[..self.kind.len()].copy_from_slice(self.kind.as_bytes());
        bytes[15] = self.reserved;
        bytes[16..][..self.algo.len()].copy_from_slice(self.algo.as_bytes());
        bytes[144..][..self.key.len()].copy_from_slice(&self.key);
        bytes[400..404].copy_from_slice(&self.key_len.to_le_bytes());
        bytes[404..].copy_from_slice(&self.authsize.to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend([0xee; 12]);
        bytes
    }
}

/// What `ok_crypt` is asked for: `struct task`, without its results.
#[derive(Debug, Clone, Copy)]
struct Task {
    source: [u32; 2],
    target: [u32; 2],
    own: [bool; 2],
    decrypts: bool,
    /// Bytes of the vector; `None` is a null pointer.
    iv_bytes: Option<u32>,
}

impl Task {
    /// Work on bytes of the packet in place.
    fn on(first: u32, past: u32) -> Task {
        let range = [first, past];
        Task { source: range, target: range, own: [false; 2], decrypts: false, iv_bytes: None }
    }

    fn to(self, first: u32, past: u32) -> Task {
        Task { target: [first, past], ..self }
    }

    fn back(self) -> Task {
        Task { decrypts: true, ..self }
    }

    fn iv(self, bytes: u32) -> Task {
        Task { iv_bytes: Some(bytes), ..self }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [self.source, self.target].concat() {
            bytes.extend(word.to_le_bytes());
        }
        let flags = [self.own[0], self.own[1], self.decrypts, self.iv_bytes.is_some()];
        bytes.extend(flags.map(u8::from));
        bytes.extend(self.iv_bytes.unwrap_or(0).to_le_bytes());
        bytes.extend([0x55; 8]);
        bytes.extend((0..32).map(|byte| byte as u8 ^ 0xa5));
        bytes.extend((0..64).map(|byte| (byte * 5) as u8));
        bytes
    }
}

/// The programs in both worlds.
struct Pair<'k> {
    kernel: &'k Kernel,
    object: Object,
    env: Env,
    maps: MapSet,
    theirs: Vec<KernelProgram>,
    ours: Vec<Program>,
    worker: Worker,
    calls: usize,
}

const NAMES: [&str; 4] = ["ok_setup", "ok_forget", "ok_crypt", "ok_crypt_shared"];
const SETUP: usize = 0;
const FORGET: usize = 1;
const CRYPT: usize = 2;
const SHARED: usize = 3;

impl<'k> Pair<'k> {
    fn new(kernel: &'k Kernel, exec: Exec) -> Result<Pair<'k>, String> {
        let folder = sources::call_objects().map_err(|why| why.to_string())?;
        let bytes = std::fs::read(folder.join("crypto.o")).expect("it was compiled");
        let object = Object::open(&bytes, "crypto.o").expect("an object of clang");
        let env = Env::new(Arc::clone(kernel.btf()));
        let options = LoadOptions { exec, ..LoadOptions::default() };
        let loader = Loader::new(&object, &env, &options).expect("maps");
        let ours = NAMES.map(|name| loader.program(Select::Name(name)).expect(name));
        drop(loader);
        let maps = kernel.load_maps(object.maps()).map_err(|error| error.to_string())?;
        let worker = ours[0].worker(0);
        let mut pair = Pair {
            kernel,
            object,
            env,
            maps,
            theirs: Vec::new(),
            ours: ours.into(),
            worker,
            calls: 0,
        };
        for name in NAMES {
            let index = pair.object.select(Some(name), None).expect(name);
            let linked = pair.object.link(index, &pair.env).expect(name);
            let loaded =
                pair.kernel.load(&linked, &pair.maps).map_err(|error| error.to_string())?;
            pair.theirs.push(loaded);
        }
        Ok(pair)
    }

    /// Calls a program with a context in both worlds.
    fn call(&mut self, program: usize, context: &[u8]) -> (u32, Vec<u8>) {
        let (mut theirs, mut ours) = (context.to_vec(), context.to_vec());
        let expected = self.theirs[program].call(&mut theirs).map_err(|errno| errno.name());
        let called = self.ours[program].call(&mut self.worker, &mut ours);
        let called = called.map_err(|error| error.errno().name());
        assert_eq!(called, expected, "{} with {} bytes", NAMES[program], context.len());
        assert_eq!(ours, theirs, "the context of {}", NAMES[program]);
        self.calls += 1;
        (expected.unwrap_or(u32::MAX), ours)
    }

    /// Asks for a context; gives the error number and whether there is one.
    fn set_up(&mut self, request: &Request) -> (i32, bool) {
        let (returned, context) = self.call(SETUP, &request.context());
        assert_eq!(returned, 42);
        let word = |at: usize| *context[PARAMS_BYTES..][at..].first_chunk().expect("a word");
        (i32::from_le_bytes(word(4)), u32::from_le_bytes(word(8)) == 1)
    }

    /// Has a packet encrypted in both worlds; gives the error number.
    fn crypt(&mut self, program: usize, task: Task, packet: &[u8]) -> i32 {
        let first = 0u32.to_le_bytes();
        let their_tasks = &self.maps.maps()[1];
        their_tasks.update(&first, &task.bytes(), 0).expect("an array");
        let maps = Arc::clone(self.ours[program].maps());
        let our_tasks = maps.by_name("tasks").expect("a map").user();
        our_tasks.update(&first, &Value::One(task.bytes()), 0).expect("an array");
        let theirs = self.theirs[program].test_run(&TestRun::new(packet)).expect("it runs");
        let mut frame = Frame::new(packet).expect("not too long");
        let ours = self.ours[program].run(&mut self.worker, &mut frame).expect("no fault");
        let what = format!("{} bytes, {task:?}", packet.len());
        assert_eq!(ours.returned, theirs.retval, "{what}");
        assert_eq!(frame.to_vec(), theirs.data, "{what}");
        let after = our_tasks.lookup(&first, 0).expect("an array");
        assert_eq!(after.bytes(), their_tasks.lookup(&first).expect("an array"), "{what}");
        self.calls += 1;
        i32::from_le_bytes(*after.bytes()[24..].first_chunk().expect("a word"))
    }
}

fn packet(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// Work of all kinds on packets of one and of several buffers.
fn tasks() -> Vec<(Task, usize)> {
    let mut tasks = Vec::new();
    // Lengths, in place and elsewhere.
    for len in [0, 1, 15, 16, 17, 31, 32, 33, 48, 50] {
        for task in [Task::on(14, 14 + len), Task::on(0, len).to(64, 64 + len)] {
            tasks.extend([(task, 128), (task.back(), 128)]);
        }
    }
    // Targets that are shorter, longer and empty.
    for (source, target) in [(32, 16), (16, 32), (16, 0), (0, 16), (33, 48), (16, 15)] {
        tasks.push((Task::on(0, source).to(70, 70 + target), 128));
    }
    // Ranges that overlap, the target behind the source.
    tasks.extend([(Task::on(0, 64).to(16, 80), 128), (Task::on(3, 51).to(4, 52), 128)]);
    tasks.extend([(Task::on(0, 64).to(32, 96).back(), 128)]);
    // Map values as source and target.
    for own in [[true, false], [false, true], [true, true]] {
        tasks.push((Task { own, ..Task::on(0, 48) }, 96));
        tasks.push((Task { own, ..Task::on(0, 64).back() }, 96));
    }
    // Long ones, and packets of several buffers: the first has 3520 bytes here, others a page.
    let long = [(0, 1400), (14, 1454), (0, 3520), (0, 3536), (3504, 3520), (3500, 3600)];
    let longer = [(3520, 7616), (3520, 7632), (4000, 4016), (7600, 7616), (7616, 8000), (0, 8000)];
    for (first, past) in long.into_iter().chain(longer) {
        tasks.push((Task::on(first, past), 8000));
        tasks.push((Task::on(first, past).back(), 8000));
    }
    tasks.extend([(Task::on(0, 16).to(4000, 4016), 8000), (Task::on(7000, 7320).to(0, 320), 8000)]);
    tasks
}

/// The contexts that the kernel can make.
const CIPHERS: [(&str, u32); 2] = [("ecb(aes)", 0), ("cbc(aes)", 16)];

#[test]
fn contexts_are_made_or_refused_as_in_the_kernel() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut pair = match Pair::new(&kernel, Exec::Interp) {
        Ok(pair) => pair,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let known = Request::new("cbc(aes)", 16);
    if pair.theirs[SETUP].call(&mut known.context()).is_err() {
        return eprintln!("skipped: this kernel makes no crypto contexts");
    }
    for key_bytes in [0, 1, 8, 15, 16, 17, 24, 31, 32, 33, 48, 64, 128, 256] {
        for (algo, _) in CIPHERS {
            let made = pair.set_up(&Request::new(algo, key_bytes)).1;
            assert_eq!(made, matches!(key_bytes, 16 | 24 | 32), "{algo}, {key_bytes}");
        }
    }
    for algo in ["", "aes", "ECB(aes)", "ecb(aes", "ecb( aes)", "nothing", "cbc(cbc(aes))"] {
        assert_eq!(pair.set_up(&Request::new(algo, 16)), (-95, false), "{algo}");
    }
    let requests = [
        Request { key_len: 257, ..known.clone() },
        Request { key_len: u32::MAX, ..known.clone() },
        Request { authsize: 12, ..known.clone() },
        Request { authsize: 12, key_len: 0, ..known.clone() },
        Request { algo: "nothing", key_len: 0, ..known.clone() },
        Request { kind: "hash", ..known.clone() },
        Request { kind: "", ..known.clone() },
        Request { kind: "skcipherskciph", ..known.clone() },
        Request { kind: "hash", algo: "nothing", authsize: 9, ..known.clone() },
        Request { reserved: 1, ..known.clone() },
        Request { reserved: 1, kind: "hash", ..known.clone() },
        Request { size: 407, ..known.clone() },
        Request { size: 16, ..known.clone() },
    ];
    for request in requests {
        assert!(!pair.set_up(&request).1);
    }
    assert_eq!(pair.set_up(&known), (0, true));
    // Contexts of all lengths, of which the program reads 424 bytes.
    let long = vec![1; 70_000];
    for bytes in [0, 1, 16, 408, 423, 424, 425, 4096, 65_535, 65_536, 70_000] {
        pair.call(SETUP, &long[..bytes]);
    }
    assert_eq!(pair.set_up(&known), (0, true));
    assert_eq!(pair.call(FORGET, &[]).0, 1);
    assert_eq!(pair.call(FORGET, &[9; 3]).0, 0, "it is gone");
    let packet = packet(64);
    assert_eq!(pair.crypt(CRYPT, Task::on(0, 16).iv(16), &packet), 0x5555_5555, "no context");
    assert_eq!(pair.crypt(SHARED, Task::on(0, 16).iv(16), &packet), 0, "the other one is there");
}

#[test]
fn packets_are_encrypted_and_decrypted_as_in_the_kernel() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut calls = 0;
    for exec in [Exec::Interp, Exec::Jit, Exec::Llvm] {
        let mut pair = match Pair::new(&kernel, exec) {
            Ok(pair) => pair,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        // A test run in the kernel takes milliseconds: all keys in the interpreter only.
        let keys = match exec {
            Exec::Interp => &[16, 24, 32][..],
            Exec::Jit => &[24],
            _ => &[32],
        };
        for (key_bytes, (algo, iv_bytes)) in
            keys.iter().flat_map(|key| CIPHERS.map(|cipher| (*key, cipher)))
        {
            let (errno, made) = pair.set_up(&Request::new(algo, key_bytes));
            if !made {
                return eprintln!("skipped: this kernel has no {algo}: {errno}");
            }
            let mut worked = 0;
            for (index, (task, bytes)) in tasks().into_iter().enumerate() {
                let task = if iv_bytes > 0 { task.iv(iv_bytes) } else { task };
                // Both references are to one context.
                let which = if index % 8 == 0 { SHARED } else { CRYPT };
                worked += usize::from(pair.crypt(which, task, &packet(bytes)) == 0);
            }
            assert!(worked > 20, "only {worked} of them worked");
            // Vectors of other lengths, none, and a null one (whose length is 99 here).
            let plain = Task::on(0, 32);
            for task in [0, 1, 15, 16, 17, 32, 99].map(|bytes| plain.iv(bytes)) {
                pair.crypt(CRYPT, task, &packet(64));
                pair.crypt(CRYPT, task.back(), &packet(64));
            }
            pair.crypt(CRYPT, plain, &packet(64));
        }
        calls += pair.calls;
    }
    assert!(calls > 600, "only {calls}");
}

/// A cipher that 6.18 refuses: one program encrypts with it, and decrypts again.
#[test]
fn a_stream_cipher_gives_back_what_it_got() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut pair = match Pair::new(&kernel, Exec::Jit) {
        Ok(pair) => pair,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut context = Request::new("ctr(aes)", 16).context();
    pair.ours[SETUP].call(&mut pair.worker, &mut context).expect("it can be called");
    assert_eq!(context[PARAMS_BYTES + 4..PARAMS_BYTES + 12], [0, 0, 0, 0, 1, 0, 0, 0]);
    let maps = Arc::clone(pair.ours[CRYPT].maps());
    let tasks = maps.by_name("tasks").expect("a map").user();
    let first = 0u32.to_le_bytes();
    for len in [1, 16, 20, 200, 3000] {
        let before = packet(3200);
        let mut frame = Frame::new(&before).expect("not too long");
        for task in [Task::on(14, 14 + len).iv(16), Task::on(14, 14 + len).iv(16).back()] {
            tasks.update(&first, &Value::One(task.bytes()), 0).expect("an array");
            pair.ours[CRYPT].run(&mut pair.worker, &mut frame).expect("no fault");
            let result = tasks.lookup(&first, 0).expect("an array").bytes()[24..28].to_vec();
            assert_eq!(result, [0; 4], "{task:?}");
            assert_eq!(frame.to_vec() == before, task.decrypts, "{task:?}");
            assert_eq!(frame.to_vec()[14 + len as usize..], before[14 + len as usize..]);
        }
    }
}

const PARAMS_BYTES: usize = 408;
